"""The server of the page: one process, a thread for each request, the standard library's parts."""

import contextlib
import html
import ipaddress
import json
import secrets
import select
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sake_jax.play.guard import is_loopback, refusal
from sake_jax.play.page import render_play, security_policy
from sake_jax.play.studio import Settings, Studio

MOST_RUNS = 8
"""Runs at once: each holds canvases and a thread."""
MOST_CONNECTIONS = 64
"""Open connections at once: each holds a thread, also one that never says what it wants."""
PATIENCE = 30.0
"""Seconds until a client that neither reads nor leaves is given up."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n"
    + f"play holds {MOST_CONNECTIONS} connections at once, got one more; close a page.\n".encode()
)
"""What a connection too many is told, whatever it asks: nothing of it is read."""


class Gone(Exception):
    """The client has left."""


class PlayServer(ThreadingHTTPServer):
    """Serves the page, its runs as streams of events, and runs as files; `url` is its address."""

    daemon_threads = True

    def __init__(self, studio: Studio, host: str = "127.0.0.1", port: int = 0):
        """Args:
        studio: the model, and what may be asked of it.
        host: a name or address of this machine. Elsewhere than on loopback, a token is asked for.
        port: 0 for any that is free.
        """
        self.studio = studio
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self.host = host
        bound = str(self.server_address[0])
        self.token = None if is_loopback(bound) else secrets.token_urlsafe(16)
        self.places = threading.BoundedSemaphore(MOST_RUNS)
        self.connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.running = 0
        """Runs that are being written now."""
        self._counting = threading.Lock()

    @property
    def url(self) -> str:
        """What to open: an address of this machine, with the token if there is one."""
        shown = self.host
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(shown).is_unspecified:  # all addresses, which is none to open
                shown = socket.gethostname()
        shown = f"[{shown}]" if ":" in shown else shown
        key = "" if self.token is None else f"?token={self.token}"
        return f"http://{shown}:{self.server_address[1]}/{key}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, if there are not too many."""
        if not self.connections.acquire(blocking=False):
            with contextlib.suppress(OSError):
                request.settimeout(0)  # a client that does not read must not keep others waiting
                request.sendall(FULL)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was to be had
            self.connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serves one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What nobody foresaw ends one request, and is said without commands to the terminal."""
        _print_traceback()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place among the runs, or ValueError where there is none."""
        if not self.places.acquire(blocking=False):
            raise ValueError(f"play writes {MOST_RUNS} runs at once, got one more; close a page.")
        try:
            with self._counting:
                self.running += 1
            yield
        finally:
            with self._counting:
                self.running -= 1
            self.places.release()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: PlayServer
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def do_GET(self) -> None:
        """The page at "/", a run at "/write", the same as a file at "/page"."""
        try:
            address = urlsplit(self.path)
        except ValueError as error:
            return self._tell(HTTPStatus.BAD_REQUEST, f"{error}; open the printed address.")
        settings = dict(parse_qsl(address.query, keep_blank_values=True))
        headers = {name.title(): value for name, value in self.headers.items()}
        refused = refusal(headers, settings.pop("token", None), self.server.token)
        answers = {"/": self._page, "/write": self._write, "/page": self._save}
        answer = answers.get(address.path)
        try:
            if refused is not None:
                self._tell(HTTPStatus.FORBIDDEN, refused)
            elif answer is None:
                self._tell(HTTPStatus.NOT_FOUND, f"play has no {address.path}; open its page.")
            else:
                answer(settings)
        except (Gone, ConnectionError, TimeoutError):
            self.close_connection = True
        except (ValueError, OSError) as error:  # what the command line tells in one line too
            self._tell(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:
            _print_traceback()
            self._tell(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _page(self, settings: Settings) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = {"Content-Security-Policy": security_policy(nonce)}
        self._send(HTTPStatus.OK, "text/html", render_play(self.server.studio, nonce), policy)

    def _save(self, settings: Settings) -> None:
        with self.server.place():
            page = self.server.studio.page(settings, watch=lambda _: self._stop_if_gone())
        self._send(HTTPStatus.OK, "text/html", page, {"Content-Disposition": "attachment"})

    def _write(self, settings: Settings) -> None:
        with self.server.place():
            run = self.server.studio.live(settings)  # which refuses before anything is sent
            self._begin(HTTPStatus.OK, "text/event-stream")
            with contextlib.closing(run.events()) as events:
                for event in _told_errors(events):
                    self._stop_if_gone()
                    self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _stop_if_gone(self) -> None:
        """Raises where the client has closed its end: it has said all it will ever say."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise Gone

    def _tell(self, status: HTTPStatus, message: str) -> None:
        """An answer that is an error, as JSON and for people: it is their browser that asks."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            if self.path.startswith(("/write", "/page")):
                self._send(status, "application/json", json.dumps({"error": message}))
            else:
                self._send(status, "text/html", f"<p>{html.escape(message)}</p>")

    def _send(self, status: HTTPStatus, kind: str, text: str, more: Any = None) -> None:
        body = text.encode()
        self._begin(status, kind, {"Content-Length": str(len(body)), **(more or {})})
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, more: Any = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",  # which would hold the token
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Connection": "close",
        }
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: addresses hold what people write, and the token."""


def _print_traceback() -> None:
    """For who runs the server. What it holds of others' texts must not command the terminal."""
    lines = traceback.format_exc().splitlines()
    shown = ["".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines]
    print("\n".join(shown), file=sys.stderr)


def _told_errors(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events of a run; one that fails ends with an event that says why."""
    try:
        yield from events
    except Exception as error:
        if not isinstance(error, ValueError):
            _print_traceback()
        yield {"kind": "error", "error": str(error)}
