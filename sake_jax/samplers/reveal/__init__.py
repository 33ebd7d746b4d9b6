"""Reveal rules: which of a step's draws are written to the canvas.

A rule is a function, or a pytree that can be called, `(logits, drawn, view, key) -> (B, W) bool`.
It may choose any position; closed ones are left alone by the step. Most choose `view.quota`
positions of each row.

>>> import sake_jax as sj
>>> bold = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=sj.reveal.threshold(0.9))
"""

from sake_jax.samplers.reveal.across import Apart as Apart
from sake_jax.samplers.reveal.across import Stratified as Stratified
from sake_jax.samplers.reveal.across import apart as apart
from sake_jax.samplers.reveal.across import stratified as stratified
from sake_jax.samplers.reveal.around import EditingRule as EditingRule
from sake_jax.samplers.reveal.around import Late as Late
from sake_jax.samplers.reveal.around import SubBlocks as SubBlocks
from sake_jax.samplers.reveal.around import editing as editing
from sake_jax.samplers.reveal.around import late as late
from sake_jax.samplers.reveal.around import sub_blocks as sub_blocks
from sake_jax.samplers.reveal.count import Dynamic as Dynamic
from sake_jax.samplers.reveal.count import EntropyBound as EntropyBound
from sake_jax.samplers.reveal.count import Hierarchical as Hierarchical
from sake_jax.samplers.reveal.count import Threshold as Threshold
from sake_jax.samplers.reveal.count import dynamic as dynamic
from sake_jax.samplers.reveal.count import entropy_bound as entropy_bound
from sake_jax.samplers.reveal.count import everything as everything
from sake_jax.samplers.reveal.count import hierarchical as hierarchical
from sake_jax.samplers.reveal.count import threshold as threshold
from sake_jax.samplers.reveal.order import Coin as Coin
from sake_jax.samplers.reveal.order import Ordered as Ordered
from sake_jax.samplers.reveal.order import coin as coin
from sake_jax.samplers.reveal.order import coin_of as coin_of
from sake_jax.samplers.reveal.order import confidence as confidence
from sake_jax.samplers.reveal.order import leftmost as leftmost
from sake_jax.samplers.reveal.order import low_entropy as low_entropy
from sake_jax.samplers.reveal.order import margin as margin
from sake_jax.samplers.reveal.order import ordered as ordered
from sake_jax.samplers.reveal.order import random as random
from sake_jax.samplers.reveal.tempered import Tempered as Tempered
from sake_jax.samplers.reveal.tempered import TemperedThreshold as TemperedThreshold
from sake_jax.samplers.reveal.tempered import tempered as tempered
from sake_jax.samplers.reveal.tempered import tempered_threshold as tempered_threshold
from sake_jax.samplers.reveal.tools import Around as Around
from sake_jax.samplers.reveal.tools import Plain as Plain
from sake_jax.samplers.reveal.tools import as_rule as as_rule
from sake_jax.samplers.reveal.tools import chance as chance
from sake_jax.samplers.reveal.tools import highest as highest
