"""What models are asked, and how their answers are judged."""

from sake_jax.tasks.gsm8k import gsm8k as gsm8k
from sake_jax.tasks.humaneval import humaneval as humaneval
from sake_jax.tasks.mbpp import mbpp as mbpp
from sake_jax.tasks.open_ended import open_ended as open_ended
from sake_jax.tasks.task import Problem as Problem
from sake_jax.tasks.task import Task as Task
from sake_jax.tasks.task import Verdict as Verdict
