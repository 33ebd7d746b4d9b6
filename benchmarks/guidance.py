"""What a guidance costs, against one evaluation of the head on the window.

By the compiler's count of floating-point operations at the shapes of LLaDA-8B, where nothing is
run, and by the clock at a reduced size, interleaved, medians. "Dense" is Algorithm 1 as written:
head and signal for all positions. "Largest array" is the largest intermediate of the compiled
program: the proof that nothing of size L x V exists outside the dense form.

    python benchmarks/guidance.py [--json results.json]
"""

import argparse
import dataclasses
import json
import math
import re
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.core import Context, Tables
from sake_jax.files import write_atomically
from sake_jax.guidance.compose import guide
from sake_jax.guidance.diversity import table_spread
from sake_jax.view import View


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int
    vocabulary: int
    window: int
    length: int

    def __str__(self) -> str:
        return f"D {self.width:,}, V {self.vocabulary:,}, W {self.window}, L {self.length:,}"


LLADA = [Shape(4096, 126_464, 32, length) for length in (256, 512, 1024, 2048)]
SMALL = [Shape(512, 16_384, 32, length) for length in (256, 2048)]
FORMS = {
    "dense, Algorithm 1": sj.paper_sake(1.0, 20.0),
    "window only, input table": sj.paper_sake(1.0, 20.0),
    "projected with the head": sj.chain(sj.top_p(1.0), sj.sake(1.0, normalize="none")),
    "folded": sj.sake(1.0, normalize="none"),
    "folded, closed form": sj.sake(1.0, normalize="none", gradient="closed_form"),
    "folded, rms": sj.sake(1.0),
}


def view_of(shape: Shape, whole: bool) -> View:
    row = jnp.zeros(1)
    columns = jnp.ones((1, shape.length), bool)
    canvas = sj.Canvas(
        tokens=jnp.zeros((1, shape.length), jnp.int32),
        open=columns,
        prompt=~columns,
        attend=columns,
        positions=jnp.arange(shape.length)[None, :],
        prompt_id=jnp.zeros(1, jnp.int32),
        sample_id=jnp.zeros(1, jnp.int32),
    )
    return View(
        canvas=canvas,
        window_start=jnp.int32(0),
        time=row,
        next_time=row,
        progress=row,
        quota=jnp.ones(1, jnp.int32),
        width=shape.length if whole else shape.window,
    )


def arguments(shape: Shape, abstract: bool) -> dict[str, Any]:
    """Features, both tables, and what `init` leaves in the guidance's state."""
    shapes = {
        "features": (1, shape.length, shape.width),
        "input": (shape.vocabulary, shape.width),
        "output": (shape.vocabulary, shape.width),
        "spread": (shape.width, shape.width),
    }
    if abstract:
        return {name: jax.ShapeDtypeStruct(s, jnp.float32) for name, s in shapes.items()}
    random = np.random.default_rng(0)
    return {name: jnp.asarray(random.normal(size=s), jnp.float32) for name, s in shapes.items()}


def program(guidance: sj.Guidance, shape: Shape, whole: bool):
    """One step's head and guidance, as a function of arrays."""
    composed = sj.chain(guidance)

    def run(arrays):
        ctx = Context(
            view=view_of(shape, whole),
            features=arrays["features"],
            tables=Tables(arrays["input"], arrays["output"]),
            head=lambda rows: jnp.einsum("bwd,vd->bwv", rows, arrays["output"]),
            read=lambda view, cache: (arrays["features"], cache),
            log_q=lambda logits: logits,
        )

        def with_spread(state):  # computed once per run, so not part of a step
            if getattr(state, "spread", None) is None:
                return state
            return state.replace(spread=arrays["spread"])

        state = tuple(with_spread(part.init(ctx)) for part in composed.parts)
        return guide(composed, state, ctx).logits

    return run


def compiled(guidance: sj.Guidance, shape: Shape, whole: bool):
    return jax.jit(program(guidance, shape, whole)).lower(arguments(shape, True)).compile()


def spread_program(shape: Shape):
    """What `sake` with normalize="rms" computes before the first step."""
    return jax.jit(table_spread).lower(arguments(shape, True)["output"]).compile()


def flops(executable) -> float:
    cost = executable.cost_analysis()
    return float((cost[0] if isinstance(cost, list) else cost)["flops"])


def largest(executable) -> int:
    """Elements of the largest array the program makes; arguments are not made."""
    lines = [line for line in executable.as_text().splitlines() if " parameter(" not in line]
    sizes = re.findall(r"= f32\[([\d,]+)\]", "\n".join(lines))
    return max(math.prod(map(int, size.split(","))) for size in sizes)


def median_seconds(functions: dict[str, Any], arrays, repeats: int) -> dict[str, float]:
    """Interleaved, so that a busy moment hits every form alike."""
    for function in functions.values():
        jax.block_until_ready(function(arrays))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(function(arrays))
            times[name].append(time.perf_counter() - begin)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", help="also write the numbers here")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for shape in LLADA:
        head = flops(compiled(sj.identity(), shape, False))
        print(f"\n### {shape}: flops added, in window heads ({head:.3g} flops)\n")
        print("| form | added | largest array / (W V) |\n|---|---|---|")
        for name, guidance in FORMS.items():
            executable = compiled(guidance, shape, name.startswith("dense"))
            added = flops(executable) / head - 1
            size = largest(executable) / (shape.window * shape.vocabulary)
            print(f"| {name} | {added:+.2%} | {size:.2f} |", flush=True)
            row = dict(shape=str(shape), form=name, added_flops=added, largest=size)
            results.append(row)
        once = flops(spread_program(shape)) / head
        print(f"\nOnce per run, for rms: the table's covariance, {once:.0f} window heads.")
    for shape in SMALL:
        functions = {"unguided": jax.jit(program(sj.identity(), shape, False))}
        for name, guidance in FORMS.items():
            functions[name] = jax.jit(program(guidance, shape, name.startswith("dense")))
        seconds = median_seconds(functions, arguments(shape, False), options.repeats)
        print(f"\n### {shape}: time, in window heads ({seconds['unguided'] * 1e3:.1f} ms)\n")
        print("| form | ratio |\n|---|---|")
        for name, value in seconds.items():
            print(f"| {name} | {value / seconds['unguided']:.2f} |", flush=True)
            results.append(
                dict(shape=str(shape), form=name, time_ratio=value / seconds["unguided"])
            )
    if options.json:
        write_atomically(options.json, json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
