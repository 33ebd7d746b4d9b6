"""The caller's end of a fork server."""

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sake_jax.evaluate.sandbox.contained.wire import Lines
from sake_jax.evaluate.sandbox.limits import Limits

SCRIPT = Path(__file__).parent / "contained" / "__main__.py"
FLAGS = ("-s", "-S", "-P", "-X", "utf8")
"""Nothing but the standard library: no site packages, no folder of the caller."""
PASSED_ON = ("LD_LIBRARY_PATH",)
"""Variables that an interpreter may need to start; programs see none."""
START = 300.0
"""Seconds in which a server must be ready."""


class ServerDied(Exception):
    """The server's process ended, or stopped answering."""


class Refused(Exception):
    """The system does not let a server set up what it needs; says which step."""


class ForkServer:
    """A fresh interpreter that runs programs: the caller, with its threads, is never forked."""

    def __init__(
        self, limits: Limits, *, contained: bool, workers: int, libraries: list[str] | None = None
    ) -> None:
        """Starts it, and waits until it is ready.

        Args:
          limits: for each program.
          contained: in namespaces.
          workers: programs at a time.
          libraries: what an earlier server found that Python needs; looked up if not given.
        """
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, *FLAGS, os.fspath(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=kept | {"PYTHONHASHSEED": "0"},  # sets have the same order each time
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._writing, self._reading = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._writing, False)
        self._lines, self._unsent = Lines(self._reading), bytearray()
        # Ours to remove: keepers may be killed. Contained programs have theirs in memory.
        self._folder = tempfile.TemporaryDirectory(prefix="programs-", ignore_cleanup_errors=True)
        settings = {"contained": contained, "workers": workers, "libraries": libraries}
        settings |= {"folder": self._folder.name, "limits": dataclasses.asdict(limits)}
        self.send(settings)
        try:
            self.libraries: list[str] | None = self._ready()
        except BaseException:
            self.close()
            raise

    @property
    def process_id(self) -> int:
        """Of the server itself."""
        return self._process.pid

    def send(self, message: dict[str, Any]) -> None:
        """Goes out while answers are waited for."""
        self._unsent += json.dumps(message).encode() + b"\n"

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        """Answers, as soon as there are some; none if the time is over first."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            unsent = [self._writing] if self._unsent else []
            readable, writable, _ = select.select([self._reading], unsent, [], left)
            if writable:
                self._write()
            if readable and (lines := self._lines.read()):
                return lines
            if self._lines.ended:
                raise ServerDied("the server died")
        return []

    def close(self) -> None:
        """Kills the server, and by that all programs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(START)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close() if pipe else None
        self._folder.cleanup()

    def _write(self) -> None:
        try:
            del self._unsent[: os.write(self._writing, self._unsent[: 1 << 16])]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            raise ServerDied("the server died") from None

    def _ready(self) -> list[str] | None:
        answers = self.receive(START)
        if not answers:
            raise ServerDied("the server did not start")
        if "refused" in answers[0]:
            raise Refused(answers[0]["refused"])
        return answers[0]["libraries"]
