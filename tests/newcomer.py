"""Follows pages as a newcomer does: `python tests/newcomer.py PAGE...`, in a clone's first folder.

Blocks run in their order: Python in one namespace for each page, bash as scripts that end at the
first error. Nothing is shortened; what a reader fills in is filled in with the tests' tiny model,
and only what needs a large model, other machines or hours is left out.
"""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

from pages import SHOWN_ONLY, STANDS_FOR, blocks

RUN = ("pip install", "sake-jax plan", "sake-jax bench --plan", "export JAX_", "JAX_PROCESS_ID=")
"""Commands that the tests of single pages leave out, and a newcomer does not."""
LEFT_OUT = [start for start in SHOWN_ONLY if start not in RUN and start != "sake-jax bench"]
TESTS = 'pip install -e ".[test]"'
"""Belongs to `pytest`, which is left out."""


def follow(page: Path) -> list[str]:
    """Runs a page's blocks; gives the bash commands that were run."""
    namespace: dict = {}
    commands = []
    for block in blocks(page.read_text()):
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block.text, f"{page}, line {block.line}", "exec"), namespace)
        elif block.language == "bash":
            script = as_script(block.text)
            for command in script:
                print(f"{page.name}: {command}", flush=True)
            subprocess.run(["bash", "-e", "-c", "\n".join(script)], check=True)
            commands += script
        elif name := re.match(r"# ([\w.-]+\.\w+)\n", block.text):
            Path(name[1]).write_text(block.text)
    return commands


def as_script(text: str) -> list[str]:
    """The commands of a block that are run, with what a reader fills in."""
    lines = text.replace("\\\n", " ").splitlines()
    commands = [line.partition(" #")[0].strip() for line in lines]
    chosen = [line for line in commands if line and line != TESTS and not left_out(line)]
    return [filled_in(line) for line in chosen]


def left_out(command: str) -> bool:
    runs = command.startswith(RUN)
    return not runs and any(command.startswith(start) for start in LEFT_OUT)


def filled_in(command: str) -> str:
    for shown, stand_in in STANDS_FOR.items():
        if not command.startswith("sake-jax plan") or shown == "path/to/model":
            command = command.replace(shown, stand_in)
    return command


if __name__ == "__main__":
    for each in sys.argv[1:]:
        follow(Path(each))
