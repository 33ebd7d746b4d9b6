"""Files of JSON lines whose writer was killed."""

import pytest

from sake_jax.conversion.manifest import UnfinishedConversion
from sake_jax.journal import JsonLines


def test_a_line_that_was_cut_short_is_written_again(tmp_path):
    file = JsonLines(tmp_path / "rows.jsonl")
    assert file.read() == []
    file.append([{"row": 1}])
    with file.path.open("ab") as opened:
        opened.write(b'{"row": 2')  # killed here
    assert file.read() == [{"row": 1}]
    file.append([{"row": 2}, {"row": 3}])
    assert file.read() == [{"row": 1}, {"row": 2}, {"row": 3}]


def test_a_line_that_is_not_json_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"row": 1}\nrow 2\n')
    with pytest.raises(ValueError, match=r"line 2 of .* must be a row of ours"):
        JsonLines(tmp_path / "rows.jsonl").read()


def test_a_conversion_that_is_killed_twice_keeps_what_it_wrote(tmp_path):
    """Behind a line that was cut short, the next one would be lost with it."""
    path, job = tmp_path / "journal", {"dtype": "float32"}
    UnfinishedConversion(path, job).add({"a": {"crc": 1}})
    with path.open("ab") as opened:
        opened.write(b'{"b": {')  # killed here
    UnfinishedConversion(path, job).add({"b": {"crc": 2}})
    assert UnfinishedConversion(path, job).done == {"a": {"crc": 1}, "b": {"crc": 2}}
    with pytest.raises(ValueError, match="must be the same one"):
        UnfinishedConversion(path, {"dtype": "bfloat16"})
