"""The public names with their signatures, one in a line: `python tests/public_api.py` writes them
to public_api.txt."""

import dataclasses
import inspect
import types
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import sake_jax as sj

RECORDED = Path(__file__).with_suffix(".txt")
MODULES = (
    "conversion",
    "generation",
    "guidance",
    "interop",
    "interop.bonsai",
    "interop.gemma",
    "interop.hackable",
    "matrices",
    "metrics",
    "models",
    "reveal",
    "samplers",
    "sharding",
    "testing",
)
"""The modules of the ground floor: their names are public too."""


def public() -> dict[str, Any]:
    """What `sake_jax` offers by name; other modules are there only because of what they hold."""
    names = (name for name in dir(sj) if not name.startswith("_"))
    found = {name: attrgetter(name)(sj) for name in sorted({*names, *MODULES})}
    return {
        name: value
        for name, value in found.items()
        if name in MODULES or not isinstance(value, types.ModuleType)
    }


def inside(name: str) -> dict[str, Any]:
    """What a public module offers beyond that: its own functions, and those it gathers."""
    module = attrgetter(name)(sj)
    found = {
        member: value
        for member, value in sorted(vars(module).items())
        if inspect.isroutine(inspect.unwrap(value)) or inspect.isclass(value)
        if value.__module__.startswith(module.__name__) and not member.startswith("_")
    }
    elsewhere = public().values()
    return {member: value for member, value in found.items() if value not in elsewhere}


@dataclasses.dataclass(frozen=True)
class Named:
    """A default that is a function or a schedule, shown by its name."""

    name: str

    def __repr__(self) -> str:
        return self.name


def signature(value: Any) -> str:
    """Parameters and defaults. Types are pyright's business, and would be hard to read here."""
    try:
        found = inspect.signature(value)
    except ValueError:  # an exception without a constructor of its own
        return ""
    parameters = [
        part.replace(annotation=part.empty, default=_shown(part.default))
        for part in found.parameters.values()
    ]
    return str(found.replace(parameters=parameters, return_annotation=found.empty))


def _shown(default: Any) -> Any:
    if isinstance(default, sj.Schedule):
        return Named(f"{default.shape.__name__.removeprefix('_')}{default.numbers}")
    return Named(default.__name__) if inspect.isfunction(default) else default


def lines() -> Iterator[str]:
    """One for each name, and for each method of a class."""
    for name, value in public().items():
        yield from _described(name, value)
        if name in MODULES:
            for member, part in inside(name).items():
                yield from _described(f"{name}.{member}", part)


def _described(name: str, value: Any) -> Iterator[str]:
    abstract = isinstance(value, types.ModuleType) or getattr(value, "_is_protocol", False)
    yield name if abstract else name + signature(value)
    if inspect.isclass(value):
        for member, part in vars(value).items():
            if member.startswith("_") or member == "replace":
                continue
            if inspect.isfunction(part):
                yield f"{name}.{member}{signature(part)}"
            elif isinstance(part, property):
                yield f"{name}.{member}"


if __name__ == "__main__":
    RECORDED.write_text("".join(f"{line}\n" for line in lines()))
