"""Whether this system lets programs be contained, found out once, by trying."""

import functools
from typing import NamedTuple

from sake_jax.evaluate.sandbox.fork_server import ForkServer, Refused, ServerDied
from sake_jax.evaluate.sandbox.limits import Limits

TRIAL = "import os, math; assert (os.getpid(), os.environ) != (1, {}) and math.gcd(4, 6) == 2"
PATIENCE = 60.0


class Containment(NamedTuple):
    """What a trial showed."""

    refused: str | None
    """Which step the system refused; None if programs can be contained."""
    libraries: list[str] | None
    """Shared libraries that Python needs, so that later servers need not look."""


@functools.cache
def containment() -> Containment:
    """Starts a server in namespaces and runs a program there."""
    try:
        server = ForkServer(Limits(), contained=True, workers=1)
    except (Refused, ServerDied) as error:
        return Containment(str(error), None)
    try:
        server.send({"job": 0, "source": TRIAL})
        (answer,) = server.receive(PATIENCE) or [{"lost": "no answer"}]
    except ServerDied as error:
        answer = {"lost": str(error)}
    finally:
        server.close()
    return Containment(_complaint(answer), server.libraries)


def _complaint(answer: dict) -> str | None:
    return None if answer.get("passed") else answer.get("lost") or answer.get("why")
