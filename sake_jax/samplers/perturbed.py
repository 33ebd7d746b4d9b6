"""A denoiser that reads a prompt with noise on its embeddings."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, require
from sake_jax.core import Denoiser, Tables, declared
from sake_jax.node import Node
from sake_jax.precision import precise
from sake_jax.samplers.presets import denoiser_of
from sake_jax.schedules import linear
from sake_jax.typing import Features, Key, Leaf, Logits, Number, Params, Rows
from sake_jax.view import View

FADING = linear(0.35, 0.0)
STEPS = 2**20
"""Steps of a run that are told apart by their progress."""


class Perturbed(Node):
    """See `perturbed`.

    >>> import sake_jax as sj
    >>> sj.perturbed(sj.testing.ToyDenoiser()).reads_time
    True
    """

    inner: Any
    sigma: Number
    mix: Number
    key: Leaf
    fresh: bool = struct.field(pytree_node=False, default=True)

    @property
    def affine(self) -> bool:
        return self.inner.affine

    @property
    def reads_time(self) -> bool:
        """Its noise depends on how far the run is, so features of one step are not the next's."""
        return True

    @property
    def block_size(self) -> int:
        return declared(self.inner, "block_size")

    @property
    def empty_cache(self) -> Any:
        return declared(self.inner, "empty_cache")

    @property
    def prepare(self) -> Any:
        return declared(self.inner, "prepare")

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]:
        """What the denoiser inside reads, with the prompt's embeddings moved."""
        return self.inner.read(
            params, view.replace(perturbation=self.perturbation(params, view)), cache
        )

    def head(self, params: Params, rows: Rows) -> Logits:
        return self.inner.head(params, rows)

    def tables(self, params: Params) -> Tables:
        return self.inner.tables(params)

    def perturbation(self, params: Params, view: View) -> Features:
        """(B, L, D) how far each embedding is moved: not at all outside the prompt."""
        table = self.inner.tables(params).input
        plain = precise(table[view.tokens])
        length = jnp.linalg.norm(plain, axis=-1, keepdims=True)
        scale = length / jnp.sqrt(jnp.float32(plain.shape[-1]))
        noisy = plain + view.number(self.sigma, 3) * scale * self._noise(view, plain.shape[1:])
        longer = jnp.linalg.norm(noisy, axis=-1, keepdims=True)
        kept = noisy * (length / jnp.maximum(longer, 1e-30))
        moved = view.number(self.mix, 3) * (kept - plain)
        given = (view.prompt & view.attend)[..., None] & (view.number(self.sigma, 3) > 0)
        return jnp.where(given, moved, 0)

    def _noise(self, view: View, shape: tuple[int, ...]) -> Array:
        """Normal numbers for each row; counted from the right, where prompts end."""
        step = jnp.round(view.progress * STEPS).astype(jnp.int32)
        columns = view.canvas.generation_start - jnp.arange(shape[0])

        def row(prompt: Array, sample: Array, step: Array) -> Array:
            own = jax.random.fold_in(jax.random.fold_in(self.key, prompt), sample)
            own = jax.random.fold_in(own, step) if self.fresh else own
            column = lambda at: jax.random.normal(jax.random.fold_in(own, at), shape[1:])  # noqa: E731
            return jax.vmap(column)(columns)

        return jax.vmap(row)(view.canvas.prompt_id, view.canvas.sample_id, step)


def perturbed(
    lm: Any,
    sigma: Number = FADING,
    *,
    mix: Number = 1.0,
    fresh: bool = True,
    key: Key | None = None,
) -> Perturbed:
    """A denoiser that reads prompts with noise on their embeddings, other noise for each sample
    (TAPS, arXiv:2601.22629).

    Ẽ = E + σ(t) |E|/√D ε with ε normal, brought back to the length of E, and mixed with it:
    E + mix (Ẽ - E). At σ = 0 it reads what the denoiser inside reads. Put it into a sampler:

    >>> import sake_jax as sj
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8)
    >>> sampler = sampler.replace(denoiser=sj.perturbed(sampler.denoiser, 0.35))

    Args:
      lm: a loaded model, or a denoiser that reads `view.perturbation`, as ours do.
      sigma: the noise against the size of an embedding; usually a schedule that falls.
      mix: how much of the perturbed embedding is taken; 1: all.
      fresh: draws other noise at every step; else a sample keeps its own for the whole run.
      key: of the noise, together with a row's prompt and sample; `jax.random.key(0)` by default.
    """
    inner = denoiser_of(lm)
    rule, remedy = "perturbed must get a model or a denoiser", "see sake_jax.Denoiser"
    require(isinstance(inner, Denoiser), rule, lm, remedy)
    rule, remedy = (
        "perturbed needs a denoiser that reads view.perturbation",
        "declare reads_perturbation",
    )
    require(declared(inner, "reads_perturbation"), rule, type(inner).__name__, remedy)
    sigma = number("sigma", sigma, at_least=0)
    mix = number("mix", mix, at_least=0, at_most=1)
    return Perturbed(inner, sigma, mix, jax.random.key(0) if key is None else key, bool(fresh))
