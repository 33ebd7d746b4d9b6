"""Diverse, reproducible sampling from diffusion language models in JAX."""

import importlib as _importlib
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from sake_jax import guidance as guidance
from sake_jax import matrices as matrices
from sake_jax.core import Context as Context
from sake_jax.core import Denoiser as Denoiser
from sake_jax.core import Guidance as Guidance
from sake_jax.core import Process as Process
from sake_jax.core import Tables as Tables
from sake_jax.generation import Generation as Generation
from sake_jax.generation import NotFinite as NotFinite
from sake_jax.generation import generate as generate
from sake_jax.generation import replay as replay
from sake_jax.generation import stream_text as stream_text
from sake_jax.generation.canvas import canvas as canvas
from sake_jax.guidance import adaptive_free as adaptive_free
from sake_jax.guidance import capped as capped
from sake_jax.guidance import chain as chain
from sake_jax.guidance import classifier_based as classifier_based
from sake_jax.guidance import classifier_free as classifier_free
from sake_jax.guidance import collision as collision
from sake_jax.guidance import cooling as cooling
from sake_jax.guidance import credit as credit
from sake_jax.guidance import distinct as distinct
from sake_jax.guidance import diversity as diversity
from sake_jax.guidance import dpp as dpp
from sake_jax.guidance import first_state as first_state
from sake_jax.guidance import forbid as forbid
from sake_jax.guidance import guided_logits as guided_logits
from sake_jax.guidance import identity as identity
from sake_jax.guidance import log_determinant as log_determinant
from sake_jax.guidance import matches as matches
from sake_jax.guidance import min_p as min_p
from sake_jax.guidance import odd as odd
from sake_jax.guidance import paper_sake as paper_sake
from sake_jax.guidance import renyi as renyi
from sake_jax.guidance import sake as sake
from sake_jax.guidance import temperature as temperature
from sake_jax.guidance import top_k as top_k
from sake_jax.guidance import top_p as top_p
from sake_jax.guidance import transform as transform
from sake_jax.guidance import vanishing as vanishing
from sake_jax.guidance import von_neumann as von_neumann
from sake_jax.guidance import when as when
from sake_jax.guidance import with_label as with_label
from sake_jax.guidance import without_prompt as without_prompt
from sake_jax.info import Candidates as Candidates
from sake_jax.info import Info as Info
from sake_jax.info import Signal as Signal
from sake_jax.likelihood import bound as bound
from sake_jax.likelihood import log_likelihood as log_likelihood
from sake_jax.likelihood import log_likelihood_in_order as log_likelihood_in_order
from sake_jax.models import LanguageModel as LanguageModel
from sake_jax.models import wrap as wrap
from sake_jax.node import Node as Node
from sake_jax.noise_levels import Geometric as Geometric
from sake_jax.noise_levels import LogLinear as LogLinear
from sake_jax.samplers import Request as Request
from sake_jax.samplers import Sampler as Sampler
from sake_jax.samplers import ancestral as ancestral
from sake_jax.samplers import block as block
from sake_jax.samplers import blocks as blocks
from sake_jax.samplers import descent as descent
from sake_jax.samplers import end_tokens as end_tokens
from sake_jax.samplers import masked as masked
from sake_jax.samplers import perturbed as perturbed
from sake_jax.samplers import reveal as reveal
from sake_jax.samplers import revising as revising
from sake_jax.samplers import run as run
from sake_jax.samplers import run_selected as run_selected
from sake_jax.samplers import run_until as run_until
from sake_jax.samplers import sampler as sampler
from sake_jax.samplers import sampler_for as sampler_for
from sake_jax.samplers import still as still
from sake_jax.samplers import stream as stream
from sake_jax.samplers import systematic as systematic
from sake_jax.samplers.processes import absorbing as absorbing
from sake_jax.samplers.processes import editing_process as editing_process
from sake_jax.samplers.processes import identity_process as identity_process
from sake_jax.samplers.processes import remasking as remasking
from sake_jax.samplers.processes import renoising as renoising
from sake_jax.samplers.processes import uniform as uniform
from sake_jax.samplers.scores import concrete_score as concrete_score
from sake_jax.samplers.transitions import transitions as transitions
from sake_jax.schedules import Schedule as Schedule
from sake_jax.schedules import cosine as cosine
from sake_jax.schedules import linear as linear
from sake_jax.schedules import piecewise as piecewise
from sake_jax.schedules import schedule as schedule
from sake_jax.sharding import mesh as mesh
from sake_jax.view import Canvas as Canvas
from sake_jax.view import Reread as Reread
from sake_jax.view import View as View

if _TYPE_CHECKING:
    from sake_jax import conversion as conversion
    from sake_jax import interop as interop
    from sake_jax import metrics as metrics
    from sake_jax import testing as testing
    from sake_jax.conversion import load as load

__version__ = _version("sake-jax")

_LATER = ("conversion", "evaluate", "experiments", "interop", "metrics", "planning", "testing")
_LATER += ("training", "viewer")
"""Modules that a plain `import sake_jax` does not load: checkpoints, chex and the tools cost time
that a loop of one's own does not need."""


def __getattr__(name: str) -> _Any:
    if name == "load":
        return _importlib.import_module("sake_jax.conversion").load
    if name in _LATER:
        return _importlib.import_module(f"sake_jax.{name}")
    raise AttributeError(f"module 'sake_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, "load"})
