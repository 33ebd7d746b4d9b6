"""Laws that a model of your own obeys, so that samplers and guidances may rely on it."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.core import declared
from sake_jax.models import LanguageModel
from sake_jax.models.inputs import count_positions
from sake_jax.precision import precise
from sake_jax.testing.verdicts import hold, obey
from sake_jax.typing import Features, Flags, Params, Tokens
from sake_jax.view import Canvas, View

ROWS = 3
"""Of the scenes; the second has padding."""


@dataclasses.dataclass(frozen=True)
class Scene:
    """A denoiser, and random tokens for it to read."""

    denoiser: Any
    params: Params
    mask_id: int | None
    positions: str
    cond: int | None
    tolerance: float
    texts: tuple[tuple[int, ...], ...]
    length: int
    seed: int

    @property
    def vocabulary(self) -> int:
        return jax.eval_shape(self.denoiser.tables, self.params).output.shape[0]

    def tokens(self) -> tuple[Tokens, Flags]:
        """(B, L) tokens with some noise, and which are attended."""
        random, shape = np.random.default_rng(self.seed), (ROWS, self.length)
        tokens = random.integers(0, self.vocabulary, shape)
        if self.mask_id is not None:
            tokens = np.where(random.random(shape) < 0.5, self.mask_id, tokens)
        attend = np.ones(shape, bool)
        attend[1, : min(2, self.length - 1)] = False
        return jnp.asarray(tokens, jnp.int32), jnp.asarray(attend)

    def features(self, tokens: Tokens, attend: Flags, time: float = 0.5) -> Features:
        """What the denoiser reads."""
        return _features(self.denoiser, self.params, self.view(tokens, attend, time))

    def view(self, tokens: Tokens, attend: Flags, time: float = 0.5) -> View:
        """All columns are the window."""
        rows = tokens.shape[0]
        cond = None if self.cond is None else jnp.full(rows, self.cond, jnp.int32)
        is_open = attend if self.mask_id is None else attend & (tokens == self.mask_id)
        canvas = Canvas(
            tokens=tokens,
            open=is_open,
            prompt=attend & ~is_open,
            attend=attend,
            positions=count_positions(attend, self.positions),
            prompt_id=jnp.arange(rows),
            sample_id=jnp.zeros(rows, jnp.int32),
            mask_id=None if self.mask_id is None else jnp.int32(self.mask_id),
            cond=cond,
        )
        level = jnp.full(rows, time, jnp.float32)
        quota = jnp.ones(rows, jnp.int32)
        width = tokens.shape[1]
        return View(canvas, jnp.int32(0), level, level / 2, 1 - level, quota, width=width)

    def near(self, ours: Array, theirs: Array, rule: str, remedy: str) -> None:
        """Equal within the tolerance, as a part of the largest number."""
        one, two = np.asarray(precise(ours)), np.asarray(precise(theirs))
        largest = np.max(np.abs(one), initial=1.0)
        apart = float(np.max(np.abs(one - two), initial=0.0) / largest)
        hold(apart <= self.tolerance, rule, f"numbers {apart:.2g} of the largest apart", remedy)


@jax.jit
def _features(denoiser: Any, params: Params, view: View) -> Array:
    return denoiser.read(params, view, None)[0]


@jax.jit
def _head(denoiser: Any, params: Params, rows: Array) -> Array:
    return denoiser.head(params, rows)


def _shapes(scene: Scene) -> None:
    view = scene.view(*scene.tokens())
    read = functools.partial(scene.denoiser.read, cache=None)
    rows, _ = jax.eval_shape(read, scene.params, view)
    rule, remedy = "read must give a row for each column", "return (rows, columns, width)"
    hold(rows.ndim == 3 and rows.shape[:2] == view.tokens.shape, rule, f"{rows.shape}", remedy)
    tables = jax.eval_shape(scene.denoiser.tables, scene.params)
    width = tables.output.shape[-1]
    rule, remedy = "rows must be as wide as the output table", "return exactly the head's input"
    hold(rows.shape[-1] == width, rule, f"{rows.shape[-1]} and {width}", remedy)
    logits = jax.eval_shape(scene.denoiser.head, scene.params, rows)
    wanted = (*rows.shape[:2], scene.vocabulary)
    rule, remedy = f"head must give logits {wanted}", "one for each token of the output table"
    hold(logits.shape == wanted, rule, f"{logits.shape}", remedy)


def _slices(scene: Scene) -> None:
    rows = scene.features(*scene.tokens())
    middle = slice(1, scene.length - 1)
    every = _head(scene.denoiser, scene.params, rows)
    some = _head(scene.denoiser, scene.params, rows[:, middle])
    rule = "head must treat each row by itself"
    scene.near(every[:, middle], some, rule, "leave what mixes rows to read")


def _affine(scene: Scene) -> None:
    if not scene.denoiser.affine:
        return
    tables = scene.denoiser.tables(scene.params)
    shape = (1, scene.length, tables.output.shape[-1])
    rows = jax.random.normal(jax.random.key(scene.seed), shape, tables.output.dtype)
    product = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    by_table = product("bwd,vd->bwv", precise(rows), precise(tables.output))
    if tables.bias is not None:
        by_table = by_table + precise(tables.bias)[None, None]
    rule = "head must be rows @ tables.output.T + tables.bias where it says it is affine"
    remedy = "say affine=False, or give the table and bias that head uses"
    scene.near(_head(scene.denoiser, scene.params, rows), by_table, rule, remedy)


def _attend(scene: Scene) -> None:
    tokens, attend = scene.tokens()
    other = jnp.where(attend, tokens, (tokens + 1) % scene.vocabulary)
    rule = "what stands at padding must not change other columns"
    remedy = "keep columns where attend is False out of attention and means"
    part = np.asarray(attend)
    scene.near(
        scene.features(tokens, attend)[part], scene.features(other, attend)[part], rule, remedy
    )


def _padding(scene: Scene) -> None:
    tokens, attend = scene.tokens()
    more = declared(scene.denoiser, "block_size") or 2
    wider = functools.partial(jnp.pad, pad_width=((0, 0), (more, 0)))
    plain = scene.features(tokens, attend)
    padded = scene.features(wider(tokens), wider(attend))[:, more:]
    rule = "columns of padding on the left must change nothing"
    remedy = 'use the positions that are given, with positions="tokens" if they are absolute'
    part = np.asarray(attend)
    scene.near(plain[part], padded[part], rule, remedy)


def _batch(scene: Scene) -> None:
    tokens, attend = scene.tokens()
    together, alone = scene.features(tokens, attend), scene.features(tokens[:1], attend[:1])
    rule, remedy = "a row must not depend on other rows of its batch", "reduce over columns only"
    scene.near(together[:1], alone, rule, remedy)


def _time(scene: Scene) -> None:
    if declared(scene.denoiser, "reads_time"):
        return
    early, late = (scene.features(*scene.tokens(), time) for time in (0.9, 0.1))
    rule = "a network that looks at the time must say so"
    scene.near(early, late, rule, "declare reads_time: rows may be kept from step to step else")


def _aligned(scene: Scene) -> None:
    """Each token of a text is hidden in turn: the row at its place must know it best."""
    for text in scene.texts:
        assert scene.mask_id is not None
        count = len(text)
        ids = np.tile(np.asarray(text, np.int32), (count, 1))
        np.fill_diagonal(ids, scene.mask_id)
        rows = scene.features(jnp.asarray(ids), jnp.ones(ids.shape, bool))
        log_p = jax.nn.log_softmax(precise(_head(scene.denoiser, scene.params, rows)))
        place = np.arange(count)
        known = np.asarray(log_p)[place, :, np.asarray(text)]  # (hidden token, row)
        at = {move: known[place[1:-1], place[1:-1] + move].mean() for move in (-1, 0, 1)}
        best = max(at, key=lambda move: at[move])
        rule = "rows must be aligned with the token they predict"
        remedy = "pass shifted=True, or move rows one column to the right"
        hold(best == 0, rule, f"a text that the row {best:+d} columns away knows best", remedy)


DENOISER_LAWS: dict[str, Callable[[Scene], None]] = {
    "shapes": _shapes,
    "slices": _slices,
    "affine": _affine,
    "attend": _attend,
    "padding": _padding,
    "batch": _batch,
    "time": _time,
    "aligned": _aligned,
}
"""Each law raises AssertionError when a denoiser breaks it."""


def check_denoiser(
    model: Any,
    params: Params = None,
    *,
    mask_id: int | None = None,
    positions: str = "columns",
    cond: int | None = None,
    texts: Sequence[Sequence[int]] = (),
    length: int = 8,
    tolerance: float = 1e-4,
    seed: int = 0,
    skip: Iterable[str] = (),
) -> None:
    """Runs our laws on a model of yours; raises AssertionError naming the broken one.

    Padding, batch and tokens that are not attended change nothing; the head is affine if it says
    so, and takes any slice of rows; rows are aligned with what they predict.

    >>> import sake_jax as sj
    >>> class Deaf(sj.testing.ToyDenoiser):
    ...     def read(self, params, view, cache):
    ...         return super().read(params, view.replace(attend=view.attend | True), cache)
    >>> check_denoiser(Deaf(), sj.testing.toy_params(0), mask_id=16)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: law 'attend' is broken: what stands at padding must not change other columns...

    Args:
      model: a model, such as `wrap` gives; or a denoiser, with `params`.
      params: of a denoiser; a model has its own.
      mask_id: of the mask token, None where there is none; a model knows its own.
      positions: how columns are counted, see `canvas`; a model knows that too.
      cond: a label, for networks that must have one.
      texts: token ids of texts that a trained model knows, three or more each, without masks: only
        with them it can be seen that rows are aligned with what they predict.
      length: columns of the scenes; a multiple of the block of block diffusion.
      tolerance: the largest difference, as a part of the largest number.
      seed: of the random scenes.
      skip: names from `DENOISER_LAWS` that are not meant to hold.
    """
    denoiser = model
    if isinstance(model, LanguageModel):
        denoiser, params, mask_id = model.denoiser, model.params, model.config.mask_id
        positions = model.config.positions
    listed = tuple(tuple(map(int, text)) for text in texts)
    facts = (mask_id, positions, cond, tolerance, listed, length, seed)
    obey(DENOISER_LAWS, skip, Scene(denoiser, params, *facts))
