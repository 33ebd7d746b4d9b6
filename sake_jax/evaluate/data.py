"""Records of problems, from a file or from the hub."""

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sake_jax.checks import require, whole

Record = dict[str, Any]
Placed = tuple[str, Any]
"""What was read, after where: a file and a line."""


class Hub(NamedTuple):
    """A data set on the Hugging Face hub."""

    name: str
    config: str | None
    split: str


def records(
    data: str | Path | None,
    fields: Sequence[str],
    *,
    hub: Hub | None = None,
    text: str | None = None,
    limit: int | None = None,
) -> list[Record]:
    """Reads records that have all of `fields`.

    Args:
      data: a file: .jsonl with a record in each line, .json or .yaml with a list of them, or .txt
        with a text in each line; each may be gzipped, as .jsonl.gz. None for the hub.
      fields: what every record must have.
      hub: where records come from without a file.
      text: the field that plain texts in place of records are put in; they are refused by default.
      limit: reads that many records at most.
    """
    require(data is not None or hub is not None, "data must be a file", data, "name one")
    placed = _from_file(Path(data)) if data is not None else _from_hub(hub)
    checked = [_checked(place, value, fields, text) for place, value in placed]
    require(checked, "data must hold records", f"none in {data or hub}", "check the file")
    return checked[: None if limit is None else whole("limit", limit)]


def _from_hub(hub: Hub | None) -> list[Placed]:
    assert hub is not None
    try:
        from datasets import load_dataset
    except ImportError as error:
        remedy = 'pip install "sake-jax[eval]", or name a file'
        raise ValueError(f"{hub.name} needs the package datasets; {remedy}.") from error
    try:
        rows = load_dataset(hub.name, hub.config, split=hub.split)
    except Exception as error:  # of many kinds: the network's, the hub's, the package's own
        rule, remedy = f"{hub.name} must come from the hub", "check the network, or name a file"
        raise ValueError(f"{rule}, got {error}; {remedy}.") from error
    return [(f"{hub.name}, {hub.split} record {at}", dict(row)) for at, row in enumerate(rows, 1)]


def _from_file(path: Path) -> list[Placed]:
    kind = path.suffixes[-2] if path.suffix == ".gz" and len(path.suffixes) > 1 else path.suffix
    rule, remedy = f"{path.name} must end with one of {', '.join(KINDS)}, or that and .gz", "rename"
    require(kind in KINDS, rule, path.name, remedy)
    require(path.is_file(), "data must be a file that exists", str(path), "check the path")
    return list(KINDS[kind](path.name, _text(path)))


def _text(path: Path) -> str:
    stored = path.read_bytes()
    try:
        return (gzip.decompress(stored) if path.suffix == ".gz" else stored).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        kind = "gzipped UTF-8" if path.suffix == ".gz" else "UTF-8"
        raise ValueError(f"{path.name} must be {kind}, got {error}; write it anew.") from error


def _lines(name: str, text: str) -> Iterator[Placed]:
    """Lines that are not blank. Not by splitlines: JSON may hold other line separators."""
    for at, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{name}, line {at}", line.rstrip("\r")


def _json_lines(name: str, text: str) -> Iterator[Placed]:
    for place, line in _lines(name, text):
        yield place, _parsed(place, line)


def _json(name: str, text: str) -> Iterator[Placed]:
    yield from _listed(name, _parsed(name, text))


def _yaml(name: str, text: str) -> Iterator[Placed]:
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{name} must be YAML, got {error}; mend that place.") from error
    yield from _listed(name, values)


KINDS: dict[str, Callable[[str, str], Iterator[Placed]]] = {
    ".jsonl": _json_lines,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".txt": _lines,
}
"""How files are read, by how their names end."""


def _listed(name: str, values: Any) -> Iterator[Placed]:
    rule = f"{name} must hold a list"
    require(isinstance(values, list), rule, type(values).__name__, "put records into [...]")
    return ((f"{name}, record {at}", value) for at, value in enumerate(values, 1))


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        rule, remedy = f"{place} must be JSON", "name a file with one record a line .jsonl"
        require(False, rule, str(error), remedy)


def _checked(place: str, value: Any, fields: Sequence[str], text: str | None) -> Record:
    """A record with all fields, or an error that says where and what."""
    record = {text: value} if text is not None and isinstance(value, str) else value
    rule, remedy = f"{place} must be a record", 'write it as {"field": value}'
    require(isinstance(record, dict), rule, value, remedy)
    missing = [field for field in fields if record.get(field) is None]
    rule = f"{place} must have {', '.join(map(repr, fields))}"
    remedy = f"add {', '.join(map(repr, missing))}, or name another file"
    require(not missing, rule, list(record), remedy)
    return record
