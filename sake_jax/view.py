"""What a run writes on, and what is seen of it at one step."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
from flax import struct
from jax import Array

from sake_jax import schedules
from sake_jax.node import Node
from sake_jax.typing import Leaf, Number


class Canvas(Node):
    """What a run starts from: B rows of L columns, some of them open.

    Rows of one prompt stand together, `samples` of them. Prompts are padded on the
    left, so the first generated column is the same for every row.

    >>> import sake_jax as sj
    >>> made = sj.canvas([[1, 2]], 3, mask_id=9, samples=2)
    >>> made.tokens.tolist(), made.generation_start
    ([[1, 2, 9, 9, 9], [1, 2, 9, 9, 9]], 2)
    """

    tokens: Leaf
    open: Leaf
    """Still to be written."""
    prompt: Leaf
    """Given by the user."""
    attend: Leaf
    """False at padding."""
    positions: Leaf
    prompt_id: Leaf
    """(B,) which prompt a row belongs to, for its random key."""
    sample_id: Leaf
    """(B,) which sample of that prompt a row is, for its random key."""
    mask_id: Leaf = None
    """The id of the mask token, None for processes without one."""
    cond: Leaf = None
    """(B,) labels for denoisers that take one."""
    log_p: Leaf = None
    """(B, L) log-probability of each token under the guided distribution it was written from;
    None before a run."""
    generation_start: int = struct.field(pytree_node=False, default=0)
    """The first column that is written; prompts stand before it."""
    samples: int = struct.field(pytree_node=False, default=1)
    """M: rows of one prompt stand together in runs of M."""
    infill: bool = struct.field(pytree_node=False, default=False)
    """Whether what is given is a part of the text that is written."""


class Reread(Node):
    """Which columns a read with a cache recomputes: one of a few spans, chosen anew at each step.

    A span's width must be known to the compiler, so the plan lists all spans of a run here, and
    the denoiser compiles a branch for each.

    >>> import jax.numpy as jnp
    >>> import sake_jax as sj
    >>> plan = sj.blocks(length=4, steps=4, block=2, cache="dual")
    >>> reread = plan.view(sj.canvas([[1]], 4, mask_id=9), jnp.int32(3)).reread
    >>> reread.spans, int(reread.choice)  # a block's second step: the window alone
    (((0, 2), None), 0)
    """

    choice: Leaf
    """() the place in `spans` of the one that is read now."""
    spans: tuple[tuple[int, int] | None, ...] = struct.field(pytree_node=False, default=(None,))
    """(columns before the window's start, columns from it on), or None for all columns."""


class View(Node):
    """The canvas at one step, as denoisers, guidances and reveal rules see it: the canvas, the
    window that is written now, and the clock.

    What the canvas has, a view has too: `view.tokens` is `view.canvas.tokens`, and
    `view.replace(tokens=...)` gives a view of another canvas.

    >>> import jax.numpy as jnp
    >>> import sake_jax as sj
    >>> canvas = sj.canvas([[1]], 4, mask_id=9)
    >>> view = sj.blocks(length=4, steps=4, block=2).view(canvas, jnp.int32(2))
    >>> int(view.window_start), view.width, view.quota.tolist()  # the second block has begun
    (3, 2, [1])
    """

    canvas: Canvas
    window_start: Leaf
    """() the first column of the window."""
    time: Leaf
    """(B,) the noise level t of this step, 1 = all noise."""
    next_time: Leaf
    """(B,) the noise level s < t after it."""
    progress: Leaf
    """(B,) the fraction of steps already done."""
    quota: Leaf
    """(B,) how many positions the plan wants revealed at this step."""
    greedy: Leaf = None
    """() whether this step draws without noise; None: it does not."""
    closes: Leaf = None
    """() where written tokens may be edited: whether this step is the last to do so of the window.
    None: they may not, or there is no end to it."""
    reread: Reread | None = None
    """What a read with a cache recomputes; None: the window."""
    perturbation: Leaf = None
    """(B, L, D) what is added to the embeddings of the tokens; None: nothing. See `perturbed`."""
    width: int = struct.field(pytree_node=False, default=0)
    """W, the columns of the window."""

    @property
    def tokens(self) -> Leaf:
        return self.canvas.tokens

    @property
    def open(self) -> Leaf:
        return self.canvas.open

    @property
    def prompt(self) -> Leaf:
        return self.canvas.prompt

    @property
    def attend(self) -> Leaf:
        return self.canvas.attend

    @property
    def positions(self) -> Leaf:
        return self.canvas.positions

    @property
    def cond(self) -> Leaf:
        return self.canvas.cond

    @property
    def mask_id(self) -> Leaf:
        return self.canvas.mask_id

    @property
    def samples(self) -> int:
        return self.canvas.samples

    def window(self, columns: Array) -> Array:
        """The window's part of an array whose axis 1 is the canvas."""
        return jax.lax.dynamic_slice_in_dim(columns, self.window_start, self.width, axis=1)

    def put(self, columns: Array, window: Array) -> Array:
        """The same array with these values in the window's part."""
        return jax.lax.dynamic_update_slice_in_dim(columns, window, self.window_start, axis=1)

    def number(self, value: Number, rank: int) -> Array:
        """A number, a traced array or a schedule at this step, shaped to meet an array of this
        rank whose first axis is the batch."""
        value = schedules.at(value, self.progress)
        return value.reshape((-1,) + (1,) * (rank - 1))

    def replace(self, **changes: Any) -> "View":
        """A copy with other values in some fields, of the view or of its canvas."""
        own = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        of_canvas = {name: changes.pop(name) for name in changes.keys() - own}
        if of_canvas:
            changes["canvas"] = changes.get("canvas", self.canvas).replace(**of_canvas)
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


INPUTS = ("attend", "positions", "time", "cond")
"""What a network of your own may ask for beside the tokens, by naming it among its parameters."""


def asked_for(function: Callable[..., Any]) -> tuple[str, ...]:
    """Which of `INPUTS` a function names among its parameters.

    >>> asked_for(lambda params, tokens, attend, cond=None: tokens)
    ('attend', 'cond')
    """
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in function does not say
        return ()
    return tuple(name for name in INPUTS if name in names)


def read_view(function: Callable[..., Any], view: Any, *before: Any) -> Any:
    """`function(*before, tokens, ...)` of a view, or what looks like one, with what it asks for by
    name.

    >>> import jax.numpy as jnp
    >>> import sake_jax as sj
    >>> view = sj.blocks(length=2, steps=2).view(sj.canvas([[1]], 2, mask_id=9), jnp.int32(0))
    >>> read_view(lambda scale, tokens, time: scale * tokens, view, 10).tolist()
    [[10, 90, 90]]
    """
    given = {name: getattr(view, name) for name in asked_for(function)}
    return function(*before, view.tokens, **given)
