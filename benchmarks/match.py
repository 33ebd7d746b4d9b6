"""What `sj.matches` costs: a step of a run with a form, against the same step without.

First for the built-in model, in steps of its network. Then at LLaDA's vocabulary with a network of
nearly no work, in evaluations of LLaDA's head on the window (measured at a smaller width, with
which its time grows in proportion) and, by the count of operations, in steps of LLaDA-8B. All sides
in turn, two threads, medians. Compiling a form is done once, in plain Python.

    python benchmarks/match.py [--tokenizer FOLDER] [--repeats 5] [--quick]

The large vocabulary is made of pairs and triples of the built-in model's tokens, unless a
tokenizer is named.
"""

import argparse
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
NO_FORM, HEAD = "no form", "head"

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
    return Case(title, sj.testing.ToyDenoiser(), params, tokens, end, *shape, head)


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
    for name, form in forms.items():
        begun = time.perf_counter()
        made = sj.matches(form, case.tokens, ends=[case.end])
        seconds, edges = time.perf_counter() - begun, made.edges
        sizes[name] = (edges.states, edges.count, edges.label.shape[0], seconds)
        report_progress(f"{name}: {sizes[name]}")
        sides[name] = side(made)
    found = measure_in_turn(case.title, sides, repeats, [NO_FORM])
    median = {name: float(np.median(times)) for name, times in found["seconds"].items()}
    per_step = {name: median[name] / case.steps for name in (NO_FORM, *forms)}
    return {"step": per_step, "head": median[HEAD], "sizes": sizes, "others": found["others"]}


def heads_of_a_step(length: int, window: int) -> float:
    """The operations of a step of LLaDA-8B, in those of its head on the window."""
    c = scaled_config(LLADA_WIDTH, LLADA_VOCABULARY, 32, 32)
    sampler = sj.masked(denoiser_for(c), length=length, block=window, steps=length // window)
    canvas = sj.canvas([[]], length, mask_id=c.V - 1)
    given = sampler, abstract(c), jax.random.key(0), canvas
    marks = [None] * len(jax.tree.leaves(given))
    flops = CostCounter(CHIPS["v5e"], {}).count(trace(sj.run, *given), marks).flops
    return flops / sampler.plan.steps / (2 * window * c.D * c.V)


def table(case: Case, found: dict[str, Any], scale: float = 1.0, heads: float = 0.0) -> str:
    """The results as Markdown; the head's time counts `scale` times, and a step of the large model
    is so many `heads`, or the measured step without a form."""
    head, step = scale * found["head"], found["step"][NO_FORM]
    whole = heads * head or step
    lengths = f"a head takes {1e3 * head:.1f} ms, a step "
    lengths += f"{heads:.0f} heads by operations" if heads else f"{1e3 * step:.1f} ms"
    lines = [
        f"**{case.title}**: V {len(case.tokens):,}, {case.rows} x {case.window} columns of "
        f"{case.length} at a step; without a form, {lengths}.",
        "",
        "| form | states | classes | edges | compiled in | a step adds | in heads | of a step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (*sizes, once) in found["sizes"].items():
        added = found["step"][name] - step
        cells = [name, *(f"{size:,}" for size in sizes), f"{once:.1f} s", f"{1e3 * added:.1f} ms"]
        cells += [f"{added / head:.2f}", f"{added / whole:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer of transformers")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it finds cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
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
    heads = heads_of_a_step(length, window)
    print(table(small, results[0]), end="\n\n")
    print(table(big, results[1], LLADA_WIDTH / width, heads))
    cores = max(found["others"] for found in results)
    print(f"\nOther processes used {cores:.2f} cores meanwhile{', TOO MANY' * (cores > 0.1)}.")


if __name__ == "__main__":
    main()
