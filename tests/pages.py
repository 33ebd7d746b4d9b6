"""Pages of Markdown as programs: what their blocks are, and how each of them is run.

The Python blocks of a page run in order, in one namespace; what they print must be what the page
shows right below them. Blocks of bash are run command by command, in small where nothing is shown.
`python tests/pages.py PAGE` runs a page in a new folder and writes into it what was printed.
"""

import contextlib
import dataclasses
import doctest
import io
import itertools
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from sake_jax import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(`{3,})([^\s`]*)[^\n]*\n(.*?)^\1$", re.M | re.S)
LANGUAGES = {"python", "bash", "text", "toml", ""}

STANDS_FOR = {
    "path/to/model": "tests/goldens/llada",
    "golden.npz": "tests/goldens/llada/golden.npz",
    "--dtype bfloat16": "",  # recorded logits are those of float32
    "--mesh tensor=8": "--mesh tensor=2",
}
"""What a reader would fill in, and what large things are in small."""

QUICK = {
    "generate": "--length 8 --samples 2",
    "view": "--length 8 --samples 2",
}
"""Options that make a command short, where no output is shown; a later option wins."""

SHOWN_ONLY = {
    "pip install": "changes the environment that runs the tests",
    "python -m venv": "makes another environment",
    "pytest": "these are the tests",
    "ruff format": "changes files",
    "tools/lint": "tests have no verdict on style; continuous integration runs it",
    "tools/matrix": "makes environments of its own",
    "tools/notebooks": "writes notebooks; see tests/test_docs.py",
    "tools/offline": "runs another command; continuous integration runs the tests with it",
    ".ci/run": "runs these tests in an environment of its own",
    "sphinx-build": "has a test of its own",
    "sake-jax eval humaneval": "asks for the hub's data and an 8B model; see tests/evaluate",
    "sake-jax eval gsm8k": "asks for the hub's data and an 8B model; see tests/evaluate",
    "sake-jax report runs/base": "reads the runs of such a model; see tests/evaluate",
    "sake-jax bench": "measures for minutes; see tests/planning/bench",
    "sake-jax experiment": "has tests of its own, in small: tests/experiments",
    "export JAX_": "the processes of a run need an environment each; see tests/sharding",
    "JAX_PROCESS_ID=": "several processes; see tests/sharding",
    "sake-jax convert path/to/model ours --mesh tensor=8 --distributed": "several processes",
    "sake-jax generate --distributed": "several processes; see tests/sharding",
    "sake-jax play": "serves until somebody stops it; see tests/play",
    "sake-jax plan": "takes minutes; tests/planning/test_tpu.py runs each of them",
    "sake-jax search": "asks for such a model; see tests/evaluate",
    "sake-jax train tinystories": "takes hours; see tests/training",
    "python -m sake_jax.evaluate.harness": "asks for the hub's data; see the tests of the harness",
    "python benchmarks/": "measures for minutes; see tests/test_benchmarks.py",
}
"""Commands that are not run here, by how they begin, and why."""


@dataclasses.dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    output: str | None
    """The text block right below it, if there is one."""
    place: slice
    """Where that output stands in the page."""


def blocks(source: str) -> list[Block]:
    """The fenced blocks of a page, without directives."""
    found = []
    fences = [fence for fence in FENCE.finditer(source) if not fence[2].startswith("{")]
    for fence, after in itertools.pairwise([*fences, None]):
        line = source[: fence.start()].count("\n") + 1
        below = after and after[2] == "text" and not source[fence.end() : after.start()].strip()
        output, place = (after[3], slice(*after.span(3))) if after and below else (None, slice(0))
        found.append(Block(fence[2], fence[3], line, output, place))
    return found


def run_page(page: Path, short: bool = False) -> Iterator[tuple[Block, str]]:
    """Runs a page in the working directory; gives the blocks that show an output, and theirs.

    Args:
      page: a Markdown file.
      short: runs all commands in small, whose outputs are then not those of the page.
    """
    namespace: dict = {}
    for block in blocks(page.read_text()):
        where = f"{page.name}, line {block.line}"
        assert block.language in LANGUAGES, f"{where}: {block.language} must be of {LANGUAGES}"
        printed = None
        if block.language == "python":
            printed = _execute(block, where, namespace)
        elif block.language == "bash":
            printed = _commands(block, where, short)
            printed = None if short else printed
        elif name := re.match(r"# ([\w.-]+\.\w+)\n", block.text):
            Path(name[1]).write_text(block.text)  # a file that the next blocks use
        if block.output is not None and printed is not None:
            yield block, printed


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for white space and where it has dots."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, flags)


def _execute(block: Block, where: str, namespace: dict) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n" * block.line + block.text, where, "exec"), namespace)
    return printed.getvalue()


def _commands(block: Block, where: str, short: bool) -> str | None:
    """What the last command printed."""
    printed = None
    for line in block.text.replace("\\\n", " ").splitlines():
        command = line.partition(" #")[0].strip()
        if command and not any(command.startswith(start) for start in SHOWN_ONLY):
            printed = _command(command, short or block.output is None, where)
    return printed


def _command(command: str, quick: bool, where: str) -> str:
    for shown, stand_in in STANDS_FOR.items():
        command = command.replace(shown, stand_in)
    program, *arguments = shlex.split(command)
    assert program == "sake-jax", f"{where}: run {command!r}, or tell in SHOWN_ONLY why not"
    extra = QUICK.get(arguments[0], "") if quick else ""
    result = CliRunner().invoke(cli.app, [*arguments, *extra.split()])
    assert result.exit_code == 0, f"{where}: {command}\n{result.output}\n{result.exception!r}"
    return result.output


def write_outputs(page: Path) -> None:
    """Puts what a page's blocks print into it, unless it is there already."""
    source, new = page.read_text(), []
    for block, printed in run_page(page):
        if not same(block.output or "", printed):
            new.append(
                (block.place, "".join(f"{line.rstrip()}\n" for line in printed.splitlines()))
            )
    for place, printed in reversed(new):
        source = source[: place.start] + printed + source[place.stop :]
    page.write_text(source)


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("tests").symlink_to(ROOT / "tests")
        for each in chosen:
            write_outputs(each)
