"""`sake-jax play`, with a server that somebody stops at once."""

import re
import socket

import pytest
from typer.testing import CliRunner

from sake_jax import cli
from sake_jax.cli import play as command
from sake_jax.play import PlayServer


@pytest.fixture
def served(monkeypatch):
    """Servers that were started; each ends as by Ctrl-C."""
    found = []

    def stop(self):
        found.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(PlayServer, "serve_forever", stop)
    return found


def run(*arguments):
    result = CliRunner().invoke(cli.app, ["play", *map(str, arguments)])
    return result.exit_code, " ".join(re.sub(r"\x1b\[[\d;]*m", "", result.output).split())


def test_it_says_where_to_look_and_ends_with_ctrl_c(served, monkeypatch):
    opened = []
    monkeypatch.setattr(command.webbrowser, "open", opened.append)
    code, output = run("--port", 0)
    assert code == 0, output
    (server,) = served
    assert f"open {server.url}" in output
    assert output.endswith("stopped")
    assert opened == []
    assert run("--port", 0, "--open")[0] == 0
    assert opened == [served[1].url]


def test_options_are_what_the_page_begins_with(served, lm):
    given = {
        "guidance": "sake+spread",
        "strength": 2.0,
        "temperature": 0.5,
        "top_p": 0.9,
        "bandwidth": 3.0,
        "attention_bandwidth": 7.0,
        "length": 8,
        "steps": 4,
        "block": 4,
        "sampler": "masked",
        "cache": "dual",
        "order": "margin",
        "drafts": "2",
        "match": "",
        "crowd": 0.5,
        "budget": 0.3,
        "samples": 3,
        "seed": 5,
    }
    options = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    code, output = run("the cat", *options, f"--model={lm.folder}", "--chat", "--port", 0)
    assert code == 0, output
    studio = served[0].studio
    # Drafts and refreshed caches exclude each other.
    assert studio.settings() == given | {"prompt": "the cat", "refresh": None}
    assert studio.name == str(lm.folder)
    said = lm.tokenizer.decode(studio.prepare("the cat"))
    assert said == "<257><user>the cat", "as a chat"


def test_special_tokens_are_text_unless_asked_for(served, lm):
    count = []
    for flags in ([], ["--special-tokens"]):
        code, output = run(f"--model={lm.folder}", "--no-chat", *flags, "--port", 0)
        assert code == 0, output
        count.append(len(served[-1].studio.live({"prompt": "<256>", "length": "4"}).ids))
    assert count == [1 + len("<256>"), 2], "a beginning, and its bytes or one token"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--guidance", "sakee"], "guidance must be one of"),
        (["--length", 500], "must fit the model's context"),
        (["--model", "nowhere"], "the model must be one of countdown-3"),
        (["--chat"], "--chat needs a model with a chat template"),
        (["--host", "192.0.2.1"], "must be able to listen at 192.0.2.1"),  # no machine's
    ],
)
def test_bad_requests(served, arguments, message):
    code, output = run(*arguments, "--port", 0)
    assert code == 1
    assert message in output
    assert not served


def test_a_port_that_is_taken(served):
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, output = run("--port", other.getsockname()[1])
    assert code == 1
    assert "another play may run there" in output


def test_help_shows_examples():
    code, output = run("--help")
    assert code == 0
    assert 'sake-jax play "the dog" --guidance spread' in output
