"""Samplers and other trees of ours as JSON, and back.

A class is written as its name and fields, a function as its name, a small array as its numbers, a
large one of whole numbers, as automata have them, packed.
Reading imports nothing but this library, and modules that the caller trusts.
"""

import base64
import dataclasses
import importlib
import math
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sake_jax.checks import require, shorten
from sake_jax.models import OwnDenoiser

LARGEST = 10_000
"""Numbers an array may have: settings are for people to read."""
LARGEST_PACKED = 20_000_000
"""Whole numbers that a packed array may have."""
PACKED = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

MOVED = {
    "sake_jax.process": "sake_jax.samplers.processes",
    "sake_jax.reveal": "sake_jax.samplers.reveal",
}
"""Modules that have moved since version 0.1, so that its settings can still be read."""
RENAMED = {"sake_jax.samplers.reveal:entropy": "sake_jax.samplers.reveal:low_entropy"}
"""What has another name there."""


def describe_settings(value: Any, name: str = "settings") -> Any:
    """What `rebuild` turns back into the same value.

    >>> import sake_jax as sj
    >>> describe_settings(sj.temperature(0.5))["fields"]
    {'value': 0.5}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [describe_settings(part, f"{name}[{at}]") for at, part in enumerate(value)]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {"tuple": describe_settings(list(value), name)}
    if isinstance(value, dict):
        return {
            "dict": {key: describe_settings(part, f"{name}.{key}") for key, part in value.items()}
        }
    if isinstance(value, OwnDenoiser):
        return {"own": value.name}  # its functions may stand anywhere: replay gets the model
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        described = {key: describe_settings(part, f"{name}.{key}") for key, part in fields.items()}
        return {"class": _path(type(value), name), "fields": described}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value, name)
    rule = f"{name} must be data, or a function at the top of a module"
    require(callable(value), rule, value, "define it there")
    return {"function": _path(value, name)}


def rebuild(described: Any, trusted: Sequence[str] = (), own: Any = None) -> Any:
    """The value that was described.

    Args:
      described: what `describe` gave, also after a way through JSON.
      trusted: names of modules, besides this library, whose classes and functions may be used;
        they are imported, which runs their code.
      own: the denoiser of the model of one's own that was described, if there was one.
    """
    if isinstance(described, list):
        return [rebuild(part, trusted, own) for part in described]
    if not isinstance(described, dict):
        return described
    try:
        return _rebuild(described, trusted, own)
    except (TypeError, LookupError, AttributeError, OverflowError) as error:
        rule, remedy = "settings must be what describe_settings wrote", "was the file changed?"
        raise ValueError(f"{rule}, got {shorten(described)} ({error}); {remedy}") from error


def _rebuild(described: dict, trusted: Sequence[str], own: Any) -> Any:
    """A value that is written as a dictionary, whose first word says what it is."""
    kind = next(iter(described), "nothing")
    if kind == "tuple":
        return tuple(rebuild(described["tuple"], trusted, own))
    if kind == "dict":
        return {key: rebuild(part, trusted, own) for key, part in described["dict"].items()}
    if kind == "array":
        return jnp.asarray(np.asarray(described["array"], described["dtype"]))
    if kind == "packed":
        return jnp.asarray(_unpacked(**described))
    if kind == "key":
        rule, remedy = "a key in settings must be whole numbers", "was the file changed?"
        require(_all_whole(described["key"]), rule, described["key"], remedy)
        data = jnp.asarray(described["key"], jnp.uint32)
        return jax.random.wrap_key_data(data, impl=described["impl"])
    if kind == "own":
        named = described["own"]
        rule, remedy = f"settings name the model {named!r} of your own", "pass it as lm="
        require(getattr(own, "name", None) == named, rule, getattr(own, "name", own), remedy)
        return own
    if kind == "function":
        return _find(described["function"], trusted)
    rule = "settings must hold tuple, dict, array, packed, key, function, own or class"
    require(kind == "class", rule, kind, "was this file written by describe?")
    cls = _find(described["class"], trusted)
    rule = f"{described['class']} must be a class of data"
    require(isinstance(cls, type) and dataclasses.is_dataclass(cls), rule, cls, "check the file")
    return cls(**{key: rebuild(part, trusted, own) for key, part in described["fields"].items()})


def _all_whole(given: Any) -> bool:
    if isinstance(given, list):
        return all(map(_all_whole, given))
    return isinstance(given, int)


def _array(value: Any, name: str) -> dict:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(value)).tolist()
        return {"key": data, "impl": str(jax.random.key_impl(value))}
    if LARGEST < value.size <= LARGEST_PACKED and not jnp.issubdtype(value.dtype, jnp.floating):
        array = np.ascontiguousarray(value)
        text = base64.b64encode(zlib.compress(array.tobytes())).decode()
        return {"packed": text, "dtype": array.dtype.name, "shape": list(array.shape)}
    rule = f"{name} must have at most {LARGEST} numbers to be saved as settings"
    require(value.size <= LARGEST, rule, value.shape, "large arrays belong with the parameters")
    array = np.asarray(value)
    return {"array": array.tolist(), "dtype": array.dtype.name}


def _unpacked(packed: str, dtype: str, shape: list[int]) -> np.ndarray:
    """The array that was packed; its size is known before anything is unpacked."""
    rule, remedy = "a packed array in settings must be whole", "was the file changed?"
    right = _all_whole(shape) and all(side >= 0 for side in shape) and dtype in PACKED
    require(right, rule, (dtype, shape), remedy)
    size = math.prod(shape) * np.dtype(dtype).itemsize
    require(size <= 8 * LARGEST_PACKED, rule, shape, remedy)
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(packed, validate=True), size + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{rule}, got {error}; {remedy}") from error
    require(len(data) == size, rule, f"{len(data)} bytes for {size}", remedy)
    return np.frombuffer(data, dtype).reshape(shape)


def _path(thing: Any, name: str) -> str:
    """module:name of a class or function that can be found again there."""
    module, there = getattr(thing, "__module__", None), None
    where = getattr(thing, "__qualname__", "")
    if module and "<" not in where:
        there = _walk(importlib.import_module(module), where)
    # jit and other wrappers keep the name of what they wrap, and stand at it.
    rule = f"{name} must be found again by its name to be saved"
    require(there is thing, rule, f"{module}:{where}", "define it at the top of a module")
    return f"{module}:{where}"


def current_path(path: str) -> str:
    """Where that stands now which earlier versions wrote as `module:name`.

    >>> current_path("sake_jax.reveal:entropy")
    'sake_jax.samplers.reveal:low_entropy'
    """
    module, _, where = path.partition(":")
    moved = f"{MOVED.get(module, module)}:{where}"
    return RENAMED.get(moved, moved)


def _find(path: Any, trusted: Sequence[str]) -> Any:
    rule, remedy = "settings must name things as 'module:name'", "was the file changed?"
    require(isinstance(path, str), rule, path, remedy)
    path = current_path(path)
    module, _, where = path.partition(":")
    known = module.split(".")[0] == "sake_jax" or module in trusted
    rule = f"settings name {path}, so its module must be ours or trusted"
    require(known, rule, module, f"pass trusted=[{module!r}] if you know what it runs")
    thing = _walk(importlib.import_module(module), where)
    require(thing is not None, f"{module} must have {where}", "nothing", "another version's file?")
    # What a module has imported from elsewhere is not its own; but ours may move from file to file.
    home, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    ours = module.startswith("sake_jax.") and str(home).startswith("sake_jax.")
    own = name == where and (home == module or ours)
    rule = f"settings name {path}, which must stand there"
    require(own, rule, f"{home}:{name}", "mend the file")
    return thing


def _walk(owner: Any, where: str) -> Any:
    for part in where.split("."):
        owner = getattr(owner, part, None)
    return owner
