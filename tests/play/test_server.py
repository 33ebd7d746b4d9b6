"""The server: what it streams, what it refuses, and when it stops."""

import concurrent.futures
import contextlib
import http.client
import itertools
import json
import re
import socket
import threading
import urllib.parse

import pytest
from typer.testing import CliRunner

from sake_jax import cli
from sake_jax.play import server as module

OWN = {"prompt": "ab", "samples": "2", "length": "8"}


def address(path, **settings):
    return f"{path}?{urllib.parse.urlencode(settings)}" if settings else path


def get(server, path, headers=(), method="GET", host="127.0.0.1"):
    """The answer and its text."""
    port = server.server_address[1]
    with contextlib.closing(http.client.HTTPConnection(host, port, timeout=120)) as connection:
        headers = {name: value.encode() for name, value in dict(headers).items()}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()


def events(text):
    return [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part]


def without_times(told):
    kept = json.loads(json.dumps(told))
    for event in kept:
        for name in ("compiled", "traced"):
            event.pop(name, None)
        for part in event.get("runs", ()):
            part.pop("milliseconds", None)
    return kept


def test_a_run_is_streamed_and_its_settings_reproduce_it(server):
    answer, text = get(server, address("/write", **OWN, seed="5"))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    told = events(text)
    assert [event["kind"] for event in told] == ["begin", *["step"] * 8, "end"]
    assert [run["name"] for run in told[0]["runs"]] == ["sake 1", "no guidance"]
    _, again = get(server, address("/write", **OWN, seed="5"))
    assert without_times(events(again)) == without_times(told)
    assert not any(event.get("compiled") for event in events(again))
    _, other = get(server, address("/write", **OWN, seed="6"))
    assert without_times(events(other)) != without_times(told)


def test_the_page_runs_only_its_own_script(server):
    answer, text = get(server, "/?prompt=<script>alert(1)</script>")
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy)[1]
    assert f'<script nonce="{nonce}">' in text
    assert "alert(1)" not in text, "the address is read by the page"
    assert nonce not in get(server, "/")[1]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    about = json.loads(re.search(r'id="about">(.*?)</script>', text, re.S)[1])
    assert about["settings"]["prompt"] == "ab"
    assert about["settings"]["guidance"] == "sake"
    assert about["bounds"]["samples"] == [1, 16]


BAD = [
    {"temperature": "-1"},
    {"temperature": "hot"},
    {"guidance": "sakee"},
    {"guidance": "paper"},
    {"guidance": "none", "bandwidth": "3"},
    {"bandwidth": "-3"},
    {"strength": "nan"},
    {"top_p": "2"},
    {"length": "0"},
    {"length": "5000"},
    {"block": "3"},
    {"steps": "9"},
    {"order": "backwards"},
    {"sampler": "block"},
    {"seed": "1.5"},
    {"colour": "red"},
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: ",".join(f"{k}={v}" for k, v in bad.items()))
def test_errors_are_those_of_the_command_line(server, lm, bad):
    settings = {name: value for name, value in (OWN | bad).items() if name != "prompt"}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = ["generate", "ab", f"--model={lm.folder}", "--no-chat", *options]
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(cli.app, command)
    assert result.exit_code in (1, 2)
    printed = " ".join(re.sub(r"\x1b\[[\d;]*m|[│╭╰╮╯─]", " ", result.output).split())
    for path in ("/write", "/page"):
        answer, text = get(server, address(path, **OWN | bad))
        assert answer.status == 400
        message = json.loads(text)["error"]
        # An option that is not there is told with those that are, and commands have others.
        assert " ".join(message.partition(" (Possible")[0].split()) in printed


def test_what_only_the_page_refuses(server):
    for name, values in {"samples": ("0", "17"), "seed": ("-1", str(2**31))}.items():
        for value in values:
            answer, text = get(server, address("/write", **OWN | {name: value}))
            assert answer.status == 400
            assert f"Invalid value for '--{name}'" in json.loads(text)["error"]


def test_an_empty_value_is_not_given_but_an_empty_prompt_is(server, studio):
    draft, request = studio.parse({"prompt": "", "bandwidth": "", "seed": "3"})
    assert (draft.prompt, draft.seed, request.bandwidth) == ("", 3, None)
    assert studio.parse({})[0].prompt == "once upon a time"


@pytest.mark.parametrize("path", ["/", "/write", "/page", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example:8170"},
        {"Host": "127.0.0.1.rebound.example"},
        {"Host": ""},
        {"Origin": "http://other.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"sec-fetch-site": "cross-site"},
        {"Host": "["},
        {"Host": "\u2100"},
        {"Origin": "http://[127.0.0.1"},
    ],
    ids=str,
)
def test_other_pages_are_refused(server, path, headers):
    answer, text = get(server, path, headers)
    assert answer.status == 403
    assert "play answers to its own" in text
    assert server.running == 0


def test_what_is_no_address_is_refused(server, capsys):
    for path in (
        "http://[",
        "http://[x]/write",
        "/write?" + "a=b&" * 9000,
        "/write?samples=" + "9" * 5000,
    ):
        assert get(server, path, {"Host": "localhost"})[0].status == 400
    assert not capsys.readouterr().err


def test_nothing_commands_the_terminal_of_the_server(server, studio, capsys):
    def breaks(settings):
        raise RuntimeError("\x1b[2J\u202e")

    server.studio = Scripted(studio, live=breaks)
    assert get(server, "/write")[0].status == 500
    try:
        raise RuntimeError("\x1b]0;title\x07")
    except RuntimeError:
        server.handle_error(None, ("127.0.0.1", 1))
    said = capsys.readouterr().err
    assert r"\x1b[2J\u202e" in said
    assert r"\x1b]0;title\x07" in said
    assert all(letter.isprintable() for line in said.splitlines() for letter in line)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
@pytest.mark.parametrize("port", ["", ":9000"])
def test_its_own_page_is_welcome_also_through_a_tunnel(server, host, port):
    headers = {"Host": f"{host}{port}", "Origin": f"http://{host}{port}"}
    assert get(server, "/", headers | {"Sec-Fetch-Site": "same-origin"})[0].status == 200


def test_elsewhere_than_on_loopback_it_asks_for_a_token(studio, play):
    with play.serving(studio, "0.0.0.0") as server:
        token = urllib.parse.parse_qs(urllib.parse.urlsplit(server.url).query)["token"][0]
        assert "0.0.0.0" not in server.url
        named = {"Host": "machine.example:8170"}
        for path in ("/", "/write", "/page", f"/?token={token}x", "/?token=", "/?token=ä"):
            answer, text = get(server, urllib.parse.quote(path, safe="/?=-"), named)
            assert answer.status == 403
            assert "needs the token" in text
        assert get(server, f"/?token={token}", named)[0].status == 200
        answer, text = get(server, address("/write", **OWN, token=token), named)
        assert events(text)[-1] == {"kind": "end"}
        cross = named | {"Origin": "http://other.example"}
        assert get(server, f"/?token={token}", cross)[0].status == 403
    with play.serving(studio) as server:
        assert "token" not in server.url


def test_there_is_nothing_else(server):
    assert get(server, "/../secret")[0].status == 404
    assert get(server, "/", method="POST")[0].status == 501


class Scripted:
    """A studio whose runs are scripts."""

    def __init__(self, studio, live=None, page=None):
        self.name, self.settings = studio.name, studio.settings
        self.live, self.page = live, page


def open_stream(server, path="/write", buffer=None):
    """A client that has asked."""
    client = socket.socket()
    if buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(120)
    client.connect(server.server_address)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def endless(size=1):
    return ({"kind": "step", "step": at, "fill": "x" * size} for at in itertools.count())


def read_until(client, word):
    text = b""
    while word not in text:
        part = client.recv(1 << 12)
        assert part, "it ended"
        text += part


def test_a_client_that_leaves_ends_its_run(server, studio, play):
    run = play.Script(endless())
    server.studio = Scripted(studio, live=lambda settings: run)
    client = open_stream(server)
    read_until(client, b'"step": 3')
    assert server.running == 1
    client.close()
    play.wait_until(run.closed.is_set)
    play.wait_until(lambda: server.running == 0)


def test_a_client_that_neither_reads_nor_leaves_is_given_up(server, studio, play, monkeypatch):
    monkeypatch.setattr(module.Handler, "timeout", 0.2)
    run = play.Script(endless(size=1 << 16))
    server.studio = Scripted(studio, live=lambda settings: run)
    client = open_stream(server, buffer=1 << 12)
    play.wait_until(run.closed.is_set)
    play.wait_until(lambda: server.running == 0)
    client.close()


def test_a_client_that_leaves_ends_the_making_of_its_page(server, studio, play):
    begun = threading.Event()

    def page(settings, watch):
        for _ in itertools.count():
            begun.set()
            watch(None)

    server.studio = Scripted(studio, page=page)
    client = open_stream(server, "/page")
    play.wait_until(begun.is_set)
    assert server.running == 1
    client.close()
    play.wait_until(lambda: server.running == 0)


def test_two_clients_are_served_at_the_same_time(server, studio, play):
    meeting = threading.Barrier(2, timeout=120)

    def steps():
        for at in range(5):
            meeting.wait()  # each waits for the other at every step
            yield {"kind": "step", "step": at}

    server.studio = Scripted(studio, live=lambda settings: play.Script(steps()))
    clients = [open_stream(server) for _ in range(2)]
    for client in clients:
        read_until(client, b'"step": 4')
        client.close()


def test_there_is_a_limit_of_runs(server, studio, play):
    server.studio = Scripted(studio, live=lambda settings: play.Script(endless()))
    clients = [open_stream(server) for _ in range(module.MOST_RUNS)]
    for client in clients:
        read_until(client, b'"step": 1')
    answer, text = get(server, "/write")
    assert answer.status == 400
    assert json.loads(text)["error"] == "play writes 8 runs at once, got one more; close a page."
    for client in clients:
        client.close()


def test_there_is_a_limit_of_connections(server, play):
    """Those that say nothing hold a thread too; one that leaves makes room."""
    silent = [
        socket.create_connection(server.server_address[:2]) for _ in range(module.MOST_CONNECTIONS)
    ]
    with socket.create_connection(server.server_address[:2]) as more:
        told = b"".join(iter(lambda: more.recv(4096), b"")).decode()
    assert told.startswith("HTTP/1.1 503 ")
    assert told.endswith("play holds 64 connections at once, got one more; close a page.\n")
    assert threading.active_count() <= module.MOST_CONNECTIONS + 20
    silent.pop().close()

    def answered():
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            return get(server, "/")[0].status == 200

    play.wait_until(answered)
    for client in silent:
        client.close()


def test_a_run_that_fails_says_why(server, studio, play, capsys):
    def fails(error):
        yield {"kind": "begin"}
        raise error

    for error in (ValueError("logits must be numbers"), RuntimeError("out of memory")):
        server.studio = Scripted(studio, live=lambda _, error=error: play.Script(fails(error)))
        told = events(get(server, "/write")[1])
        assert told[-1] == {"kind": "error", "error": str(error)}

    def breaks(settings):
        raise RuntimeError("a defect of ours")

    server.studio = Scripted(studio, live=breaks)
    answer, text = get(server, "/write")
    assert answer.status == 500
    assert json.loads(text)["error"] == "RuntimeError: a defect of ours"
    assert "a defect of ours" in capsys.readouterr().err


def test_many_runs_and_pages_at_once_write_what_they_write_alone(server):
    paths = [address("/write", **OWN | {"prompt": word}) for word in ("ab", "cd", "ef")]
    paths.append(address("/page", **OWN))
    alone = [get(server, path)[1] for path in paths]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda path: get(server, path)[1], paths * 2))
    for text, wanted in zip(together, alone * 2, strict=True):
        if wanted.startswith("data:"):
            assert without_times(events(text)) == without_times(events(wanted))
        else:
            assert text == wanted


def test_a_run_as_a_page(server):
    answer, text = get(server, address("/page", **OWN, seed="5"))
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == "attachment"
    tree = json.loads(re.search(r'id="payload">(.*?)</script>', text, re.S)[1])
    assert [run["name"] for run in tree["runs"]] == ["sake 1", "no guidance"]
    told = events(get(server, address("/write", **OWN, seed="5"))[1])
    live = {}
    pieces = list(itertools.chain.from_iterable(event.get("pieces", ()) for event in told))
    for event in told[1:-1]:
        part = event["runs"][0]
        for row, column, token in zip(part["row"], part["column"], part["token"], strict=True):
            live[row, column] = pieces[token]
    for at, row in enumerate(tree["runs"][0]["rows"]):
        for column, token in zip(row["column"], row["token"], strict=True):
            assert live[at, column] == tree["pieces"][token]
