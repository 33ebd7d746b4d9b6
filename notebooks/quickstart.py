# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Quickstart
#
# A diffusion language model does not write from left to right. It begins with a row of masks and
# fills them in, the surest first. This notebook loads the small model in the box, lets it write
# with and without SAKE guidance, measures how diverse the texts are, looks inside a run, and
# repeats it from its saved settings. It needs neither a network connection nor an accelerator.

# %%
import textwrap

import jax
import matplotlib.pyplot as plt
import numpy as np

import sake_jax as sj

lm = sj.load("tinystories")
size = sum(leaf.size for leaf in jax.tree.leaves(lm.params))
print(f"{lm.config.family}, {size / 1e6:.1f} million parameters, {lm.config.network.V:,} tokens")

# %% [markdown]
# ## Write
#
# A sampler says how to write: how many tokens, with which guidance, at which temperature. We
# make three:
#
# - **plain**: temperature only;
# - **SAKE**: positions of one text keep away from each other, so that it repeats itself less;
# - **SAKE, across samples**: the samples of one prompt keep away from each other.
#
# `record="signal"` keeps notes of every step, for later.

# %%
LENGTH, SAMPLES = 24, 6
PROMPTS = ["once upon a time", "the little dog"]


def sampler(guidance=None):
    """All but the guidance is the same for all."""
    return sj.masked(
        lm, length=LENGTH, guidance=guidance, draw=sj.temperature(0.9), record="signal"
    )


samplers = {
    "plain": sampler(),
    "SAKE": sampler(sj.sake(0.5)),
    "SAKE, across samples": sampler(sj.sake(1.0, scope="batch", self_term=0.0)),
}
runs = {
    name: sj.generate(lm, how, PROMPTS, samples=SAMPLES, key=jax.random.key(0), trajectory=True)
    for name, how in samplers.items()
}

for name, out in runs.items():
    print(f"\n{name}")
    for text in out.texts[0][:3]:
        print(textwrap.fill(PROMPTS[0] + text, 96, initial_indent="  - ", subsequent_indent="    "))

# %% [markdown]
# ## Watch it being written
#
# `trajectory=True` kept the tokens after each step. A dot is still a mask.


# %%
def drawn(tokens):
    """Tokens as text, with a dot for each mask."""
    pieces = ["·" if t == lm.config.mask_id else lm.tokenizer.decode([t]) for t in tokens]
    return "".join(pieces).replace("\n", " ")


for step in range(4, LENGTH + 1, 5):
    print(f"step {step:2}: {drawn(runs['SAKE'].trajectory[step - 1, 0])}")

# %% [markdown]
# ## Measure
#
# distinct-2 is the share of word pairs that are different. *Within* looks at one text at a time:
# does it repeat itself? *Across* looks at all samples of a prompt together: are they different
# stories? These are two things, and a guidance may help one and hurt the other.
#
# A dozen short texts show how to measure, not what is better: for that there are `sake-jax
# experiment story` and a judge of fluency, `sj.metrics.perplexity`.

# %%
print(f"{'':22}within  across")
for name, out in runs.items():
    cut = [[sj.metrics.words(text) for text in texts] for texts in out.texts]
    within = np.mean([sj.metrics.distinct_within(texts, 2) for texts in cut])
    across = np.mean([sj.metrics.distinct(texts, 2) for texts in cut])
    print(f"{name:22}{within:6.3f}  {across:6.3f}")

# %% [markdown]
# ## Look inside
#
# `info` has one entry for each step and sample. Entropy tells how undecided the model is about
# the positions that are still open: before guidance (dotted) and after it (solid). Where solid is
# below dotted, guidance sharpens. Corr[z, ψ], the correlation of guidance and logits, says so
# too: above zero sharpens, below zero flattens.


# %%
def over_steps(out, values):
    """The mean over samples that were still being written; the others have nothing to tell."""
    busy = out.info.revealed > 0
    return np.where(busy, values, 0).sum(axis=1) / np.maximum(busy.sum(axis=1), 1)


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
steps = np.arange(1, LENGTH + 1)
colours = dict(zip(runs, ("black", "tab:red", "tab:blue"), strict=True))
markers = dict(zip(runs, ("o", "s", "^"), strict=True))
for name, out in runs.items():
    style = {"color": colours[name], "marker": markers[name], "markevery": 4, "markersize": 4}
    left.plot(steps, over_steps(out, out.info.entropy), label=name, **style)
    if not out.info.signals:
        continue
    left.plot(steps, over_steps(out, out.info.base_entropy), ":", color=colours[name])
    right.plot(steps, over_steps(out, out.info.signals[0].correlation), label=name, **style)
left.set(xlabel="step", ylabel="entropy (nats)", title="dotted: before guidance")
right.axhline(0, color="grey", linewidth=0.8)
right.set(xlabel="step", ylabel="Corr[z, ψ]", title="above 0 sharpens, below 0 flattens")
left.legend(fontsize=8)
figure.savefig("telemetry.png", dpi=120)

# %% [markdown]
# ## Save, and replay
#
# A sample's tokens belong to its key: not to its batch, nor to the number of devices. So the
# saved settings (a JSON file that you can read) are enough to write every token again.

# %%
folder = runs["SAKE"].save("my-run")
print(sorted(file.name for file in folder.iterdir()))
again = sj.replay(folder)
assert np.array_equal(again.tokens, runs["SAKE"].tokens)
print("the same tokens")

# %% [markdown]
# At the command line the same is `sake-jax generate "once upon a time" --samples 6`.
#
# Next: `guidance.py` does SAKE by hand, `composing.py` puts guidances together and makes new
# ones, `gaussian.py` shows on a plane what diversity is, `converting.py` brings in other models.
