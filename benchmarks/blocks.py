"""Block diffusion with its exact cache against without one, and experts against a dense layer.

A network in the form of SDAR's (Qwen3) with random weights, batch 1, blocks of 32 in two steps
each, by the length of the text. Both sides write the same tokens, or it stops. Then one layer's
experts in the proportions of LLaDA2-mini, against a dense MLP as wide as what a token goes through:
by our own way on a CPU, and by `jax.lax.ragged_dot`, which multiplies every row with every expert
there. All sides in turn, on at most two cores; ratios are of medians, with 95 % intervals from a
bootstrap over the rounds. Operations are counted from the traces, loops by their rounds.

    python benchmarks/blocks.py [--repeats 5] [--json results.json] [--quick] [--count]
"""

import argparse
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from flax import nnx

import sake_jax as sj
from sake_jax.chips import CHIPS
from sake_jax.conversion import family
from sake_jax.files import write_atomically
from sake_jax.models import LanguageModel, TransformerConfig, experts, init
from sake_jax.models.mlp import GatedMLP
from sake_jax.planning.bench.interleaved import Side, measure_in_turn
from sake_jax.planning.count import CostCounter, distinct_experts, trace
from sake_jax.planning.forecast import read_shares

CORES = 2
PROMPT, PER_BLOCK = 32, 2
CACHED, PLAIN = "exact cache", "no cache"
DENSE, OURS, RAGGED = "dense, as wide as what is active", "experts", "experts, by `ragged_dot`"

SDAR = TransformerConfig(
    V=2048, D=128, N=2, H=4, K=2, head_dim=32, F=384, context=4096, qk_norm=True, block_size=32
)
LENGTHS = (256, 512, 1024, 2048)
EXPERTS = TransformerConfig(
    V=8, D=512, N=1, H=1, K=1, head_dim=64, F=128, context=8, experts=64, experts_per_token=8,
    expert_score="sigmoid", normalize_experts=True, expert_bias=True, expert_groups=8,
    groups_per_token=4, shared_F=128,
)  # fmt: skip
"""LLaDA2-mini's proportions, a quarter as wide, and with a quarter of the experts."""
ROWS = (32, 256, 1024)


def count(function: Callable, *arguments: Any, chosen: int = 1, plan: Any = None) -> float:
    """Operations of a program's matrix products."""
    shares = read_shares(plan, arguments[-1]) if plan else None
    counter = CostCounter(CHIPS["v5e"], {}, shares, chosen)
    return counter.count(
        trace(function, *arguments), [None] * len(jax.tree.leaves(arguments))
    ).flops


def measure_length(c: TransformerConfig, length: int, repeats: int) -> dict[str, Any]:
    """Runs with and without the cache, and their operations."""
    lm = LanguageModel(family("sdar").model(c, mask_id=c.V - 1), init(c, jax.random.key(0)))
    prompt = np.random.default_rng(0).integers(0, c.V - 1, (1, PROMPT)).tolist()
    options = {"mask_id": c.V - 1, "align": c.block_size, "positions": "tokens"}
    canvas = sj.canvas(prompt, length, **options)
    steps = PER_BLOCK * length // c.block_size
    sides, flops = {}, {}
    for name, cache in ((PLAIN, "none"), (CACHED, "exact")):
        sampler = sj.block(lm, length=length, steps=steps, noise=sj.still, cache=cache)
        given = sampler, lm.params, jax.random.key(0), canvas
        sides[name] = run_side(given)
        flops[name] = count(sj.run, *given, plan=sampler.plan)
    if not repeats:
        return {"length": length, "steps": steps, "flops": flops}
    found = measure_in_turn(f"{length} columns", sides, repeats, [CACHED], require_equal)
    return found | {"length": length, "steps": steps, "flops": flops}


def run_side(given: tuple) -> Side:
    return lambda: np.asarray(sj.run(*given)[0].tokens)


def require_equal(tokens: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(tokens[PLAIN], tokens[CACHED], "the cache changed tokens")


def measure_experts(c: TransformerConfig, rows: int, repeats: int) -> dict[str, Any]:
    """One layer's experts and a dense MLP of the same active width."""
    active = c.experts_per_token * c.F + c.shared_F
    x = jax.random.normal(jax.random.key(1), (1, rows, c.D))
    sparse = experts.Experts(c, rngs=nnx.Rngs(0))
    functions = {
        DENSE: as_function(GatedMLP(c, active, rngs=nnx.Rngs(0))),
        OURS: as_function(sparse),
        RAGGED: as_function(sparse),
    }
    chosen = c.experts_per_token
    flops = {name: count(f, s, x, chosen=chosen) for name, (f, s) in functions.items()}
    read = distinct_experts(c.experts, chosen, rows)
    counted = {"rows": rows, "flops": flops, "read": read, "experts": c.experts}
    if not repeats:
        return counted
    compiled = {}
    for name, (function, state) in functions.items():
        # The second way of the same layer is looked up while its program is traced: anew, since
        # JAX remembers the trace of a function that was counted.
        own = jax.lax.ragged_dot if name == RAGGED else experts.grouped_product
        anew = functools.partial(function)
        with mock.patch.object(experts, "grouped_product", own):
            compiled[name] = jax.jit(anew).lower(state, x).compile(), state
    sides = {name: layer_side(program, state, x) for name, (program, state) in compiled.items()}
    found = measure_in_turn(f"{rows} rows", sides, repeats, [DENSE], require_close)
    return found | counted


def as_function(module: nnx.Module) -> tuple[Callable, Any]:
    """A module as a pure function of its parameters, and these."""
    graph, state = nnx.split(module)
    return (lambda state, x: nnx.merge(graph, state)(x)), state


def layer_side(program: Any, state: Any, x: jax.Array) -> Side:
    return lambda: np.asarray(program(state, x))


def require_close(results: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(results[OURS], results[RAGGED], atol=1e-4)


def rows_of(*lines: Iterable[str]) -> list[str]:
    first, *others = ("| " + " | ".join(line) + " |" for line in lines)
    return ["", first, "|" + "---|" * (first.count("|") - 1), *others, ""]


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    cell = lambda ratio: "{:.2f} ({:.2f} to {:.2f})".format(*ratio)  # noqa: E731
    ms = lambda part, name: f"{1e3 * np.median(part['seconds'][name]):.1f}"  # noqa: E731
    lines = [f"{found['network']}; jax {jax.__version__}, {found['cores']}.", ""]
    lines += ["### Block diffusion without a cache, in runs with the exact one", ""]
    lines += [f"Prompt {PROMPT}; both sides wrote the same tokens."]
    body = [["columns", "steps", "ms with the cache", "ms without", "time", "operations"]]
    for part in found["lengths"]:
        flops = part["flops"][PLAIN] / part["flops"][CACHED]
        times = [ms(part, CACHED), ms(part, PLAIN), cell(part["against"][CACHED][PLAIN])]
        body.append([f"{part['length']:,}", str(part["steps"]), *times, f"{flops:.2f}"])
    lines += rows_of(*body)
    lines += ["### Experts, in dense layers of the same active width", "", found["experts network"]]
    body = [["rows", "experts read", "ms dense", OURS, RAGGED, "operations"]]
    for part in found["experts"]:
        flops, against = part["flops"][OURS] / part["flops"][DENSE], part["against"][DENSE]
        read = f"{part['read']:.0f} of {part['experts']}"
        ratios = [cell(against[name]) for name in (OURS, RAGGED)]
        body.append([f"{part['rows']:,}", read, ms(part, DENSE), *ratios, f"{flops:.2f}"])
    lines += rows_of(*body)
    cores = max(part["others"] for part in [*found["lengths"], *found["experts"]])
    busy = ", TOO MANY" * (cores > 0.1)
    lines += [f"Other processes used up to {cores:.2f} of them meanwhile{busy}."]
    return "\n".join(lines)


def counted_table(found: dict[str, Any]) -> str:
    """What was counted, as Markdown, where nothing was measured."""
    lines = [f"{found['network']}; counted, not measured."]
    body = [["columns", "steps", "operations without a cache, in those with the exact one"]]
    for part in found["lengths"]:
        ratio = part["flops"][PLAIN] / part["flops"][CACHED]
        body.append([f"{part['length']:,}", str(part["steps"]), f"{ratio:.2f}"])
    lines += [*rows_of(*body), found["experts network"]]
    body = [["rows", "experts read", "operations, in those of a dense layer as wide as is active"]]
    for part in found["experts"]:
        ratio = part["flops"][OURS] / part["flops"][DENSE]
        body.append(
            [f"{part['rows']:,}", f"{part['read']:.0f} of {part['experts']}", f"{ratio:.2f}"]
        )
    return "\n".join([*lines, *rows_of(*body)])


def sizes_of(c: TransformerConfig) -> str:
    return f"{c.N} layers, D {c.D:,}, F {c.F:,}, V {c.V:,}, blocks of {c.block_size}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--count", action="store_true", help="operations alone, without times")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it finds cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    c, layer, lengths, rows = SDAR, EXPERTS, LENGTHS, ROWS
    repeats = 0 if options.count else options.repeats
    if options.quick:
        c = dataclasses.replace(SDAR, V=64, D=16, N=1, head_dim=8, F=16, block_size=4)
        layer = dataclasses.replace(EXPERTS, D=16, F=8, shared_F=8)
        lengths, rows, repeats = (8, 16), (4,), min(repeats, 2)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {
        "network": sizes_of(c),
        "cores": "one core" if cores == 1 else f"{cores} cores",
        "experts network": f"D {layer.D}, {layer.experts_per_token} of {layer.experts} experts of "
        f"F {layer.F}, and a shared one.",
        "lengths": [measure_length(c, length, repeats) for length in lengths],
        "experts": [measure_experts(layer, count, repeats) for count in rows],
    }
    print(counted_table(found) if options.count else table(found))
    if options.json:
        write_atomically(options.json, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
