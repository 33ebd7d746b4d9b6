"""The process of noise by matrices (D3PM)."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, require
from sake_jax.core import LOWEST
from sake_jax.matrices import Matrices, TransitionMatrices
from sake_jax.node import Node
from sake_jax.samplers.processes import mask_column
from sake_jax.typing import Logits, Number
from sake_jax.view import View


class Transitions(Node):
    """See `transitions`."""

    revises: ClassVar[bool] = True
    decides: ClassVar[bool] = True
    matrices: TransitionMatrices
    eps: Number = 0.0
    draws_mask: bool = struct.field(pytree_node=False, default=True)

    @property
    def prior(self) -> Array:
        """(V,) chances of the tokens that a run without a mask token begins with."""
        return self.matrices.prior

    def clean(self, logits: Logits, view: View) -> Logits:
        if self.draws_mask:
            return logits
        return jnp.where(mask_column(logits, view), LOWEST, logits)

    def log_q(self, logits: Logits, view: View) -> Logits:
        size = self.matrices.size
        rule = f"the matrices must be for the denoiser's {logits.shape[-1]} tokens"
        require(logits.shape[-1] == size, rule, size, "make them of that size")
        start, noisy = jax.nn.softmax(logits), view.window(view.tokens)
        times = view.time, view.next_time
        return self.matrices.log_posterior(start, noisy, *times, view.number(self.eps, 3))


def transitions(
    matrices: TransitionMatrices | Matrices, *, eps: Number = 0.0, draws_mask: bool = True
) -> Transitions:
    """Noise by any transition matrices, and its exact posterior (D3PM, Austin et al. 2021).

    A run may have as many steps as there are matrices, or fewer: then several are undone at once.
    Tokens may change again and again. With a mask token on the canvas a run begins with masks,
    else with draws from where the chain ends. Absorbing and uniform matrices are what
    `absorbing()` and `uniform()` are without matrices, which a large vocabulary has no room for.

    >>> import sake_jax as sj
    >>> noise = sj.matrices.gaussian(sj.matrices.linear_betas(8, 0.1, 0.9), 17)
    >>> plan = sj.descent(6, 8, final="argmax", extra=False)
    >>> sampler = sj.sampler(sj.testing.ToyDenoiser(), plan, process=transitions(noise))

    Args:
      matrices: (T, V, V), rows sum to 1: of `sake_jax.matrices`, or your own.
      eps: is added to both factors of the posterior; the reference has 1e-6, 0 is exact.
      draws_mask: whether the mask token is a clean token like any other, as for D3PM's images,
        where it is a grey; False for text.
    """
    if not isinstance(matrices, TransitionMatrices):
        matrices = TransitionMatrices.of(matrices)
    return Transitions(matrices, number("eps", eps, at_least=0), draws_mask)
