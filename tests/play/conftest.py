"""A server with a tiny model, whose runs a test may hold between two steps."""

import contextlib
import dataclasses
import threading
import time

import pytest

import sake_jax as sj
from bytewise import byte_llada
from sake_jax.cli.options import RunOptions
from sake_jax.cli.play import make_studio
from sake_jax.play import Draft, PlayServer, Studio

REQUEST = sj.Request(guidance="sake", temperature=0.9, length=8)
DRAFT = Draft(prompt="ab", samples=2)


@dataclasses.dataclass
class Script:
    """Stands in for a run: gives these events, and remembers whether it was ended early."""

    made: object
    closed: threading.Event = dataclasses.field(default_factory=threading.Event)

    def events(self):
        try:
            yield from self.made
        finally:
            self.closed.set()


class Held:
    """The events of a run, each of which waits until a test lets it go."""

    def __init__(self, run):
        self.run, self.free = run, threading.Semaphore(0)

    def events(self):
        for event in self.run.events():
            assert self.free.acquire(timeout=120)
            yield event


def wait_until(condition, seconds=120):
    """Waits for a condition; the time is only how long it takes to give up."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it does not come true"
        time.sleep(0.01)


@contextlib.contextmanager
def serving(studio, host="127.0.0.1"):
    with PlayServer(studio, host) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    """The user's own cache of programs stays as it is."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))


@pytest.fixture(scope="session")
def lm(tmp_path_factory):
    return byte_llada(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def studio(lm) -> Studio:
    return make_studio(lm, RunOptions(model=str(lm.folder), chat=False), DRAFT, REQUEST)


@pytest.fixture
def server(studio):
    with serving(studio) as made:
        yield made
        wait_until(lambda: made.running == 0)


@pytest.fixture
def play():
    """What tests of this folder share."""
    return Tools()


class Tools:
    Script, Held, wait_until, serving = (
        Script,
        Held,
        staticmethod(wait_until),
        staticmethod(serving),
    )
    request, draft = REQUEST, DRAFT
