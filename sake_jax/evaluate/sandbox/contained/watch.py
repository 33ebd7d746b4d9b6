"""Times one program and judges it by what the kernel tells of its process.

Its time is the clock's, less what it stood in the queue for a processor: on a busy machine a
program gets the same verdict, later. A program that sleeps or waits has no such excuse.

The program's process reads a secret, runs the program, and hands the secret back when the
program has come to its end. Only that, sent by that very process, is a pass.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import time

from . import ceilings, program

TICK = 0.05
"""Seconds between looks at the memory in use."""
START = 120.0
"""Seconds until a program must have begun, on a very busy machine."""
LATEST = 20
"""Times its own seconds, by the clock, after which a program has to end whatever the reason."""
LONGEST = 300
"""Letters of a reason."""
CREDENTIALS = struct.Struct("3i")
"""Process, user, group: who sent a message, by the kernel's word."""


def channel() -> tuple[int, int]:
    """The keeper's end and the program's: what is sent to the keeper tells its sender."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    if hasattr(socket, "SO_PASSCRED"):
        near.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return near.detach(), far.detach()


class Watch:
    """Of the process that a keeper has forked."""

    def __init__(self, house: ceilings.House, channel: int, ended: int, first: int) -> None:
        self._limits, self._processes = house.limits, house.processes
        self._ended, self._first = ended, first
        self._channel = socket.socket(fileno=channel)
        # A socket takes what is sent until its buffer is full, and the last message on top.
        buffer = self._channel.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        # Not contained, a program shares the network with everybody.
        self._each_socket = 2 * buffer if house.contained else 0
        # Made after the fork: no copy of it is in the program's memory before it is read there.
        self._secret = os.urandom(program.SECRET)
        self._own = ceilings.size(self._processes)
        self._begun: float | None = None
        self._before = (0.0, 0.0)
        self._sender: int | None = None

    def verdict(self) -> dict:
        """Waits until the program has ended, or has to."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._channel.send(self._secret)
        look, deadline = time.monotonic() + TICK, time.monotonic() + START
        while (now := time.monotonic()) < deadline:
            if now >= look:
                look = now + TICK
                if self._memory() > self._limits["memory"]:
                    return self._say("out of memory")
            over = self._wait(min(look, deadline) - now)
            text, sender = self._receive()
            if text is not None and self._begun is None:
                self._begun, self._sender = time.monotonic(), sender
                self._before, deadline = self._scheduled(), self._begun + self._limits["seconds"]
            elif text is not None and sender == self._sender:
                return self._judge(text)
            elif over and text is None:
                return self._end(os.read(self._ended, 4096))
            if self._begun is not None and time.monotonic() >= deadline:
                deadline = self._later(self._begun)
        return {"lost": "did not begin"} if self._begun is None else self._say("timed out")

    def _later(self, begun: float) -> float:
        """When its time is over, by what is known now: in the past if it is."""
        seconds, (ran, queued) = self._limits["seconds"], self._scheduled()
        if ran - self._before[0] >= ceilings.cpu_seconds(self._limits):
            return begun  # many processes, each of which waits for the others
        return begun + min(seconds + max(0.0, queued - self._before[1]), LATEST * seconds)

    def _scheduled(self) -> tuple[float, float]:
        return ceilings.scheduled(self._processes, self._first)

    def _judge(self, text: bytes) -> dict:
        """What the program's process says of itself is believed unless it says "passed"."""
        if text == self._secret:
            return self._say("passed", passed=True)
        kind, _, rest = text.decode(errors="replace").partition("\n")
        if kind not in program.KINDS:
            return self._say("failed: wrote to the channel of its keeper")
        return self._say(f"{kind}: {rest}" if rest else kind)

    def _end(self, message: bytes) -> dict:
        """The program's process is gone and has said nothing."""
        told = json.loads(message or b'{"lost": "the first process was killed"}')
        if self._begun is None or "lost" in told:
            return {"lost": _clean(told.get("lost", f"ended too early with {told.get('code')}"))}
        code, cpu = told["code"], told["cpu"]
        # The kernel's two clocks differ a little: what it measures for the signal, and tells here.
        long = cpu >= 0.9 * ceilings.cpu_seconds(self._limits)
        if -code == signal.SIGXCPU or (-code == signal.SIGKILL and long):
            return self._say("timed out")
        return self._say(f"killed by signal {-code}" if code < 0 else "exited")

    def _say(self, why: str, passed: bool = False) -> dict:
        seconds = time.monotonic() - (self._begun or time.monotonic())
        return {"passed": passed, "why": _clean(why), "seconds": seconds}

    def _memory(self) -> int:
        buffers = self._each_socket and self._each_socket * ceilings.sockets(self._processes)
        return buffers + ceilings.resident(self._processes, self._first, self._own)

    def _wait(self, seconds: float) -> bool:
        """Until a message comes or the program's process ends; whether it has ended."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._ended, select.POLLIN)
        return any(ready == self._ended for ready, _ in poll.poll(max(0.0, seconds) * 1000))

    def _receive(self) -> tuple[bytes | None, int | None]:
        """A message if there is one, and its sender's process id where the kernel tells."""
        room = socket.CMSG_SPACE(CREDENTIALS.size)
        try:
            text, added, _, _ = self._channel.recvmsg(4096, room, socket.MSG_DONTWAIT)
        except OSError:
            return None, None
        told = [data for _, _, data in added if len(data) == CREDENTIALS.size]
        return text, CREDENTIALS.unpack(told[0])[0] if told else None


def _clean(text: str) -> str:
    """One short line that is safe to print."""
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:LONGEST]
