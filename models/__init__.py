"""The networks: a transformer and a diffusion transformer (DiT), both driven by a config.

Flax NNX modules inside; outside, a `Denoiser` or a scorer is a pure function of parameters,
a nested dictionary of arrays. Layers are stacked on a leading axis and scanned.
"""

from sake_jax.models.config import DiTConfig as DiTConfig
from sake_jax.models.config import ModelConfig as ModelConfig
from sake_jax.models.config import TransformerConfig as TransformerConfig
from sake_jax.models.denoiser import NetworkDenoiser as NetworkDenoiser
from sake_jax.models.fit import choose as choose
from sake_jax.models.language import LanguageModel as LanguageModel
from sake_jax.models.network import abstract as abstract
from sake_jax.models.network import exact as exact
from sake_jax.models.network import features as features
from sake_jax.models.network import flat as flat
from sake_jax.models.network import init as init
from sake_jax.models.network import nested as nested
