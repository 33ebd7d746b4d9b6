"""Text in, text out: many prompts, many samples, saved and resumed."""

from sake_jax.generation.generate import NotFinite as NotFinite
from sake_jax.generation.generate import generate as generate
from sake_jax.generation.generate import replay as replay
from sake_jax.generation.prompts import Prompt as Prompt
from sake_jax.generation.prompts import as_chat as as_chat
from sake_jax.generation.prompts import has_chat as has_chat
from sake_jax.generation.result import Generation as Generation
from sake_jax.generation.result import Row as Row
