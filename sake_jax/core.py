"""The nouns of the library: contracts, no algorithm.

A run writes on a `Canvas`, and a step sees a `View` of it (both in `sake_jax.view`). What
reshapes logits is a `Guidance`; how noise works is a `Process`; which positions are read and when
is a `Plan`; which draws are kept is a `Reveal`; a model is a `Denoiser`. One step and one loop
(`sake_jax.samplers`) serve them all.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array

from sake_jax.node import Node
from sake_jax.precision import LOWEST as LOWEST
from sake_jax.typing import (
    Features,
    GuidanceState,
    Key,
    Leaf,
    Logits,
    Number,
    Params,
    Rows,
    WindowFlags,
    WindowTokens,
)
from sake_jax.view import Canvas, View


class Tables(Node):
    """The vocabulary's embeddings on both ends of a denoiser.

    >>> import jax.numpy as jnp
    >>> embed, unembed = jnp.zeros((5, 3)), jnp.ones((5, 3))
    >>> Tables(input=embed, output=unembed).output.shape
    (5, 3)
    """

    input: Leaf
    """(V, D) what the network reads for a token."""
    output: Leaf
    """(V, D) the linear part of the head: logits = rows @ output.T + bias."""
    bias: Leaf = None
    """(V,) the constant part of the head, if it has one."""


@runtime_checkable
class Denoiser(Protocol):
    """A network that predicts clean tokens.

    `read` gives one feature row per column, exactly the head's input, aligned with
    the token it predicts; with a cache it may recompute the window only, but always
    returns all rows. `head` turns any slice of rows into logits. Make it a pytree, such as
    a `sake_jax.Node`, with its choices in static fields or class variables. What it may declare
    beyond this stands in `sake_jax.core.OPTIONAL`.

    >>> import sake_jax as sj
    >>> isinstance(sj.testing.ToyDenoiser(), sj.Denoiser)
    True
    """

    affine: ClassVar[bool]
    """A class variable: whether `head` is rows @ tables.output.T + bias, so that guidance may
    pass through it."""

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]: ...
    def head(self, params: Params, rows: Rows) -> Logits: ...
    def tables(self, params: Params) -> Tables: ...


OPTIONAL: dict[str, Any] = {
    "empty_cache": None,
    "prepare": None,
    "reads_time": False,
    "reads_perturbation": False,
    "block_size": 0,
    "remember": None,
    "window": 0,
}
"""What a denoiser may declare beyond the protocol, and what holds where it does not:

- `empty_cache(params, batch, length)`: a cache for `read`, before anything was read. Without it,
  only plans without a cache.
- `prepare(params)`: the parameters as a loop over `read` wants them.
- `reads_time`: whether `read` looks at `view.time`.
- `reads_perturbation`: whether `read` adds `view.perturbation` to the embeddings of the tokens.
- `block_size`: block diffusion: columns see their own block and those before; 0: they see all.
- `remember(params, cache, logits, view)`: the cache with what a step predicted of the window, its
  logits after guidance and `draw`, for a network that is told what it predicted last. It is then
  read with a cache in every plan; where the plan itself has none, `view.reread` is everything.
- `window`: how many columns it was trained to write together; 0: any number.
"""


def declared(denoiser: Any, name: str) -> Any:
    """What a denoiser declares, or what holds where it does not; see `OPTIONAL`.

    >>> import sake_jax as sj
    >>> declared(sj.testing.ToyDenoiser(), "block_size")
    0
    """
    return getattr(denoiser, name, OPTIONAL[name])


@runtime_checkable
class Process(Protocol):
    """How noise is undone: log q(x_s | x_t) up to a constant, from logits of x_0.

    A pytree; `revises` and `decides` are class variables. `clean` takes tokens that stand
    for noise out of the logits before guidance and filters see them. What it may have beyond
    this stands in `sake_jax.samplers.processes.Settled`.

    >>> import sake_jax as sj
    >>> isinstance(sj.absorbing(), sj.Process), sj.absorbing().decides
    (True, True)
    """

    revises: ClassVar[bool]
    """Whether written tokens stay open and may change again."""
    decides: ClassVar[bool]
    """Whether the process says what stays noise, so that every draw is kept unless a reveal rule
    is asked for."""

    def clean(self, logits: Logits, view: View) -> Logits: ...
    def log_q(self, logits: Logits, view: View) -> Logits: ...


@dataclasses.dataclass(frozen=True)
class Context:
    """What a guidance sees at one step.

    It lives inside one trace and is never stored, so it may hold functions.

    >>> import sake_jax as sj
    >>> ctx = sj.testing.toy_context(sj.testing.toy_params(0), sj.testing.toy_view(0))
    >>> ctx.features.shape, ctx.rows.shape  # all columns, and the window's
    ((4, 10, 6), (4, 6, 6))
    """

    view: View
    features: Features
    """All rows, also those outside the window."""
    tables: Tables
    head: Callable[[Rows], Logits]
    read: Callable[[View, Any], tuple[Features, Any]]
    """Another pass of the denoiser, for guidances that contrast two inputs."""
    log_q: Callable[[Logits], Logits]
    """From guided logits to the log posterior that is drawn from."""
    clean: Callable[[Logits], Logits] = lambda logits: logits
    """Takes noise tokens out of the head's logits, before any guidance sees them."""
    affine: bool = True
    record: str = "brief"
    """How much the run records, so that a guidance reports no more; see `Sampler.record`."""
    fold: bool = True
    """Whether pushes may go in before the head; not where the base logits are needed too."""
    cache: Any = None
    """An empty cache for `read`, where the sampler uses one."""

    @property
    def rows(self) -> Rows:
        """The window's features."""
        return self.view.window(self.features)

    @property
    def open(self) -> WindowFlags:
        """Which of the window's positions are still to be written."""
        return self.view.window(self.view.open & self.view.attend)

    def number(self, value: Number, rank: int = 3) -> Array:
        """See `View.number`."""
        return self.view.number(value, rank)


class Guidance(Node):
    """Reshapes the distribution a token is drawn from. Subclass it, override what you need.

    Numbers belong in pytree leaves and choices in static fields: then one compiled
    program serves every number. All methods are pure.

    >>> import sake_jax as sj
    >>> class Sharpen(sj.Guidance):
    ...     factor: float = 2.0
    ...
    ...     def apply(self, logits, psi, state, ctx):
    ...         return self.factor * logits, state, None
    >>> both = sj.chain(Sharpen(1.5), sj.sake(1.0))
    """

    @property
    def folds(self) -> bool:
        """Whether `apply` is exactly `logits + psi`: then the push may go in before the head, and
        `apply` is not called. `push` must then return the state as it is carried."""
        return False

    @property
    def couples_samples(self) -> bool:
        """Whether rows of one prompt look at each other. Then a row's tokens depend on its peers,
        and nobody cuts the samples of a prompt into several batches. Say so if yours does:
        it is never guessed."""
        return False

    @property
    def joint(self) -> bool:
        """Whether the window's tokens depend on each other, so that `draw_jointly` draws them."""
        return False

    def init(self, ctx: Context) -> GuidanceState:
        """The state before the first step; `ctx.features` are zeros here."""
        return ()

    def push(self, state: GuidanceState, ctx: Context) -> tuple[Any, GuidanceState]:
        """Directions in feature space, arrays of shape (B, W, D) in any pytree, or None.

        They go through the head in the same evaluation as the features and come
        back as `psi`, of the same structure with V in place of D. The state that is returned
        goes to `apply` of the same step, and may hold more than what is carried between steps.
        """
        return None, state

    def apply(
        self, logits: Logits, psi: Any, state: GuidanceState, ctx: Context
    ) -> tuple[Logits, GuidanceState, Any]:
        """Logits of the clean token in; guided logits out, then the state for the next step, and
        what is only reported: a record of arrays (B, ...) for `Info.signals`, or None."""
        return logits, state, None

    def posterior(
        self, log_q: Logits, logits: Logits, psi: Any, state: GuidanceState, ctx: Context
    ) -> Logits:
        """A last word on log q(x_s | x_t), for guidances defined there."""
        return log_q

    def draw_jointly(
        self, log_q: Logits, noise: Logits, logits: Logits, state: GuidanceState, ctx: Context
    ) -> WindowTokens:
        """Tokens for the window, drawn together with this Gumbel noise, if the guidance is `joint`.
        Any of them may be kept, and the others be drawn again."""
        return jnp.argmax(log_q + noise, axis=-1)

    def check(self, canvas: Canvas) -> None:
        """Raises an error where a run on this canvas cannot do what the guidance promises. Called
        by `generate` before a batch, outside of compiled code."""


@runtime_checkable
class Plan(Protocol):
    """Which columns are read and written at a step, and for which noise levels."""

    @property
    def steps(self) -> int:
        """S, the number of steps of a run."""
        ...

    @property
    def length(self) -> int:
        """N, the columns that are written, from `generation_start` on."""
        ...

    @property
    def cached(self) -> bool:
        """Whether reads keep keys, values and features from step to step."""
        ...

    def view(self, canvas: Canvas, step: Array) -> View:
        """What is read and written at a step."""
        ...

    def next_step(self, canvas: Canvas, step: Array) -> Array:
        """The step after this one that has something to do, for loops that may end early."""
        ...


Reveal = Callable[[Logits, WindowTokens, View, Key], WindowFlags]
"""`(logits, drawn, view, key) -> kept`: which of the draws are written to the canvas."""
