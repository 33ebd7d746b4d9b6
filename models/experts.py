"""Experts and their router, on one device or split over a mesh."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.sharding import PartitionSpec

from sake_jax.models.config import EncoderDecoderConfig, TransformerConfig
from sake_jax.models.grouped import grouped_product
from sake_jax.models.layers import constant, parameter
from sake_jax.models.mlp import GatedMLP, activate
from sake_jax.precision import precise, product
from sake_jax.sharding import Axes, compilers_mesh, spec

Config = TransformerConfig | EncoderDecoderConfig
PARTS = ("router", "gate_up", "gate", "up", "down")
SPLIT = ("experts", "mlp")
"""Axes over which a device has a part of the experts."""


@dataclasses.dataclass(frozen=True)
class Split:
    """Mesh axes that split experts, or None."""

    experts: str | None = None
    """The experts themselves."""
    hidden: str | None = None
    """Their hidden widths."""
    fused: str | None = None
    """Gates and what they open, as one width."""


WHOLE = Split()


def place_on(axis: str | None) -> Array | int:
    """This device's place on a mesh axis."""
    return 0 if axis is None else jax.lax.axis_index(axis)


class ExpertKernel(nnx.Module):
    """One matrix per expert, (E, inputs, outputs): the layout of a ragged product."""

    def __init__(self, c: Config, inputs: int, outputs: int, axes: Axes, *, rngs: nnx.Rngs):
        shape, axes = (c.experts, inputs, outputs), ("experts", *axes)
        self.kernel = parameter(rngs.params(), shape, axes, inputs**-0.5)
        if c.quantized:
            self.kernel = nnx.Param(jnp.zeros(shape, jnp.int8), axes=axes)
            self.scale = constant(1.0, (c.experts, outputs), (axes[0], axes[2]), exact=True)

    def __call__(self, rows: Array, sizes: Array, expert: Array) -> Array:
        """In float32, of rows sorted by expert: `sizes` for each, and `expert` names theirs."""
        y = grouped_product(rows, self.kernel[...].astype(rows.dtype), sizes)
        if hasattr(self, "scale"):
            y = y * self.scale[...][expert].astype(y.dtype)
        return y


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
        self.chosen, self.activation = c.experts_per_token, c.activation
        self.router = router or Router(c, rngs=rngs)
        if c.fused_experts:
            self.gate_up = ExpertKernel(c, c.D, 2 * c.F, ("embed", "mlp"), rngs=rngs)
        else:
            self.gate = ExpertKernel(c, c.D, c.F, ("embed", "mlp"), rngs=rngs)
            self.up = ExpertKernel(c, c.D, c.F, ("embed", "mlp"), rngs=rngs)
        self.down = ExpertKernel(c, c.F, c.D, ("mlp", "embed"), rngs=rngs)
        if c.shared_F:
            self.shared = GatedMLP(c, c.shared_F, rngs=rngs)

    def __call__(self, x: Array, routed: Array | None = None) -> Array:
        """(B, T, D) in and out; `routed` is what the router looks at, where it is not `x`."""
        parts = {name: getattr(self, name) for name in PARTS if hasattr(self, name)}
        routed, mesh = x if routed is None else routed, compilers_mesh(x)
        if mesh is None:
            y = self._routed(parts, x, routed)
        else:
            y = self._on_mesh(mesh, parts, x, routed)
        y = y.astype(x.dtype)
        return y + self.shared(x) if hasattr(self, "shared") else y

    def _on_mesh(self, mesh: Any, parts: dict[str, Any], x: Array, routed: Array) -> Array:
        """Every device takes those of its own rows that go through experts which it has, and what
        it has of these; the results are added up. No row goes to another part of the batch, and
        no expert's matrix to another device."""
        graph, state = nnx.split(parts)
        sizes = dict(mesh.shape)

        def place(variable: nnx.Variable) -> PartitionSpec:
            # Rows are whole here, and so is what meets them.
            axes = (name if name in SPLIT else None for name in variable.get_metadata("axes"))
            return spec(variable.shape, tuple(axes), sizes)

        places = jax.tree.map(place, state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
        axes = list(place(self.down.kernel))[:2]
        axes += [place(self.gate_up.kernel)[2]] if "gate_up" in parts else []
        split = Split(*(axis if axis is not None and sizes[axis] > 1 else None for axis in axes))
        rows = spec(x.shape, ("batch", None, None), sizes)
        added = tuple(axis for axis in (split.experts, split.hidden) if axis is not None)

        def own(state: Any, x: Array, routed: Array) -> Array:
            y = self._routed(nnx.merge(graph, state), x, routed, split)
            return jax.lax.psum(y, added) if added else y

        # The loop over blocks of rows does not say over which axes it varies.
        options = {"mesh": mesh, "in_specs": (places, rows, rows), "out_specs": rows}
        return jax.shard_map(own, **options, check_vma=False)(state, x, routed)

    def _routed(
        self, parts: dict[str, Any], x: Array, routed: Array, split: Split = WHOLE
    ) -> Array:
        """In float32, what the experts that are here add to each row."""
        rows = x.reshape(-1, x.shape[-1])
        weights, experts = parts["router"](routed.reshape(rows.shape))
        here = parts["down"].kernel.shape[0]
        # Each row stands once for each of its k experts. Sorted by expert, the rows of one are
        # neighbours, as a ragged product wants them; `source` says where they came from. Those of
        # experts that are elsewhere come last, and nothing is multiplied with them.
        expert = experts.reshape(-1) - here * place_on(split.experts)
        expert = jnp.where((expert >= 0) & (expert < here), expert, here)
        order = jnp.argsort(expert)
        expert, source = expert[order], order // self.chosen
        sizes = jnp.bincount(expert, length=here + 1)[:here].astype(jnp.int32)
        hidden = self._gated(parts, rows[source], sizes, expert, split)
        out = parts["down"](hidden, sizes, expert) * weights.reshape(-1)[order][:, None]
        out = jnp.where((expert < here)[:, None], out, 0)
        # Back to the rows' own places: an expert's share is added to the others'.
        return jnp.zeros(rows.shape, out.dtype).at[source].add(out).reshape(x.shape)

    def _gated(
        self, parts: dict[str, Any], rows: Array, sizes: Array, expert: Array, split: Split
    ) -> Array:
        """silu(gate x) * up x of rows that are sorted by expert."""
        if "gate_up" in parts:
            both = parts["gate_up"](rows, sizes, expert).astype(rows.dtype)
            if split.fused is not None:
                # Split as one axis, across the middle: activations move, but no weights do.
                both = jax.lax.all_gather(both, split.fused, axis=1, tiled=True)
            gate, up = jnp.split(both, 2, axis=-1)
            if split.hidden is not None:
                width = parts["down"].kernel.shape[1]
                start = width * place_on(split.hidden)
                cut = functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=width, axis=1)
                gate, up = cut(gate, start), cut(up, start)
        else:
            gate, up = (
                parts[name](rows, sizes, expert).astype(rows.dtype) for name in ("gate", "up")
            )
        return activate(self.activation, gate) * up
