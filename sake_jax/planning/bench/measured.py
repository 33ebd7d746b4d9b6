"""The table of the paper and how it grows, measured on the device that is here."""

import os
from importlib import metadata
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from sake_jax.models import LanguageModel
from sake_jax.planning.bench.clock import Row, Setting, timed
from sake_jax.planning.bench.scaled import scaled
from sake_jax.planning.forms import BASE, DEFAULT, PAPER
from sake_jax.sharding import divisors
from sake_jax.sharding import mesh as make_mesh

GROWING = (BASE, DEFAULT, PAPER)
"""Forms that are followed as sizes grow."""
TIMES = (4, 16)
"""By how much vocabulary and batch grow."""


def measured(lm: LanguageModel, setting: Setting, name: str, growth: bool = True) -> dict[str, Any]:
    """All tables; growth with the vocabulary for the scaled model only, whose one may change."""
    tables: dict[str, Any] = {"prompt": by_prompt(lm, setting)}
    if growth:
        first = tables["prompt"][0]
        if name == "scaled":
            size = lm.config.network.V
            tables["vocabulary"] = [only(first, size), *by_vocabulary(setting)]
        tables["batch"] = [only(first, setting.batch), *by_batch(lm, setting)]
        tables["devices"] = by_devices(lm, setting, device_counts())
    return {
        "machine": machine(),
        "model": described(lm, name),
        "setting": {"length": setting.length, "steps": setting.steps, "rounds": setting.rounds}
        | {"batch": setting.batch},
        "tables": tables,
    }


def by_prompt(lm: LanguageModel, setting: Setting) -> list[Row]:
    """Every form at every length of the prompt."""
    jobs = {prompt: setting.job(lm, prompt) for prompt in setting.prompts}  # refuses before it runs
    return [
        {"at": prompt} | timed(f"prompt {prompt}", job, lm.params, setting.rounds)
        for prompt, job in jobs.items()
    ]


def only(cell: Row, size: int) -> Row:
    """A cell of that table as the first of another."""
    return cell | {"at": size, "forms": {name: cell["forms"][name] for name in GROWING}}


def by_vocabulary(setting: Setting) -> list[Row]:
    """Vocabularies of the scaled model, some times larger."""
    rows = []
    for times in TIMES:
        lm = scaled(times=times)
        size, job = lm.config.network.V, setting.job(lm, setting.prompts[0])
        found = timed(f"vocabulary {size}", job, lm.params, setting.rounds, GROWING)
        rows.append({"at": size} | found)
    return rows


def by_batch(lm: LanguageModel, setting: Setting) -> list[Row]:
    """Rows together, some times more."""
    rows = []
    for batch in (times * setting.batch for times in TIMES):
        job = setting.job(lm, setting.prompts[0], batch)
        found = timed(f"batch {batch}", job, lm.params, setting.rounds, GROWING)
        rows.append({"at": batch} | found)
    return rows


def by_devices(lm: LanguageModel, setting: Setting, counts: list[int]) -> list[Row]:
    """As many rows on each of some devices as the setting has on one."""
    rows = []
    for count in counts:
        job = setting.job(lm, setting.prompts[0], count * setting.batch)
        placed = NamedSharding(make_mesh(data=count), PartitionSpec())
        params = jax.device_put(lm.params, placed)
        rows.append({"at": count} | timed(f"devices {count}", job, params, setting.rounds, GROWING))
    return rows


def device_counts() -> list[int]:
    """Numbers of devices worth comparing; none for one device, nor for several that are made
    of one CPU and share its cores."""
    count, platform = jax.device_count(), jax.devices()[0].platform
    return divisors(count) if count > 1 and platform != "cpu" else []


def machine() -> dict[str, Any]:
    """Where it was measured."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "devices": jax.device_count(),
        "cores": os.cpu_count(),
        "load": [round(number, 2) for number in os.getloadavg()],
        "jax": metadata.version("jax"),
    }


def described(lm: LanguageModel, name: str) -> dict[str, Any]:
    c = lm.config.network
    kind = str(lm.params["input"]["rows"].dtype)
    return {"name": name, "D": c.D, "N": c.N, "H": c.H, "F": c.F, "V": c.V, "dtype": kind}
