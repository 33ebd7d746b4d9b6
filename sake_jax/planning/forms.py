"""Ways to guide a step whose costs are compared: each of them changes a sampler."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp

import sake_jax.guidance as g
from sake_jax.core import Context, Guidance, Tables, View
from sake_jax.guidance.compose import Chain, guide
from sake_jax.node import Node
from sake_jax.samplers.step import Sampler
from sake_jax.typing import Features, Logits, Params, Rows

Form = Callable[[Sampler], Sampler]


class Everywhere(Node):
    """A denoiser that evaluates the head, and a guidance, on every column, as the paper's
    Algorithm 1 and LLaDA's own loop are written; the window is cut from the logits."""

    affine: ClassVar[bool] = False
    inner: Any
    guidance: Chain

    def prepare(self, params: Params) -> Params:
        return self.inner.prepare(params)

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]:
        features, cache = self.inner.read(params, view, cache)
        whole = view.replace(start=jnp.int32(0), width=view.tokens.shape[1])
        ctx = Context(
            view=whole,
            features=features,
            tables=self.inner.tables(params),
            head=lambda rows: self.inner.head(params, rows),
            read=lambda other, kept: self.inner.read(params, other, kept),
            log_q=lambda logits: logits,
        )
        return guide(self.guidance, self.guidance.init(ctx), ctx).logits, cache

    def head(self, params: Params, rows: Rows) -> Logits:
        return rows

    def tables(self, params: Params) -> Tables:
        return self.inner.tables(params)

    def empty_cache(self, params: Params, batch: int, length: int) -> Any:
        return self.inner.empty_cache(params, batch, length)


def guided(guidance: Guidance) -> Form:
    """With this guidance in place of its own."""
    return lambda sampler: sampler.replace(guidance=g.chain(g.identity(), guidance))


def everywhere(guidance: Guidance) -> Form:
    """With head and guidance on all columns."""
    whole = g.chain(g.identity(), guidance)
    return lambda sampler: sampler.replace(
        denoiser=Everywhere(sampler.denoiser, whole), guidance=g.identity()
    )


BASE = "none"
DEFAULT = "SAKE folded, unit RMS"
PAPER = "SAKE on all columns: Algorithm 1"
FREE = "classifier-free"
FORMS: dict[str, Form] = {
    BASE: guided(g.identity()),
    "none, head on all columns": everywhere(g.identity()),
    FREE: guided(g.classifier_free(1.5)),
    "SAKE folded": guided(g.sake(1.0, normalize="none")),
    DEFAULT: guided(g.sake(1.0)),
    "SAKE, window only": guided(g.chain(g.top_p(0.95), g.sake(1.0, normalize="none"))),
    "SAKE, window only, input table": guided(g.paper_sake(1.0, bandwidth=20.0)),
    PAPER: everywhere(g.paper_sake(1.0, bandwidth=20.0)),
}
"""By name. Where a filter stands before SAKE, or its table is not the head's, there is a second
product with the vocabulary, for the window only."""
