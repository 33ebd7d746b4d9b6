"""A model that answers with one token, each with a probability that is known."""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.core import Tables
from sake_jax.models import LanguageModel
from sake_jax.node import Node
from sake_jax.view import View

MASK, END = 0, 1


class Scripted(Node):
    """Logits that do not depend on anything."""

    affine: ClassVar[bool] = True

    def read(self, params: Any, view: View, cache: Any):
        return jnp.zeros((*view.tokens.shape, 1), jnp.float32), cache

    def empty_cache(self, params: Any, batch: int, length: int):
        return None

    def head(self, params: Any, rows):
        return jnp.broadcast_to(params["bias"], (*rows.shape[:-1], params["bias"].shape[0]))

    def tables(self, params: Any) -> Tables:
        rows = params["input"]["rows"]
        return Tables(rows, rows, params["bias"])


@dataclasses.dataclass(frozen=True)
class ScriptedModel(LanguageModel):
    answers: tuple[str, ...] = ()

    @property
    def denoiser(self):
        return Scripted()

    @property
    def tokenizer(self):
        return Answers(self.answers)


@dataclasses.dataclass(frozen=True)
class Answers:
    """A token for each answer; all prompts read alike."""

    answers: tuple[str, ...]
    chat_template: ClassVar[None] = None
    all_special_ids: ClassVar[tuple[int, ...]] = (MASK, END)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [END] * (1 + len(text) % 3)}

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(self.answers[int(at) - 2] for at in ids if at > END)


def scripted(chances: dict[str, float]) -> ScriptedModel:
    """A model that gives each answer with its chance."""
    config = sj.load("tests/goldens/llada").config
    network = dataclasses.replace(config.network, V=2 + len(chances))
    ids = {"mask_id": MASK, "pad_id": END, "eos_id": None}
    bias = np.concatenate([[-1e9, -1e9], np.log(list(chances.values()))])
    params = {
        "bias": jnp.asarray(bias, jnp.float32),
        "input": {"rows": jnp.zeros((2 + len(chances), 1), jnp.float32)},
    }
    config = dataclasses.replace(config, network=network, **ids)
    return ScriptedModel(config, params, None, tuple(chances))
