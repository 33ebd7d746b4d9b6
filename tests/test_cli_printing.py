"""What reaches the terminal: words, never commands, and never read as markup."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from conftest import GOLDENS
from sake_jax import cli
from sake_jax.cli.errors import plain_errors
from sake_jax.cli.printable import printable
from sake_jax.cli.screen import print_markdown

CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x2028, 0x2029, 0x202E, 0x2066, 0xFEFF]
SEQUENCES = ["\x1b[2J", "\x1b]52;c;aGk=\x07", "\x1b]0;title\x07", "\x9b2J", "\r over", "a\x08b"]


def run(*arguments):
    result = CliRunner().invoke(cli.app, [str(each) for each in arguments])
    return result.exit_code, result.output, result.exception


@pytest.mark.parametrize("text", SEQUENCES)
def test_sequences_are_written_out(text):
    shown = printable(f"before {text} after")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", shown)
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_every_control_character_is_escaped_but_for_tabs_and_newlines():
    for point in CONTROLS:
        shown = printable(chr(point))
        assert (shown == chr(point)) == (chr(point) in "\t\n"), hex(point)
        shown.encode()
    assert printable("\ud800").isascii()
    assert printable("Zürich, 東京, 🦊") == "Zürich, 東京, 🦊"


@pytest.mark.parametrize(
    "message",
    ['pip install "sake-jax[eval]"', "a path/[/x] ends", "[red]not red[/red]", "[bold", "\\[x]"],
)
def test_messages_are_not_markup(message, capsys):
    with pytest.raises(BaseException), plain_errors():  # noqa: B017, PT011, typer's Exit
        raise ValueError(message)
    assert message in capsys.readouterr().err


def test_a_message_cannot_command_the_terminal(capsys):
    with pytest.raises(BaseException), plain_errors():  # noqa: B017, PT011, typer's Exit
        raise ValueError("got \x1b]52;c;aGk=\x07")
    said = capsys.readouterr().err
    assert "\\x1b]52;c;aGk=\\x07" in said
    assert "\x07" not in said


def test_folders_with_brackets_and_controls(tmp_path):
    folder = tmp_path / "[" / "x] \x1b[2J"
    code, output, error = run("inspect", folder)
    assert (code, type(error)) == (1, SystemExit)
    assert "[/x] \\x1b[2J" in output
    folder.mkdir(parents=True)
    for file in (GOLDENS / "llada").iterdir():
        if file.suffix in (".json", ".safetensors"):
            (folder / file.name).write_bytes(file.read_bytes())
    code, output, _ = run("inspect", folder)
    assert code == 0
    assert "\x1b[2J" not in output
    code, output, _ = run("export", folder, tmp_path / "[" / "y]")
    assert code == 0
    assert "[/y]" in output


def test_reports_are_shown_without_commands(capsys):
    print_markdown("# title\n\na \x1b[2J b")
    assert "\x1b[2J" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"input_ids": np.zeros((1, 4), int)}, "got 'no logits'; record them"),
        ({"logits": np.zeros((1, 4, 288))}, "got 'no input_ids'"),
        ({}, "got 'no input_ids and no logits'"),
        ({"input_ids": np.zeros((1, 4)), "logits": np.zeros((1, 4, 288))}, "whole numbers of"),
        ({"input_ids": np.zeros((1, 4), int), "logits": np.zeros(3)}, "floats of shape"),
        ({"input_ids": np.zeros((1, 4), int), "logits": np.zeros((1, 4, 5))}, "the right model"),
    ],
)
def test_a_golden_file_without_what_it_needs(arrays, message, tmp_path):
    np.savez(tmp_path / "golden.npz", **arrays)
    code, output, _ = run("verify", GOLDENS / "llada", "--golden", tmp_path / "golden.npz")
    assert code == 1
    assert message in " ".join(output.split())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text", json.dumps({}).encode(), "npy"])
def test_a_golden_file_that_is_none(content, tmp_path):
    file = tmp_path / "golden.npz"
    if content == "npy":
        with file.open("wb") as opened:
            np.save(opened, np.zeros(3))
    else:
        file.write_bytes(content)
    code, output, error = run("verify", GOLDENS / "llada", "--golden", file)
    assert (code, type(error)) == (1, SystemExit)
    assert "must be an npz file with the arrays 'input_ids' and 'logits'" in " ".join(
        output.split()
    )
