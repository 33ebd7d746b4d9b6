"""`sake-jax view`, run in this process with the built-in model."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sake_jax import cli
from sake_jax.cli import view as view_module
from sake_jax.samplers.request import Request
from sake_jax.viewer import HtmlPage


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    """The user's own cache of programs stays as it is."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))


def run(*arguments):
    result = CliRunner().invoke(cli.app, ["view", *map(str, arguments)])
    return result.exit_code, " ".join(re.sub(r"\x1b\[[\d;]*m", "", result.output).split())


def test_writes_one_page_with_both_runs(tmp_path):
    out = tmp_path / "run.html"
    code, output = run("the dog", "--out", out, "--length", 4, "--samples", 2)
    assert code == 0, output
    assert f"wrote {out}".replace(" ", "") in output.replace(" ", "")
    page = out.read_text(encoding="utf-8")
    tree = json.loads(re.search(r'id="payload">(.*?)</script>', page, re.S)[1])
    assert [made["name"] for made in tree["runs"]] == ["sake 1", "no guidance"]
    assert [len(made["rows"]) for made in tree["runs"]] == [2, 2]
    assert "".join(tree["pieces"][at] for at in tree["prompts"][0]["tokens"]).endswith("the dog")
    guided, plain = (made["rows"][0] for made in tree["runs"])
    assert any(repel for _, _, repel, *_ in guided["details"].values())
    assert plain["curves"]["kl"] == [0] * 4
    assert "distinct-2 within a text: too few to tell" in tree["note"]
    assert f"Sample {tree['opens'] + 1} is near both means" in tree["note"]


class Asked:
    """Stands in for generations, and remembers what was asked for."""

    def __init__(self):
        self.calls = []

    def __call__(self, lm, request, prompt, samples, options):
        self.calls.append((request, prompt, samples, options.seed))
        return self

    def render(self, runs, names, tokenizer, *, opens, note):
        self.shown, self.names, self.opens, self.note = len(runs), names, opens, note
        return HtmlPage("a page")


@pytest.fixture
def asked(monkeypatch):
    found = Asked()
    monkeypatch.setattr(view_module, "record_run", found)
    monkeypatch.setattr(view_module, "render_generations", found.render)
    monkeypatch.setattr(view_module, "_typical", lambda *_: (2, "no clear difference"))
    return found


OPTIONS = {
    "--guidance": "sake",
    "--strength": 2,
    "--temperature": 0.5,
    "--top-p": 0.9,
    "--bandwidth": 3,
    "--attention-bandwidth": 7,
    "--length": 8,
    "--steps": 4,
    "--block": 4,
    "--sampler": "masked",
    "--cache": "dual",
}


def test_options_reach_the_run(asked, tmp_path):
    given = [part for pair in OPTIONS.items() for part in pair]
    more = ("--samples", 3, "--seed", 5, "--no-chat", "--dtype", "bfloat16", "--mesh", "tensor=1")
    code, output = run("the dog", *given, *more, "--out", tmp_path / "x.html")
    assert code == 0, output
    named = {name.lstrip("-").replace("-", "_"): value for name, value in OPTIONS.items()}
    wanted = Request(**named)
    assert asked.calls == [(wanted, "the dog", 3, 5), (wanted.unguided, "the dog", 3, 5)]
    assert asked.names == ("sake 2", "no guidance")
    assert (asked.opens, asked.note) == (2, "no clear difference")
    assert (tmp_path / "x.html").read_text() == "a page"


@pytest.mark.parametrize("arguments", [["--alone"], ["--guidance", "none"]])
def test_one_run_alone(asked, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    assert run("the dog", *arguments)[0] == 0
    assert asked.shown == len(asked.calls) == 1
    assert (asked.opens, asked.note) == (0, ""), "there is nothing to compare"
    assert Path("run.html").exists(), "where it is written without --out"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--guidance", "sakee"], "guidance must be one of"),
        (["--out", "nowhere/run.html"], "must go into a folder that exists, got 'nowhere'"),
        (["--model", "nowhere"], "the model must be one of countdown-3"),
        (["--chat"], "--chat needs a model with a chat template"),
    ],
)
def test_bad_requests(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, output = run("x", *arguments)
    assert code == 1
    assert message in output
