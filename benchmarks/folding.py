"""What folding SAKE's push into the features before the head buys.

Two ways to the same logits: folded, W (h + g), one evaluation of the head on the window's rows; and
together, W [h, g], one evaluation on rows and pushes, after which psi = W g is known by itself. The
weights are read once either way, so the second way costs operations and logits, not weights.

By our count and by the compiler's estimate for LLaDA-8B in bfloat16 (needs libtpu), and by the
clock for the small model of `sake-jax bench` on this machine, rounds in turn. The compiler takes a
minute or two for each program; rows that the file has are not asked for again:

    python benchmarks/folding.py --plan --compile --measure --out benchmarks/results/folding.json
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sake_jax as sj
from sake_jax import planning
from sake_jax.conversion import model_config
from sake_jax.files import write_atomically
from sake_jax.planning.bench.clock import compiled_run
from sake_jax.planning.bench.interleaved import measure_in_turn
from sake_jax.planning.bench.scaled import scaled_model
from sake_jax.planning.forms import Form, with_guidance
from sake_jax.tables import table

PROMPT, LENGTH = 128, 256
CHIPS = {1: ("v6e:1x1", {}), 32: ("v5e:2x4", {"tensor": 8})}
"""By rows of a batch: 32 rows and LLaDA-8B are too much for one chip."""
CASES = list(itertools.product(CHIPS, ("none", "dual"), (32, LENGTH)))


class Together(sj.Guidance):
    """A guidance that must not be folded, though it could be."""

    inner: sj.Guidance

    def init(self, ctx):
        return self.inner.init(ctx)

    def push(self, state, ctx):
        return self.inner.push(state, ctx)

    def apply(self, logits, psi, state, ctx):
        return self.inner.apply(logits, psi, state, ctx)


FORMS: dict[str, Form] = {
    "none": with_guidance(sj.identity()),
    "folded": with_guidance(sj.sake(1.0)),
    "together": with_guidance(Together(sj.sake(1.0))),
}


def plans(known: list[dict[str, Any]], compile_it: bool) -> Iterator[dict[str, Any]]:
    """A row for each batch, block and cache that is not known yet: ms of a step in each form."""
    for batch, cache, block in CASES:
        name, mesh = CHIPS[batch]
        row: dict[str, Any] = {"where": name, "batch": batch, "block": block, "cache": cache}
        same = [other for other in known if row.items() <= other.items()]
        if any("peak" in other["folded"] or not compile_it for other in same):
            continue
        chips = planning.topology(name)
        request = sj.Request(length=LENGTH, block=block, cache=cache, temperature=0.7)
        job = planning.Job(model_config("llada-8b"), request, batch=batch, prompt=PROMPT)
        for form in FORMS:
            with_compiler = compile_it and form != "none"
            each = planning.forecast(job.in_form(FORMS[form]), chips, mesh, with_compiler)
            row[form] = {"count": 1e3 * each.cost.seconds}
            if each.compiler_seconds:
                row[form]["compiler"] = 1e3 * each.compiler_seconds
            if with_compiler:
                row[form]["peak"] = each.memory.peak / 2**30 if each.memory else each.complaint
        yield row


def measured(rounds: int) -> Iterator[dict[str, Any]]:
    """The small model by the clock: ms of a step in each form, and together / folded."""
    lm = scaled_model()
    for batch, block in itertools.product((1, 32), (32, LENGTH)):
        request = sj.Request(length=block, steps=16 if batch == 1 else 4, temperature=0.7)
        job = planning.Job(lm.config, request, batch=batch, prompt=PROMPT)
        sides = {
            name: compiled_run(job.in_form(form), lm.params)[0] for name, form in FORMS.items()
        }
        times = measure_in_turn(f"batch {batch}, window {block}", sides, rounds, ["none", "folded"])
        row: dict[str, Any] = {"where": "CPU", "batch": batch, "block": block, "cache": "none"}
        for name, seconds in times["seconds"].items():
            row[name] = {"clock": 1e3 * sorted(seconds)[len(seconds) // 2] / request.steps}
        row["ratio"] = times["against"]["folded"]["together"]
        row["others"] = times["others"]
        yield row


def page(results: dict[str, Any]) -> str:
    """Both tables as Markdown."""
    head = ["", "batch", "block", "cache"]
    planned = [
        [*head, "none", "folded", "together", "together / folded", "by the compiler", "peak"]
    ]
    planned += [
        [*_place(row), *_times(row, "count"), *_compiler(row)] for row in results.get("planned", [])
    ]
    clock = [[*head, "none", "folded", "together", "together / folded", "others' cores"]]
    for row in results.get("measured", []):
        ratio = "{:+.1%} ({:+.1%} to {:+.1%})".format(*(part - 1 for part in row["ratio"]))
        times = _times(row, "clock")[:3]
        clock.append([*_place(row), *times, ratio, f"{row['others']:.2f}"])
    title = f"LLaDA-8B in bfloat16, prompt {PROMPT}, {LENGTH} tokens, ms of a step by our count"
    command = "`python benchmarks/folding.py --plan --compile --measure` prints this page."
    parts = ["# What folding before the head buys", command, f"## {title}", table(planned)]
    parts += ["## The small model of `sake-jax bench`, ms of a step by the clock"]
    return "\n\n".join([*parts, table(clock) if len(clock) > 1 else "Not measured yet."])


def _place(row: dict[str, Any]) -> list[str]:
    return [row["where"], str(row["batch"]), str(row["block"]), row["cache"]]


def _times(row: dict[str, Any], by: str) -> list[str]:
    ratio = row["together"][by] / row["folded"][by] - 1
    return [*(f"{row[form][by]:.3f}" for form in FORMS), f"{ratio:+.2%}"]


def _compiler(row: dict[str, Any]) -> list[str]:
    folded, together = row["folded"], row["together"]
    if "compiler" in folded and "compiler" in together:
        ratio = together["compiler"] / folded["compiler"] - 1
        times = f"{folded['compiler']:.2f}, {together['compiler']:.2f}: {ratio:+.2%}"
    else:
        times = "not asked" if "peak" not in folded else "not said"
    peaks = [each["peak"] for each in (folded, together) if "peak" in each]
    return [times, ", ".join(f"{p:.2f} GiB" if isinstance(p, float) else p for p in peaks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", action="store_true", help="LLaDA-8B, by our count")
    parser.add_argument("--compile", action="store_true", help="and by the compiler's estimate")
    parser.add_argument("--measure", action="store_true", help="the small model, by the clock")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="a JSON file; the page goes beside it")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for part, rows in (
        ("planned", plans(results.get("planned", []), options.compile) if options.plan else ()),
        ("measured", measured(options.rounds) if options.measure else ()),
    ):
        for row in rows:
            print(json.dumps(row), flush=True)
            rows_there = {tuple(_place(old)): old for old in results.get(part, [])}
            results[part] = [*(rows_there | {tuple(_place(row)): row}).values()]
            if options.out:
                write_atomically(options.out, json.dumps(results, indent=1) + "\n")
                write_atomically(options.out.with_suffix(".md"), page(results) + "\n")
    print(page(results))


if __name__ == "__main__":
    main()
