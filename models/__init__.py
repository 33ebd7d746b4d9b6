"""The networks: a transformer and a diffusion transformer (DiT), both driven by a config.

Flax NNX modules inside; outside, a `Denoiser` or a scorer is a pure function of parameters,
a nested dictionary of arrays. Layers are stacked on a leading axis and scanned.

>>> from sake_jax.models import TransformerConfig, abstract, flatten_params
>>> config = TransformerConfig(V=64, D=16, N=2, H=2, K=2, head_dim=8, F=32, context=32)
>>> sorted(flatten_params(abstract(config)))[-3:]  # paths of parameters
['input.rows', 'norm.weight', 'output.rows']
"""

from sake_jax.models.conditioned import ConditionedDenoiser as ConditionedDenoiser
from sake_jax.models.conditioned import denoiser_for as denoiser_for
from sake_jax.models.config import DiTConfig as DiTConfig
from sake_jax.models.config import EncoderDecoderConfig as EncoderDecoderConfig
from sake_jax.models.config import ModelConfig as ModelConfig
from sake_jax.models.config import NetworkConfig as NetworkConfig
from sake_jax.models.config import TransformerConfig as TransformerConfig
from sake_jax.models.denoiser import NetworkDenoiser as NetworkDenoiser
from sake_jax.models.denoiser import aligned_features as aligned_features
from sake_jax.models.denoiser import noise_level as noise_level
from sake_jax.models.denoiser import total_noise as total_noise
from sake_jax.models.fit import bytes_per_device as bytes_per_device
from sake_jax.models.fit import choose_mesh as choose_mesh
from sake_jax.models.fit import mesh_splits as mesh_splits
from sake_jax.models.fit import require_heads as require_heads
from sake_jax.models.inputs import NetworkInput as NetworkInput
from sake_jax.models.inputs import network_input as network_input
from sake_jax.models.language import LanguageModel as LanguageModel
from sake_jax.models.network import abstract as abstract
from sake_jax.models.network import exact_params as exact_params
from sake_jax.models.network import flatten_params as flatten_params
from sake_jax.models.network import forward as forward
from sake_jax.models.network import init as init
from sake_jax.models.network import nest_params as nest_params
from sake_jax.models.network import param_axes as param_axes
from sake_jax.models.own import OwnConfig as OwnConfig
from sake_jax.models.own import OwnDenoiser as OwnDenoiser
from sake_jax.models.own import OwnModel as OwnModel
from sake_jax.models.own import wrap as wrap
from sake_jax.models.scores import log_scores as log_scores
