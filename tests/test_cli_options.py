"""Options that are made from the fields of a dataclass."""

import dataclasses
import re
from dataclasses import field
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import sake_jax as sj
from sake_jax import cli
from sake_jax.checks import require
from sake_jax.cli.command import changes, command, fields
from sake_jax.cli.options import RunOptions

COMMANDS = ("generate", "play", "view", "eval", "plan")


@dataclasses.dataclass(frozen=True)
class Table:
    """As `Request` and `RunOptions` are."""

    colour: str = field(default="red", metadata={"help": "Of the ball."})
    size: int | None = field(default=None, metadata={"help": "In metres.", "min": 1})
    round: bool = field(default=False, metadata={"help": "No corners.", "flags": ("--round",)})

    def __post_init__(self) -> None:
        require(self.colour != "black", "balls have colours", self.colour, "choose one")


def run(function, *arguments):
    """Exit code and output of a command of its own."""
    app = typer.Typer()
    command(app)(function)
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, " ".join(re.sub(r"\x1b\[[\d;]*m", "", result.output).split())


def show(
    *, before: str = "a", ball: Annotated[Table, fields(colour="blue")], after: int = 0
) -> None:
    typer.echo((before, ball, after))


def test_each_field_is_an_option_and_the_command_gets_the_dataclass():
    assert run(show, "--after", "1") == (0, str(("a", Table("blue"), 1)))
    given = ("--size", "3", "--round", "--colour", "green", "--after", "1", "--before", "b")
    assert run(show, *given) == (0, str(("b", Table("green", 3, True), 1)))


def test_help_and_bounds_are_the_fields():
    _, output = run(show, "--help")
    for words in (
        "Of the ball.",
        "[default: blue]",
        "In metres.",
        "x>=1",
        "--round",
        "No corners.",
    ):
        assert words in output
    code, output = run(show, "--after", "1", "--size", "0")
    assert code == 2
    assert "--size" in output


def test_what_the_dataclass_refuses_is_told_in_a_line():
    code, output = run(show, "--after", "1", "--colour", "black")
    assert code == 1
    assert "error: balls have colours, got 'black'; choose one." in output
    assert "Traceback" not in output


def test_some_fields_only():
    def some(*, ball: Annotated[Table, fields(["size"])]) -> None:
        typer.echo(ball)

    def others(*, ball: Annotated[Table, fields(without=["size"])]) -> None:
        typer.echo(ball)

    assert run(some, "--size", "2") == (0, str(Table(size=2)))
    assert run(some, "--colour", "green")[0] == 2
    assert run(others, "--colour", "green") == (0, str(Table("green")))
    assert run(others, "--size", "2")[0] == 2


def test_only_what_was_given():
    def some(*, given: Annotated[dict[str, Any], changes(Table)]) -> None:
        typer.echo(given)

    assert run(some) == (0, "{}")
    assert run(some, "--colour", "red", "--round") == (0, "{'colour': 'red', 'round': True}")


def test_fields_that_are_not_there_are_our_mistake():
    def wrong(*, ball: Annotated[Table, fields(colours="blue")]) -> None: ...

    with pytest.raises(AssertionError, match=r"Table has no fields .*colours"):
        command(typer.Typer())(wrong)


LEFT_OUT = {
    "eval": {"special_tokens"},
    "plan": {"seed", "chat", "distributed", "special_tokens"},
    "play": {"batch", "distributed"},
    "view": {"batch", "distributed"},
}
"""Fields that are no options of a command."""
OWN = {"eval": {"model", "chat"}, "plan": {"model", "dtype", "mesh", "batch"}}
"""Options of a command that mean something else there."""


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_have_an_option_for_every_field(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    output = re.sub(r"\x1b\[[\d;]*m", "", CliRunner().invoke(cli.app, [name, "--help"]).output)
    for each in (*dataclasses.fields(sj.Request), *dataclasses.fields(RunOptions)):
        if each.name in OWN.get(name, ()):
            continue
        wanted = each.name not in LEFT_OUT.get(name, ())
        assert (re.search(rf"--{each.name.replace('_', '-')}\b", output) is not None) == wanted
        assert (each.metadata["help"] in output) == wanted
