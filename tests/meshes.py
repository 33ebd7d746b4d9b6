"""The same sampler on one device and on a mesh of eight, and what its program looks like."""

import dataclasses
import re

import jax
import numpy as np

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.conversion.checkpoint import open_checkpoint
from sake_jax.conversion.loader import parameters
from sake_jax.conversion.weights import Held
from sake_jax.models import LanguageModel, TransformerConfig, flatten_params, init

KEY = jax.random.key(0)
LENGTH = 8
BLOCK = 4

ODD = TransformerConfig(
    V=301, D=32, N=1, H=8, K=2, head_dim=8, F=48, context=64, shifted=True, qkv_bias=True
)
"""Eight heads, fewer key heads, and a vocabulary that no mesh divides."""
TIED = dataclasses.replace(ODD, V=17, K=8, tied=True, qkv_bias=False)
"""So few tokens that some of eight devices have none. Not 9: padded to 16, as many as the rows
of a prompt's window, it could not be told from them in a program's text."""

GUIDANCES = {
    "sake": sj.sake(1.0),
    "across samples": sj.chain(sj.top_p(0.9), sj.sake(1.0, scope="batch", self_term=0.0)),
    "without the prompt": sj.chain(sj.classifier_free(1.5), sj.top_k(40), sj.sake(1.0)),
}


def random_model(config: TransformerConfig, mesh=None) -> LanguageModel:
    """A network with random weights, as if it had been loaded."""
    golden = open_checkpoint(GOLDENS / "dream")
    described = dataclasses.replace(golden.config, network=config, mask_id=config.V - 1)
    params = jax.jit(init, static_argnums=0)(config, KEY)
    leaves = {path: np.asarray(leaf) for path, leaf in flatten_params(params).items()}
    checkpoint = dataclasses.replace(golden, config=described, weights=Held(leaves))
    return LanguageModel(described, parameters(checkpoint, mesh))


def load(name, sizes=None) -> LanguageModel:
    """A golden, the built-in model, or one of the configs above."""
    mesh = sj.mesh(*sizes) if sizes else None
    if isinstance(name, TransformerConfig):
        return random_model(name, mesh)
    return sj.load(name if name == "tinystories" else GOLDENS / name, mesh=mesh)


def sampler_for(lm: LanguageModel, guidance: sj.Guidance, **options) -> sj.Sampler:
    """What the model's family is sampled with; a dual cache where there is a choice."""
    shared = {"length": LENGTH, "guidance": guidance, "draw": sj.temperature(0.8)} | options
    if lm.config.sampler == "ancestral":
        return sj.ancestral(lm, steps=LENGTH, **shared)
    if lm.config.sampler == "block":
        return sj.block(lm, block=BLOCK, **shared)
    if lm.config.sampler == "revising":
        return sj.revising(lm, block=BLOCK, steps=LENGTH, **shared)
    return sj.masked(lm, block=LENGTH // 2, **shared)


def canvas_for(lm: LanguageModel, samples: int = 4) -> sj.Canvas:
    prompts = [[1, 2, 3, 4], [5, 6, 7, 3, 2, 1, 4]]
    return sj.canvas(
        [[8 if token == lm.config.mask_id else token for token in own] for own in prompts],
        LENGTH,
        mask_id=None if lm.config.sampler == "revising" else _mask(lm),
        samples=samples,
        positions=lm.config.positions,
        align=BLOCK if lm.config.sampler == "block" else 1,
    )


def _mask(lm: LanguageModel) -> int:
    """LLaDA2's config names no mask token; any will do here."""
    return lm.config.network.V - 1 if lm.config.mask_id is None else lm.config.mask_id


def run(lm: LanguageModel, sampler: sj.Sampler):
    """The final canvas and Info, and the text of the compiled program."""
    given = (sampler, lm.params, KEY, canvas_for(lm))
    program = sj.run.lower(*given).compile()
    return *program(*given), program.as_text()


def same(alone, spread, told: bool = False) -> None:
    """Asserts that two canvases hold the same tokens, with about the same probabilities. A network
    that is told what it predicted carries its rounding from step to step."""
    np.testing.assert_array_equal(alone.tokens, spread.tokens)
    np.testing.assert_allclose(alone.log_p, spread.log_p, atol=2e-4 if told else 5e-5)


def whole_vocabulary(text: str, lm: LanguageModel) -> set[str]:
    """Arrays of a compiled program that hold the whole vocabulary on one device."""
    size, padded = lm.config.network.V, lm.params["input"]["rows"].shape[0]
    return set(re.findall(rf"\w+\[(?:\d+,)*(?:{size}|{padded})(?:,\d+)*\]", text))


def gathered(text: str) -> list[tuple[int, ...]]:
    """Shapes of what a compiled program gathers from other devices."""
    lines = re.findall(r"= (.*?) all-gather(?:-start)?\(", text)
    shapes = re.findall(r"\[([\d,]*)\]", " ".join(lines))
    return [tuple(map(int, filter(None, shape.split(",")))) for shape in shapes]
