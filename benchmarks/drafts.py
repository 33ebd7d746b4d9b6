"""Drafted steps: how many reads of the network a text takes, and how long.

The built-in model writes stories, one token a step in blocks of 32; each row's reads are counted,
with 1, 2, 4 and 8 canvases in a read. The tokens are those of the stepwise run, or it stops. Then
wall clock: `drafts="auto"` against stepwise, in turn; on a CPU "auto" is stepwise.

    python benchmarks/drafts.py [--repeats 5] [--plan] [--json results.json] [--quick]
"""

import argparse
import dataclasses
import json
import types
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax import planning
from sake_jax.chips import CHIPS, Chip
from sake_jax.conversion import model_config
from sake_jax.files import write_atomically
from sake_jax.planning.bench.interleaved import Side, measure_in_turn, report_progress
from sake_jax.planning.drafted import MEASURED_ON
from sake_jax.planning.topology import Topology
from sake_jax.tables import table

PROMPTS = ("once upon a time", "one day, a boy", "the little dog", "in the big forest")
DRAFTS, SOME = (1, 2, 4, 8), (1, 4)
GUIDANCES = {"none": sj.identity(), "SAKE": sj.sake(1.0)}
CASES = [
    ("none", 0.9, "none", DRAFTS),
    ("none", 0.3, "none", DRAFTS),
    ("none", 0.0, "none", DRAFTS),
    ("SAKE", 0.9, "none", SOME),
    ("SAKE", 0.3, "none", SOME),
    ("none", 0.9, "dual", SOME),
]
"""Guidance, temperature, cache, and how many canvases are read together."""
STEPWISE, AUTO = "stepwise", "auto"


def prepare(lm: sj.LanguageModel, length: int, samples: int) -> sj.Canvas:
    """A canvas with all prompts."""
    ids = [lm.tokenizer.encode(prompt) for prompt in PROMPTS]
    return sj.canvas(ids, length, mask_id=lm.config.mask_id, samples=samples)


def steps_per_read(
    lm: sj.LanguageModel, start: sj.Canvas, options: dict[str, Any], drafts: tuple[int, ...]
) -> list[float]:
    """How many steps a read of a row serves, on average over rows, for each number of drafts."""
    expected, rates = None, []
    for count in drafts:
        sampler = sj.masked(lm, drafts=count, **options)
        done, info = sj.run(sampler, lm.params, jax.random.key(0), start)
        tokens = np.asarray(done.tokens)
        expected = tokens if expected is None else expected
        if not np.array_equal(expected, tokens):
            raise SystemExit(f"drafts={count} wrote other tokens with {options}")
        reads = info.finite.size
        if info.read is not None:
            reads = sum(len(np.unique(row)) for row in np.asarray(info.read).T)
        rates.append(info.finite.size / reads)
    return rates


def count_reads(lm: sj.LanguageModel, quick: bool) -> list[dict[str, Any]]:
    """Steps a read serves, for each of the `CASES`."""
    length, samples = (8, 1) if quick else (64, 2)
    start = prepare(lm, length, samples)
    rows = []
    for name, heat, cache, drafts in CASES[-1:] if quick else CASES:
        options = {"length": length, "block": length // 2, "cache": cache}
        options |= {"guidance": GUIDANCES[name], "draw": sj.temperature(heat)}
        rates = steps_per_read(lm, start, options, drafts)
        row = {"guidance": name, "temperature": heat, "cache": cache}
        rows.append(row | {"steps": dict(zip(map(str, drafts), rates, strict=True))})
        report_progress(f"{row}: {rates}")
    return rows


def time_auto(lm: sj.LanguageModel, repeats: int, quick: bool) -> dict[str, Any]:
    """`drafts="auto"` in runs of stepwise."""
    length = 8 if quick else 64
    start = prepare(lm, length, 1)

    def side(drafts: int | str) -> Side:
        sampler = sj.masked(lm, length=length, draw=sj.temperature(0.9), drafts=drafts)
        return lambda: np.asarray(sj.run(sampler, lm.params, jax.random.key(0), start)[0].tokens)

    sides = {STEPWISE: side(1), AUTO: side("auto")}
    return measure_in_turn("auto", sides, repeats, [STEPWISE], require_equal)


def require_equal(tokens: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(tokens[STEPWISE], tokens[AUTO], "drafts changed tokens")


def render(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    drafts = max((list(row["steps"]) for row in found["reads"]), key=len)
    lines = [["guidance", "temperature", "cache", *(f"drafts={count}" for count in drafts)]]
    for row in found["reads"]:
        about = [row["guidance"], f"{row['temperature']:g}", row["cache"]]
        rates = [row["steps"].get(count) for count in drafts]
        lines.append([*about, *("" if rate is None else f"{rate:.2f}" for rate in rates)])
    timed = found["auto"]
    middle, low, high = timed["against"][STEPWISE][AUTO]
    parts = [
        "# Drafted steps",
        "Steps that a read serves, on average over rows; the tokens are the same.",
        table(lines),
        f'`drafts="auto"` on {jax.default_backend()}, in runs of stepwise: {middle:.3f} '
        f"({low:.3f} to {high:.3f}); other processes used {timed['others']:.2f} cores "
        "meanwhile.",
    ]
    if "planned" in found:
        parts += ["## LLaDA-8B, prompt 128, 128 tokens, one a step, by our count"]
        parts += [render_plan(found["planned"])]
        parts += [f"Steps that a read serves: as measured on {MEASURED_ON}."]
    return "\n\n".join(parts)


def here(chip: Chip) -> Topology:
    """One such chip, to count for: no compiler is asked, so that any device stands in for it."""
    return Topology(chip.name, chip, types.SimpleNamespace(devices=jax.devices()[:1]))


def plan_rows(model: str = "llada-8b", length: int = 128) -> list[dict[str, Any]]:
    """What drafts would bring on chips that are not here, by our count."""
    rows = []
    for name in ("v5e", "v5p", "v6e", "h100"):
        dtype = "int8" if name == "v5e" else "bfloat16"  # it has not the memory for more
        for cache in ("none", "dual"):
            for batch in (1, 8):
                request = sj.Request(length=length, temperature=0.9, cache=cache)
                job = planning.Job(model_config(model), request, batch=batch, dtype=dtype)
                casts = planning.drafted(job, here(CHIPS[name]), {})
                about = {"chip": f"{name}, {dtype}", "cache": cache, "rows": batch}
                rows.append(about | {"drafts": [dataclasses.asdict(cast) for cast in casts]})
    return rows


def render_plan(rows: list[dict[str, Any]]) -> str:
    """Of each row ms a read, and tokens a second, for all numbers of drafts."""
    counts = [cast["drafts"] for cast in rows[0]["drafts"]]
    titles = [f"drafts={count}: ms a read, tokens/s" for count in counts]
    lines = [["chip", "cache", "rows", *titles, "best"]]
    for row in rows:
        rates = [cast["tokens_per_second"] for cast in row["drafts"]]
        pairs = zip((1e3 * cast["read"] for cast in row["drafts"]), rates, strict=True)
        best = f"{max(rates) / rates[0]:.2f}"
        cells = [f"{ms:.1f}, {rate:,.0f}" for ms, rate in pairs]
        lines.append([row["chip"], row["cache"], str(row["rows"]), *cells, best])
    return table(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--plan", action="store_true", help="also for chips that are not here")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    lm = sj.load("tinystories")
    found = {
        "reads": count_reads(lm, options.quick),
        "auto": time_auto(lm, 2 if options.quick else options.repeats, options.quick),
    }
    if options.plan:
        found["planned"] = plan_rows()
    print(render(found))
    if options.json:
        write_atomically(options.json, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
