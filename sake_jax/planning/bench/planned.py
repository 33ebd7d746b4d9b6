"""The table of the paper for chips that are not here."""

import dataclasses
from typing import Any

import sake_jax as sj
from sake_jax import planning
from sake_jax.conversion import model_config
from sake_jax.planning.forecast import Forecast
from sake_jax.planning.forms import BASE, DEFAULT, FORMS
from sake_jax.planning.topology import Topology

COMPILED = (BASE, DEFAULT)
"""Forms that the compiler is asked about, at the shortest and the longest prompt."""


@dataclasses.dataclass(frozen=True)
class Target:
    """Chips and how a model is split over them; the fastest way by our count if None."""

    chips: Topology
    mesh: dict[str, int] | None = None


@dataclasses.dataclass(frozen=True)
class Outline:
    """What is planned: a model, its prompts, and how much is written."""

    model: str = "llada-8b"
    prompts: tuple[int, ...] = (128, 256, 512, 1024)
    length: int = 128
    steps: int | None = None
    batch: int = 1

    def job(self, prompt: int) -> planning.Job:
        request = sj.Request(length=self.length, steps=self.steps, temperature=0.7)
        config = model_config(self.model)
        return planning.Job(config, request, batch=self.batch, prompt=prompt)


def plan_tables(
    outline: Outline, targets: list[Target], compile_it: bool = False
) -> dict[str, Any]:
    """All forms at all prompts on all chips, by our count; some of them by the compiler, too."""
    setting = {"length": outline.length, "steps": outline.steps or outline.length}
    tables = [chip_table(outline, target, compile_it) for target in targets]
    model = {"name": outline.model, "dtype": outline.job(outline.prompts[0]).dtype}
    return {"model": model, "setting": setting | {"batch": outline.batch}, "chips": tables}


def chip_table(outline: Outline, target: Target, compile_it: bool) -> dict[str, Any]:
    """All forms at all prompts on some chips."""
    chips, mesh = target.chips, target.mesh
    if mesh is None:
        mesh = planning.sweep(outline.job(outline.prompts[0]), chips)[0].mesh
    rows = []
    for prompt in outline.prompts:
        job = outline.job(prompt)
        forms = {
            name: by_our_count(each) for name, each in planning.overheads(job, chips, mesh).items()
        }
        if compile_it and prompt in (outline.prompts[0], outline.prompts[-1]):
            for name in COMPILED:
                result = planning.forecast(job.in_form(FORMS[name]), chips, mesh)
                forms[name]["compiler"] = by_compiler(result)
        rows.append({"at": prompt, "forms": forms})
    return {"chips": chips.name, "devices": chips.devices, "mesh": mesh, "prompt": rows}


def by_our_count(result: Forecast) -> dict[str, Any]:
    """A step by our own count."""
    cost = result.cost
    return {
        "ms": round(1e3 * cost.seconds, 4),
        "flops": cost.flops,
        "bytes": cost.bytes,
        "tokens_per_second": round(result.tokens_per_second, 2),
    }


def by_compiler(result: Forecast) -> dict[str, Any]:
    """A step by the compiler, and the memory of a chip."""
    seconds = result.compiler_seconds
    return {
        "fits": result.fits,
        "peak": result.memory and result.memory.peak,
        "ms": None if seconds is None else round(1e3 * seconds, 4),
        "compile": round(result.compile_seconds, 1),
    }
