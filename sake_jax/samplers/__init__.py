"""Samplers: one step and one loop for every family of diffusion language models.

A sampler holds all choices of a run; `run` takes its steps in one compiled program.

>>> import jax
>>> import sake_jax as sj
>>> from sake_jax.samplers import blocks, run, sampler
>>> made = sampler(sj.testing.ToyDenoiser(), blocks(length=4, steps=2))
>>> canvas = sj.canvas([[1, 2]], 4, mask_id=16)
>>> done, info = run(made, sj.testing.toy_params(0), jax.random.key(0), canvas)
>>> done.tokens.shape  # two columns of the prompt, four that were written
(1, 6)
"""

from sake_jax.samplers.auto import sampler_for as sampler_for
from sake_jax.samplers.loop import advance as advance
from sake_jax.samplers.loop import begin as begin
from sake_jax.samplers.loop import run as run
from sake_jax.samplers.loop import run_until as run_until
from sake_jax.samplers.loop import stream as stream
from sake_jax.samplers.noise import Systematic as Systematic
from sake_jax.samplers.noise import TokenDraw as TokenDraw
from sake_jax.samplers.noise import gumbel as gumbel
from sake_jax.samplers.noise import still as still
from sake_jax.samplers.noise import systematic as systematic
from sake_jax.samplers.perturbed import Perturbed as Perturbed
from sake_jax.samplers.perturbed import perturbed as perturbed
from sake_jax.samplers.plans import blocks as blocks
from sake_jax.samplers.plans import descent as descent
from sake_jax.samplers.presets import ancestral as ancestral
from sake_jax.samplers.presets import block as block
from sake_jax.samplers.presets import masked as masked
from sake_jax.samplers.request import Request as Request
from sake_jax.samplers.revising import revising as revising
from sake_jax.samplers.sampler import Sampler as Sampler
from sake_jax.samplers.sampler import sampler as sampler
from sake_jax.samplers.selected import Selected as Selected
from sake_jax.samplers.selected import greedy_map as greedy_map
from sake_jax.samplers.selected import run_selected as run_selected
from sake_jax.samplers.step import RunState as RunState
from sake_jax.samplers.step import step as step
from sake_jax.samplers.stop import end_tokens as end_tokens
