"""Forecasts as Markdown tables, and as JSON."""

from collections.abc import Sequence
from typing import Any

from sake_jax.planning.forecast import Forecast, format_gib
from sake_jax.planning.forms import BASE
from sake_jax.tables import table

ACCOUNTING = (
    "By our count: matrix products only, loops by their rounds; each product takes the longer of "
    "its operations and its bytes by the chip's data sheet, then what it sends, and nothing "
    "overlaps. Of experts it reads those that some token goes through, as many as on average if "
    "all are equally likely. A run's beginning is divided among its steps. By the compiler: its "
    "estimate of cycles for every fused operation, loops by their rounds, then collectives at the "
    "link's speed. Both are models; nothing here was measured on a chip."
)


def render_forecast(result: Forecast) -> str:
    """Memory and time of one forecast as a Markdown table."""
    chip, cost = result.topology.chip, result.cost
    sizes = ", ".join(f"{axis}={size}" for axis, size in result.mesh.items())
    lines = [["", ""], ["chips", f"{result.topology.devices} × {chip.name}, mesh {sizes}"]]
    lines += [["parameters", _parameters(result)], *_memory(result)]
    lines += [
        ["operations of a step, a chip", f"{cost.flops / 1e12:.3f} TFLOP by our count"],
        ["read in a step, a chip", f"{cost.bytes / 1e9:.2f} GB"],
        ["sent in a step, a chip", f"{cost.sent / 1e9:.3f} GB"],
        ["a step, by our count", f"{1e3 * cost.seconds:.2f} ms"],
    ]
    if result.compiler_flops:
        once = f"{result.compiler_flops / 1e12:.3f} TFLOP with every loop's body once"
        lines.append(["the compiler's own count", once])
    if result.compiler_seconds:
        lines.append(["a step, by the compiler", f"{1e3 * result.compiler_seconds:.2f} ms"])
    lines.append(["tokens a second, all rows", f"{result.tokens_per_second:,.0f} by our count"])
    return table(lines)


def _parameters(result: Forecast) -> str:
    """How many there are, and how many a token goes through."""
    job = result.job
    everything = f"{job.parameters / 1e9:.2f} billion"
    fewer = job.active_parameters < job.parameters
    return everything + f", {job.active_parameters / 1e9:.2f} for one token" * fewer


def _memory(result: Forecast) -> list[list[str]]:
    chip = result.topology.chip
    if result.memory is None:
        reason = f"does not fit: {result.complaint}" if result.complaint else "not compiled"
        return [["memory of a chip", reason]]
    memory = result.memory
    parts = f"{format_gib(memory.arguments)} arguments, "
    parts += f"{format_gib(memory.temporaries)} temporaries"
    verdict = "fits" if result.fits else "does not fit"
    return [
        ["memory of a chip", parts],
        ["peak", f"{format_gib(memory.peak)} of {format_gib(chip.memory)}: {verdict}"],
        ["compiled in", f"{result.compile_seconds:.0f} s"],
    ]


def render_overheads(forecasts: dict[str, Forecast]) -> str:
    """What guidances add to a step, by our count, as a Markdown table."""
    base = forecasts[BASE].cost
    lines = [["guidance", "operations", "read", "ms a step", "added"]]
    for name, each in forecasts.items():
        cost = each.cost
        added = f"{cost.seconds / base.seconds - 1:+.2%}" if name != BASE else ""
        lines.append(
            [
                name,
                f"{cost.flops / base.flops:.3f}",
                f"{cost.bytes / base.bytes:.3f}",
                f"{1e3 * cost.seconds:.2f}",
                added,
            ]
        )
    return table(lines)


def render_sweep(forecasts: Sequence[Forecast]) -> str:
    """Meshes as a Markdown table, in their order."""
    lines = [["data", "fsdp", "tensor", "parameters of a chip", "ms a step", "tokens a second"]]
    for each in forecasts:
        sizes = [str(each.mesh[axis]) for axis in ("data", "fsdp", "tensor")]
        parameters = format_gib(each.parameter_bytes)
        note = "" if each.parameters_fit else ", too much"
        times = [f"{1e3 * each.cost.seconds:.2f}", f"{each.tokens_per_second:,.0f}"]
        lines.append([*sizes, parameters + note, *times])
    return table(lines)


def as_json(result: Forecast) -> dict[str, Any]:
    """A forecast for machines."""
    memory = vars(result.memory) if result.memory else None
    return {
        "topology": result.topology.name,
        "mesh": result.mesh,
        "parameters": result.job.parameters,
        "active_parameters": result.job.active_parameters,
        "fits": result.fits,
        "memory": memory,
        "complaint": result.complaint,
        "cost": vars(result.cost),
        "compiler": {
            "flops": result.compiler_flops,
            "seconds": result.compiler_seconds,
            "compiled_in": result.compile_seconds,
        },
        "tokens_per_second": result.tokens_per_second,
    }
