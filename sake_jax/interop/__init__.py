"""Our guidance in other projects' loops, and their models and guidance in ours.

None of these projects is needed, nor imported: what they hand over is used by its form.

>>> import sake_jax as sj
>>> pair = sj.interop.init_update(sj.chain(sj.top_p(0.95), sj.sake(1.0)))
>>> pair._fields
('init', 'update')
"""

from sake_jax.interop import bonsai as bonsai
from sake_jax.interop import gemma as gemma
from sake_jax.interop import hackable as hackable
from sake_jax.interop.pairs import InitUpdate as InitUpdate
from sake_jax.interop.pairs import init_update as init_update
