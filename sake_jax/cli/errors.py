"""What a command says and how it ends when something is wrong."""

import contextlib
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.text import Text

from sake_jax import sharding
from sake_jax.cli.printable import print_line, printable


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Prints errors about the user's input as one message, without a traceback; so is Ctrl-C.

    In a run of several processes the others are told, and end too.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        print_line("stopped; what was finished is saved, if it had a folder", error=True)
        sharding.leave(130, "it was stopped")
        raise typer.Exit(130) from error
    except Exception as error:
        # Of JAX's own errors only a lost process is the user's concern; others are our defects.
        lost = sharding.describe_lost_process(error)
        if lost is None and not isinstance(error, ValueError | OSError | ImportError):
            raise
        print_error(lost or str(error))
        sharding.leave(1, printable(lost or str(error)))
        raise typer.Exit(1) from error


def print_error(text: str) -> None:
    """Prints a message on the standard error stream."""
    message = Text.assemble(("error:", "red"), " ", printable(text))
    Console(stderr=True).print(message, highlight=False, soft_wrap=True)
