"""Our own count of operations, bytes and what is sent, held to numbers by hand."""

import jax
import jax.numpy as jnp
import pytest

from sake_jax.chips import Chip
from sake_jax.models.grouped import grouped_product
from sake_jax.planning.count import Cost, CostCounter, distinct_experts, trace

CHIP = Chip("slow", "tpu", memory=1e9, flops=100.0, bandwidth=10.0, link=1.0)
ROWS, IN, OUT = 4, 8, 16
X = jax.ShapeDtypeStruct((ROWS, IN), jnp.float32)
KERNEL = jax.ShapeDtypeStruct((OUT, IN), jnp.bfloat16)


def product(x, kernel):
    return jnp.einsum("bi,oi->bo", x, kernel.astype(jnp.float32))


def counted(function, *arguments, sizes=None, marks=None, shares=None) -> Cost:
    marks = marks or [None] * len(arguments)
    counter = CostCounter(CHIP, sizes or {"data": 1, "fsdp": 1, "tensor": 1}, shares)
    return counter.count(trace(function, *arguments), marks)


def test_a_product_by_hand():
    cost = counted(product, X, KERNEL)
    flops, moved = 2 * ROWS * IN * OUT, 4 * (ROWS * IN + OUT * IN + ROWS * OUT)
    assert (cost.flops, cost.bytes, cost.sent) == (flops, moved, 0)
    assert cost.seconds == pytest.approx(max(flops / 100, moved / 10))


def test_loops_count_by_their_rounds():
    def looped(x, kernel):
        return jax.lax.scan(lambda x, _: (product(x, kernel)[:, :IN], None), x, length=5)[0]

    assert counted(looped, X, KERNEL).flops == 5 * counted(product, X, KERNEL).flops


def test_stacked_layers_lose_their_axis():
    stack = jax.ShapeDtypeStruct((3, IN, IN), jnp.float32)

    def layers(x, stack):
        return jax.lax.scan(lambda x, kernel: (product(x, kernel), None), x, stack)[0]

    sizes, marks = {"data": 1, "fsdp": 1, "tensor": 2}, [None, ("layers", "heads", "embed")]
    cost = counted(layers, X, stack, sizes=sizes, marks=marks)
    assert cost.flops == 3 * 2 * ROWS * IN * IN / 2
    # The parameter's half, and half of what is computed.
    assert cost.bytes == 3 * 4 * (IN * IN / 2 + 2 * ROWS * IN / 2)
    assert cost.sent == 0


def test_parameters_are_read_by_every_part_of_a_batch():
    sizes = {"data": 4, "fsdp": 1, "tensor": 1}
    cost = counted(product, X, KERNEL, sizes=sizes, marks=[None, ("mlp", "embed")])
    assert cost.flops == 2 * ROWS * IN * OUT / 4
    assert cost.bytes == 4 * (OUT * IN + (ROWS * IN + ROWS * OUT) / 4)


def test_a_sum_over_a_split_axis_is_sent():
    sizes = {"data": 1, "fsdp": 1, "tensor": 4}
    cost = counted(product, X, KERNEL, sizes=sizes, marks=[None, ("embed", "mlp")])
    # Results are fewer bytes than the kernel: each chip sends and receives three quarters.
    assert cost.sent == min(2 * 4 * ROWS * OUT, 4 * OUT * IN) * 3 / 4
    free = counted(product, X, KERNEL, sizes=sizes, marks=[None, ("mlp", "embed")])
    assert free.sent == 0
    assert cost.seconds == pytest.approx(free.seconds + cost.sent / CHIP.link)


def test_a_choice_costs_its_dearest_branch_or_by_shares():
    def chosen(way, x, kernel):
        twice = lambda: product(product(x, kernel)[:, :IN], kernel)  # noqa: E731
        return jax.lax.cond(way, twice, lambda: product(x, kernel))

    way, once = jax.ShapeDtypeStruct((), jnp.bool_), counted(product, X, KERNEL).flops
    assert counted(chosen, way, X, KERNEL).flops == 2 * once
    # Branches of `cond` stand as (false, true).
    assert counted(chosen, way, X, KERNEL, shares=(0.75, 0.25)).flops == 1.25 * once


def test_calls_and_while_loops_are_looked_into():
    def inside(x, kernel):
        again = lambda carry: (carry[0] + 1, jax.jit(product)(carry[1], kernel)[:, :IN])  # noqa: E731
        return jax.lax.while_loop(lambda carry: carry[0] < 3, again, (0, x))[1]

    assert counted(inside, X, KERNEL).flops == counted(product, X, KERNEL).flops


EXPERTS, CHOSEN = 8, 2
KERNELS = jax.ShapeDtypeStruct((EXPERTS, IN, OUT), jnp.float32)
SIZES = jax.ShapeDtypeStruct((EXPERTS,), jnp.int32)
MARKS = [None, ("experts", "embed", "mlp"), None]


def through_experts(tokens: int, sizes=None, marks=None) -> Cost:
    rows = jax.ShapeDtypeStruct((CHOSEN * tokens, IN), jnp.float32)
    counter = CostCounter(CHIP, sizes or {"data": 1}, experts_per_token=CHOSEN)
    return counter.count(trace(grouped_product, rows, KERNELS, SIZES), marks or [None] * 3)


@pytest.mark.parametrize(("tokens", "read"), [(1, 2.0), (2, 3.5), (3, 4.625), (1000, 8.0)])
def test_only_experts_that_are_chosen_are_read(tokens, read):
    """A token goes through two of eight; two of them through 3.5 on average, many through all."""
    cost = through_experts(tokens)
    assert cost.flops == 2 * CHOSEN * tokens * IN * OUT
    assert cost.bytes == pytest.approx(4 * (CHOSEN * tokens * (IN + OUT) + read * IN * OUT))
    assert distinct_experts(EXPERTS, CHOSEN, tokens) == pytest.approx(read)


def test_experts_on_many_chips():
    """Each has a quarter of the experts, whole; a part of a batch looks for its own."""
    cost = through_experts(2, {"fsdp": 4}, MARKS)
    assert cost.flops == 2 * CHOSEN * 2 * IN * OUT / 4
    assert cost.bytes == pytest.approx(CHOSEN * 2 * (IN + OUT) + 3.5 * IN * OUT)
    assert cost.sent == 0, "rows are everywhere, and what they give goes on where it is"
    last = through_experts(2, {"fsdp": 2, "tensor": 2}, [None, ("experts", "mlp", "embed"), None])
    assert last.sent == 2 * 4 * 2 * OUT * 3 / 4, "added up once for each of two tokens"
    apart = through_experts(2, {"data": 2}, MARKS)
    assert apart.bytes == pytest.approx(4 * (CHOSEN * (IN + OUT) + 2 * IN * OUT))
    assert apart.sent == 0


def test_a_way_of_one_kind_of_chip_is_counted_by_everybodys():
    """Also where a choice of columns has as many branches."""

    def chosen(x, kernel):
        twice = lambda x, kernel: product(product(x, kernel)[:, :IN], kernel)  # noqa: E731
        return jax.lax.platform_dependent(x, kernel, cpu=twice, default=product)

    once = counted(product, X, KERNEL)
    assert counted(chosen, X, KERNEL, shares=(0.75, 0.25)) == once
    assert counted(chosen, X, KERNEL) == once
