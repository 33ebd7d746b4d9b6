"""Programs that a model wrote, run where they can do no harm.

`run_programs` gives each its own process, in namespaces of its own, under limits. What a program
can see, what it may do and what a pass is worth stands in its docstring.
"""

from sake_jax.evaluate.sandbox.limits import HUMAN_EVAL as HUMAN_EVAL
from sake_jax.evaluate.sandbox.limits import Limits as Limits
from sake_jax.evaluate.sandbox.outcome import Outcome as Outcome
from sake_jax.evaluate.sandbox.run import run_programs as run_programs
