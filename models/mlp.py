"""What follows attention in a layer: a dense MLP, or experts and a router."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from sake_jax.models.config import EncoderDecoderConfig, TransformerConfig
from sake_jax.models.grouped import grouped_product
from sake_jax.models.layers import Linear, constant, parameter
from sake_jax.precision import precise, product

Config = TransformerConfig | EncoderDecoderConfig


def activate(name: str, x: Array) -> Array:
    """SiLU, or the tanh form of GELU."""
    return jax.nn.silu(x) if name == "silu" else jax.nn.gelu(x, approximate=True)


class GatedMLP(nnx.Module):
    """down(silu(gate x) * up x), or with GELU."""

    def __init__(self, c: Config, F: int, *, rngs: nnx.Rngs):
        options = {"bias": c.bias, "quantized": c.quantized, "rngs": rngs}
        self.activation = c.activation
        self.gate = Linear(c.D, F, axes=("mlp", "embed"), **options)
        self.up = Linear(c.D, F, axes=("mlp", "embed"), **options)
        self.down = Linear(F, c.D, axes=("embed", "mlp"), **options)

    def __call__(self, x: Array) -> Array:
        return self.down(activate(self.activation, self.gate(x)) * self.up(x))


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

    def __init__(self, c: Config, inputs: int, outputs: int, axes, *, rngs: nnx.Rngs):
        shape, axes = (c.experts, inputs, outputs), ("experts", *axes)
        self.kernel = parameter(rngs.params(), shape, axes, inputs**-0.5)
        if c.quantized:
            self.kernel = nnx.Param(jnp.zeros(shape, jnp.int8), axes=axes)
            self.scale = constant(1.0, (c.experts, outputs), (axes[0], axes[2]), exact=True)

    def __call__(self, rows: Array, sizes: Array, expert: Array) -> Array:
        """Rows sorted by expert, `sizes` of them for each; `expert` names each row's."""
        y = grouped_product(rows, self.kernel[...].astype(rows.dtype), sizes)
        if hasattr(self, "scale"):
            y = y * self.scale[...][expert].astype(y.dtype)
        return y.astype(rows.dtype)


class Router(nnx.Module):
    """Which experts a row goes through, and with which weights.

    Weights are a float32 softmax over all experts, or the sigmoid of each; of the chosen ones
    they may be scaled to sum to one, and by a number. The choice is the top k by weight, or by
    weight plus a bias (LLaDA2), perhaps from a few groups of experts only.
    """

    def __init__(self, c: Config, *, rngs: nnx.Rngs):
        self.config = c
        self.kernel = parameter(rngs.params(), (c.experts, c.D), (None, "embed"), c.D**-0.5)
        if c.expert_bias:
            self.bias = constant(0.0, (c.experts,), (None,), exact=True)

    def __call__(self, rows: Array) -> tuple[Array, Array]:
        """(R, k) weights and ids of the chosen experts."""
        c = self.config
        if c.expert_score == "sigmoid":  # LLaDA2's router is computed in float32
            scores = jax.nn.sigmoid(self._logits(precise(rows)))
        else:
            scores = jax.nn.softmax(precise(self._logits(rows)))
        choice = scores + self.bias[...][None] if c.expert_bias else scores
        _, experts = jax.lax.top_k(self._in_groups(choice), c.experts_per_token)
        weights = jnp.take_along_axis(scores, experts, axis=-1)
        if c.normalize_experts:
            # LLaDA2's reference has this small number, and for others it changes nothing.
            weights = weights / (jnp.sum(weights, axis=-1, keepdims=True) + 1e-20)
        return weights * c.expert_scale, experts

    def _logits(self, rows: Array) -> Array:
        return product("ri,ei->re", rows, self.kernel[...].astype(rows.dtype)).astype(rows.dtype)

    def _in_groups(self, choice: Array) -> Array:
        """The same, with no chance for experts outside the best groups."""
        c = self.config
        if c.groups_per_token == c.expert_groups:
            return choice
        grouped = choice.reshape(choice.shape[0], c.expert_groups, -1)
        best_two, _ = jax.lax.top_k(grouped, min(2, grouped.shape[-1]))
        _, groups = jax.lax.top_k(jnp.sum(best_two, axis=-1), c.groups_per_token)
        inside = jnp.any(groups[:, :, None] == jnp.arange(c.expert_groups)[None, None], axis=1)
        return jnp.where(inside[:, :, None], grouped, -jnp.inf).reshape(choice.shape)


class Experts(nnx.Module):
    """Each token goes through the experts that its router chooses, none is dropped, and through
    the shared one, if there is one."""

    def __init__(self, c: Config, *, router: Router | None = None, rngs: nnx.Rngs):
        self.count, self.chosen = c.experts, c.experts_per_token
        self.activation = c.activation
        self.router = router or Router(c, rngs=rngs)
        if c.fused_experts:
            # Split as one axis, across the middle: some activations move, but no weights do.
            self.gate_up = ExpertKernel(c, c.D, 2 * c.F, ("embed", "mlp"), rngs=rngs)
        else:
            self.gate = ExpertKernel(c, c.D, c.F, ("embed", "mlp"), rngs=rngs)
            self.up = ExpertKernel(c, c.D, c.F, ("embed", "mlp"), rngs=rngs)
        self.down = ExpertKernel(c, c.F, c.D, ("mlp", "embed"), rngs=rngs)
        if c.shared_F:
            self.shared = GatedMLP(c, c.shared_F, rngs=rngs)

    def __call__(self, x: Array, routed: Array | None = None) -> Array:
        """(B, T, D) in and out; `routed` is what the router looks at, where it is not `x`."""
        rows = x.reshape(-1, x.shape[-1])
        weights, experts = self.router(rows if routed is None else routed.reshape(rows.shape))
        # Each row stands once for each of its k experts. Sorted by expert, the rows of one are
        # neighbours, as a ragged product wants them; `source` says where they came from.
        order = jnp.argsort(experts.reshape(-1))
        expert, source = experts.reshape(-1)[order], order // self.chosen
        sizes = jnp.bincount(expert, length=self.count).astype(jnp.int32)
        hidden = self._gated(rows[source], sizes, expert)
        out = precise(self.down(hidden, sizes, expert)) * weights.reshape(-1)[order][:, None]
        # In float32, and back to the rows' own places: an expert's share is added to the others'.
        summed = jnp.zeros(rows.shape, out.dtype).at[source].add(out)
        y = summed.astype(x.dtype).reshape(x.shape)
        return y + self.shared(x) if hasattr(self, "shared") else y

    def _gated(self, rows: Array, sizes: Array, expert: Array) -> Array:
        """silu(gate x) * up x of rows that are sorted by expert."""
        if hasattr(self, "gate_up"):
            gate, up = jnp.split(self.gate_up(rows, sizes, expert), 2, axis=-1)
        else:
            gate, up = self.gate(rows, sizes, expert), self.up(rows, sizes, expert)
        return activate(self.activation, gate) * up
