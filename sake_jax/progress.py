"""Progress bars on the standard error stream."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def bar(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, or nothing; gives the function that moves it on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not shown) as progress:
        task = progress.add_task(name, total=total)
        yield lambda steps: progress.advance(task, steps)
