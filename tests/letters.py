"""A small model of one's own: a network in three styles, and a tokenizer of letters."""

import jax
import jax.numpy as jnp
from flax import linen, nnx

LETTERS = "abcdefghij "
END, MASK = len(LETTERS), len(LETTERS) + 1
V, D = MASK + 1, 8


class Letters:
    """Has `encode` and `decode`, and nothing else."""

    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[i] if i < END else "" for i in ids)


def make_params(seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    shapes = {"embed": (V, D), "mix": (D, D), "out": (V, D), "bias": (V,)}
    return {
        name: jax.random.normal(key, shape)
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def rows(params, tokens, attend):
    """Each column mixes its own token with what stands before it, and with all."""
    embedded = jnp.where(attend[..., None], params["embed"][tokens], 0)
    before = jnp.cumsum(embedded, axis=1)
    return jnp.tanh(embedded + 0.3 * before @ params["mix"])


def tables(params):
    return params["embed"], params["out"], params["bias"]


def logits(params, tokens, attend):
    return rows(params, tokens, attend) @ params["out"].T + params["bias"][None, None]


class Net(nnx.Module):
    """The same with NNX."""

    def __init__(self, params):
        self.embed, self.mix = nnx.Param(params["embed"]), nnx.Param(params["mix"])
        self.out, self.bias = nnx.Param(params["out"]), nnx.Param(params["bias"])
        self.rngs = nnx.Rngs(0)

    def hidden(self, tokens, attend):
        return rows({"embed": self.embed[...], "mix": self.mix[...]}, tokens, attend)

    def __call__(self, tokens, attend):
        return self.hidden(tokens, attend) @ self.out[...].T + self.bias[...][None, None]


class LinenNet(linen.Module):
    """The same with linen."""

    def setup(self):
        made = make_params()
        self.weights = {name: self.param(name, lambda _, n=name: made[n]) for name in made}

    def hidden(self, tokens, attend):
        return rows(self.weights, tokens, attend)

    def __call__(self, tokens, attend):
        return logits(self.weights, tokens, attend)
