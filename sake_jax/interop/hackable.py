"""hackable-diffusion (`hackable_diffusion`): our guidance in its sampler, its guidance and its
networks in ours.

There tokens are (B, L, 1), noise is the category after the last (masking), and logits are of the
categories alone.

>>> import sake_jax as sj
>>> guided = guided_inference(sj.sake(1.0), lambda time, xt, conditioning: {"logits": xt})
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import require
from sake_jax.core import LOWEST, Context, Guidance, Tables
from sake_jax.guidance.arrays import first_state, guided_logits
from sake_jax.guidance.contrast import without_prompt
from sake_jax.models import OwnModel, wrap
from sake_jax.typing import Params
from sake_jax.view import View

LOGITS = "logits"
"""The one target that its discrete samplers take."""
BACKBONE, EMBEDDER, PROJECTOR = "backbone_network", "token_embedder", "token_projector"
"""Where the parts of its network keep their parameters."""


@dataclasses.dataclass(frozen=True)
class GuidedInference:
    """An `InferenceFn` whose logits are guided; see `guided_inference`.

    >>> import sake_jax as sj
    >>> guided = guided_inference(sj.sake(1.0), lambda time, xt, conditioning: {"logits": xt})
    >>> isinstance(guided, GuidedInference)
    True
    """

    guidance: Guidance
    inference: Callable[..., Mapping[str, Array]] | None
    model: OwnModel | None = None
    mask_id: int | None = None
    samples: int = 1

    def __call__(self, time: Array, xt: Array, conditioning: Any = None) -> dict[str, Array]:
        """{"logits": (B, L, K)}"""
        tokens, level = xt[..., 0], time.reshape(xt.shape[0], -1)[:, 0]
        is_open = jnp.ones(tokens.shape, bool) if self.mask_id is None else tokens == self.mask_id
        read = self._logits if self.model is None else self._hidden
        size, arrays = read(tokens, time, xt, conditioning)
        arrays |= {"tokens": tokens, "open": is_open, "samples": self.samples}
        state = first_state(self.guidance, **arrays)
        logits, after = guided_logits(
            self.guidance, **arrays, mask_id=self.mask_id, progress=1 - level, state=state
        )
        _require_constant(state, after)
        return {LOGITS: logits[..., :size]}

    def _logits(self, tokens: Array, time: Array, xt: Array, conditioning: Any) -> tuple[int, dict]:
        """Where there are logits only, these are the rows, and each category is its own axis."""
        assert self.inference is not None
        rows = self.inference(time=time, xt=xt, conditioning=conditioning)[LOGITS]
        each = jnp.eye(rows.shape[-1])
        head = lambda rows: rows  # noqa: E731
        return rows.shape[-1], {"features": rows, "head": head, "tables": Tables(each, each)}

    def _hidden(self, tokens: Array, time: Array, xt: Array, conditioning: Any) -> tuple[int, dict]:
        """Where the network is known, its rows are what its projector takes."""
        assert self.model is not None
        own, params = self.model.denoiser, self.model.params
        rows = own.rows_of.rows(params, xt, time, conditioning)
        arrays = {"features": rows, "tables": own.tables(params)}
        return own.vocabulary - 1, arrays | {"head": lambda rows: own.head(params, rows)}


def _require_constant(before: Any, after: Any) -> None:
    """A state that a step has changed would be lost: their sampler has no place for it."""
    same = all(a is b for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True))
    rule = "hackable-diffusion keeps no state of a guidance from step to step"
    require(same, rule, "a guidance that changes its own", "use sj.run with wrap_network")


def guided_inference(
    guidance: Guidance,
    inference: Callable[..., Mapping[str, Array]] | OwnModel,
    *,
    mask_id: int | None = None,
    samples: int = 1,
) -> GuidedInference:
    """Our guidance around its `InferenceFn`, for its samplers.

    >>> import sake_jax as sj
    >>> def inference(time, xt, conditioning):  # as theirs: (B, L, 1) in, logits out
    ...     return {"logits": jnp.zeros((*xt.shape[:2], 7))}
    >>> guided = guided_inference(sj.chain(sj.top_p(0.9), sj.sake(1.0)), inference, mask_id=7)
    >>> guided(time=jnp.ones((2, 1, 1)), xt=jnp.full((2, 4, 1), 7))["logits"].shape
    (2, 4, 7)

    Make it inside a jitted function whose argument is the guidance: one program then serves every
    strength.

    Args:
      guidance: any that carries nothing from step to step, and asks the model once.
      inference: an `InferenceFn`, whose logits are then what guidance sees; or a model from
        `wrap_network`, whose hidden states and table it sees.
      mask_id: the category that stands for noise, the number of the others; None: any token may be
        noise, and all are guided.
      samples: rows of one prompt, which stand together, for guidances that compare samples.
    """
    if isinstance(inference, OwnModel):
        own = inference.config.mask_id
        return GuidedInference(
            guidance, None, inference, own if mask_id is None else mask_id, samples
        )
    require(callable(inference), "inference must be an InferenceFn", inference, "pass a function")
    return GuidedInference(guidance, inference, None, mask_id, samples)


class Theirs(Guidance):
    """See `from_guidance_fn`.

    >>> isinstance(from_guidance_fn(lambda **outputs: outputs["cond_outputs"]), Theirs)
    True
    """

    numbers: dict[str, Any]
    unconditional: Callable[[Context], View]
    function: Callable[..., Mapping[str, Array]] = struct.field(pytree_node=False)
    condition: str = struct.field(pytree_node=False, default="label")

    def init(self, ctx):
        return ctx.cache

    def apply(self, logits, psi, state, ctx):
        features, state = ctx.read(self.unconditional(ctx), state)
        other = ctx.clean(ctx.head(ctx.view.window(features)).astype(logits.dtype))
        view = ctx.view
        outputs = self._with_numbers()(
            xt=view.window(view.tokens)[..., None],
            conditioning={} if view.cond is None else {self.condition: view.cond},
            time=view.time[:, None, None],
            cond_outputs={LOGITS: logits},
            uncond_outputs={LOGITS: other},
        )
        return outputs[LOGITS], state, None

    def _with_numbers(self) -> Callable[..., Mapping[str, Array]]:
        """The function with its numbers as they are traced; their checks were made before."""
        made = copy.copy(self.function)
        for name, value in self.numbers.items():
            object.__setattr__(made, name, value)
        return made


def from_guidance_fn(
    function: Callable[..., Mapping[str, Array]],
    *,
    unconditional: Callable[[Context], View] | None = None,
    condition: str = "label",
) -> Theirs:
    """Its `GuidanceFn` as a guidance of ours: it mixes logits with those of an unconditional pass.

    Numbers of a dataclass, such as `ScalarGuidanceFn(guidance=2.0)`, become leaves: others compile
    nothing.

    >>> import sake_jax as sj
    >>> def mix(xt, conditioning, time, cond_outputs, uncond_outputs):
    ...     return jax.tree.map(lambda a, b: 2 * a - b, cond_outputs, uncond_outputs)
    >>> guidance = sj.chain(from_guidance_fn(mix), sj.top_p(0.9))

    Args:
      function: `(xt, conditioning, time, cond_outputs, uncond_outputs) -> outputs`.
      unconditional: makes the unconditional input, as for `classifier_free`.
      condition: what labels are called in `conditioning`.
    """
    require(callable(function), "function must be a GuidanceFn", function, "pass a function")
    numbers: dict[str, Any] = {}
    if dataclasses.is_dataclass(function) and not isinstance(function, type):
        fields = (
            (field.name, getattr(function, field.name)) for field in dataclasses.fields(function)
        )
        numbers = {name: float(value) for name, value in fields if type(value) in (int, float)}
        blank: Any = copy.copy(function)
        for name in numbers:  # the same program, whatever they are
            object.__setattr__(blank, name, 0.0)
        function = blank
    return Theirs(numbers, unconditional or without_prompt(), function, condition)


@dataclasses.dataclass(frozen=True)
class _NetworkRows:
    """What its network's projector takes."""

    network: Any
    condition: str

    def __call__(self, params: Params, tokens: Array, time: Array, cond: Array | None = None):
        conditioning = None if cond is None else {self.condition: cond}
        return self.rows(params, tokens[..., None], time[:, None, None], conditioning)

    def rows(self, params: Params, xt: Array, time: Array, conditioning: Any) -> Array:
        _, seen = self.network.apply(
            {"params": params},
            time=time,
            xt=xt,
            conditioning=conditioning,
            is_training=False,
            capture_intermediates=lambda module, method: module.name == "base_backbone",
            mutable=["intermediates"],
        )
        return seen["intermediates"][BACKBONE]["base_backbone"]["__call__"][0]


def _tables(params: Params) -> Tables:
    """Its tables, with the category of noise: no row of the projector, and never predicted."""
    backbone = params[BACKBONE]
    embedding = backbone[EMBEDDER]["Token_Embedding"]["embedding"]
    last = backbone[PROJECTOR]["Final_Projection"]
    missing = embedding.shape[0] - last["kernel"].shape[1]
    output = jnp.pad(last["kernel"].T, ((0, missing), (0, 0)))
    bias = jnp.pad(last["bias"], (0, missing), constant_values=LOWEST)
    return Tables(embedding, output, bias)


def wrap_network(
    network: Any, params: Params, *, condition: str = "label", classes: int = 0, **options: Any
) -> OwnModel:
    """Its `DiffusionNetwork` over tokens as a model of ours, for every sampler here.

    It must have a `ConditionalDiscreteBackbone` with `TokenEmbedder` and `DenseProjector`. These
    networks see every column, padding too: give empty prompts, or infill whole canvases.

    >>> lm = wrap_network(network, variables["params"])  # doctest: +SKIP
    >>> sampler = sj.masked(lm, length=64, guidance=sj.sake(1.0))  # doctest: +SKIP

    Args:
      network: the linen module.
      params: of it, the "params" of its variables.
      condition: what labels are called in its `conditioning`.
      classes: labels that it knows.
      **options: of `sake_jax.wrap`, such as tokenizer, name and eos_id.
    """
    size = params[BACKBONE][EMBEDDER]["Token_Embedding"]["embedding"].shape[0]
    masking = size > params[BACKBONE][PROJECTOR]["Final_Projection"]["kernel"].shape[1]
    facts = {"mask_id": size - 1 if masking else None, "predicts_mask": False}
    given = {"tables": _tables, "classes": classes, "name": "hackable-diffusion"}
    return wrap(_NetworkRows(network, condition), params, **facts | given | options)
