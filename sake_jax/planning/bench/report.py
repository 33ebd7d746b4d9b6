"""Tables of what was measured and planned, from its JSON alone."""

from typing import Any

from sake_jax.planning.bench.clock import Cell
from sake_jax.planning.drafted import MEASURED_ON
from sake_jax.planning.forms import BASE, FREE, PAPER
from sake_jax.planning.report import ACCOUNTING
from sake_jax.tables import table

PROMPTS = (128, 256, 512, 1024)
PUBLISHED = {
    BASE: (70.19, 56.82, 39.44, 23.19),
    FREE: (53.41, 38.42, 23.53, 11.98),
    PAPER: (64.51, 53.48, 36.84, 21.51),
}
"""Tokens a second of LLaDA-8B on one GPU at `PROMPTS`, by the paper's table of generation speed."""
GROWTH = {
    "vocabulary": "With the vocabulary",
    "batch": "With the rows of a batch",
    "devices": "With devices, as many rows on each",
}
QUIET = 0.2
"""Cores that other processes may use."""
LOUD = ", **too many: measure again on a quiet machine**"
ALONE = (
    "With devices: not measured. One device was there, or several that are made of one CPU and "
    "share its cores."
)


def render_markdown(results: dict[str, Any]) -> str:
    """Everything that was measured and planned, as Markdown."""
    parts = [*_measured(results["measured"])] if "measured" in results else []
    parts += [*_planned(results["planned"])] if "planned" in results else []
    return "\n\n".join([*parts, "## Guidance, in the paper", published_table()])


def format_added(forms: dict[str, Any], name: str) -> str:
    """What a form adds to a step without guidance, with its interval where it was measured."""
    if name == BASE:
        return f"{forms[name]['ms']:.2f} ms"
    if "ratio" in forms[name]:
        return "{:+.1f} % ({:+.1f} to {:+.1f})".format(
            *(100 * (r - 1) for r in forms[name]["ratio"])
        )
    return f"{100 * (forms[name]['ms'] / forms[BASE]['ms'] - 1):+.2f} %"


def added_table(cells: list[Cell], title: str) -> str:
    """A line for each form and a column for each size: ms without guidance, then what is added."""
    lines = [[title, *(f"{cell['at']:,}" for cell in cells)]]
    names = cells[0]["forms"]
    return table(
        lines + [[name, *(format_added(cell["forms"], name) for cell in cells)] for name in names]
    )


def rates_table(cells: list[Cell], title: str) -> str:
    """The same in tokens a second, as in the paper."""
    lines = [[title, *(f"{cell['at']:,}" for cell in cells)]]
    for name in cells[0]["forms"]:
        numbers = (cell["forms"][name]["tokens_per_second"] for cell in cells)
        lines.append([name, *(f"{number:,.1f}" for number in numbers)])
    return table(lines)


def compile_table(cells: list[Cell]) -> str:
    """Seconds from the first trace to a program."""
    lines = [["seconds to compile, prompt", *(f"{cell['at']:,}" for cell in cells)]]
    for name in cells[0]["forms"]:
        numbers = (cell["forms"][name]["compile"] for cell in cells)
        lines.append([name, *(f"{number:.1f}" for number in numbers)])
    return table(lines)


def published_table() -> str:
    """What the paper's speeds come to."""
    lines = [["LLaDA-8B on one GPU, prompt", *map(str, PROMPTS)]]
    base = PUBLISHED[BASE]
    lines.append(["none", *(f"{speed:.1f} tokens/s" for speed in base)])
    for name in (FREE, PAPER):
        pairs = zip(base, PUBLISHED[name], strict=True)
        lines.append([name, *(f"{100 * (b / own - 1):+.1f} %" for b, own in pairs)])
    return table(lines)


def describe_measurement(results: dict[str, Any]) -> str:
    """Model, setting and machine of a measurement in a sentence."""
    model, setting, here = results["model"], results["setting"], results["machine"]
    sizes = ", ".join(f"{name} {model[name]:,}" for name in ("N", "D", "F", "V"))
    return (
        f"Model {model['name']} ({sizes}, {model['dtype']}), batch {setting['batch']}, "
        f"{setting['length']} tokens in {setting['steps']} steps, {setting['rounds']} rounds with "
        f"all forms in turn; medians, 95 % intervals by bootstrap over rounds. On {here['device']} "
        f"({here['cores']} cores), jax {here['jax']}; other processes used up to "
        f"{other_cores(results):.2f} cores meanwhile{LOUD * (other_cores(results) > QUIET)}."
    )


def other_cores(results: dict[str, Any]) -> float:
    """Cores that other processes used while it was measured, at the worst."""
    return max(cell["others"] for cells in results["tables"].values() for cell in cells)


def _measured(results: dict[str, Any]) -> list[str]:
    tables = results["tables"]
    parts = [
        "## Guidance, measured",
        describe_measurement(results),
        added_table(tables["prompt"], "added to a step, prompt"),
    ]
    parts += [
        rates_table(tables["prompt"], "tokens a second, prompt"),
        compile_table(tables["prompt"]),
    ]
    for name, title in GROWTH.items():
        if tables.get(name):
            parts += [
                f"### {title}",
                added_table(tables[name], name),
                rates_table(tables[name], "tokens/s"),
            ]
    return [*parts, ALONE] if tables.get("devices") == [] else parts


def _planned(results: dict[str, Any]) -> list[str]:
    model, setting = results["model"], results["setting"]
    shape = f"batch {setting['batch']}, {setting['length']} tokens in {setting['steps']} steps"
    parts = [f"## Guidance, planned for {model['name']} in {model['dtype']}, {shape}", ACCOUNTING]
    for chips in results["chips"]:
        mesh = ", ".join(f"{axis}={size}" for axis, size in chips["mesh"].items() if size > 1)
        parts.append(f"### {chips['chips']}" + f", {mesh}" * bool(mesh))
        parts.append(added_table(chips["prompt"], "added to a step by our count, prompt"))
        parts.append(rates_table(chips["prompt"], "tokens a second by our count, prompt"))
        parts += compiler_table(chips["prompt"])
        parts += drafts_table(chips.get("drafts", []), chips["prompt"][0]["at"])
    return parts


def drafts_table(cells: list[dict[str, Any]], prompt: int) -> list[str]:
    """What reads of several canvases would bring, with the steps that they serve as measured."""
    if not cells:
        return []
    lines = [["drafts", "rows", "cache", "ms a read", "steps it serves", "tokens/s", "against 1"]]
    for cell in cells:
        first = cell["drafts"][0]["tokens_per_second"]
        for each in cell["drafts"]:
            rate = each["tokens_per_second"]
            times = [f"{1e3 * each['read']:.2f}", f"{each['steps_per_read']:.2f}"]
            own = [str(each["drafts"]), str(cell["batch"]), cell["cache"], *times]
            lines.append([*own, f"{rate:,.0f}", f"{rate / first:.2f}"])
    note = f"Drafts at prompt {prompt:,}; steps that a read serves: measured on {MEASURED_ON}."
    return [table(lines), note]


def compiler_table(cells: list[Cell]) -> list[str]:
    """What the compiler said, where it was asked."""
    lines = [["by the compiler", "prompt", "peak of a chip", "ms a step", "compiled in"]]
    for cell in cells:
        for name, form in cell["forms"].items():
            if answer := form.get("compiler"):
                peak = f"{answer['peak'] / 2**30:.2f} GiB" if answer["peak"] else "does not fit"
                ms = f"{answer['ms']:.2f}" if answer["ms"] else "not told"
                lines.append([name, f"{cell['at']:,}", peak, ms, f"{answer['compile']:.0f} s"])
    return [table(lines)] if len(lines) > 1 else []
