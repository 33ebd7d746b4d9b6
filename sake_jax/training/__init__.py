"""Small, complete training recipes: text or problems in, a checkpoint in its family's layout out.

>>> from sake_jax.training import read
>>> read("countdown-3").data.options["numbers"]
3
"""

from sake_jax.training.recipe import Model as Model
from sake_jax.training.recipe import PairsData as PairsData
from sake_jax.training.recipe import Recipe as Recipe
from sake_jax.training.recipe import TextData as TextData
from sake_jax.training.recipe import Training as Training
from sake_jax.training.recipe import read as read
from sake_jax.training.trainer import Trainer as Trainer
