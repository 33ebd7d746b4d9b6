"""What `sj.matches` costs: a step of a run with a form, against the same step without.

First for the built-in model, in steps of its network. Then at LLaDA's vocabulary with a network of
nearly no work, in evaluations of LLaDA's head on the window (measured at a smaller width, with
which its time grows in proportion) and, by the count of operations, in steps of LLaDA-8B. Processor
time on one thread: medians over rounds, in each of which the head, a run without a form and one
with it take turns. Making a form is done once, in plain Python. Last, what is planned for LLaDA-8B
on a chip: its step by the roofline of its matrix products, and the bytes that a form's gathers,
scatters, sums and maxima move, at the chip's bandwidth. That is a bound from below, since gathers
are slower.

    python benchmarks/match.py [--tokenizer FOLDER] [--repeats 5] [--quick] [--json FILE]

The large vocabulary is made of pairs and triples of the built-in model's tokens, unless a
tokenizer is named. A file keeps what was measured, form by form: with it, a run that was ended goes
on where it was.
"""

import argparse
import json
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
from sake_jax.planning.bench.interleaved import Side, measure_in_turn
from sake_jax.planning.bench.scaled import scaled_config
from sake_jax.planning.count import CostCounter, trace

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


def measure(case: Case, name: str, form: Any, repeats: int) -> dict[str, Any]:
    """What a form costs, in seconds: of the head, of a step without it, and what it adds."""
    mask_id = len(case.tokens) - 1
    canvas = sj.canvas([[]], case.length, mask_id=mask_id, samples=case.rows)
    begun = time.process_time()
    made = sj.matches(form, case.tokens, ends=[case.end])
    once, edges = time.process_time() - begun, made.edges

    def side(guidance: sj.Guidance) -> Side:
        options = {"steps": case.steps, "block": case.window}
        sampler = sj.masked(case.denoiser, length=case.length, guidance=guidance, **options)
        key = jax.random.key(0)
        return lambda: np.asarray(sj.run(sampler, case.params, key, canvas)[0].tokens)

    # A form forbids what is no text: so does the side without one, or it would write masks.
    sides = {HEAD: case.head, NO_FORM: side(sj.forbid([mask_id])), name: side(made)}
    title = f"{case.title}, {name}"
    found = measure_in_turn(title, sides, repeats, [NO_FORM], clock=time.process_time)
    median = {side: float(np.median(times)) for side, times in found["seconds"].items()}
    step = median[NO_FORM] / case.steps
    row = {"states": edges.states, "arcs": edges.arc_source.shape[0], "once": once}
    row |= {"head": case.scale * median[HEAD], "step": step}
    row |= {"added": median[name] / case.steps - step}
    return row | (plan(made, case.length, case.window) if case.scale > 1 else {})


def plan(form: sj.Guidance, length: int, window: int) -> dict[str, float]:
    """A step of LLaDA-8B: its operations in those of its head on the window, its seconds on a chip
    by the roofline of its products, and the seconds that a form adds there, at least."""
    c = scaled_config(LLADA_WIDTH, LLADA_VOCABULARY, 32, 32)
    canvas = sj.canvas([[]], length, mask_id=c.V - 1)

    def program(guidance: sj.Guidance) -> Any:
        options = {"block": window, "steps": length // window, "guidance": guidance}
        sampler = sj.masked(denoiser_for(c), length=length, **options)
        return trace(sj.run, sampler, abstract(c), jax.random.key(0), canvas)

    chip, steps = CHIPS[CHIP], length // window
    free, held = program(sj.forbid([c.V - 1])), program(form)
    cost = CostCounter(chip, {}).count(free, [None] * len(free.jaxpr.invars))
    added = moved_bytes(held.jaxpr) - moved_bytes(free.jaxpr)
    return {
        "heads": cost.flops / steps / (2 * window * c.D * c.V),
        "planned": cost.seconds / steps,
        "least": added / steps / chip.bandwidth,
    }


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


def table(case: Case, rows: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown; where there is a plan, in steps of LLaDA-8B."""
    head, step = (float(np.median([row[name] for row in rows.values()])) for name in (HEAD, "step"))
    first = next(iter(rows.values()))
    planned = "planned" in first
    whole = first["heads"] * head if planned else step
    told = f"a head takes {1e3 * head:.0f} ms, a step "
    told += f"{first['heads']:.0f} heads by operations" if planned else f"{1e3 * step:.0f} ms"
    told += f", {1e3 * first['planned']:.1f} ms on one {CHIP}" if planned else ""
    columns = ["form", "states", "arcs", "made in", "a step adds", "in heads", "of a step"]
    columns += [f"at least, on {CHIP}", "of a step there"] if planned else []
    lines = [
        f"**{case.title}**: V {len(case.tokens):,}, {case.rows} x {case.window} columns of "
        f"{case.length} at a step; without a form, {told}.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for name, row in rows.items():
        added = row["added"]
        cells = [name, f"{row['states']:,}", f"{row['arcs']:,}", f"{row['once']:.1f} s"]
        cells += [f"{1e3 * added:.1f} ms", f"{added / head:.2f}", f"{added / whole:.1%}"]
        if planned:
            cells += [f"{1e3 * row['least']:.2f} ms", f"{row['least'] / row['planned']:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer of transformers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--json", type=Path, help="keeps what was measured, and goes on from it")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it finds cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    forms, repeats = FORMS, options.repeats
    size, length, window, width = LLADA_VOCABULARY, 256, 32, MEASURED_WIDTH
    if options.quick:
        forms, repeats = {"a date": FORMS["a date"]}, 1
        size, length, window, width = 4096, 16, 16, 64
    named = options.tokenizer
    tokens = read_vocabulary(named) if named else made_vocabulary(size)
    cases = built_in(8, min(length, 64), window), large(tokens, length, window, width)
    file = options.json
    kept = json.loads(file.read_text()) if file and file.exists() else {}
    for case in cases:
        rows = kept.setdefault(case.title, {})
        for name, form in forms.items():
            rows[name] = rows.get(name) or measure(case, name, form, repeats)
            if file:
                file.write_text(json.dumps(kept, indent=1))
    print("\n\n".join(table(case, kept[case.title]) for case in cases))


if __name__ == "__main__":
    main()
