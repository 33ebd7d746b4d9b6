"""Tables and a figure of runs on a task, side by side."""

import collections
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import require
from sake_jax.evaluate.results import Results
from sake_jax.evaluate.task import TESTS
from sake_jax.evaluate.titles import printed, titles
from sake_jax.figures import COLOURS, STYLES, legend, panels, save, share_axis
from sake_jax.files import write_atomically
from sake_jax.metrics import (
    Estimate,
    distinct_count,
    format_interval,
    measure_texts,
    pass_at_k,
    pass_rate,
    same_words,
    self_bleu,
    self_consistency,
    words,
)
from sake_jax.models import LanguageModel
from sake_jax.tables import table

Lines = list[list[str]]
Named = Mapping[str, Results]
"""Runs by their titles."""
COMMON = 3
"""How many of the commonest reasons are listed."""


def report(
    runs: Sequence[Results],
    out: str | Path,
    ks: Sequence[int] = (1,),
    *,
    judge: LanguageModel | None = None,
    prompts: Mapping[str, str] | None = None,
) -> str:
    """Writes report.md, and passes.png where answers are right or wrong; returns the text.

    Args:
      runs: of one task.
      out: the folder; it is made.
      ks: numbers of samples for pass@k and for votes.
      judge: a causal model whose perplexity of the texts is shown.
      prompts: of each problem, after which the judge reads its texts.
    """
    require(runs, "a report needs runs", "none", "give at least one")
    names = {run.settings["task"]["name"] for run in runs}
    require(len(names) == 1, "runs of a report must be of one task", sorted(names), "split them")
    few = min(run.settings["samples"] for run in runs)
    rule, remedy = "k must be at most the samples of every run", f"lower it to {few}"
    require(max(ks) <= few, rule, max(ks), remedy)
    for run in runs:
        require(run.lines, f"{run.folder} must hold a finished problem", "none", "let it run on")
    (task,), rules, named = names, runs[0].rules, dict(zip(titles(runs), runs, strict=True))
    parts = [f"# {task}", _about(named)]
    parts += [part for rule in rules for part in (f"## {rule}", _passes(named, rule, ks))]
    if rules and rules != [TESTS]:
        parts += [part for rule in rules for part in (f"## votes, {rule}", _votes(named, rule, ks))]
    parts += ["## how different a problem's samples are", _diversity(named, judge, prompts or {})]
    parts += ["## how it went", _course(named)]
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    parts += [_figure(named, rules, folder / "passes.png")] if rules else []
    text = "\n\n".join(parts) + "\n"
    write_atomically(folder / "report.md", text)
    return text


def _about(runs: Named) -> str:
    """What intervals are of, what is missing, and what cannot be compared."""
    notes = ["Means over problems, with bootstrap intervals of 95 % over them."]
    notes += [
        f"{name} has {len(run.lines)} of {run.settings['task']['problems']} problems."
        for name, run in runs.items()
        if not run.complete
    ]
    if len({run.settings["task"]["checksum"] for run in runs.values()}) > 1:
        notes.append("The runs are not of the same problems and prompts: compare with care.")
    return " ".join(notes)


def _passes(runs: Named, rule: str, ks: Sequence[int]) -> str:
    lines = [["", *(f"pass@{k}" for k in ks)]]
    for name, run in runs.items():
        lines.append([name, *(format_interval(pass_rate(run.correct(rule), k)) for k in ks)])
        lines += _printed(run, [f"pass@{k}" for k in ks])
    return table(lines)


def _votes(runs: Named, rule: str, ks: Sequence[int]) -> str:
    lines = [["", *(f"vote@{k}" for k in ks)]]
    for name, run in runs.items():
        lines.append([name, *(format_interval(vote(run, rule, k)) for k in ks)])
        lines += _printed(run, [f"vote@{k} {rule}" for k in ks])
    return table(lines)


def vote(run: Results, rule: str, n: int) -> Estimate:
    """How often the vote of the first n samples is right.

    An answer that no sample gave is never voted for, so the samples' own verdicts tell all.
    """
    answers, correct = run.answers(rule), run.correct(rule)
    known = [dict(zip(*pair, strict=True)) for pair in zip(answers, correct, strict=True)]
    return self_consistency(answers, lambda at, answer: bool(known[at][answer]), n).first


def _printed(run: Results, names: Sequence[str]) -> Lines:
    theirs = printed(run)
    cells = [f"{theirs[name]:.3f}" if name in theirs else "" for name in names]
    return [["as the paper prints", *cells]] if any(cells) else []


def _diversity(runs: Named, judge: LanguageModel | None, prompts: Mapping[str, str]) -> str:
    likely = ["perplexity"] if judge else []
    lines = [["", "distinct-2", "entropy", "self-BLEU", "different texts", "of", *likely]]
    for name, run in runs.items():
        # Problem by problem: the intervals are over problems.
        each = [measure_texts([texts]) for texts in run.texts]
        alike = [self_bleu(list(map(words, texts))) for texts in run.texts if len(texts) > 1]
        cells = [
            format_interval([measured["distinct-2"] for measured in each]),
            format_interval([measured["entropy"] for measured in each]),
            format_interval(alike) if alike else "",
            format_interval([distinct_count(texts, same_words()) for texts in run.texts]),
            str(run.settings["samples"]),
        ]
        cells += [_perplexity(judge, run, prompts)] if judge else []
        lines.append([name, *cells])
    return table(lines)


def _perplexity(judge: LanguageModel, run: Results, prompts: Mapping[str, str]) -> str:
    """Of all texts, each after its prompt; nothing where all are empty."""
    before = [prompts.get(name, "") for name in run.lines]
    value = measure_texts(run.texts, prompts=before, judge=judge)["perplexity"]
    return "" if np.isnan(value) else f"{value:.2f}"


def _course(runs: Named) -> str:
    head = ["", "problems", "samples", "seed", "evaluations", "ended early", "prompts cut", "why"]
    return table([head, *([name, *_went(run)] for name, run in runs.items())])


def _went(run: Results) -> list[str]:
    flat = [line for lines in run.lines.values() for line in lines]
    early = np.mean([line["ended"] != "length" for line in flat])
    cut = sum(lines[0]["cut"] > 0 for lines in run.lines.values())
    reasons = collections.Counter(_reason(line) for line in flat if line["why"])
    common = ", ".join(f"{why} {count}" for why, count in reasons.most_common(COMMON))
    return [
        str(len(run.lines)),
        str(run.settings["samples"]),
        str(run.settings["seed"]),
        f"{run.evaluations.mean():.1f}",
        f"{early:.2f}",
        str(cut),
        common,
    ]


def _reason(line: dict[str, Any]) -> str:
    """The kind of failure, without its message."""
    return ":".join(line["why"].split(":")[:2]).replace("|", "/").replace("\n", " ")[:60]


def _figure(runs: Named, rules: Sequence[str], path: Path) -> str:
    """pass@k against k, and against the network evaluations that k samples cost; as Markdown."""
    if importlib.util.find_spec("matplotlib") is None:
        return 'A figure of pass@k needs matplotlib: pip install "sake-jax[plots]".'
    figure, axes = panels(len(rules), 2, (10, 4 * len(rules)), sharey="row")
    for row, rule in zip(axes, rules, strict=True):
        for at, (name, run) in enumerate(runs.items()):
            correct = run.correct(rule)
            ks = np.arange(1, correct.shape[1] + 1)
            rates = [pass_at_k(correct.shape[1], correct.sum(1), int(k)).mean() for k in ks]
            marker, line = STYLES[at % len(STYLES)]
            style = {"marker": marker, "linestyle": line, "color": COLOURS[at % len(COLOURS)]}
            row[0].plot(ks, rates, label=name, markersize=4, **style)
            row[1].plot(ks * run.evaluations.mean(), rates, markersize=4, **style)
        row[0].set(xlabel="k", ylabel=f"pass@k, {rule}", xscale="log")
        row[1].set(xlabel="network evaluations of a problem", xscale="log")
        share_axis(row[0], max(run.correct(rule).any(axis=1).mean() for run in runs.values()))
        for panel in row:
            panel.grid(alpha=0.3)
    legend(figure, 3)
    save(figure, path)
    return f"![pass@k]({path.name})"
