"""A small, complete training recipe: text files in, a checkpoint in its family's layout out."""

from sake_jax.training.recipe import Recipe as Recipe
from sake_jax.training.recipe import read as read
from sake_jax.training.trainer import Trainer as Trainer
