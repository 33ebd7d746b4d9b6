"""Files that are replaced whole, folders with one writer, and nobody who writes in another way."""

import ast
import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from disks import little_room, written_by_another
from sake_jax import files
from sake_jax.files import lock, replace_folder, write_atomically

PACKAGE = Path(__file__).parents[1]
WRITERS = {"write_text", "write_bytes", "savefig", "truncate", "touch", "save_pretrained"}
WRITERS |= {"save_file", "copyfile", "copytree", "copyfileobj", "savetxt"}
PATHS = ("path", "partial", "folder", "new", "file", "self", "os", "shutil")
OWNERS = {
    **dict.fromkeys(("replace", "rename"), PATHS),
    **dict.fromkeys(("copy", "move"), ("shutil",)),
    **dict.fromkeys(("save", "savez"), ("np", "tokenizer", "made")),
    "dump": ("json", "pickle"),
}
"""Whose methods of these names write files."""
MODES = ("w", "a", "x", "wb", "ab", "xb", "r+", "r+b", "w+", "a+", "a+b", "w+b")
ALLOWED = {
    # The one way, and files that only grow.
    "sake_jax/files.py": {"open", "replace", "rename", "truncate"},
    "sake_jax/journal.py": {"open", "truncate"},
    # Into memory, which is then written that way.
    "sake_jax/figures.py": {"savefig"},
    "sake_jax/experiments/entropy.py": {"savez"},
    "sake_jax/experiments/gaussian.py": {"save"},
    # New files in a folder that counts for nothing before its last file, or its name, is there.
    "conversion/exporter.py": {"touch", "save_file"},
    "conversion/checkpoint.py": {"save_pretrained"},
    # To the process that started it, through a pipe.
    "sake_jax/chat_process.py": {"dump"},
    # Inside the sandbox: a place to mount a device on.
    "sake_jax/evaluate/sandbox/contained/house.py": {"open"},
}


def test_every_file_is_written_in_the_one_way():
    """A new writer must use `write_atomically` or a journal, or say here why it need not."""
    writers = {}
    for folder in ("sake_jax", "conversion", "models"):
        for path in (PACKAGE / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            names = {name for name in map(writes, ast.walk(tree)) if name}
            if names:
                writers[str(path.relative_to(PACKAGE))] = names
    assert writers == ALLOWED


def writes(node):
    """The name of a call that writes a file; None of anything else."""
    if not isinstance(node, ast.Call):
        return None
    name = getattr(node.func, "attr", getattr(node.func, "id", None))
    owner = ast.unparse(node.func).rpartition(".")[0]
    if name in OWNERS:  # names that text, trees and models have too
        return name if owner in OWNERS[name] else None
    if name == "open":
        given = [each.value for each in node.args if isinstance(each, ast.Constant)]
        return name if any(mode in given for mode in MODES) else None
    return name if name in WRITERS else None


def test_a_file_is_made_and_replaced(tmp_path):
    path = tmp_path / "table.md"
    assert write_atomically(path, "old\n") == path
    path.chmod(0o640)
    write_atomically(str(path), "nëw\n".encode())
    assert path.read_text(encoding="utf-8") == "nëw\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["table.md"]


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path, monkeypatch
):
    seen, real = [], os.fsync

    def fsync(opened):
        seen.append(os.readlink(f"/proc/self/fd/{opened}"))
        real(opened)

    def replace(self, target):
        seen.append("replace")
        os.replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_atomically(tmp_path / "a", "b")
    assert seen == [str(tmp_path / "a.partial"), "replace", str(tmp_path)]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write_atomically(tmp_path / "a", "old")
    with little_room(3), pytest.raises(OSError, match="too large"):
        write_atomically(path, "a longer text")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there").mkdir()
    write_atomically(tmp_path / "there" / "a", "old")
    (tmp_path / "b").symlink_to(tmp_path / "there" / "a")
    write_atomically(tmp_path / "b", "new")
    assert (tmp_path / "b").is_symlink()
    assert (tmp_path / "there" / "a").read_text() == "new"


def test_many_writers_at_once_leave_one_whole_text(tmp_path):
    texts = [str(at) * 50_000 for at in range(8)]
    threads = [
        threading.Thread(target=write_atomically, args=(tmp_path / "a", text))
        for text in texts
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_text() in texts
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_is_replaced(tmp_path):
    for name, text in (("model", "old"), ("model.partial", "new"), ("model.old", "older")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_text(text)
    replace_folder(tmp_path / "model.partial", tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "new"


@pytest.mark.parametrize("name", ["", "rows.jsonl"])
def test_a_second_writer_is_refused_until_the_first_is_done(name, tmp_path, monkeypatch):
    path = tmp_path / name
    lock(path).release()
    with written_by_another(path):
        with pytest.raises(ValueError, match="must have one writer at a time, got another process"):
            lock(path)
        monkeypatch.setattr(files, "WAIT", 0.1)
        with pytest.raises(ValueError, match="one writer"):
            lock(path, wait=True)
    first, second = lock(path), lock(path)  # a process does not exclude itself
    first.release()
    with pytest.raises(BlockingIOError), written_by_another(path):
        pass
    second.release()
    with written_by_another(path):
        pass


def test_a_lock_is_gone_with_its_process(tmp_path):
    code = (
        "import sys; from sake_jax.files import lock; held = lock(sys.argv[1]); print(1, flush=1)"
    )
    given = [sys.executable, "-P", "-c", f"{code}; sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        with pytest.raises(ValueError, match="one writer at a time"):
            lock(tmp_path)
        running.kill()
        running.wait()
    lock(tmp_path).release()


def test_disks_without_locks_are_written_to(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock(tmp_path):
        write_atomically(tmp_path / "a", "b")
    monkeypatch.setattr(files, "fcntl", None)  # as on Windows
    with lock(tmp_path):
        assert write_atomically(tmp_path / "a", "c").read_text() == "c"
