"""Text in, text out: many prompts, many samples, saved and resumed.

>>> import jax
>>> import sake_jax as sj
>>> from sake_jax.generation import generate
>>> lm = sj.load("tinystories")
>>> out = generate(lm, sj.masked(lm, length=4), ["the dog"], samples=2, key=jax.random.key(0))
>>> len(out.texts[0])
2
"""

from sake_jax.generation.division import divide_work as divide_work
from sake_jax.generation.generate import NotFinite as NotFinite
from sake_jax.generation.generate import generate as generate
from sake_jax.generation.generate import replay as replay
from sake_jax.generation.identity import model_identity as model_identity
from sake_jax.generation.prompts import Prompt as Prompt
from sake_jax.generation.prompts import chat_prompts as chat_prompts
from sake_jax.generation.prompts import encode_prompts as encode_prompts
from sake_jax.generation.prompts import fit_prompt as fit_prompt
from sake_jax.generation.prompts import gap_prompts as gap_prompts
from sake_jax.generation.prompts import has_chat_template as has_chat_template
from sake_jax.generation.prompts import prompt_context as prompt_context
from sake_jax.generation.prompts import prompt_room as prompt_room
from sake_jax.generation.prompts import read_prompts as read_prompts
from sake_jax.generation.prompts import split_prompts as split_prompts
from sake_jax.generation.result import Generation as Generation
from sake_jax.generation.result import Row as Row
from sake_jax.generation.settings import describe_settings as describe_settings
from sake_jax.generation.streaming import stream_text as stream_text
