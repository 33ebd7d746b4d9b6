"""Samplers: one step and one loop for every family of diffusion language models."""

from sake_jax.samplers.loop import RunProgress as RunProgress
from sake_jax.samplers.loop import advance as advance
from sake_jax.samplers.loop import advance_until as advance_until
from sake_jax.samplers.loop import begin as begin
from sake_jax.samplers.loop import begin_progress as begin_progress
from sake_jax.samplers.loop import run as run
from sake_jax.samplers.loop import run_until as run_until
from sake_jax.samplers.loop import stream as stream
from sake_jax.samplers.noise import gumbel as gumbel
from sake_jax.samplers.noise import still as still
from sake_jax.samplers.plans import blocks as blocks
from sake_jax.samplers.plans import descent as descent
from sake_jax.samplers.presets import ancestral as ancestral
from sake_jax.samplers.presets import block as block
from sake_jax.samplers.presets import masked as masked
from sake_jax.samplers.request import Request as Request
from sake_jax.samplers.step import RunState as RunState
from sake_jax.samplers.step import Sampler as Sampler
from sake_jax.samplers.step import sampler as sampler
from sake_jax.samplers.step import step as step
from sake_jax.samplers.stop import end_tokens as end_tokens
