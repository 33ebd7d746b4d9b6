"""Several continuations of each sample, of which a diverse set is kept (D5P4)."""

import functools

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jaxtyping import Float, Int

from sake_jax.checks import number, require, whole
from sake_jax.guidance.entropy import shannon_entropy
from sake_jax.guidance.pooling import pool_mean, unit
from sake_jax.info import mean_over
from sake_jax.node import Node
from sake_jax.precision import precise
from sake_jax.samplers.loop import advance, begin, prepared
from sake_jax.samplers.sampler import Sampler
from sake_jax.samplers.step import LastRead, RunState
from sake_jax.typing import Features, Key, Leaf, Number, Params
from sake_jax.view import Canvas, View


class Selected(Node):
    """What `run_selected` gives.

    >>> import sake_jax as sj
    >>> canvas = sj.canvas([[1, 2]], 3, mask_id=16, samples=2)
    >>> Selected(canvas, jnp.zeros((1, 2), int), evaluations=6).picks.shape  # choices, samples
    (1, 2)
    """

    canvas: Canvas
    """The finished rows, as `run` has them."""
    picks: Leaf
    """(C, B) which of its continuations each sample was replaced by, for each choice."""
    evaluations: int = struct.field(pytree_node=False, default=0)
    """Of the network, for each sample."""


def greedy_map(kernel: Float[Array, "N N"], group: Int[Array, "N"], groups: int) -> Int[Array, "G"]:
    """One item of each group, so that the determinant of the kernel over them is large.

    Greedy: the next item is the one, of groups that have none yet, that multiplies the determinant
    by most. With a diagonal kernel it is the largest of each group.

    >>> alike = jnp.array([[1.0, 0.99, 0.0], [0.99, 1.0, 0.0], [0.0, 0.0, 0.9]])
    >>> greedy_map(alike, jnp.array([0, 1, 1]), 2).tolist()  # the third is not like the first
    [0, 2]
    """
    size = kernel.shape[0]

    def choose(at: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        gain, factor, free, chosen = carry
        best = jnp.argmax(jnp.where(free, gain, -jnp.inf))
        # One more column of the Cholesky factor: what each item has in common with the new one.
        common = kernel[best] - factor @ factor[best]
        column = common / jnp.sqrt(jnp.maximum(gain[best], 1e-12))
        gain = gain - jnp.square(column)
        free = free & (group != group[best])
        return gain, factor.at[:, at].set(column), free, chosen.at[group[best]].set(best)

    empty = jnp.zeros((size, groups), kernel.dtype), jnp.ones(size, bool)
    carry = jnp.diagonal(kernel), *empty, jnp.zeros(groups, jnp.int32)
    return jax.lax.fori_loop(0, groups, choose, carry)[-1]


def run_selected(
    sampler: Sampler,
    params: Params,
    key: Key,
    canvas: Canvas,
    *,
    expand: int = 2,
    weight: Number = 1.0,
    choices: int | None = None,
) -> Selected:
    """As `run`, but at each step every sample has several continuations, and one is kept.

    The kept ones are the greedy maximum of det(w S + diag(score)) over the samples of a prompt, one
    of each sample's continuations: S is the cosine of the mean hidden states, score is one less
    the mean entropy of the open positions as a part of log V. At w = 0 each sample keeps the
    surest of its own (after D5P4, arXiv:2603.19146). Continuations differ by their draws; a
    network evaluation of each is what a choice costs.

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=3)
    >>> canvas = sj.canvas([[1, 2]], 3, mask_id=16, samples=2)
    >>> params, key = sj.testing.toy_params(0), jax.random.key(0)
    >>> made = run_selected(sampler, params, key, canvas, expand=4, weight=0.5)
    >>> made.canvas.tokens.shape, made.evaluations  # 1 + 4 + 4 for each sample; `run` has 3
    ((2, 5), 9)

    Args:
      sampler: for a plan without a cache.
      params: of its denoiser.
      key: of the run.
      canvas: what is written on.
      expand: continuations of each sample.
      weight: w, how much likeness counts against how sure a continuation is.
      choices: how many steps, from the second on, choose; all by default.
    """
    rule, remedy = "choosing is for plans without a cache", "use cache='none'"
    require(not sampler.plan.cached, rule, "one with a cache", remedy)
    last = sampler.plan.steps - 1
    choices = last if choices is None else whole("choices", choices, at_least=0, at_most=last)
    weight = number("weight", weight, at_least=0, schedule=False)
    expand = whole("expand", expand)
    done, picks = _run(sampler, params, key, canvas, jnp.float32(weight), expand, choices)
    return Selected(done, picks, 1 + expand * choices + last - choices)


@functools.partial(jax.jit, static_argnames=("expand", "choices"))
def _run(sampler, params, key, canvas, weight, expand, choices) -> tuple[Canvas, Array]:
    samples, rows = canvas.samples, canvas.tokens.shape[0]
    plain = sampler.replace(reuse=False)
    params = prepared(sampler, params)
    given = begin(plain, params, key, canvas)  # draws what a process begins with
    canvas = given.canvas
    if not choices:
        return _rest(plain, params, key, given), jnp.zeros((0, rows), jnp.int32)
    wide = _each(canvas, jnp.repeat(jnp.arange(rows), expand)).replace(
        sample_id=jnp.repeat(canvas.sample_id, expand) * expand
        + jnp.tile(jnp.arange(expand, dtype=canvas.sample_id.dtype), rows),
        samples=samples * expand,
    )
    # A step takes features that were read for choosing, and reads none of its own.
    reader = sampler.replace(reuse="stale")
    features = jnp.repeat(_read(plain, params, canvas, given.step)[0], expand, axis=0)
    state = _with(begin(reader, params, key, wide), wide, features, plain)
    state, _ = advance(reader, params, key, state)

    def body(state: RunState, nothing: None) -> tuple[RunState, Array]:
        features, kept = _choose(plain, params, state, weight, expand)
        everyone = jnp.repeat(kept, expand)
        # A row keeps its place, and with it its random numbers.
        names = {"prompt_id": wide.prompt_id, "sample_id": wide.sample_id}
        chosen = _each(state.canvas, everyone).replace(**names)
        state, _ = advance(reader, params, key, _with(state, chosen, features[everyone], plain))
        return state, kept % expand

    state, picks = jax.lax.scan(body, state, None, length=choices - 1)
    features, kept = _choose(plain, params, state, weight, expand)
    names = {"prompt_id": canvas.prompt_id, "sample_id": canvas.sample_id, "samples": samples}
    narrow = _each(state.canvas, kept).replace(**names)
    after = begin(reader, params, key, narrow).replace(step=state.step)
    after, _ = advance(reader, params, key, _with(after, narrow, features[kept], plain))
    picks = jnp.concatenate([picks, (kept % expand)[None]])
    return _rest(plain, params, key, after.replace(cache=None)), picks


def _rest(sampler: Sampler, params: Params, key: Key, state: RunState) -> Canvas:
    """The canvas after all steps of the plan that are left."""

    def unfinished(state: RunState) -> Array:
        return state.step < sampler.plan.steps

    def body(state: RunState) -> RunState:
        return advance(sampler, params, key, state)[0]

    return jax.lax.while_loop(unfinished, body, state).canvas


def _each(canvas: Canvas, index: Array) -> Canvas:
    """The canvas of these rows."""
    return jax.tree.map(lambda leaf: leaf[index] if jnp.ndim(leaf) else leaf, canvas)


def _read(sampler: Sampler, params: Params, canvas: Canvas, step: Array) -> tuple[Features, View]:
    view = sampler.plan.view(canvas, step)
    return sampler.denoiser.read(params, view, None)[0], view


def _with(state: RunState, canvas: Canvas, features: Features, sampler: Sampler) -> RunState:
    """The state with these rows, which have been read."""
    start = sampler.plan.view(canvas, state.step).window_start
    fresh = jnp.zeros(features.shape[0], bool)
    return state.replace(canvas=canvas, cache=LastRead(features, fresh, start))


def _choose(
    sampler: Sampler, params: Params, state: RunState, weight: Array, expand: int
) -> tuple[Features, Int[Array, "K"]]:
    """All features, and the row that each sample goes on with."""
    features, view = _read(sampler, params, state.canvas, state.step)
    logits = precise(sampler.denoiser.head(params, view.window(features)))
    entropy = shannon_entropy(sampler.process.clean(logits, view))
    doubt = mean_over(entropy, view.window(view.open & view.attend))
    score = jnp.clip(1 - doubt / jnp.log(jnp.float32(logits.shape[-1])), 0, 1)
    own = view.attend & ~view.prompt
    vectors, _ = unit(pool_mean(precise(features), own))
    together = view.samples  # all continuations of all samples of a prompt
    group = jnp.arange(together) // expand

    def kept(vectors: Array, score: Array) -> Array:
        alike = jnp.matmul(vectors, vectors.T, precision=jax.lax.Precision.HIGHEST)
        return greedy_map(weight * alike + jnp.diag(score), group, together // expand)

    prompts = features.shape[0] // together
    chosen = jax.vmap(kept)(
        vectors.reshape(prompts, together, -1), score.reshape(prompts, together)
    )
    return features, (chosen + together * jnp.arange(prompts)[:, None]).reshape(-1)
