"""Plans: which columns are read and written at which step."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import require
from sake_jax.core import Canvas, View


class Blocks(struct.PyTreeNode):
    """Blocks from left to right, the same number of steps for each; one block is plain."""

    blocks: int = struct.field(pytree_node=False)
    width: int = struct.field(pytree_node=False)
    steps_per_block: int = struct.field(pytree_node=False)

    @property
    def steps(self) -> int:
        return self.blocks * self.steps_per_block

    @property
    def length(self) -> int:
        return self.blocks * self.width

    def view(self, canvas: Canvas, step: Array) -> View:
        batch, columns = canvas.tokens.shape
        rule = f"the canvas must have {self.length} columns to write, as the plan has"
        require(canvas.start + self.length == columns, rule, columns - canvas.start, "match them")
        block, inner = step // self.steps_per_block, step % self.steps_per_block
        left = self.steps_per_block - inner
        start = canvas.start + block * self.width
        time = left.astype(jnp.float32) / self.steps_per_block
        next_time = (left - 1).astype(jnp.float32) / self.steps_per_block
        view = View(
            tokens=canvas.tokens,
            open=canvas.open,
            prompt=canvas.prompt,
            attend=canvas.attend,
            positions=canvas.positions,
            time=jnp.full(batch, time),
            next_time=jnp.full(batch, next_time),
            progress=jnp.full(batch, step.astype(jnp.float32) / self.steps),
            quota=jnp.zeros(batch, jnp.int32),
            start=start,
            width=self.width,
            samples=canvas.samples,
            mask_id=canvas.mask_id,
            origin=canvas.start,
        )
        remaining = jnp.sum(view.window(canvas.open & canvas.attend), axis=1)
        return view.replace(quota=-(-remaining // left))  # so that the last step leaves none


def blocks(length: int, steps: int, block: int | None = None) -> Blocks:
    """Writes `length` columns in `steps` steps, `block` columns at a time (all by default)."""
    block = length if block is None else block
    rule = "length must be a multiple of block"
    require(block > 0 and length % block == 0, rule, (length, block), "pick a divisor of length")
    count = length // block
    rule = f"steps must be a multiple of the {count} blocks and at least one for each"
    require(steps >= count and steps % count == 0, rule, steps, f"use {count * -(-steps // count)}")
    return Blocks(count, block, steps // count)
