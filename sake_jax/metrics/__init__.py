"""What generated texts are worth: diversity, likelihood under a judge, and right answers.

>>> from sake_jax.metrics import distinct, words
>>> distinct([words("the cat sat"), words("the cat ran")], 2)
0.75
"""

from sake_jax.metrics.bleu import self_bleu as self_bleu
from sake_jax.metrics.coverage import coverage as coverage
from sake_jax.metrics.diversity import Units as Units
from sake_jax.metrics.diversity import distinct as distinct
from sake_jax.metrics.diversity import distinct_within as distinct_within
from sake_jax.metrics.diversity import sample_entropy as sample_entropy
from sake_jax.metrics.diversity import words as words
from sake_jax.metrics.estimate import Estimate as Estimate
from sake_jax.metrics.estimate import estimate as estimate
from sake_jax.metrics.estimate import format_interval as format_interval
from sake_jax.metrics.judge import Perplexity as Perplexity
from sake_jax.metrics.judge import default_judge as default_judge
from sake_jax.metrics.judge import load_judge as load_judge
from sake_jax.metrics.judge import perplexity as perplexity
from sake_jax.metrics.mauve import mauve as mauve
from sake_jax.metrics.novelty import distinct_count as distinct_count
from sake_jax.metrics.novelty import partition as partition
from sake_jax.metrics.novelty import same_meaning as same_meaning
from sake_jax.metrics.novelty import same_words as same_words
from sake_jax.metrics.passes import pass_at_evaluations as pass_at_evaluations
from sake_jax.metrics.passes import pass_at_k as pass_at_k
from sake_jax.metrics.passes import pass_rate as pass_rate
from sake_jax.metrics.semantic import Encoder as Encoder
from sake_jax.metrics.semantic import cosine_diversity as cosine_diversity
from sake_jax.metrics.semantic import load_encoder as load_encoder
from sake_jax.metrics.semantic import minilm as minilm
from sake_jax.metrics.semantic import semantic_diversity as semantic_diversity
from sake_jax.metrics.texts import measure_texts as measure_texts
from sake_jax.metrics.vendi import rke as rke
from sake_jax.metrics.vendi import vendi as vendi
from sake_jax.metrics.votes import Consistency as Consistency
from sake_jax.metrics.votes import majority as majority
from sake_jax.metrics.votes import self_consistency as self_consistency
