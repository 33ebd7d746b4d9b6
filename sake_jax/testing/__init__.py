"""Laws for guidances and denoisers, and a toy denoiser to try a guidance on.

>>> import sake_jax as sj
>>> sj.testing.check_guidance(sj.chain(sj.min_p(0.1), sj.temperature(0.7)))
>>> toy = sj.testing.ToyDenoiser(), sj.testing.toy_params(0)
>>> sj.testing.check_denoiser(*toy, mask_id=16, positions="tokens")
"""

from sake_jax.testing.denoisers import DENOISER_LAWS as DENOISER_LAWS
from sake_jax.testing.denoisers import check_denoiser as check_denoiser
from sake_jax.testing.guidances import LAWS as LAWS
from sake_jax.testing.guidances import check_guidance as check_guidance
from sake_jax.testing.guidances import outcome as outcome
from sake_jax.testing.toy import ToyDenoiser as ToyDenoiser
from sake_jax.testing.toy import toy_context as toy_context
from sake_jax.testing.toy import toy_params as toy_params
from sake_jax.testing.toy import toy_view as toy_view
