"""What a step is made of: time and operations of its parts, against the machine's own matmul.

Every part is a program of its own, compiled for the same shapes; all of them, the whole step and a
large float32 product run in turn, on the same threads. Parts that are not programs by themselves
are differences: of steps with SAKE and without, and of a step and all its parts.

    python benchmarks/step.py [--repeats 7] [--threads 1] [--json results.json] [--quick]
"""

import argparse
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.files import write_atomically
from sake_jax.guidance.compose import guide
from sake_jax.models.attention import plain
from sake_jax.models.network import split_layers
from sake_jax.planning.bench.interleaved import Side, measure_in_turn
from sake_jax.planning.bench.scaled import random_model, scaled_config
from sake_jax.precision import product
from sake_jax.samplers.loop import begin
from sake_jax.samplers.noise import row_keys
from sake_jax.samplers.step import context, settle, step
from sake_jax.tables import table

ROOF = "one large product"
STEP, SAKE = "a step", "a step with SAKE"
READ, HEAD, NOISE = "the read", "head, on the window", "noise"
PROJECTIONS, ATTENTION, MLP = "projections", "attention", "MLP"
SETTLE = "all that follows the head"
INSIDE = (PROJECTIONS, ATTENTION, MLP)
BETWEEN = 0.25
"""Seconds that a side runs at least, so that a clock's tick does not matter."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and the run whose step is taken apart."""

    title: str
    lm: sj.LanguageModel
    prompt: int
    length: int
    block: int

    def sampler(self, guidance: sj.Guidance) -> sj.Sampler:
        draw = sj.temperature(0.7)
        options = {"length": self.length, "block": self.block, "draw": draw}
        return sj.masked(self.lm, guidance=guidance, **options)


def projections(layers: Any, x: jax.Array) -> jax.Array:
    """All four of every layer, each on what the last has made."""
    for layer in layers:
        own = layer["attention"]
        into = (own[name]["kernel"] for name in ("query", "key", "value"))
        q, k, v = (product("bti,oi->bto", x, kernel) for kernel in into)
        x = x + product("bti,oi->bto", q + k + v, own["out"]["kernel"])
    return x


def mlp(layers: Any, x: jax.Array) -> jax.Array:
    for layer in layers:
        gate, up, down = (layer["mlp"][name]["kernel"] for name in ("gate", "up", "down"))
        inner = jax.nn.silu(product("bti,oi->bto", x, gate)) * product("bti,oi->bto", x, up)
        x = x + product("bti,oi->bto", inner, down)
    return x


def attention(count: int, q: jax.Array, k: jax.Array, visible: jax.Array) -> jax.Array:
    for _ in range(count):
        q = plain(q, k, q, visible)
    return q


def programs(case: Case, size: int) -> dict[str, tuple[Callable, tuple]]:
    """The parts, and what each is called with."""
    c: Any = case.lm.config.network
    sampler, guided = case.sampler(sj.identity()), case.sampler(sj.sake(1.0))
    params, key = split_layers(case.lm.params), jax.random.key(0)
    rows = np.random.default_rng(0).integers(0, c.V - 1, (1, case.prompt)).tolist()
    start = sj.canvas(rows, case.length, mask_id=case.lm.config.mask_id)
    state = jax.jit(begin)(sampler, params, key, start)
    with_sake = jax.jit(begin)(guided, params, key, start)
    view = sampler.plan.view(state.canvas, state.step)
    keys = row_keys(key, state.canvas, state.step)
    columns = case.prompt + case.length
    x = jax.random.normal(key, (1, columns, c.D))
    q = jax.random.normal(key, (1, columns, c.H, c.head_dim))
    k = jax.random.normal(key, (1, columns, c.K, c.head_dim))
    visible = jnp.ones((1, columns, columns), bool)
    square = jax.random.normal(key, (size, size))

    def whole(sampler: sj.Sampler, params: Any, state: Any) -> Any:
        return step(sampler, params, key, state)

    def read(params: Any, view: Any) -> Any:
        return sampler.denoiser.read(params, view, None)[0]

    def head(params: Any, rows: jax.Array) -> jax.Array:
        return sampler.denoiser.head(params, rows)

    def after(params: Any, state: Any, logits: jax.Array, features: jax.Array) -> Any:
        ctx = context(sampler, params, view, features, state.draw, None)
        unguided = jax.eval_shape(lambda: guide(sampler.guidance, state.guidance, ctx))
        made = unguided.replace(logits=logits, base=logits, state=state.guidance, reports=())
        return settle(sampler, params, key, state, made, ctx)

    window = x[:, : case.block]
    logits = jax.jit(head)(params, window)
    layers = params["blocks"]
    return {
        ROOF: (jnp.matmul, (square, square)),
        STEP: (functools.partial(whole, sampler), (params, state)),
        SAKE: (functools.partial(whole, guided), (params, with_sake)),
        READ: (read, (params, view)),
        PROJECTIONS: (projections, (layers, x)),
        ATTENTION: (functools.partial(attention, c.N), (q, k, visible)),
        MLP: (mlp, (layers, x)),
        HEAD: (head, (params, window)),
        NOISE: (lambda keys: sampler.noise(keys, view, c.V), (keys,)),
        SETTLE: (after, (params, state, logits, x)),
    }


def measure(case: Case, repeats: int, size: int) -> dict[str, Any]:
    """Seconds of each part in every round, and its operations by the compiler's count."""
    sides: dict[str, Side] = {}
    flops, often = {}, {}
    for name, (function, given) in programs(case, size).items():
        compiled = jax.jit(function).lower(*given).compile()
        flops[name] = float(compiled.cost_analysis().get("flops", 0.0))
        often[name] = max(1, round(BETWEEN / _seconds(compiled, given))) if repeats > 2 else 1

        def side(compiled: Any = compiled, given: Any = given, times: int = often[name]) -> None:
            for _ in range(times):
                jax.block_until_ready(compiled(*given))

        sides[name] = side
    times = measure_in_turn(case.title, sides, repeats, [STEP])
    seconds = {name: (np.array(s) / often[name]).tolist() for name, s in times["seconds"].items()}
    about = {"title": case.title, "others": times["others"], "flops": flops}
    return about | {"seconds": seconds}


def _seconds(compiled: Any, given: tuple) -> float:
    jax.block_until_ready(compiled(*given))
    begun = time.perf_counter()
    jax.block_until_ready(compiled(*given))
    return time.perf_counter() - begun


def parts(found: dict[str, Any]) -> list[tuple[str, np.ndarray, float]]:
    """Name, seconds by round, and operations of what a step is made of; they add up to it."""
    seconds = {name: np.array(values) for name, values in found["seconds"].items()}
    flops = found["flops"]
    inside = sum(seconds[name] for name in INSIDE)
    rows = [(name, seconds[name], flops[name]) for name in INSIDE]
    rest = flops[READ] - sum(flops[name] for name in INSIDE)
    rows.append(("norms, rotations, embedding", seconds[READ] - inside, rest))
    rows += [(name, seconds[name], flops[name]) for name in (HEAD, NOISE)]
    draw = flops[SETTLE] - flops[NOISE]
    rows.append(("draw, confidence, reveal", seconds[SETTLE] - seconds[NOISE], draw))
    known = seconds[READ] + seconds[HEAD] + seconds[SETTLE]
    left = flops[STEP] - flops[READ] - flops[HEAD] - flops[SETTLE]
    rows.append(("the rest, or what is saved together", seconds[STEP] - known, left))
    rows.append((STEP, seconds[STEP], flops[STEP]))
    rows.append(("SAKE adds", seconds[SAKE] - seconds[STEP], flops[SAKE] - flops[STEP]))
    rows.append((ROOF, seconds[ROOF], flops[ROOF]))
    return rows


def interval(values: np.ndarray) -> str:
    """A median, and the ends of its 95 % interval by a bootstrap over rounds."""
    drawn = np.random.default_rng(0).integers(0, values.size, (2000, values.size))
    low, high = np.quantile(np.median(values[drawn], axis=1), [0.025, 0.975])
    return f"{np.median(values):.2f} ({low:.2f} to {high:.2f})"


def render(found: dict[str, Any]) -> str:
    """One case as Markdown."""
    seconds = {name: np.array(values) for name, values in found["seconds"].items()}
    roof = found["flops"][ROOF] / seconds[ROOF]
    lines = [["", "ms", "of a step, %", "GFLOP", "GFLOP/s", "of the large product's rate, %"]]
    for name, own, flops in parts(found):
        share = "" if name == ROOF else interval(100 * own / seconds[STEP])
        counted = name in (*INSIDE, HEAD, STEP, ROOF)
        rate = f"{np.median(flops / own) / 1e9:.1f}" if counted else ""
        of_roof = interval(100 * flops / own / roof) if counted else ""
        lines.append(
            [name, f"{1e3 * np.median(own):.2f}", share, f"{flops / 1e9:.3f}", rate, of_roof]
        )
    busy = f"Other processes used {found['others']:.2f} cores meanwhile."
    return "\n\n".join([f"### {found['title']}", table(lines), busy])


def cases(quick: bool) -> list[Case]:
    stories = sj.load("tinystories")
    if quick:
        return [Case("tinystories", stories, prompt=4, length=8, block=4)]
    llada = random_model(scaled_config(512, 32_768, 8, 8))
    return [
        Case("tinystories: prompt 16, 64 columns in blocks of 32", stories, 16, 64, 32),
        Case(
            "8 layers, D 512, F 1,536, V 32,768; prompt 128, 128 columns in blocks of 32",
            *(llada, 128, 128, 32),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it finds cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else options.threads
    repeats, size = (2, 256) if options.quick else (options.repeats, 2048)
    found = [measure(case, repeats, size) for case in cases(options.quick)]
    about = f"`python benchmarks/step.py`, float32, {threads} threads; medians of {repeats} rounds."
    print("\n\n".join(["# What a step is made of", about, *map(render, found)]))
    if options.json:
        write_atomically(options.json, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
