"""What follows attention in a layer: a dense MLP, or experts and a router."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.models.config import TransformerConfig
from sake_jax.models.layers import Linear, constant, parameter
from sake_jax.precision import precise, wide


class GatedMLP(nnx.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, c: TransformerConfig, *, rngs: nnx.Rngs):
        options = {"bias": c.bias, "quantized": c.quantized, "rngs": rngs}
        self.gate = Linear(c.D, c.F, axes=("mlp", "embed"), **options)
        self.up = Linear(c.D, c.F, axes=("mlp", "embed"), **options)
        self.down = Linear(c.F, c.D, axes=("embed", "mlp"), **options)

    def __call__(self, x: Array) -> Array:
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class GeluMLP(nnx.Module):
    """down(gelu(up x)), the tanh form of GELU."""

    def __init__(self, D: int, F: int, *, bias: bool, quantized: bool, rngs: nnx.Rngs):
        options = {"bias": bias, "quantized": quantized, "rngs": rngs}
        self.up = Linear(D, F, axes=("mlp", "embed"), **options)
        self.down = Linear(F, D, axes=("embed", "mlp"), **options)

    def __call__(self, x: Array) -> Array:
        return self.down(jax.nn.gelu(self.up(x), approximate=True))


class ExpertKernel(nnx.Module):
    """One matrix per expert, (E, inputs, outputs): the layout of a ragged product."""

    def __init__(self, c: TransformerConfig, inputs: int, outputs: int, axes, *, rngs: nnx.Rngs):
        shape, axes = (c.experts, inputs, outputs), ("experts", *axes)
        self.kernel = parameter(rngs.params(), shape, axes, inputs**-0.5)
        if c.quantized:
            self.kernel = nnx.Param(jnp.zeros(shape, jnp.int8), axes=axes)
            self.scale = constant(1.0, (c.experts, outputs), (axes[0], axes[2]), exact=True)

    def __call__(self, rows: Array, sizes: Array, expert: Array) -> Array:
        """Rows sorted by expert, `sizes` of them for each; `expert` names each row's."""
        kernel = self.kernel[...].astype(rows.dtype)
        y = jax.lax.ragged_dot(rows, kernel, sizes, preferred_element_type=wide(rows.dtype))
        if hasattr(self, "scale"):
            y = y * self.scale[...][expert].astype(y.dtype)
        return y.astype(rows.dtype)


class Experts(nnx.Module):
    """Each token goes through its likeliest experts, none is dropped.

    Routing is a float32 softmax over all experts, then the top k, by default not scaled to
    sum to one.
    """

    def __init__(self, c: TransformerConfig, *, rngs: nnx.Rngs):
        self.chosen, self.normalize = c.experts_per_token, c.normalize_experts
        self.router = Linear(c.D, c.experts, axes=(None, "embed"), rngs=rngs)
        self.gate = ExpertKernel(c, c.D, c.F, ("embed", "mlp"), rngs=rngs)
        self.up = ExpertKernel(c, c.D, c.F, ("embed", "mlp"), rngs=rngs)
        self.down = ExpertKernel(c, c.F, c.D, ("mlp", "embed"), rngs=rngs)

    def route(self, rows: Array) -> tuple[Array, Array]:
        """(R, k) weights and ids of the chosen experts."""
        chances = jax.nn.softmax(precise(self.router(rows)))
        weights, experts = jax.lax.top_k(chances, self.chosen)
        if self.normalize:
            weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
        return weights, experts

    def __call__(self, x: Array) -> Array:
        rows = x.reshape(-1, x.shape[-1])
        weights, experts = self.route(rows)
        # Each row stands once for each of its k experts. Sorted by expert, the rows of one are
        # neighbours, as a ragged product wants them; `source` says where they came from.
        order = jnp.argsort(experts.reshape(-1))
        expert, source = experts.reshape(-1)[order], order // self.chosen
        sizes = jnp.bincount(expert, length=self.router.kernel.shape[0]).astype(jnp.int32)
        sorted_rows = rows[source]
        hidden = jax.nn.silu(self.gate(sorted_rows, sizes, expert))
        hidden = hidden * self.up(sorted_rows, sizes, expert)
        out = precise(self.down(hidden, sizes, expert)) * weights.reshape(-1)[order][:, None]
        # In float32, and back to the rows' own places: an expert's share is added to the others'.
        summed = jnp.zeros(rows.shape, out.dtype).at[source].add(out)
        return summed.astype(x.dtype).reshape(x.shape)
