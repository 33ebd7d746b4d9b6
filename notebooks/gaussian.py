# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Diversity one can see: eight Gaussians
#
# In text it is hard to see what a guidance does. So the paper begins with a plane: eight hills on
# a ring, and particles that all start on one of them. At each step a particle moves to a cell
# nearby, uphill more likely than downhill. How do we get them to find all hills, and still stay
# on hills?
#
# The same library runs it: a particle is a position of a "text", its move is a token, and where
# it stands is its hidden state.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

from sake_jax.experiments.frontier import non_dominated
from sake_jax.experiments.lattice import WalkSetting, modes, target, walk
from sake_jax.metrics import coverage

MIXTURE, PARTICLES, STEPS = "ring8", 400, 160
real = target(MIXTURE, PARTICLES, np.random.default_rng(0))
start = modes(MIXTURE)[0]
print("all particles begin at", start)

# %% [markdown]
# ## Two ways to spread
#
# **Temperature** makes hills lower: particles climb over, and anywhere else too. **SAKE** lets
# particles push each other away, with the landscape as it is.
#
# Both also come in a form that is on for the first 80 % of the steps only, so that particles
# settle in the end. Each method gets five settings, and the settings of a program are one
# `vmap`: two programs for all four methods.

# %%
TEMPERATURES, STRENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0), (0.1, 0.2, 0.5, 1.0, 2.0)
methods = {
    "temperature": [WalkSetting(temperature=t) for t in TEMPERATURES],
    "temperature, 1 at last": [
        WalkSetting(temperature=t, late_temperature=1.0) for t in TEMPERATURES
    ],
    "SAKE": [WalkSetting(strength=g) for g in STRENGTHS],
    "SAKE, off at last": [WalkSetting(strength=g, late_strength=0.0) for g in STRENGTHS],
}


def walked(names, seed):
    """(settings, particles, 2) end points of each of these methods."""
    settings = [setting for name in names for setting in methods[name]]
    keys = jax.random.split(jax.random.key(seed), len(settings))
    points = walk(MIXTURE, settings, keys, PARTICLES, STEPS)
    return dict(zip(names, np.split(points, len(names)), strict=True))


names = list(methods)
points = walked(names[:2], seed=0) | walked(names[2:], seed=1)

# %% [markdown]
# ## The scatter figure
#
# Two numbers tell how well particles fill the target, both by nearest neighbours. *Density*: do
# particles lie where the target is? *Coverage*: how much of the target has a particle nearby?
# They stand above each picture. Hot particles leave the hills; pushed ones spread over them.
# Those that may settle come back to the hills, hot ones too: that is why the second row is here.


# %%
def cloud(axes, where, title):
    """Particles on the plane."""
    axes.scatter(*where.T, s=3, color="black", alpha=0.4, linewidths=0)
    axes.plot(*start, "x", color="tab:red")
    axes.set_title(title, fontsize=9)
    axes.set(xlim=(-12, 12), ylim=(-12, 12), xticks=[], yticks=[], aspect="equal")


figure, grid = plt.subplots(4, 6, figsize=(11, 8.4), layout="constrained")
for row, name in zip(grid, names, strict=True):
    symbol, values = ("γ", STRENGTHS) if "SAKE" in name else ("T", TEMPERATURES)
    for axes, value, where in zip(row, values, points[name], strict=False):
        density, covered = coverage(real, where)
        cloud(axes, where, f"{symbol} = {value:g}\n{density:.2f}, {covered:.2f}")
    cloud(row[-1], real, "target")
    row[0].set_ylabel(name)
figure.suptitle("density, coverage; all begin at the cross", fontsize=10)
figure.savefig("scatter.png", dpi=120)

# %% [markdown]
# ## The frontier
#
# One picture for all settings: to the right is more faithful, upwards is more diverse. A method
# is better where its curve lies above the other one *at the same density*. It is fair to compare
# like with like: SAKE with temperature, and the two forms that settle with each other.

# %%
found = {
    name: np.asarray([coverage(real, where) for where in clouds]) for name, clouds in points.items()
}
figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
styles = ("o-", "s--", "^-", "D--")
colours = ("grey", "grey", "black", "black")
for (name, pairs), style, colour in zip(found.items(), styles, colours, strict=True):
    axes.plot(*pairs.T, style, color=colour, label=name, markersize=5)
axes.set(xlabel="density", ylabel="coverage", xlim=(0, 1.15), ylim=(0, 1.02))
axes.grid(alpha=0.3)
axes.legend(fontsize=8, loc="upper left")
figure.savefig("frontier.png", dpi=120)

everything = np.concatenate(list(found.values()))
best = non_dominated(everything)
labels = [(name, setting) for name in names for setting in methods[name]]
print("settings that no other one beats in both:")
for (name, setting), (density, covered), good in zip(labels, everything, best, strict=True):
    if good:
        value = f"γ = {setting.strength:g}" if setting.strength else f"T = {setting.temperature:g}"
        print(f"  {name}, {value}: density {density:.2f}, coverage {covered:.2f}")

# %% [markdown]
# This was one seed at a small size: read it as a picture, not as a measurement. The whole
# experiment has 2,000 particles, 500 steps, two mixtures and intervals over five seeds:
#
# ```bash
# sake-jax experiment gaussian --out my-folder
# ```
