"""Tables of what was measured and planned, from its JSON alone."""

from typing import Any

from sake_jax.planning.bench.clock import Row
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


def told(found: dict[str, Any]) -> str:
    """Everything as Markdown."""
    parts = [*_measured(found["measured"])] if "measured" in found else []
    parts += [*_planned(found["planned"])] if "planned" in found else []
    return "\n\n".join([*parts, "## Guidance, in the paper", published()])


def over(rows: Row, name: str) -> str:
    """What a form adds to a step without guidance, with its interval where it was measured."""
    if name == BASE:
        return f"{rows[name]['ms']:.2f} ms"
    if "ratio" in rows[name]:
        return "{:+.1f} % ({:+.1f} to {:+.1f})".format(
            *(100 * (r - 1) for r in rows[name]["ratio"])
        )
    return f"{100 * (rows[name]['ms'] / rows[BASE]['ms'] - 1):+.2f} %"


def added(cells: list[Row], title: str) -> str:
    """A line for each form and a column for each size: ms without guidance, then what is added."""
    lines = [[title, *(f"{cell['at']:,}" for cell in cells)]]
    names = cells[0]["forms"]
    return table(lines + [[name, *(over(cell["forms"], name) for cell in cells)] for name in names])


def rates(cells: list[Row], title: str) -> str:
    """The same in tokens a second, as in the paper."""
    lines = [[title, *(f"{cell['at']:,}" for cell in cells)]]
    for name in cells[0]["forms"]:
        numbers = (cell["forms"][name]["tokens_per_second"] for cell in cells)
        lines.append([name, *(f"{number:,.1f}" for number in numbers)])
    return table(lines)


def compile_times(cells: list[Row]) -> str:
    """Seconds from the first trace to a program."""
    lines = [["seconds to compile, prompt", *(f"{cell['at']:,}" for cell in cells)]]
    for name in cells[0]["forms"]:
        numbers = (cell["forms"][name]["compile"] for cell in cells)
        lines.append([name, *(f"{number:.1f}" for number in numbers)])
    return table(lines)


def published() -> str:
    """What the paper's speeds come to."""
    lines = [["LLaDA-8B on one GPU, prompt", *map(str, PROMPTS)]]
    base = PUBLISHED[BASE]
    lines.append(["none", *(f"{speed:.1f} tokens/s" for speed in base)])
    for name in (FREE, PAPER):
        pairs = zip(base, PUBLISHED[name], strict=True)
        lines.append([name, *(f"{100 * (b / own - 1):+.1f} %" for b, own in pairs)])
    return table(lines)


def where(found: dict[str, Any]) -> str:
    """Model, setting and machine of a measurement in a sentence."""
    model, setting, here = found["model"], found["setting"], found["machine"]
    sizes = ", ".join(f"{name} {model[name]:,}" for name in ("N", "D", "F", "V"))
    return (
        f"Model {model['name']} ({sizes}, {model['dtype']}), batch {setting['batch']}, "
        f"{setting['length']} tokens in {setting['steps']} steps, {setting['rounds']} rounds with "
        f"all forms in turn; medians, 95 % intervals by bootstrap over rounds. On {here['device']} "
        f"({here['cores']} cores), jax {here['jax']}; other processes used up to "
        f"{others(found):.2f} cores meanwhile{LOUD * (others(found) > QUIET)}."
    )


def others(found: dict[str, Any]) -> float:
    """Cores that other processes used while it was measured, at the worst."""
    return max(cell["others"] for cells in found["tables"].values() for cell in cells)


def _measured(found: dict[str, Any]) -> list[str]:
    tables = found["tables"]
    parts = [
        "## Guidance, measured",
        where(found),
        added(tables["prompt"], "added to a step, prompt"),
    ]
    parts += [rates(tables["prompt"], "tokens a second, prompt"), compile_times(tables["prompt"])]
    for name, title in GROWTH.items():
        if tables.get(name):
            parts += [f"### {title}", added(tables[name], name), rates(tables[name], "tokens/s")]
    return [*parts, ALONE] if tables.get("devices") == [] else parts


def _planned(found: dict[str, Any]) -> list[str]:
    setting = found["setting"]
    shape = f"batch {setting['batch']}, {setting['length']} tokens in {setting['steps']} steps"
    parts = [
        f"## Guidance, planned for {found['model']['name']} in {found['model']['dtype']}, {shape}"
    ]
    parts.append(ACCOUNTING)
    for chips in found["chips"]:
        mesh = ", ".join(f"{axis}={size}" for axis, size in chips["mesh"].items() if size > 1)
        parts.append(f"### {chips['chips']}" + f", {mesh}" * bool(mesh))
        parts.append(added(chips["prompt"], "added to a step by our count, prompt"))
        parts.append(rates(chips["prompt"], "tokens a second by our count, prompt"))
        parts += compiled(chips["prompt"])
    return parts


def compiled(cells: list[Row]) -> list[str]:
    """What the compiler said, where it was asked."""
    lines = [["by the compiler", "prompt", "peak of a chip", "ms a step", "compiled in"]]
    for cell in cells:
        for name, form in cell["forms"].items():
            if said := form.get("compiler"):
                peak = f"{said['peak'] / 2**30:.2f} GiB" if said["peak"] else "does not fit"
                ms = f"{said['ms']:.2f}" if said["ms"] else "not told"
                lines.append([name, f"{cell['at']:,}", peak, ms, f"{said['compile']:.0f} s"])
    return [table(lines)] if len(lines) > 1 else []
