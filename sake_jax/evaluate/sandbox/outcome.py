"""How a program ended."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one program."""

    passed: bool
    """It ran to its end, without an exception that left it and without an exit."""
    why: str
    """"passed", "failed: <exception>", "syntax error: ...", "exited", "timed out", "out of
    memory", "killed by signal N", or "lost: ..." where it could not be run, twice. After
    "failed:" and "syntax error:" come the program's own words, shortened to one line."""
    seconds: float
    """From its beginning to its end, by the clock on the wall."""
