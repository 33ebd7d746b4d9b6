"""What models are asked, and how their answers are judged."""

from sake_jax.evaluate.gsm8k import gsm8k as gsm8k
from sake_jax.evaluate.humaneval import humaneval as humaneval
from sake_jax.evaluate.mbpp import mbpp as mbpp
from sake_jax.evaluate.open_ended import open_ended as open_ended
from sake_jax.evaluate.puzzles import puzzle as puzzle
from sake_jax.evaluate.task import Problem as Problem
from sake_jax.evaluate.task import Task as Task
from sake_jax.evaluate.task import Verdict as Verdict
