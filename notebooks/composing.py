# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Composing guidances
#
# A guidance takes logits and gives logits. So guidances compose, like the transforms of optax:
# `chain` applies them from left to right. Here we chain three of them, let one fade by a
# schedule, write an objective and a guidance of our own, check them, and try a whole grid of
# strengths in one compiled program.

# %%
import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sake_jax as sj
from sake_jax.guidance.kernels import collisions
from sake_jax.testing import check_guidance, outcome, toy_params, toy_view

lm = sj.load("tinystories")
key = jax.random.key(0)
prompt = "lily wanted to"

# %% [markdown]
# ## Three at once
#
# - `classifier_free` (D-CFG) leans towards what the prompt asks for;
# - `top_p` cuts the tail of unlikely tokens;
# - `sake` then seeks diversity among the tokens that are left: the paper's trust region.
#
# The order matters: after a cut, a push cannot bring an unlikely token back. Temperature is not
# in the chain but in `draw`: it makes the draw noisier, and leaves the logits alone by which the
# sampler judges where it is sure.

# %%
together = sj.chain(sj.classifier_free(0.5), sj.top_p(0.95), sj.sake(0.5))
sampler = sj.masked(lm, length=24, guidance=together, draw=sj.temperature(0.8), record="signal")
out = sj.generate(lm, sampler, [prompt], samples=3, key=key)
for text in out.texts[0]:
    print("-", prompt + text.replace("\n", " "))
print(f"at the first step all of it moved a position by {out.info.kl[0].mean():.2f} nats")

# %% [markdown]
# What the order does is seen at one position of a toy scene with 16 tokens (and a mask, which
# we forbid). Push first, and token 2, which the model finds unlikely, survives the cut that
# comes after. Cut first, and the push only moves weight between tokens that the model likes.

# %%
cut, push = sj.top_p(0.8), sj.sake(2.0, self_term=0.0)
chains = {"the model": [], "top_p, then sake": [cut, push], "sake, then top_p": [push, cut]}
row, position = 3, 3
looks = [
    {"color": "black"},
    {"color": "white", "hatch": "////"},
    {"color": "lightgrey"},
]

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for at, (name, parts) in enumerate(chains.items()):
    logits, _ = outcome(sj.chain(sj.forbid([16]), *parts), toy_params(0), toy_view(0))
    chances = jax.nn.softmax(logits[row, position])[:16]
    places = np.arange(16) + 0.28 * (at - 1)
    axes.bar(places, chances, width=0.28, edgecolor="black", linewidth=0.5, label=name, **looks[at])
axes.set(xlabel="token", ylabel="probability", xticks=range(16), title="the order matters")
axes.legend(fontsize=8)
figure.savefig("order.png", dpi=120)

# %% [markdown]
# ## Schedules
#
# Wherever a number stands, there may be a schedule: a function of the progress from 0 to 1.
# `sj.linear`, `sj.cosine` and `sj.piecewise` are ready; your own is a function with numbers.


# %%
def bump(progress, height):
    """Nothing at both ends."""
    return 4 * height * progress * (1 - progress)


schedules = {
    "linear(2, 0)": sj.linear(2.0, 0.0),
    "cosine(2, 0)": sj.cosine(2.0, 0.0),
    "piecewise: off for the last fifth": sj.piecewise({0.0: 2.0, 0.8: 0.0}),
    "our own bump": sj.schedule(bump, 2.0),
}
progress = jnp.linspace(0, 1, 101)
figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
for (name, schedule), style in zip(schedules.items(), ("-", "--", "-.", ":"), strict=True):
    axes.plot(progress, jax.vmap(schedule)(progress), style, label=name)
axes.set(xlabel="progress of the run", ylabel="strength γ")
figure.legend(fontsize=8, loc="outside right upper")
figure.savefig("schedules.png", dpi=120)

fading = sj.chain(sj.top_p(sj.linear(0.8, 1.0)), sj.sake(sj.schedule(bump, 2.0)))
early = sj.when(sj.sake(2.0), end=0.8)  # or switch a whole guidance on and off

# %% [markdown]
# ## An objective of your own
#
# SAKE follows the gradient of one measure of diversity. Any function `(rows, peers) -> number`
# will do in its place; `jax.grad` finds the push. `rows` are the rows that may move, `peers` all
# they are compared with, and `collisions` gives the weights W_ij ≥ 0 of SAKE's kernel.
#
# This one counts *crowded* rows: the logarithm makes the first neighbour matter most.


# %%
def uncrowded(rows, peers):
    """Larger where fewer rows have near neighbours."""
    return -jnp.sum(jnp.log1p(jnp.sum(collisions(rows, peers), axis=1)))


apart = sj.diversity(uncrowded, 1.0)
check_guidance(apart)
print("our objective obeys all laws")

# %% [markdown]
# The laws are what a sampler relies on: shapes stay, closed positions stay, nothing becomes
# infinite, a row does not depend on its batch, renaming the tokens renames the result, and other
# numbers do not compile another program.
#
# ## A guidance of your own
#
# A guidance is a small class. Its numbers are leaves, so that they can be traced, scheduled and
# mapped over; `ctx` knows the canvas, the features and the progress. Here is the old repetition
# penalty: a token that stands in the text already loses some logit.


# %%
class RepetitionPenalty(sj.Guidance):
    """Lowers the logits of tokens that were written before."""

    strength: sj.Schedule | float = 1.0

    def apply(self, logits, psi, state, ctx):
        written = ~ctx.view.open & ctx.view.attend
        places = jax.nn.one_hot(ctx.view.tokens, logits.shape[-1]) * written[..., None]
        there = jnp.max(places, axis=1)
        return logits - ctx.number(self.strength) * there[:, None, :], state, None


check_guidance(RepetitionPenalty(2.0))
check_guidance(sj.chain(RepetitionPenalty(sj.linear(2.0, 0.0)), apart))
print("alone, scheduled and in a chain: all laws hold")

# %% [markdown]
# And a guidance that breaks a law is told so. This one likes token 3, whatever that is:


# %%
class Favourite(sj.Guidance):
    """Adds to the logit of token 3."""

    def apply(self, logits, psi, state, ctx):
        return logits.at[..., 3].add(1.0), state, None


try:
    check_guidance(Favourite())
    found = "nothing"
except AssertionError as error:
    found = str(error).split(":")[0]
print(found)
assert "permutation" in found

# %% [markdown]
# Ours write text like any other (`ends="never"` forbids the token that would end it early):

# %%
mine = sj.masked(
    lm,
    length=24,
    guidance=sj.chain(RepetitionPenalty(1.0), apart),
    draw=sj.temperature(0.8),
    ends="never",
)
for text in sj.generate(lm, mine, [prompt], samples=3, key=key).texts[0]:
    print("-", prompt + text.replace("\n", " "))

# %% [markdown]
# ## A grid of strengths, one program
#
# Strengths are traced, so a run can be mapped over them: five strengths, four samples each, one
# compilation. Asking for other strengths compiles nothing. (Pass the parameters as an argument:
# what a jitted function merely finds in its surroundings becomes a constant of the program.)

# %%
ids = lm.tokenizer(prompt, add_special_tokens=False)["input_ids"]
canvas = sj.canvas([ids], 16, mask_id=lm.config.mask_id, samples=4)
compiled = []


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def grid(params, strength):
    """Tokens and entropies at one strength."""
    compiled.append(strength)  # Python runs when it is traced, and only then
    guidance = sj.chain(sj.top_p(0.95), sj.sake(strength, self_term=0.0))
    how = sj.masked(lm, length=16, guidance=guidance, draw=sj.temperature(0.8))
    done, info = sj.run(how, params, key, canvas)
    return done.tokens[:, canvas.generation_start :], jnp.mean(info.entropy, axis=1)


strengths = jnp.array([0.0, 0.5, 1.0, 2.0, 4.0])
tokens, entropies = grid(lm.params, strengths)
grid(lm.params, strengths + 0.1)
assert len(compiled) == 1, "the second grid was the same program"

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for at, strength in enumerate(strengths.tolist()):
    text = lm.tokenizer.decode(tokens[at, 0], skip_special_tokens=True).replace("\n", " ")
    different = sj.metrics.distinct(tokens[at].tolist(), 2)
    print(f"γ = {strength:3.1f}, distinct-2 {different:.2f}: {prompt}{text}")
    shade = str(0.75 - 0.75 * at / (len(strengths) - 1))
    marker = "osD^v"[at]
    axes.plot(entropies[at], color=shade, marker=marker, markersize=4, label=f"γ = {strength:g}")
axes.set(xlabel="step", ylabel="entropy (nats)", title="five strengths, one program")
axes.legend(fontsize=8)
figure.savefig("grid.png", dpi=120)

# %% [markdown]
# How strong, then? Too weak changes nothing, too strong writes nonsense. Measure fluency and
# diversity together over such a grid: `sake-jax experiment story` draws that trade-off.
