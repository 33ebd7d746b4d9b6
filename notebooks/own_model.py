# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Bring your own model
#
# You have a network, parameters, perhaps a loop that you like. This notebook trains a small
# Flax NNX model that has never heard of this library, puts SAKE into a loop of its own, and then
# lets the library's sampler, `generate` and viewer have it.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import sake_jax as sj

# %% [markdown]
# ## Somebody's model
#
# Letters are the tokens; one more stands for a masked letter. Two convolutions look at the letters
# around each column. The texts are names of rivers and mountains, sixteen letters each.

# %%
LETTERS = "abcdefghijklmnopqrstuvwxyz "
MASK = len(LETTERS)
NAMES = "amazon nile congo niger rhine danube volga seine thames ganges indus tigris murray yukon"
NAMES += " denali logan everest makalu lhotse eiger elbrus ararat fuji kenya cook vinson etna teide"


class Net(nnx.Module):
    """Letters around a column say what stands there."""

    def __init__(self, width, rngs):
        self.embed = nnx.Embed(MASK + 1, width, rngs=rngs)
        self.first = nnx.Conv(width, width, kernel_size=(7,), rngs=rngs)
        self.second = nnx.Conv(width, width, kernel_size=(7,), rngs=rngs)
        self.out = nnx.Linear(width, MASK + 1, rngs=rngs)

    def hidden(self, tokens, attend):
        here = attend[..., None].astype(jnp.float32)
        rows = self.embed(tokens) * here
        rows = nnx.gelu(self.first(rows)) * here + rows
        return nnx.gelu(self.second(rows)) * here + rows

    def __call__(self, tokens, attend):
        return self.out(self.hidden(tokens, attend))


random = np.random.default_rng(0)
lines = [" ".join(random.permutation(NAMES.split()))[:16] for _ in range(96)]
corpus = jnp.array([[LETTERS.index(letter) for letter in line] for line in lines])
net = Net(32, nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(3e-3), wrt=nnx.Param)


@nnx.jit
def train_step(net, optimizer, texts, key):
    """Masks a random share of each text, and asks for what stood there."""
    share, where = jax.random.split(key)
    level = jax.random.uniform(share, (len(texts), 1))
    masked = jax.random.uniform(where, texts.shape) < level

    def loss(net):
        logits = net(jnp.where(masked, MASK, texts), jnp.ones(texts.shape, bool))
        terms = optax.softmax_cross_entropy_with_integer_labels(logits, texts)
        return jnp.sum(terms * masked / level) / texts.size

    value, slope = nnx.value_and_grad(loss)(net)
    optimizer.update(net, slope)
    return value


for step in range(250):
    value = train_step(net, optimizer, corpus, jax.random.key(step))
print(f"{value:.2f} nats a letter after {step + 1} steps")

# %% [markdown]
# ## SAKE in your own loop
#
# The loop below is this model's own: a `scan` that writes the surest letter at each step. What
# makes it diverse are the lines with `guided_logits`: tokens, the rows that go into the head, the
# head, its table, and what is still open.

# %%
table = sj.Tables(net.embed.embedding[...], net.out.kernel[...].T, net.out.bias[...])


@jax.jit
def write(guidance, key):
    """Four texts of sixteen letters."""

    def step(tokens, at):
        is_open = tokens == MASK
        rows = net.hidden(tokens, jnp.ones(tokens.shape, bool))
        logits, _ = sj.guided_logits(
            guidance,
            tokens=tokens,
            features=rows,
            head=net.out,
            tables=table,
            open=is_open,
            progress=at / 16,
        )
        logits = logits.at[..., MASK].set(-1e9)
        noise = jax.random.gumbel(jax.random.fold_in(key, at), logits.shape)
        drawn = jnp.argmax(logits + 0.7 * noise, axis=-1)
        sure = jnp.where(is_open, jnp.max(jax.nn.log_softmax(logits), axis=-1), -jnp.inf)
        now = jnp.arange(16)[None] == jnp.argmax(sure, axis=1)[:, None]
        return jnp.where(now & is_open, drawn, tokens), None

    return jax.lax.scan(step, jnp.full((4, 16), MASK), jnp.arange(16))[0]


def spelled(tokens):
    return "".join(LETTERS[token] for token in tokens)


for strength in (0.0, 1.0):  # one program: the strength is a leaf
    texts = [spelled(row) for row in write(sj.sake(strength), jax.random.key(0))]
    print(f"strength {strength}: {texts}")
assert write._cache_size() == 1

# %% [markdown]
# ## The same model, first-class
#
# One line makes it a model of the library. A tokenizer is anything with `encode` and `decode`.
# `check_denoiser` holds it to the laws that samplers rely on: padding and the rest of the batch
# change nothing, rows stand at the letter that they predict, the head is what its table says.


# %%
class Spelling:
    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(LETTERS[i] for i in ids if i < MASK)


lm = sj.wrap(
    net,
    read=Net.hidden,
    tables=lambda net: (net.embed.embedding, net.out.kernel[...].T, net.out.bias),
    mask_id=MASK,
    predicts_mask=False,
    tokenizer=Spelling(),
    name="rivers",
)
known = [[LETTERS.index(letter) for letter in "amazon nile"]]
sj.testing.check_denoiser(lm, texts=known)

# %% [markdown]
# Now everything takes it: guidances, caches of programs, stop strings, streams, saved runs, the
# viewer.

# %%
apart = sj.sake(1.0, scope="batch", self_term=0.0)
sampler = sj.masked(lm, length=16, guidance=apart, draw=sj.temperature(0.7), record="full")
out = sj.generate(lm, sampler, ["", "mount "], samples=3, key=jax.random.key(0), trajectory=True)
for texts in out.texts:
    print(texts)

for text in sj.stream_text(
    lm, sampler.replace(guidance=sj.sake(1.0)), "the ", key=jax.random.key(1), every=4
):
    print(text)

# %%
folder = out.save("my-rivers")
again = sj.replay(folder, lm)
assert np.array_equal(again.tokens, out.tokens)
page = out.to_html()
page.save("rivers.html")
page
