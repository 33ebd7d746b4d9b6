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


BATCHES = (1, 8)
"""Rows that drafts are planned for."""


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

    def job(self, prompt: int, cache: str = "none", batch: int | None = None) -> planning.Job:
        options = {"length": self.length, "steps": self.steps, "temperature": 0.7}
        request = sj.Request(**options, cache=cache)
        rows = self.batch if batch is None else batch
        return planning.Job(model_config(self.model), request, batch=rows, prompt=prompt)


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
    table = {"chips": chips.name, "devices": chips.devices, "mesh": mesh, "prompt": rows}
    return table | {"drafts": drafts_table(outline, target.chips, mesh)}


def drafts_table(outline: Outline, chips: Topology, mesh: dict[str, int]) -> list[dict[str, Any]]:
    """The shortest prompt with several canvases in a read, for one row and eight, with the dual
    cache where there is one, and without."""
    masked = model_config(outline.model).sampler == "masked"
    rows = []
    for batch in BATCHES:
        if batch % mesh.get("data", 1):
            continue
        for cache in ("none", "dual") if masked else ("none",):
            job = outline.job(outline.prompts[0], cache, batch)
            each = [dataclasses.asdict(cast) for cast in planning.drafted(job, chips, mesh)]
            rows += [{"batch": batch, "cache": cache, "drafts": each}] if each else []
    return rows


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
