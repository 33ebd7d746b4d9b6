# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Guidance, one piece at a time
#
# A guidance reshapes the distribution a token is drawn from. Here we look at one position:
# how the entropy moves as a signal grows (Proposition 1 of the SAKE paper), and what a cap on
# the move does.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import sake_jax as sj
from sake_jax.guidance import budget
from sake_jax.guidance.entropy import entropy, entropy_slope, kl
from sake_jax.testing import outcome, toy_params, toy_view

# %% [markdown]
# ## Two signals, one theorem
#
# `along` agrees with the logits, `against` opposes them. The slope of the entropy at γ = 0 is
# −Cov[z, ψ], so its sign is known before anything is sampled.

# %%
logits = 2 * jax.random.normal(jax.random.key(0), (50,))
noise = jax.random.normal(jax.random.key(1), (50,))
signals = {"along the logits": 0.5 * logits + noise, "against them": -0.5 * logits + noise}
strengths = jnp.linspace(0, 1.5, 61)

figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, psi in signals.items():
    curve = jax.vmap(lambda g, psi=psi: entropy(logits + g * psi))(strengths)
    slope = float(entropy_slope(logits, psi))
    (line,) = axes.plot(strengths, curve, label=f"{name}: slope {slope:+.2f}")
    axes.plot(strengths[:16], curve[0] + slope * strengths[:16], "--", color=line.get_color())
axes.set(xlabel="strength γ", ylabel="entropy (nats)", title="Proposition 1: dashed is −Cov[z, ψ]")
axes.legend()
figure.savefig("entropy_slope.png", dpi=120)

# %% [markdown]
# ## A cap in nats
#
# `kl_budget` scales a signal down, position by position, where it would move the distribution
# further than the budget. Below it nothing changes.

# %%
psi = 3 * noise
caps = jnp.array([0.01, 0.1, 0.5, 10.0])
fractions = jax.vmap(lambda cap: budget.fraction(logits, psi, cap))(caps)
for cap, fraction in zip(caps.tolist(), fractions.tolist(), strict=True):
    moved = float(kl(logits + fraction * psi, logits))
    print(f"budget {cap:5.2f} nats: {fraction:6.1%} of the signal, moved {moved:.3f} nats")

# %% [markdown]
# ## Composition
#
# `chain` goes from left to right. The trust region of the paper cuts the tail first, so that
# diversity is sought among plausible tokens only; a schedule lets the push fade.

# %%
guidance = sj.chain(sj.top_p(0.9), sj.sake(sj.linear(2.0, 0.0), self_term=0.0))
guided, base = outcome(guidance, toy_params(0), toy_view(0))
print(
    "tokens kept at the last position:", int(jnp.sum(guided[0, -1] > -1e29)), "of", base.shape[-1]
)

# %% [markdown]
# ## Your own
#
# A diversity objective is a plain function of the rows; a guidance of your own can be checked
# against the laws that ours obey.


# %%
def spread(rows, peers):
    """Away from the mean of all rows."""
    return jnp.sum(jnp.square(rows - jnp.mean(peers.rows, axis=0, keepdims=True)))


sj.testing.check_guidance(sj.diversity(spread, 0.5))
print("all laws hold")
