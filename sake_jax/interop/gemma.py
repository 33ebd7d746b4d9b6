"""gemma's diffusion sampler (google-deepmind/gemma, `gemma.diffusion`) with our guidance.

Its sampler is a static argument of its compiled step, so each strength is a new program there.

>>> import sake_jax as sj
>>> shaper = logit_shaper(sj.min_p(0.1))  # DiffusionSampler(..., logit_shaper=shaper)
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from sake_jax.checks import require
from sake_jax.core import Guidance, Tables
from sake_jax.guidance.arrays import guided_logits
from sake_jax.guidance.compose import only_shapes
from sake_jax.typing import Params

Shaper = Callable[..., Any]
"""`(logits, noise_proportion) -> logits`, gemma's hook."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Held:
    """A guidance in a sampler that is hashed: each object is another one."""

    guidance: Guidance
    table: Callable[[Params], Any]
    samples: int = 1


@dataclasses.dataclass(frozen=True, eq=False)
class LogitShaper:
    """See `logit_shaper`.

    >>> import sake_jax as sj
    >>> isinstance(logit_shaper(sj.top_k(2)), LogitShaper)
    True
    """

    guidance: Guidance
    then: Shaper | None = None
    samples: int = 1

    def __call__(self, logits: Any, noise_proportion: Any) -> Any:
        """Shaped logits, (B, L, V), at this share of noise, (B,)."""
        shape, size = logits.shape[:2], logits.shape[-1]
        nothing = jnp.zeros((size, 1))
        guided, _ = guided_logits(
            self.guidance,
            tokens=jnp.zeros(shape, jnp.int32),
            features=jnp.zeros((*shape, 1)),
            head=lambda rows: logits,
            tables=Tables(nothing, nothing),
            open=jnp.ones(shape, bool),
            progress=1 - jnp.asarray(noise_proportion, jnp.float32),
            samples=self.samples,
            affine=False,
        )
        guided = guided.astype(logits.dtype)
        if self.then is None:
            return guided
        return self.then(logits=guided, noise_proportion=noise_proportion)


def logit_shaper(
    guidance: Guidance, *, then: Shaper | None = None, samples: int = 1
) -> LogitShaper:
    """A guidance that needs logits only, as gemma's `logit_shaper`.

    >>> import sake_jax as sj
    >>> shaper = logit_shaper(sj.chain(sj.top_p(0.9), sj.temperature(sj.linear(0.8, 0.4))))
    >>> shaper(logits=jnp.zeros((2, 4, 8)), noise_proportion=jnp.ones(2)).shape
    (2, 4, 8)

    Args:
      guidance: filters, temperatures, `odd` and the like. What looks at hidden states, as SAKE,
        is for `guided_sampler`; here it is refused. Guidances with a state begin anew each step.
      then: the shaper that the sampler had, which is applied afterwards.
      samples: rows of one prompt, which stand together, for guidances that compare samples.
    """
    rule, remedy = "a logit shaper must need logits only", "use guided_sampler for this guidance"
    require(only_shapes(guidance), rule, guidance, remedy)
    return LogitShaper(guidance, then, samples)


class GuidedStep:
    """Guidance with hidden states in gemma's `DiffusionSampler.sample_step`: stands before it among
    the bases of a class. `guided_sampler` makes such a class.

    >>> from gemma.diffusion import DiffusionSampler  # doctest: +SKIP
    >>> class Mine(GuidedStep, DiffusionSampler): ...  # doctest: +SKIP
    """

    held: _Held

    def sample_step(self, **arguments: Any) -> Any:
        """Their step over a model whose logits are guided."""
        model = _GuidedModel(self.model, self.held, arguments)  # type: ignore[attr-defined]
        plain = dataclasses.replace(self, model=model)  # type: ignore[type-var]
        return super(GuidedStep, plain).sample_step(**arguments)  # type: ignore[misc]


class _GuidedModel:
    """gemma's model, whose logits of a self-conditioned call are guided."""

    def __init__(self, inner: Any, held: _Held, step: dict[str, Any]):
        self.inner, self.held, self.step = inner, held, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def apply(self, variables: Any, *given: Any, **options: Any) -> Any:
        if "sc_embeddings" not in options:
            return self.inner.apply(variables, *given, **options)
        output = self.inner.apply(variables, *given, **options, return_hidden_states=True)
        table = self.held.table(variables["params"])
        tokens, noise = self.step["canvas"], self.step["current_noise_proportion"]
        guided, _ = guided_logits(
            self.held.guidance,
            tokens=tokens,
            features=output.hidden_states,
            # Logits are capped, so guidance does not pass through the head: these are all it asks.
            head=lambda rows: output.logits,
            tables=Tables(table, table),
            open=jnp.ones(tokens.shape, bool),
            progress=1 - jnp.asarray(noise, jnp.float32),
            positions=self.step.get("positions"),
            samples=self.held.samples,
            affine=False,
        )
        guided = guided.astype(output.logits.dtype)
        return dataclasses.replace(output, logits=guided, hidden_states=None)


def _embedding(params: Params) -> Any:
    return params["embedder"]["input_embedding"]


def guided_sampler(
    sampler: Any,
    guidance: Guidance,
    *,
    table: Callable[[Params], Any] | None = None,
    samples: int = 1,
) -> Any:
    """gemma's `DiffusionSampler` with a guidance that may look at hidden states, such as SAKE.

    Every column of its canvas may still change, so all are guided. Rows of the prompt are in its
    cache and not seen. Its own `logit_shaper` works after the guidance. A guidance with a state
    begins anew each step: the sampler has no place for it.

    >>> import sake_jax as sj
    >>> sampler = guided_sampler(sampler, sj.sake(1.0))  # doctest: +SKIP

    Args:
      sampler: an instance; it is not changed.
      guidance: any that needs no second pass of the model and no affine head.
      table: from the parameters to the (V, D) embedding that both ends share; by default
        `params["embedder"]["input_embedding"]`.
      samples: rows of one prompt, which stand together, for guidances that compare samples.
    """
    kind = type(sampler)
    guided = dataclasses.make_dataclass(
        f"Guided{kind.__name__}",
        [("held", _Held)],
        bases=(GuidedStep, kind),
        frozen=True,
        kw_only=True,
    )
    fields = {field.name: getattr(sampler, field.name) for field in dataclasses.fields(sampler)}
    return guided(**fields, held=_Held(guidance, table or _embedding, samples))
