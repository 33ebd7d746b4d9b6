"""What generated texts are worth: diversity, and likelihood under a judge."""

from sake_jax.evaluate.diversity import distinct as distinct
from sake_jax.evaluate.diversity import distinct_within as distinct_within
from sake_jax.evaluate.diversity import entropy as entropy
from sake_jax.evaluate.diversity import words as words
from sake_jax.evaluate.judge import Perplexity as Perplexity
from sake_jax.evaluate.judge import load_judge as load_judge
from sake_jax.evaluate.judge import perplexity as perplexity
from sake_jax.evaluate.semantic import Encoder as Encoder
from sake_jax.evaluate.semantic import load_encoder as load_encoder
from sake_jax.evaluate.semantic import semantic_diversity as semantic_diversity
