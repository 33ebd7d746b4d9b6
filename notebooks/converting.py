# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Converting and sharding
#
# Checkpoints come as Hugging Face folders: a config, a tokenizer, and weights in safetensors
# files. `sj.load` reads them as they are. For a large model it pays to *convert* once: to the
# precision you want, in chunks that each device can read by itself. This notebook does so with
# the small model in the box, and pretends that this computer has eight devices.
#
# The pretending must come before JAX is imported:

# %%
import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

# %%
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np

import sake_jax as sj
from sake_jax.conversion import convert, export, open_checkpoint, verify

print(f"{jax.device_count()} devices, all of them {jax.devices()[0].platform}")

# %% [markdown]
# ## Inspect
#
# `open_checkpoint` reads names and shapes only, so it is instant for 8 billion parameters too.
# Every tensor of the folder must have its place in our network and every parameter its tensor,
# or an error lists what is left over.

# %%
lm = sj.load("tinystories")
source = lm.folder
checkpoint = open_checkpoint(source)
print("files:", sorted(file.name for file in source.iterdir()))
print(f"family {checkpoint.config.family}: {len(checkpoint.source.shapes)} tensors, such as")
for name in list(checkpoint.source.shapes)[:3]:
    print("   ", name, checkpoint.source.shapes[name])
print(f"become {len(checkpoint.weights.leaves)} parameters, layers stacked:")
for path, leaf in checkpoint.weights.leaves.items():
    print(f"    {path:30} {leaf.shape!s:18} {leaf.dtype}")

# %% [markdown]
# ## Convert
#
# Three precisions: as stored, bfloat16, and int8 (one scale for each output channel). A killed
# conversion goes on when it is started again. `mesh=` says for which devices the chunks should be
# cut; any other mesh can read them too. The command line does the same:
#
# ```bash
# sake-jax inspect tinystories
# sake-jax convert tinystories small --dtype int8 --mesh tensor=4
# ```


# %%
def megabytes(folder):
    """What a folder takes on disk."""
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e6


folders = {None: Path("as-stored"), "bfloat16": Path("in-bfloat16"), "int8": Path("in-int8")}
for dtype, folder in folders.items():
    manifest = convert(source, folder, dtype=dtype, mesh={"tensor": 4})
    print(f"{folder!s:12} {len(manifest.units)} arrays, {megabytes(folder):5.2f} MB")

# %% [markdown]
# ## Verify
#
# `verify` reads every array: are its bytes those that were converted, are all numbers finite?
# With recorded logits (here those of the model as we loaded it) it also says how far the
# converted model is from them. Shorter numbers cost precision; how much of it, you see before
# you generate anything.

# %%
tokens = np.asarray(lm.tokenizer(["once upon a time, there was a little girl"])["input_ids"])
reference = np.asarray(lm.logits(tokens))
np.savez("golden.npz", input_ids=tokens, logits=reference)
errors = {}
for folder in folders.values():
    verdict = verify(folder, "golden.npz", tolerance=np.inf)
    assert verdict.ok
    errors[folder.name] = verdict.error
    print(f"{folder!s:12} {verdict.arrays} arrays are right, logits within {verdict.error:.1e}")
assert errors["as-stored"] < 1e-4 < errors["in-bfloat16"]

# %% [markdown]
# All differences at once:

# %%
figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
for dtype, style in {"bfloat16": "-", "int8": "--"}.items():
    moved = np.asarray(sj.load(folders[dtype]).logits(tokens), np.float32) - reference
    bins = np.linspace(-0.06, 0.06, 61)
    axes.hist(moved.ravel(), bins, histtype="step", color="black", linestyle=style, label=dtype)
axes.set(xlabel="logit minus logit in float32", ylabel="logits", title="what shorter weights cost")
axes.legend(fontsize=8)
figure.savefig("precision.png", dpi=120)

# %% [markdown]
# And the way back: `export` writes a Hugging Face folder, bit for bit what it was.

# %%
export("as-stored", "as-it-was")
before, after = (open_checkpoint(folder).source for folder in (source, Path("as-it-was")))
assert before.shapes == after.shapes
assert all(np.array_equal(before.read(name, ()), after.read(name, ())) for name in before.shapes)
print("all", len(after.shapes), "tensors are the same")

# %% [markdown]
# ## Load on a mesh
#
# A mesh has three axes: rows of a batch go over `data`, widths over `fsdp`, heads and vocabulary
# over `tensor`. Each device reads only its own slices of the files.

# %%
mesh = sj.mesh(fsdp=2, tensor=4)
spread = sj.load("as-stored", mesh=mesh)
whole = sum(leaf.nbytes for leaf in jax.tree.leaves(spread.params))
first = jax.devices()[0]
own = sum(
    shard.data.nbytes
    for leaf in jax.tree.leaves(spread.params)
    for shard in leaf.addressable_shards
    if shard.device == first
)
print(f"{whole / 1e6:.1f} MB in all, {own / 1e6:.1f} MB on one device")
for path, leaf in jax.tree.leaves_with_path(spread.params):
    name = jax.tree_util.keystr(path, simple=True, separator=".")
    part = leaf.addressable_shards[0].data.shape
    print(f"    {name:30} {leaf.shape!s:18} {part!s:18} {leaf.sharding.spec}")

# %% [markdown]
# The head, 2,048 tokens by 256 numbers, and who holds what of it:

# %%
jax.debug.visualize_array_sharding(spread.denoiser.tables(spread.params).output)

# %% [markdown]
# ## The same text
#
# A sample's tokens belong to its key, so eight devices write what one device writes: XLA puts in
# the communication, and no line of the sampler knows of it.


# %%
def written(lm):
    """Two samples with SAKE."""
    sampler = sj.masked(lm, length=16, guidance=sj.sake(0.5), draw=sj.temperature(0.8))
    return sj.generate(lm, sampler, ["once upon a time"], samples=2, key=jax.random.key(0))


on_one, on_eight = written(lm), written(spread)
assert np.array_equal(on_one.tokens, on_eight.tokens)
for text in on_eight.texts[0]:
    print("- once upon a time" + text)
print("the same tokens on one device and on eight")

# %% [markdown]
# On a real machine leave out the first cell, and name the model you want:
#
# ```python
# lm = sj.load("GSAI-ML/LLaDA-8B-Instruct", dtype="int8", mesh=sj.mesh(tensor=8))
# ```
