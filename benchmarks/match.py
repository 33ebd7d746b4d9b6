"""What `sj.matches` costs: a step of a run with a form, against the same step without.

First for the built-in model, in steps of its network. Then at LLaDA's vocabulary with a network of
nearly no work, in evaluations of LLaDA's head on the window (measured at a smaller width, with
which its time grows in proportion) and, by the count of operations, in steps of LLaDA-8B. All sides
in turn, two threads at most, medians. Compiling a form is done once, in plain Python. Last, what
is planned for LLaDA-8B on a chip: its step by the roofline of its matrix products, and the bytes
that a form's gathers, scatters, sums and maxima move, at the chip's bandwidth. That is a bound from
below, since gathers are slower.

    python benchmarks/match.py [--tokenizer FOLDER] [--repeats 5] [--quick]

The large vocabulary is made of pairs and triples of the built-in model's tokens, unless a
tokenizer is named.
"""

import argparse
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.automata import token_bytes
from sake_jax.chips import CHIPS
from sake_jax.models import abstract, denoiser_for
from sake_jax.planning.bench.interleaved import Side, measure_in_turn, report_progress
from sake_jax.planning.bench.scaled import scaled_config
from sake_jax.planning.count import CostCounter, trace

THREADS = 2
LLADA_VOCABULARY, LLADA_WIDTH, MEASURED_WIDTH = 126_464, 4096, 512
CHIP = "v6e"
"""One of them holds LLaDA-8B in bfloat16."""
NO_FORM, HEAD = "no form", "head"
MOVES = ("gather", "scatter", "reduce", "argm", "cum")
"""How the names of the operations begin that read and write arrays; others are fused into them."""

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "job": {"type": "string", "maxLength": 30},
        "friends": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
    },
    "required": ["name", "age", "job", "friends"],
}
FORMS = {
    "a date": r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
    "up to 250 characters": r"(?s).{0,250}",
    "JSON, a person": PERSON,
    "up to 2,000 characters": r"(?s).{0,2000}",
}


class Case(NamedTuple):
    """What is run with each form and without one."""

    title: str
    denoiser: Any
    params: Any
    tokens: Sequence[bytes | None]
    end: int
    rows: int
    length: int
    window: int
    steps: int
    head: Side
    scale: float = 1.0
    """How often the time of `head` is that of the model's."""


def built_in(rows: int, length: int, window: int) -> Case:
    lm = sj.load("tinystories")
    states = jax.random.normal(jax.random.key(2), (rows, window, lm.config.network.D))
    evaluate = jax.jit(lm.denoiser.head)
    head = lambda: jax.block_until_ready(evaluate(lm.params, states))  # noqa: E731
    tokens = token_bytes(lm.tokenizer)
    shape = (rows, length, window, length // 2)
    return Case("The built-in model", lm.denoiser, lm.params, tokens, 0, *shape, head)


def large(tokens: list[bytes | None], length: int, window: int, width: int) -> Case:
    """One row of a toy whose vocabulary is as large as LLaDA's, and the head that LLaDA has."""
    params = sj.testing.toy_params(0, vocabulary=len(tokens), length=length)
    states = jax.random.normal(jax.random.key(2), (1, window, width))
    table = jax.random.normal(jax.random.key(3), (len(tokens), width))
    evaluate = jax.jit(lambda states, table: jnp.einsum("bwd,vd->bwv", states, table))
    head = lambda: jax.block_until_ready(evaluate(states, table))  # noqa: E731
    shape = (1, length, window, 2 * length // window)
    title, end = "The vocabulary of an 8B model", len(tokens) - 2
    return Case(
        title, sj.testing.ToyDenoiser(), params, tokens, end, *shape, head, LLADA_WIDTH / width
    )


def made_vocabulary(size: int) -> list[bytes | None]:
    """So many tokens: the built-in model's, and pairs and triples of them."""
    own = [token for token in token_bytes(sj.load("tinystories").tokenizer) if token]
    random, made = np.random.default_rng(0), dict.fromkeys(own)
    while len(made) < size - 2:
        parts = random.integers(0, len(own), random.integers(2, 4))
        made[b"".join(own[at] for at in parts)] = None
    return [*made, None, None]  # the end token and the mask


def read_vocabulary(folder: Path) -> list[bytes | None]:
    from transformers import AutoTokenizer

    return [*token_bytes(AutoTokenizer.from_pretrained(folder)), None, None]


def measure(case: Case, forms: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Seconds of a step on each side, the head's, and the sizes of the forms."""
    mask_id = len(case.tokens) - 1
    canvas = sj.canvas([[]], case.length, mask_id=mask_id, samples=case.rows)

    def side(guidance: sj.Guidance) -> Side:
        options = {"steps": case.steps, "block": case.window}
        sampler = sj.masked(case.denoiser, length=case.length, guidance=guidance, **options)
        key = jax.random.key(0)
        return lambda: np.asarray(sj.run(sampler, case.params, key, canvas)[0].tokens)

    # A form forbids what is no text: so does the side without one, or it would write masks.
    sides, sizes = {HEAD: case.head, NO_FORM: side(sj.forbid([mask_id]))}, {}
    made_forms = {}
    for name, form in forms.items():
        begun = time.perf_counter()
        made = sj.matches(form, case.tokens, ends=[case.end])
        seconds, edges = time.perf_counter() - begun, made.edges
        sizes[name] = (edges.states, edges.arc_source.shape[0], seconds)
        report_progress(f"{name}: {sizes[name]}")
        made_forms[name], sides[name] = made, side(made)
    found = measure_in_turn(case.title, sides, repeats, [NO_FORM])
    median = {name: float(np.median(times)) for name, times in found["seconds"].items()}
    per_step = {name: median[name] / case.steps for name in (NO_FORM, *forms)}
    told = {"sizes": sizes, "made": made_forms, "others": found["others"]}
    return {"step": per_step, "head": median[HEAD]} | told


class Planned(NamedTuple):
    """A step of LLaDA-8B."""

    heads: float
    """Its operations, in those of its head on the window."""
    seconds: float
    """On one chip, by the roofline of its matrix products."""
    forms: dict[str, float]
    """Seconds that a form adds, at least."""


def plan(forms: dict[str, sj.Guidance], length: int, window: int) -> Planned:
    c = scaled_config(LLADA_WIDTH, LLADA_VOCABULARY, 32, 32)
    canvas = sj.canvas([[]], length, mask_id=c.V - 1)

    def step_of(guidance: sj.Guidance) -> Any:
        sampler = sj.masked(
            denoiser_for(c), length=length, block=window, steps=length // window, guidance=guidance
        )
        return trace(sj.run, sampler, abstract(c), jax.random.key(0), canvas)

    chip, steps, free = CHIPS[CHIP], length // window, step_of(sj.forbid([c.V - 1]))
    cost = CostCounter(chip, {}).count(free, [None] * len(free.jaxpr.invars))
    before = moved_bytes(free.jaxpr)
    added = {name: moved_bytes(step_of(form).jaxpr) - before for name, form in forms.items()}
    heads = cost.flops / steps / (2 * window * c.D * c.V)
    seconds = {name: extra / steps / chip.bandwidth for name, extra in added.items()}
    return Planned(heads, cost.seconds / steps, seconds)


def moved_bytes(jaxpr: Any) -> float:
    """Bytes that gathers read and write, and scatters and reductions; loops by their rounds."""
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inner = [moved_bytes(getattr(part, "jaxpr", part)) for part in _inside(params)]
        if name == "scan":
            total += params["length"] * sum(inner)
        elif inner:  # a loop of unknown length once, and the branch that moves the most
            total += max(inner) if name == "cond" else sum(inner)
        elif name.startswith(MOVES):
            read = equation.invars[1:] if name == "gather" else equation.invars
            total += sum(map(_bytes, (*read, *equation.outvars)))
            total += sum(map(_bytes, equation.outvars)) if name == "gather" else 0
    return total


def _inside(params: dict[str, Any]) -> list[Any]:
    """The programs inside an operation, but for what a scatter combines two numbers with."""
    found = params.get("branches", ())
    keys = ("jaxpr", "call_jaxpr", "body_jaxpr")
    return [*found, *(params[key] for key in keys if params.get(key) is not None)]


def _bytes(atom: Any) -> float:
    return math.prod(atom.aval.shape) * getattr(atom.aval.dtype, "itemsize", 8)


def table(case: Case, found: dict[str, Any], planned: Planned | None = None) -> str:
    """The results as Markdown; with a plan, in steps of LLaDA-8B."""
    step, head = found["step"][NO_FORM], case.scale * found["head"]
    whole = planned.heads * head if planned else step
    lengths = f"a head takes {1e3 * head:.1f} ms, a step "
    lengths += f"{planned.heads:.0f} heads by operations" if planned else f"{1e3 * step:.1f} ms"
    columns = ["form", "states", "arcs", "made in", "a step adds", "in heads", "of a step"]
    columns += [f"at least, on {CHIP}", "of a step there"] if planned else []
    lines = [
        f"**{case.title}**: V {len(case.tokens):,}, {case.rows} x {case.window} columns of "
        f"{case.length} at a step; without a form, {lengths}"
        + (f", {1e3 * planned.seconds:.1f} ms on {CHIP}." if planned else "."),
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for name, (*sizes, once) in found["sizes"].items():
        added = found["step"][name] - step
        cells = [name, *(f"{size:,}" for size in sizes), f"{once:.1f} s", f"{1e3 * added:.1f} ms"]
        cells += [f"{added / head:.2f}", f"{added / whole:.1%}"]
        if planned:
            least = planned.forms[name]
            cells += [f"{1e3 * least:.2f} ms", f"{least / planned.seconds:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer of transformers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    options = parser.parse_args()
    own = min(THREADS, os.cpu_count() or 1)
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it finds cores
        cores = sorted(os.sched_getaffinity(0))[:THREADS]
        os.sched_setaffinity(0, cores)
        own = len(cores)
    forms, repeats = FORMS, options.repeats
    size, length, window, width = LLADA_VOCABULARY, 256, 32, MEASURED_WIDTH
    if options.quick:
        forms, repeats = {"a date": FORMS["a date"]}, 1
        size, length, window, width = 4096, 16, 16, 64
    small = built_in(8, min(length, 64), window)
    named = options.tokenizer
    tokens = read_vocabulary(named) if named else made_vocabulary(size)
    big = large(tokens, length, window, width)
    results = [measure(case, forms, repeats) for case in (small, big)]
    planned = plan(results[1]["made"], length, window)
    print(table(small, results[0]), end="\n\n")
    print(table(big, results[1], planned))
    busy = max(found["others"] for found in results)
    print(f"\nOn {own} thread{'s' * (own > 1)}; other processes used {busy:.1f} cores meanwhile.")


if __name__ == "__main__":
    main()
