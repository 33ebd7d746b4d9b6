"""Guidances: pure functions that reshape the distribution a token is drawn from.

>>> from sake_jax.guidance import chain, sake, top_p
>>> len(chain(top_p(0.95), sake(1.0)).parts)
2
"""

from sake_jax.guidance.arrays import first_state as first_state
from sake_jax.guidance.arrays import guided_logits as guided_logits
from sake_jax.guidance.capped import capped as capped
from sake_jax.guidance.compose import chain as chain
from sake_jax.guidance.compose import guide as guide
from sake_jax.guidance.compose import identity as identity
from sake_jax.guidance.compose import when as when
from sake_jax.guidance.contrast import adaptive_free as adaptive_free
from sake_jax.guidance.contrast import classifier_based as classifier_based
from sake_jax.guidance.contrast import classifier_free as classifier_free
from sake_jax.guidance.contrast import with_label as with_label
from sake_jax.guidance.contrast import without_prompt as without_prompt
from sake_jax.guidance.credit import credit as credit
from sake_jax.guidance.distances import median_distance as median_distance
from sake_jax.guidance.distinct import distinct as distinct
from sake_jax.guidance.diversity import Diversity as Diversity
from sake_jax.guidance.diversity import diversity as diversity
from sake_jax.guidance.entropy import correlation as correlation
from sake_jax.guidance.entropy import covariance as covariance
from sake_jax.guidance.entropy import entropy_slope as entropy_slope
from sake_jax.guidance.entropy import kl_divergence as kl_divergence
from sake_jax.guidance.entropy import shannon_entropy as shannon_entropy
from sake_jax.guidance.kernels import Peers as Peers
from sake_jax.guidance.kernels import collisions as collisions
from sake_jax.guidance.kernels import density as density
from sake_jax.guidance.kernels import vanishing as vanishing
from sake_jax.guidance.match import matches as matches
from sake_jax.guidance.objectives import collision as collision
from sake_jax.guidance.objectives import log_determinant as log_determinant
from sake_jax.guidance.objectives import renyi as renyi
from sake_jax.guidance.objectives import von_neumann as von_neumann
from sake_jax.guidance.pooled import Pooled as Pooled
from sake_jax.guidance.pooled import dpp as dpp
from sake_jax.guidance.pooled import odd as odd
from sake_jax.guidance.pooled import orthogonal as orthogonal
from sake_jax.guidance.pooled import pooled as pooled
from sake_jax.guidance.pooled import vendi as vendi
from sake_jax.guidance.sake import paper_sake as paper_sake
from sake_jax.guidance.sake import sake as sake
from sake_jax.guidance.shaping import cooling as cooling
from sake_jax.guidance.shaping import forbid as forbid
from sake_jax.guidance.shaping import min_p as min_p
from sake_jax.guidance.shaping import temperature as temperature
from sake_jax.guidance.shaping import top_k as top_k
from sake_jax.guidance.shaping import top_p as top_p
from sake_jax.guidance.shaping import transform as transform
