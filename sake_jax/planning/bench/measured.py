"""The table of the paper and how it grows, measured on the device that is here."""

import os
from importlib import metadata
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

import sake_jax as sj
from sake_jax.planning.bench.clock import BenchSetting, Cell, time_forms
from sake_jax.planning.bench.scaled import scaled_model
from sake_jax.planning.forms import BASE, DEFAULT, PAPER
from sake_jax.sharding import divisors
from sake_jax.sharding import mesh as make_mesh

GROWING = (BASE, DEFAULT, PAPER)
"""Forms that are followed as sizes grow."""
TIMES = (4, 16)
"""By how much vocabulary and batch grow."""


def measure_tables(
    lm: sj.LanguageModel, setting: BenchSetting, name: str, growth: bool = True
) -> dict[str, Any]:
    """All tables of the page; growth with the vocabulary only for the scaled model, which may be
    made with another one."""
    tables: dict[str, Any] = {"prompt": by_prompt(lm, setting)}
    if growth:
        first = tables["prompt"][0]
        if name == "scaled":
            size = lm.config.network.V
            tables["vocabulary"] = [growing_forms(first, size), *by_vocabulary(setting)]
        tables["batch"] = [growing_forms(first, setting.batch), *by_batch(lm, setting)]
        tables["devices"] = by_devices(lm, setting, device_counts())
    return {
        "machine": machine_facts(),
        "model": model_facts(lm, name),
        "setting": {"length": setting.length, "steps": setting.steps, "rounds": setting.rounds}
        | {"batch": setting.batch},
        "tables": tables,
    }


def by_prompt(lm: sj.LanguageModel, setting: BenchSetting) -> list[Cell]:
    """Every form at every length of the prompt."""
    jobs = {prompt: setting.job(lm, prompt) for prompt in setting.prompts}  # refuses before it runs
    return [
        {"at": prompt} | time_forms(f"prompt {prompt}", job, lm.params, setting.rounds)
        for prompt, job in jobs.items()
    ]


def growing_forms(cell: Cell, size: int) -> Cell:
    """A cell of one table as the first of another, which has the growing forms alone."""
    return cell | {"at": size, "forms": {name: cell["forms"][name] for name in GROWING}}


def by_vocabulary(setting: BenchSetting) -> list[Cell]:
    """Vocabularies of the scaled model, some times larger."""
    rows = []
    for times in TIMES:
        lm = scaled_model(times=times)
        size, job = lm.config.network.V, setting.job(lm, setting.prompts[0])
        times = time_forms(f"vocabulary {size}", job, lm.params, setting.rounds, GROWING)
        rows.append({"at": size} | times)
    return rows


def by_batch(lm: sj.LanguageModel, setting: BenchSetting) -> list[Cell]:
    """Rows together, some times more."""
    rows = []
    for batch in (times * setting.batch for times in TIMES):
        job = setting.job(lm, setting.prompts[0], batch)
        times = time_forms(f"batch {batch}", job, lm.params, setting.rounds, GROWING)
        rows.append({"at": batch} | times)
    return rows


def by_devices(lm: sj.LanguageModel, setting: BenchSetting, counts: list[int]) -> list[Cell]:
    """As many rows on each of some devices as the setting has on one."""
    rows = []
    for count in counts:
        job = setting.job(lm, setting.prompts[0], count * setting.batch)
        placed = NamedSharding(make_mesh(data=count), PartitionSpec())
        params = jax.device_put(lm.params, placed)
        rows.append(
            {"at": count} | time_forms(f"devices {count}", job, params, setting.rounds, GROWING)
        )
    return rows


def device_counts() -> list[int]:
    """Numbers of devices worth comparing; none for one device, nor for several that are made
    of one CPU and share its cores."""
    count, platform = jax.device_count(), jax.devices()[0].platform
    return divisors(count) if count > 1 and platform != "cpu" else []


def machine_facts() -> dict[str, Any]:
    """Where it was measured."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cores": os.cpu_count(),
        "load": [round(number, 2) for number in os.getloadavg()],
        "jax": metadata.version("jax"),
    }


def model_facts(lm: sj.LanguageModel, name: str) -> dict[str, Any]:
    """Name and sizes of what was measured."""
    c = lm.config.network
    kind = str(lm.params["input"]["rows"].dtype)
    return {"name": name, "D": c.D, "N": c.N, "H": c.H, "F": c.F, "V": c.V, "dtype": kind}
