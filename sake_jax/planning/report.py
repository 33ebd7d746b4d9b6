"""A plan in words and numbers."""

from collections.abc import Sequence
from typing import Any

from sake_jax.planning.plan import Plan, gib
from sake_jax.tables import table

ACCOUNTING = (
    "By our count: matrix products only, loops by their rounds; each product takes the longer of "
    "its operations and its bytes by the chip's data sheet, then what it sends, and nothing "
    "overlaps. A run's beginning is divided among its steps. By the compiler: its estimate of "
    "cycles for every fused operation, loops by their rounds, then collectives at the link's "
    "speed. Both are models; nothing here was measured on a chip."
)


def told(found: Plan) -> str:
    """Memory and time of one plan."""
    chip, cost = found.topology.chip, found.cost
    sizes = ", ".join(f"{axis}={size}" for axis, size in found.mesh.items())
    lines = [["", ""], ["chips", f"{found.topology.devices} × {chip.name}, mesh {sizes}"]]
    lines += _memory(found)
    lines += [
        ["operations of a step, a chip", f"{cost.flops / 1e12:.3f} TFLOP by our count"],
        ["read in a step, a chip", f"{cost.bytes / 1e9:.2f} GB"],
        ["sent in a step, a chip", f"{cost.sent / 1e9:.3f} GB"],
        ["a step, by our count", f"{1e3 * cost.seconds:.2f} ms"],
    ]
    if found.compiler_flops:
        once = f"{found.compiler_flops / 1e12:.3f} TFLOP with every loop's body once"
        lines.append(["the compiler's own count", once])
    if found.compiler_seconds:
        lines.append(["a step, by the compiler", f"{1e3 * found.compiler_seconds:.2f} ms"])
    lines.append(["tokens a second, all rows", f"{found.rate:,.0f} by our count"])
    return table(lines)


def _memory(found: Plan) -> list[list[str]]:
    chip = found.topology.chip
    if found.memory is None:
        said = found.complaint or "not compiled"
        return [["memory of a chip", f"does not fit: {said}" if found.complaint else said]]
    memory = found.memory
    parts = f"{gib(memory.arguments)} arguments, {gib(memory.temporaries)} temporaries"
    verdict = "fits" if found.fits else "does not fit"
    return [
        ["memory of a chip", parts],
        ["peak", f"{gib(memory.peak)} of {gib(chip.memory)}: {verdict}"],
        ["compiled in", f"{found.seconds:.0f} s"],
    ]


def overhead_table(found: dict[str, Plan]) -> str:
    """What guidances add, by our count."""
    base = found["none"].cost
    lines = [["guidance", "operations", "read", "ms a step", "added"]]
    for name, each in found.items():
        cost = each.cost
        added = f"{cost.seconds / base.seconds - 1:+.2%}" if each is not found["none"] else ""
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


def sweep_table(found: Sequence[Plan]) -> str:
    """Meshes, the fastest first."""
    lines = [["data", "fsdp", "tensor", "parameters of a chip", "ms a step", "tokens a second"]]
    for each in found:
        sizes = [str(each.mesh[axis]) for axis in ("data", "fsdp", "tensor")]
        held = gib(each.held)
        note = "" if each.roomy else ", too much"
        lines.append([*sizes, held + note, f"{1e3 * each.cost.seconds:.2f}", f"{each.rate:,.0f}"])
    return table(lines)


def as_json(found: Plan) -> dict[str, Any]:
    """For machines."""
    memory = vars(found.memory) if found.memory else None
    return {
        "topology": found.topology.name,
        "mesh": found.mesh,
        "fits": found.fits,
        "memory": memory,
        "complaint": found.complaint,
        "cost": vars(found.cost),
        "compiler": {
            "flops": found.compiler_flops,
            "seconds": found.compiler_seconds,
            "compiled_in": found.seconds,
        },
        "tokens_per_second": found.rate,
    }
