# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Guidance by hand
#
# SAKE is a push, computed from the sequence itself, towards text that does not repeat itself.
# Here we do by hand what the library does, one small step after the other, and check every
# step: the kernel, the entropy and its gradient, the signal over the vocabulary, one token. Then
# we look at what a push does to one distribution, and how to keep it short.
#
# A toy network with 17 tokens and 6 numbers for a position is enough.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import sake_jax as sj
from sake_jax.guidance import (
    budget,
    chain,
    covariance,
    entropy_slope,
    guide,
    kl_divergence,
    shannon_entropy,
)
from sake_jax.testing import ToyDenoiser, toy_context, toy_params

denoiser, params = ToyDenoiser(), toy_params(0)
plan = sj.blocks(length=8, steps=8)
canvas = sj.canvas([[1, 2, 3]], 8, mask_id=16)  # three given tokens, eight to write
context = toy_context(params, plan.view(canvas, jnp.int32(0)))  # what a guidance sees
H = context.features[0]
L, D = H.shape
print(f"{L} positions, each a row of {D} numbers")


def same(ours, theirs):
    """Whether two arrays are equal but for rounding."""
    return bool(jnp.allclose(ours, theirs, rtol=1e-4, atol=1e-5))


# %% [markdown]
# ## Who is near whom
#
# Two Gaussian kernels: κ compares what two positions *mean* (their rows), κ_attn compares where
# they *stand*. Their product K has ones on the diagonal; a large number off the diagonal says
# that two places are about to say the same.

# %%
sigma, sigma_attention = 2.0, 4.0


@jax.jit
def kernel(H):
    """κ(h_i, h_j) κ_attn(i, j)"""
    apart = jnp.sum(jnp.square(H[:, None] - H[None, :]), axis=-1)
    places = jnp.arange(len(H), dtype=jnp.float32)
    steps = jnp.square(places[:, None] - places[None, :])
    return jnp.exp(-apart / (2 * sigma**2)) * jnp.exp(-steps / (2 * sigma_attention**2))


K = kernel(H)
W = jnp.square(K) * (1 - jnp.eye(L))  # squared, and nobody is compared with itself

figure, axes = plt.subplots(1, 2, figsize=(8, 4.2), layout="constrained")
for place, matrix, name in zip(axes, (K, W), ("K", "W = K², without the diagonal"), strict=True):
    picture = place.imshow(matrix, cmap="Greys", vmin=0, vmax=1)
    place.set(title=name, xlabel="position j", ylabel="position i")
figure.colorbar(picture, ax=axes, shrink=0.8)
figure.savefig("kernel.png", dpi=120)

# %% [markdown]
# ## How diverse is it?
#
# Let F be the sum of all squares in K. The order-2 Rényi entropy of ρ = K / L is
# H₂ = −log(F / L²), and exp(H₂) is an effective number of different rows: between 1 (all alike)
# and L (all different).


# %%
def sum_of_squares(H):
    """F, the squared Frobenius norm of K."""
    return jnp.sum(jnp.square(kernel(H)))


def renyi_2(H):
    """The order-2 Rényi entropy of K / L."""
    return -jnp.log(sum_of_squares(H) / len(H) ** 2)


print(f"about {jnp.exp(renyi_2(H)):.1f} different rows of {L}")
twins = H.at[5].set(H[4])
print(f"about {jnp.exp(renyi_2(twins)):.1f} when two of them are made equal")
assert renyi_2(twins) < renyi_2(H)

# %% [markdown]
# ## Its gradient: three ways to write one direction
#
# The paper's objective for one row is D_i = −Σ_j W_ij, the other rows held. Its gradient has a
# closed form, two matrix products:
#
# C = (2/σ²) (rowsum(W) · H − W H).
#
# Row i moves away from the rows near it, the nearer the harder. Automatic differentiation
# agrees, and so do the other two objectives, up to a factor: −F counts each pair twice, and the
# logarithm divides by F.


# %%
def own_diversity(row, at):
    """D_i, as a function of row i alone."""
    changed = jax.lax.stop_gradient(H).at[at].set(row)
    return -(jnp.sum(jnp.square(kernel(changed)[at])) - 1)


C = (2 / sigma**2) * (jnp.sum(W, axis=1, keepdims=True) * H - W @ H)
F = sum_of_squares(H)
by_row = jax.jit(jax.vmap(jax.grad(own_diversity)))(H, jnp.arange(L))
of_norm = -jax.jit(jax.grad(sum_of_squares))(H)
of_entropy = jax.jit(jax.grad(renyi_2))(H)

assert same(by_row, C), "∇ D_i = C_i"
assert same(of_norm, 2 * C), "∇ (−F) = 2 C"
assert same(of_entropy, (2 / F) * C), "∇ H₂ = (2/F) C"
print(f"one direction, three lengths: 1, 2 and 2/F = {2 / F:.3f}")

uphill = renyi_2(H + 0.1 * of_entropy)
print(f"H₂ before {renyi_2(H):.4f}, a small step along it {uphill:.4f}")
assert uphill > renyi_2(H)

# %% [markdown]
# ## From rows to tokens
#
# The head turns a row h into logits z = E h + b. A move of the row by C moves the logits by
# ψ = E C: tokens that carry the sequence away from itself gain. Guided logits are z + γ ψ.
#
# As E (h + γ C) = E h + γ E C, the push may go in *before* the head: then SAKE costs no second
# look at the vocabulary. The library does that wherever it can.

# %%
gamma = 0.5
E, bias = params["output"], params["bias"]
z = H @ E.T + bias
psi = C @ E.T
guided = z + gamma * psi
assert same((H + gamma * C) @ E.T + bias, guided), "before the head or after it"

is_open = canvas.open[0]
exact_form = {"bandwidth": sigma, "attention_bandwidth": sigma_attention, "normalize": "none"}


@jax.jit
def library(guidance):
    """Guided logits of the open positions, by the library."""
    guidance = chain(guidance)
    return guide(guidance, guidance.init(context), context).logits[0]


ours = guided[is_open]
assert same(library(sj.sake(gamma, gradient="closed_form", **exact_form)), ours)
assert same(library(sj.sake(gamma, gradient="autodiff", **exact_form)), ours)
entropy_form = sj.diversity(sj.renyi(2.0), gamma * float(F) / 2, **exact_form)
assert same(library(entropy_form), ours)
print("the library's closed form, its jax.grad and its Rényi entropy give our logits")

# %% [markdown]
# ## A strength that means the same everywhere
#
# The size of ψ depends on the model, so a raw γ does not travel. By default (`normalize="rms"`)
# the signal is scaled to a root mean square of 1 over tokens and open positions: then γ = 1
# moves logits by about one nat.

# %%
centred = psi[is_open] - jnp.mean(psi[is_open], axis=-1, keepdims=True)
unit = psi[is_open] / jnp.sqrt(jnp.mean(jnp.square(centred)))
scaled = exact_form | {"normalize": "rms"}
difference = library(sj.sake(gamma, **scaled)) - (z[is_open] + gamma * unit)
assert jnp.allclose(difference, 0, atol=1e-3)
print(f"RMS of ψ: {jnp.sqrt(jnp.mean(jnp.square(centred))):.3f}, after scaling 1")

# %% [markdown]
# ## One guided step
#
# Now write a token: take the likeliest one at every open position (temperature 0), and keep the
# single one that the guided distribution is surest of. The mask token is never written.

# %%
chances = jax.nn.softmax(guided.at[:, 16].set(-1e30))
drawn = jnp.argmax(chances, axis=-1)
surest = jnp.argmax(jnp.where(is_open, jnp.max(chances, axis=-1), -1.0))
by_hand = canvas.tokens[0].at[surest].set(drawn[surest])

sampler = sj.sampler(
    denoiser,
    plan,
    guidance=sj.sake(gamma, gradient="closed_form", **exact_form),
    draw=sj.temperature(0.0),
)
after, _ = next(sj.stream(sampler, params, jax.random.key(0), canvas))
print("by hand:    ", by_hand.tolist())
print("the library:", after.tokens[0].tolist())
assert jnp.array_equal(after.tokens[0], by_hand)

# %% [markdown]
# ## What a push does to a distribution: Proposition 1
#
# Along P_γ ∝ exp(z + γ ψ), the entropy's slope at γ = 0 is −Cov[z, ψ]. So its sign is known
# before anything is sampled: a signal that agrees with the logits sharpens, one that opposes
# them flattens.

# %%
logits = 2 * jax.random.normal(jax.random.key(0), (50,))
noise = jax.random.normal(jax.random.key(1), (50,))
signals = {"along the logits": 0.5 * logits + noise, "against them": -0.5 * logits + noise}
strengths = jnp.linspace(0, 1.5, 61)


@jax.jit
def curves(strengths, push):
    """The entropy at each strength, and its derivative there."""
    along = jax.value_and_grad(lambda strength: shannon_entropy(logits + strength * push))
    return jax.vmap(along)(strengths)


figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for (name, push), style in zip(signals.items(), ("-", "-."), strict=True):
    curve, slopes = curves(strengths, push)
    slope = float(entropy_slope(logits, push))
    assert same(slopes[0], slope), "Proposition 1"
    (line,) = axes.plot(strengths, curve, style, label=f"{name}: slope {slope:+.2f}")
    axes.plot(strengths[:16], curve[0] + slope * strengths[:16], ":", color=line.get_color())
axes.set(xlabel="strength γ", ylabel="entropy (nats)", title="Proposition 1: dotted is −Cov[z, ψ]")
axes.legend()
figure.savefig("entropy_slope.png", dpi=120)

# %% [markdown]
# SAKE's own signal has two parts. In C = (2/σ²)(rowsum(W) H − W H), the first is the row itself,
# the second a pull of its neighbours with a minus: a repulsion. Through the head, the row itself
# looks like the logits, so the first part sharpens; the repulsion flattens. `self_term=0.0`
# leaves the first part out. `record="signal"` tells you for every step of a run which one wins.

# %%
parts = {
    "self term": (2 / sigma**2) * jnp.sum(W, axis=1, keepdims=True) * H,
    "repulsion": -(2 / sigma**2) * W @ H,
}
for name, rows in (parts | {"both": C}).items():
    moved = covariance(z, z, rows @ E.T)[is_open]
    print(f"{name:10}: Cov[z, ψ] = {jnp.mean(moved):+6.2f}, mean over open positions")
repelled = z + gamma * parts["repulsion"] @ E.T
assert same(library(sj.sake(gamma, self_term=0.0, **exact_form)), repelled[is_open])

# %% [markdown]
# ## A cap in nats
#
# `kl_budget` scales a signal down, position by position, where it would move the distribution
# further than the budget. Below it nothing changes.

# %%
push = 3 * noise
caps = jnp.array([0.01, 0.1, 0.5, 10.0])
fractions = jax.jit(jax.vmap(lambda cap: budget.fraction(logits, push, cap)))(caps)
for cap, fraction in zip(caps.tolist(), fractions.tolist(), strict=True):
    moved = float(kl_divergence(logits + fraction * push, logits))
    print(f"budget {cap:5.2f} nats: {fraction:6.1%} of the signal, moved {moved:.3f} nats")
    assert moved <= cap

# %% [markdown]
# In a sampler all of this is one line, `guidance=sj.sake(1.0, kl_budget=0.5)`. `composing.py`
# goes on from here: chains, schedules, and guidances of your own.
