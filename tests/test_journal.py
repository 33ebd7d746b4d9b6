"""Files of JSON lines whose writer was killed."""

import pytest

from disks import little_room, written_by_another
from sake_jax.conversion.manifest import UnfinishedConversion
from sake_jax.journal import Journal, JsonLines


def test_a_line_that_was_cut_short_is_written_again(tmp_path):
    file = JsonLines(tmp_path / "rows.jsonl")
    assert file.read() == []
    file.append([{"row": 1}])
    with file.path.open("ab") as opened:
        opened.write(b'{"row": 2')  # killed here
    assert file.read() == [{"row": 1}]
    file.append([{"row": 2}, {"row": 3}])
    assert file.read() == [{"row": 1}, {"row": 2}, {"row": 3}]


def test_lines_that_the_disk_has_no_room_for_leave_no_trace(tmp_path):
    """The write is cut short; what is added when there is room again stands on lines of its own."""
    file = JsonLines(tmp_path / "rows.jsonl")
    file.append([{"row": 1}])
    whole = file.path.read_bytes()
    with little_room(len(whole) + 5), pytest.raises(OSError, match="too large"):
        file.append([{"row": 2}, {"row": 3}])
    assert file.path.read_bytes() == whole
    file.append([{"row": 4}])
    assert file.read() == [{"row": 1}, {"row": 4}]


def test_reading_changes_nothing(tmp_path):
    """The end of a file may be a line that its writer is about to finish."""
    file = JsonLines(tmp_path / "rows.jsonl")
    file.path.write_bytes(b'{"row": 1}\n{"row": ')
    assert file.read() == [{"row": 1}]
    assert file.path.read_bytes().endswith(b'{"row": ')


def test_a_line_longer_than_what_is_searched_at_once(tmp_path):
    file = JsonLines(tmp_path / "rows.jsonl")
    file.append([{"row": 1}])
    with file.path.open("ab") as opened:
        opened.write(b"x" * 200_000)
    file.append([{"row": 2}])
    assert file.read() == [{"row": 1}, {"row": 2}]


def test_the_first_lines_are_kept(tmp_path):
    file = JsonLines(tmp_path / "rows.jsonl")
    file.keep(3)
    assert not file.path.exists()
    file.append([{"row": at} for at in range(4)])
    file.keep(2)
    assert file.read() == [{"row": 0}, {"row": 1}]
    file.keep(5)
    assert len(file.read()) == 2


@pytest.mark.parametrize("name", ["rows.jsonl", "rows-0-of-2.jsonl"])
def test_rows_without_settings_belong_to_nobody(name, tmp_path):
    """Under another seed they would be taken for rows of this run."""
    (tmp_path / name).write_text('{"row": 1}\n')
    (tmp_path / "prompts.jsonl").write_text("mine\n")
    for seed in (0, 1):
        with pytest.raises(ValueError, match=rf"got {name} without settings.json; bring that back"):
            Journal(tmp_path, {"seed": seed})
    (tmp_path / name).write_text("")  # killed before its first line
    Journal(tmp_path, {"seed": 1}).append([{"row": 2}])
    assert Journal(tmp_path, {"seed": 1}).lines() == [{"row": 2}]


def test_settings_that_are_cut_short_are_named(tmp_path):
    Journal(tmp_path, {"seed": 1})
    (tmp_path / "settings.json").write_text('{"se')
    with pytest.raises(ValueError, match=r"settings.json must be JSON, got .*; bring back"):
        Journal(tmp_path, {"seed": 1})


def test_one_process_writes_to_a_journal(tmp_path):
    with Journal(tmp_path, {"seed": 0}) as journal:
        journal.append([{"row": 1}])
    with written_by_another(journal.path):
        with pytest.raises(ValueError, match=r"rows.jsonl must have one writer at a time"):
            Journal(tmp_path, {"seed": 0})
        Journal(tmp_path, {"seed": 0}, "rows-1-of-2.jsonl").append([{"row": 2}])  # a shard may


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
