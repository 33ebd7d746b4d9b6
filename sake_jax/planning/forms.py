"""Ways to guide a step whose costs are compared: each of them changes a sampler."""

from collections.abc import Callable
from typing import Any, ClassVar

import sake_jax as sj
from sake_jax.typing import Features, Logits, Params, Rows

Form = Callable[[sj.Sampler], sj.Sampler]
"""A change of a sampler, of its guidance usually."""


class OnAllColumns(sj.Node):
    """A denoiser that evaluates the head, and a guidance, on every column, as the paper's
    Algorithm 1 and LLaDA's own loop are written; the window is cut from the logits."""

    affine: ClassVar[bool] = False
    inner: Any
    guidance: Any

    def prepare(self, params: Params) -> Params:
        return self.inner.prepare(params)

    def read(self, params: Params, view: sj.View, cache: Any) -> tuple[Features, Any]:
        features, cache = self.inner.read(params, view, cache)
        logits, _ = sj.guided_logits(
            self.guidance,
            tokens=view.tokens,
            features=features,
            head=lambda rows: self.inner.head(params, rows),
            tables=self.inner.tables(params),
            open=view.open,
            progress=view.progress,
            attend=view.attend,
            positions=view.positions,
            prompt=view.prompt,
        )
        return logits, cache

    def head(self, params: Params, rows: Rows) -> Logits:
        return rows

    def tables(self, params: Params) -> sj.Tables:
        return self.inner.tables(params)

    @property
    def reads_time(self) -> bool:
        return self.inner.reads_time

    @property
    def block_size(self) -> int:
        return self.inner.block_size

    def empty_cache(self, params: Params, batch: int, length: int) -> Any:
        return self.inner.empty_cache(params, batch, length)


def with_guidance(guidance: sj.Guidance) -> Form:
    """Gives a sampler this guidance in place of its own."""
    return lambda sampler: sampler.replace(guidance=sj.chain(sj.identity(), guidance))


def on_all_columns(guidance: sj.Guidance) -> Form:
    """Evaluates the head and this guidance on all columns, in place of the sampler's own."""
    whole = sj.chain(sj.identity(), guidance)
    return lambda sampler: sampler.replace(
        denoiser=OnAllColumns(sampler.denoiser, whole), guidance=sj.identity()
    )


BASE = "none"
DEFAULT = "SAKE folded, unit RMS"
PAPER = "SAKE on all columns: Algorithm 1"
FREE = "classifier-free"
ALL_COLUMNS = "none, head on all columns"
FORMS: dict[str, Form] = {
    BASE: with_guidance(sj.identity()),
    ALL_COLUMNS: on_all_columns(sj.identity()),
    FREE: with_guidance(sj.classifier_free(1.5)),
    "SAKE folded": with_guidance(sj.sake(1.0, normalize="none")),
    DEFAULT: with_guidance(sj.sake(1.0)),
    "SAKE, window only": with_guidance(sj.chain(sj.top_p(0.95), sj.sake(1.0, normalize="none"))),
    "SAKE, window only, input table": with_guidance(sj.paper_sake(1.0, bandwidth=20.0)),
    PAPER: on_all_columns(sj.paper_sake(1.0, bandwidth=20.0)),
}
"""By name. Where a filter stands before SAKE, or its table is not the head's, there is a second
product with the vocabulary, for the window only."""


def forms_for(denoiser: Any) -> dict[str, Form]:
    """Those of `FORMS` that a model takes.

    Features can only be mixed before an affine head. A model that remembers what it predicted
    (DiffusionGemma) evaluates the head on all columns that it decodes in any case.
    """
    left_out = set() if denoiser.affine else {FREE}
    left_out |= {ALL_COLUMNS, PAPER} if hasattr(denoiser, "remember") else set()
    return {name: form for name, form in FORMS.items() if name not in left_out}
