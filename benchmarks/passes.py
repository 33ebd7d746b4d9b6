"""Fewer passes, other tokens: what is lost, and which way to choose.

One token a step is the quality setting, and every step reads the whole canvas. Here are the ways to
read less that change what is written: several tokens a step, by a fixed number or by a rule, and
caches that are made new now and then. Stories are judged by the built-in model's causal twin,
puzzles of Countdown are right or wrong. Reads are the columns that were computed, in those of one
token a step without a cache. Intervals are of 95 %, from a bootstrap over texts.

    python benchmarks/passes.py [--out FOLDER] [--quick]

It writes passes.md and passes.png there, benchmarks/results by default. Drafted steps, which save
reads and change no token, are measured by drafts.py.
"""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax import evaluate, metrics, reveal
from sake_jax.experiments.story import BEGINNINGS
from sake_jax.figures import trade_off
from sake_jax.files import write_atomically
from sake_jax.planning.bench.interleaved import report_progress
from sake_jax.tables import table

RESULTS = Path(__file__).parent / "results"
BOOTSTRAP, SEED = 2000, 0


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to read less: what it gives the sampler, by what it is called."""

    title: str
    settings: dict[str, dict[str, Any]]


def ways(length: int, block: int) -> list[Way]:
    """All ways; each begins with one token a step, or comes near it."""
    bars = (0.95, 0.8, 0.6, 0.4)
    return [
        Way("a fixed number", {f"{k} a step": {"steps": length // k} for k in (1, 2, 4)}),
        Way("threshold", {f"{bar:g}": {"reveal": reveal.threshold(bar)} for bar in bars}),
        Way(
            "hierarchical",
            {f"0.95, {low:g}": {"reveal": reveal.hierarchical(0.95, low=low)} for low in bars[1:]},
        ),
        Way(
            "credit, threshold",
            {
                f"{bar:g}": {"reveal": reveal.threshold(bar), "guidance": sj.credit()}
                for bar in bars
            },
        ),
        Way(
            "entropy bound",
            {f"{bound:g}": {"reveal": reveal.entropy_bound(bound)} for bound in (0.1, 0.5, 1.5)},
        ),
        Way(
            "dual cache, made new",
            {
                f"after {steps}": {"cache": "dual", "refresh": steps}
                for steps in (2, 4, block)
                if steps <= block
            },
        ),
    ]


def columns_read(sampler: sj.Sampler, canvas: int, steps: np.ndarray) -> np.ndarray:
    """Of each row, all columns that its steps have computed, in those of one token a step."""
    plan: Any = sampler.plan
    each = steps.astype(float)
    if plan.cached:  # one token a step: all steps of the plan are taken
        view = jax.vmap(lambda step: plan.view(blank(plan.length, canvas), step).reread.choice)
        whole = float(np.mean(np.asarray(view(np.arange(plan.steps))) == 1))
        each *= whole + (1 - whole) * plan.width / canvas
    return each / plan.length


def blank(length: int, columns: int) -> sj.Canvas:
    return sj.canvas([[1] * (columns - length)], length, mask_id=0)


def bootstrap(measure: Callable[[np.ndarray], float], count: int) -> tuple[float, float, float]:
    """A measure of chosen texts: of all of them, and the ends of its interval."""
    some = np.random.default_rng(0).integers(0, count, (BOOTSTRAP, count))
    low, high = np.quantile([measure(rows) for rows in some], [0.025, 0.975])
    return measure(np.arange(count)), float(low), float(high)


class Stories:
    """Stories after eight beginnings, by their perplexity."""

    title, better = "Stories", "perplexity (less is better)"
    length, block, heat = 64, 32, 0.7

    def __init__(self, quick: bool):
        self.lm = sj.load("tinystories")
        self.judge = metrics.load_judge("tinystories-causal")
        self.samples, self.prompts = (1, list(BEGINNINGS[:2])) if quick else (8, list(BEGINNINGS))

    def quality(self, out: sj.generation.Generation) -> tuple[float, float, float]:
        texts = [text or "" for group in out.texts for text in group]
        before = [prompt for prompt in self.prompts for _ in range(self.samples)]
        found = metrics.perplexity(self.judge, texts, before)
        nats, tokens = np.asarray(found.nats), np.asarray(found.tokens)
        return bootstrap(
            lambda rows: float(np.exp(nats[rows].sum() / max(tokens[rows].sum(), 1))), len(texts)
        )


class Puzzles:
    """Countdown with three numbers, by the share of answers that are right."""

    title, better = "Countdown with three numbers", "right answers (more is better)"
    heat = 0.3

    def __init__(self, quick: bool):
        self.lm = sj.load("countdown-3")
        self.task = evaluate.puzzle("countdown-3", split="test", limit=4 if quick else 200)
        self.samples, self.prompts = 2, [problem.prompt for problem in self.task.problems]
        self.length = self.block = int(self.task.length or 0)

    def quality(self, out: sj.generation.Generation) -> tuple[float, float, float]:
        pairs = [
            (problem, text or "")
            for problem, group in zip(self.task.problems, out.texts, strict=True)
            for text in group
        ]
        (rule,) = self.task.rules
        right = np.array([verdict.correct[rule] for verdict in self.task.judge(pairs)], float)
        problems = right.reshape(len(self.prompts), -1).mean(axis=1)
        return bootstrap(lambda rows: float(problems[rows].mean()), len(problems))


def measure(scene: Stories | Puzzles, way: Way) -> list[tuple[str, float, tuple]]:
    """Of each setting its name, its reads, and its quality with an interval."""
    found = []
    for name, options in way.settings.items():
        sampler = sj.masked(
            scene.lm,
            length=scene.length,
            block=scene.block,
            draw=sj.temperature(scene.heat),
            **options,
        )
        out = sj.generate(
            scene.lm,
            sampler,
            scene.prompts,
            samples=scene.samples,
            batch=64,
            key=jax.random.key(SEED),
        )
        ids = sj.generation.encode_prompts(scene.lm, scene.prompts)
        canvas = sj.generation.prompt_room(max(map(len, ids))) + scene.length
        reads = columns_read(sampler, canvas, np.array([row.steps for row in out.rows]))
        found.append((name, float(reads.mean()), scene.quality(out)))
        report_progress(f"{scene.title}, {way.title}, {name}: {found[-1][1:]}")
    return found


def section(scene: Stories | Puzzles, quick: bool) -> tuple[str, dict[str, np.ndarray]]:
    """A table, and the curves of the figure."""
    lines, curves = [["way", "setting", "reads", scene.better]], {}
    made = ways(scene.length, scene.block)
    for way in made[1:3] if quick else made:
        found = measure(scene, way)
        for name, reads, (middle, low, high) in found:
            quality = f"{middle:.3f} ({low:.3f} to {high:.3f})"
            lines.append([way.title, name, f"{reads:.3f}", quality])
        # A figure's third axis is seeds; here is one.
        curves[way.title] = np.array([[(reads, quality[0])] for _, reads, quality in found])
    about = f"{len(scene.prompts)} prompts, {scene.samples} texts of each, T = {scene.heat}, "
    about += f"{scene.length} tokens in blocks of {scene.block}."
    return "\n\n".join([f"## {scene.title}", about, table(lines)]), curves


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder")
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    options = parser.parse_args(arguments)
    parts, panels = ["# Fewer passes, other tokens"], {}
    for scene in (Stories(options.quick), Puzzles(options.quick)):
        text, panels[f"{scene.title}: {scene.better}"] = section(scene, options.quick)
        parts.append(text)
    parts.append("By `python benchmarks/passes.py`, which draws passes.png, too.")
    words = {"across": "columns read, in those of one token a step", "up": "quality"}
    options.out.mkdir(parents=True, exist_ok=True)
    trade_off(options.out / "passes.png", panels, **words, quick=options.quick)
    page = "\n\n".join(parts) + "\n"
    write_atomically(options.out / "passes.md", page)
    print(page)


if __name__ == "__main__":
    main()
