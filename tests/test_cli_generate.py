"""`sake-jax generate`, run in this process with the built-in model."""

import dataclasses
import json
import re
import signal
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import sake_jax as sj
from sake_jax import cli
from sake_jax.cli.compare import ENOUGH, compare_scores, score_pairs, typical_pairs
from sake_jax.cli.generate import prepare_prompts
from sake_jax.cli.options import RunOptions
from sake_jax.cli.screen import NOISE, Screen
from sake_jax.experiments.story import BEGINNINGS
from sake_jax.generation import gap_prompts
from sake_jax.samplers import Request

SMALL = ("--length", "8", "--samples", "2")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    """The user's own cache of programs stays as it is."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))


def run(*arguments, given=None):
    result = CliRunner().invoke(cli.app, ["generate", *arguments], input=given)
    return result.exit_code, re.sub(r"\x1b\[[\d;]*m", "", result.output)


def machine(*arguments, given=None):
    code, output = run(*arguments, "--json", given=given)
    assert code == 0, output
    return json.loads(output)


@pytest.fixture(scope="module")
def lm():
    return sj.load("tinystories")


def test_meshes_by_name():
    """'auto' is for `load` to choose: a copy of a small model for each of the eight devices."""
    sizes = {"auto": (8, 1, 1), "fsdp=2,tensor=4": (1, 2, 4)}
    for name, expected in sizes.items():
        mesh = RunOptions(mesh=name).load().params["norm"]["weight"].sharding.mesh
        assert tuple(mesh.shape.values()) == expected
    alone = RunOptions().load().params["norm"]["weight"]
    assert len(alone.sharding.device_set) == 1


def test_a_negative_strength_is_refused():
    code, output = run("the dog", "--strength", "-1")
    assert code == 2
    assert "--strength" in output


def test_prints_texts_after_their_prompt():
    code, output = run("Once upon a time", *SMALL)
    assert code == 0, output
    assert output.count("Once upon a time") == 2
    assert "distinct-2 of all texts" in output


def test_the_same_seed_writes_the_same_texts():
    one = machine("the dog", *SMALL)["sake 1"]
    assert machine("the dog", *SMALL)["sake 1"]["texts"] == one["texts"]
    assert machine("the dog", *SMALL, "--seed", "1")["sake 1"]["texts"] != one["texts"]
    assert one["settings"]["options"]["samples"] == 2
    assert len(one["texts"][0]) == 2
    assert one["measures"].keys() == {"distinct-2", "distinct-2 within", "entropy", "seconds"}


def test_prompts_from_a_file_and_from_standard_input(tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("the dog\n\nthe cat\n")
    from_file = machine("--file", str(file), *SMALL)["sake 1"]
    assert from_file["prompts"] == ["the dog", "the cat"]
    assert machine(*SMALL, given="the dog\nthe cat\n")["sake 1"]["texts"] == from_file["texts"]


def test_compare_has_both_and_the_judges_word():
    found = machine("the dog", *SMALL, "--compare", "--strength", "2")
    assert list(found) == ["no guidance", "sake 2"]
    assert all(part["measures"]["perplexity"] > 1 for part in found.values())
    plain = machine("the dog", *SMALL, "--guidance", "none")["no guidance"]
    assert plain["texts"] == found["no guidance"]["texts"], "comparing changes nothing"
    assert "perplexity" not in plain["measures"]
    compared = found["sake 2"]["compared"]
    assert compared.keys() == {"distinct-2 within", "entropy", "perplexity"}, "two are no set of 4"
    assert {each["verdict"] for each in compared.values()} == {"too few to tell"}
    assert {each["pairs"] for each in compared.values()} == {2}
    code, output = run("the dog", *SMALL, "--compare", "--judge", "none")
    assert code == 0
    assert "no guidance" in output
    assert "perplexity" not in output
    assert "Pairs 1 and 2 of 2" in output
    assert "too few to tell" in output


def test_a_comparison_draws_enough_unless_told(monkeypatch, tmp_path):
    """As many pairs in all as its verdict needs, whatever the number of prompts."""
    asked = []

    def stop(*_, samples, **__):
        asked.append(samples)
        raise ValueError("that is all")

    monkeypatch.setattr(sj, "generate", stop)
    file = tmp_path / "prompts.txt"
    file.write_text("one\ntwo\nthree\n")
    for words in (["x"], ["x", "--compare"], ["--file", str(file), "--compare"], ["--compare"]):
        assert run(*words, "--judge", "none")[0] == 1
    assert asked == [8, ENOUGH, 11, 8]


def test_a_comparison_has_beginnings_of_its_own(monkeypatch):
    """Those of the story experiment, all of them; the words of standard input go before."""
    asked = []

    def stop(lm, sampler, prompts, **_):
        asked.append(list(prompts))
        raise ValueError("that is all")

    monkeypatch.setattr(sj, "generate", stop)
    words = ("--compare", "--judge", "none")
    for given in (None, "the dog\n"):
        assert run(*words, given=given)[0] == 1
    assert asked == [list(BEGINNINGS), ["the dog"]]
    code, output = run(*words, "--infill")
    assert code == 1
    assert "prompts must hold a line of text" in output
    assert len(asked) == 2


def scores_of(values):
    return {"distinct-2 within": np.asarray(values, float)}


def test_what_is_clear_and_what_is_not():
    random = np.random.default_rng(0)
    plain = random.normal(0.6, 0.1, 32)
    for gained, verdict in ((0.1, "more"), (-0.1, "less"), (0.0, "no clear difference")):
        noise = random.normal(0, 0.05, 32)
        noise -= noise.mean()
        each = compare_scores(scores_of(plain), scores_of(plain + gained + noise))
        assert each["distinct-2 within"].verdict == verdict
    few = compare_scores(scores_of(plain[:7]), scores_of(plain[:7] + 0.5))["distinct-2 within"]
    assert few.verdict == "too few to tell"
    gone = np.where(np.arange(32) < 20, np.nan, plain)
    assert compare_scores(scores_of(gone), scores_of(plain))["distinct-2 within"].pairs == 12


def test_a_text_that_ends_early_does_not_look_diverse():
    """Repetition is counted up to the end of the shorter text of a pair."""
    samples = types.SimpleNamespace(samples=1, texts=[["a b a b a b"]])
    early = types.SimpleNamespace(samples=1, texts=[["a b a"]])
    plain, guided = score_pairs(["x"], [samples, early], judge=None)
    assert plain["distinct-2 within"] == guided["distinct-2 within"] == [1.0]
    again = types.SimpleNamespace(samples=4, texts=[["a b a b"] * 4, ["a b c"] * 3 + [None]])
    plain, guided = score_pairs(["x", "y"], [again, again], judge=None)
    assert plain["distinct-2 together"] == pytest.approx([2 / 12, 2 / 6])
    assert np.isnan(plain["distinct-2 within"][-1]), "nothing was written"


def test_typical_pairs_are_not_the_luckiest():
    plain, guided = np.array([0.1, 0.5, 0.5, 0.9, 0.52]), np.array([0.9, 0.6, 0.9, 0.2, 0.61])
    assert typical_pairs(scores_of(plain), scores_of(guided)) == [1, 4]
    empty = np.array([np.nan, 0.5, 0.6])
    assert typical_pairs(scores_of(empty), scores_of(plain[:3]), 2) == [1, 2]


def test_saved_texts_are_not_written_again(tmp_path):
    first = machine("the dog", *SMALL, "--save", str(tmp_path / "run"))["sake 1"]
    assert (tmp_path / "run" / "rows.jsonl").read_text().count("\n") == 2
    assert (
        machine("the dog", *SMALL, "--save", str(tmp_path / "run"))["sake 1"]["texts"]
        == (first["texts"])
    )
    assert sj.replay(tmp_path / "run").texts == first["texts"]
    machine("the dog", *SMALL, "--compare", "--judge", "none", "--save", str(tmp_path / "two"))
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"no-guidance", "sake-1"}


@pytest.mark.slow
@pytest.mark.parametrize("asked_to", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_goes_on(asked_to, tmp_path):
    words = ["the dog", "--length", "8", "--samples", "40", "--batch", "2", "--save"]
    # A shell lets what it starts in the background ignore Ctrl-C, and children inherit that.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{heard}; from sake_jax.cli import main; main()"
    program = [sys.executable, "-c", script, "generate", *words]
    rows = tmp_path / "run/rows.jsonl"
    process = subprocess.Popen([*program, tmp_path / "run"], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (rows.is_file() and rows.read_text().count("\n") >= 4):
        time.sleep(0.01)
    process.send_signal(asked_to)
    _, said = process.communicate()
    if asked_to == signal.SIGINT:
        assert process.returncode == 130
        assert "what was finished is saved" in said
    # A kill may cut the last line.
    kept = [json.loads(line) for line in rows.read_text().rpartition("\n")[0].splitlines()]
    assert 4 <= len(kept) < 40
    subprocess.run([*program, tmp_path / "run"], check=True, capture_output=True)
    subprocess.run([*program, tmp_path / "whole"], check=True, capture_output=True)
    texts = [
        [json.loads(line)["text"] for line in file.read_text().splitlines()]
        for file in (rows, tmp_path / "whole/rows.jsonl")
    ]
    assert texts[0] == texts[1]
    assert texts[0][: len(kept)] == [row["text"] for row in kept]


def test_a_stop_string_ends_a_text():
    texts = machine("once upon a time", *SMALL, "--stop", ",", "--temperature", "0")["sake 1"]
    assert all("," not in text for text in texts["texts"][0])


def test_gaps_are_filled_in(lm):
    (found,) = machine("the __ dog _.", "--infill", *SMALL).values()
    assert found["prompts"] == ["the __ dog _."]
    assert all(re.fullmatch(r"the.+ dog.+\.", text) for text in found["texts"][0])
    code, output = run("the __ dog _.", "--infill", *SMALL)
    assert code == 0, output
    assert all(text in " ".join(output.split()) for text in found["texts"][0])
    assert "_" not in output
    hidden, read = (gap_prompts(lm, ["<|endoftext|>_"], special_tokens=on) for on in (False, True))
    assert read == [[0, 0, lm.config.mask_id]]
    assert len(hidden[0]) > 3
    maskless = dataclasses.replace(lm, config=dataclasses.replace(lm.config, mask_id=None))
    assert gap_prompts(maskless, ["_"]) == [[0, -1]]


def test_a_form_and_what_is_given():
    (found,) = machine(
        "the _ and the _.", "--infill", "--match", r"the [a-z]+ and the [a-z]+\.", *SMALL
    ).values()
    assert all(re.fullmatch(r"the [a-z]+ and the [a-z]+\.", text) for text in found["texts"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x", "--guidance", "sakee"], "guidance must be one of"),
        (["x", "--guidance", "none", "--compare"], "--compare needs a guidance"),
        (["x", "--model", "nowhere"], "the model must be one of countdown-3"),
        (["x", "--length", "48", "--block", "32"], "length must be a multiple of block"),
        (["x", "--length", "500"], "must fit the model's context of 128"),
        (["x", "--top-p", "2"], "top_p's mass must be"),
        (["x", "--sampler", "magic"], "sampler must be one of"),
        (["x", "--chat"], "--chat needs a model with a chat template"),
        (["x", "--show", "--json"], "--show draws, --json does not"),
        (["x", "--file", "y"], "give a prompt or --file"),
        (["--file", "/nowhere/prompts.txt"], "No such file"),
        (
            ["x", "--sampler", "ancestral", "--cache", "dual"],
            "cache is for masked, block or revising decoding",
        ),
        (
            ["x", "--sampler", "ancestral", "--block", "8"],
            "block is for masked, block or revising decoding",
        ),
        (["x", "--order", "backwards"], "order must be one of 'auto', 'confidence'"),
        (
            ["x", "--sampler", "ancestral", "--order", "random"],
            "reveal is for masked, block or revising decoding, got 'random'",
        ),
        (["x", "--sampler", "block"], "block needs a model of block diffusion"),
        (["x", "--compare", "--judge", "tinystories"], "must be a causal model"),
        (["x", "--mesh", "8"], "mesh must name axes"),
        (["x", "--infill"], "prompt 0 must have a gap to write, got 'x'; mark each"),
        (["x __", "--infill", "--chat"], "--infill is for texts, not for chats"),
        (["x __", "--infill", "--stop", "."], "stop is for writing after a prompt"),
        (["x __ " * 9, "--infill", "--length", "8"], "must fit into length, 8 columns"),
    ],
)
def test_bad_requests(arguments, message):
    code, output = run(*arguments)
    assert code == 1
    assert message in " ".join(output.split())


def test_no_prompt_at_all():
    code, output = run(*SMALL, given="\n \n")
    assert code == 1
    assert "must hold a line of text" in output


def test_help_shows_examples():
    code, output = run("--help")
    assert code == 0
    shown = " ".join(output.split())
    examples = ('"once upon a time"', '"the dog" --match', '--infill "the ____ dog')
    assert all(f"sake-jax generate {example}" in shown for example in examples)


def request(**changes):
    usual = {"guidance": "sake", "strength": 1.0, "temperature": 0.9, "top_p": 1.0, "length": 64}
    usual |= {"steps": None, "block": None, "sampler": "auto", "cache": "none"}
    return Request(**usual | changes)


def test_requests_become_samplers(lm):
    usual = request().build(lm)
    assert usual.plan == sj.masked(lm, length=64, block=32).plan
    assert request(length=10).build(lm).plan == sj.masked(lm, length=10).plan
    odd = request(length=16, block=8, steps=4, cache="dual").build(lm)
    assert odd.plan == sj.masked(lm, length=16, block=8, steps=4, cache="dual").plan
    assert request(sampler="ancestral", steps=5).build(lm).plan.steps == 6  # and one for the rest
    assert request(drafts="4").build(lm).drafts == 4
    assert request(drafts="auto").build(lm).drafts == "auto"
    both = request(guidance="sake+spread", top_p=0.9, strength=2.0).guided()
    wanted = sj.chain(sj.top_p(0.9), sj.sake(2.0), sj.sake(2.0, scope="batch", self_term=0.0))
    assert both == wanted
    capped = request(guidance="spread", strength=5.0, budget=0.1).guided()
    repelled = sj.sake(5.0, scope="batch", self_term=0.0, kl_budget=0.1)
    assert capped == sj.chain(repelled)
    with pytest.raises(ValueError, match="budget is for the guidances 'sake', 'spread'"):
        request(guidance="cfg", budget=0.1)
    with pytest.raises(
        ValueError, match="attention_bandwidth is for the guidances 'sake', 'paper'"
    ):
        request(guidance="spread", attention_bandwidth=7.0)
    changed = request(guidance="sake", bandwidth=3.0, attention_bandwidth=7.0, budget=0.1)
    assert changed.changed(guidance="spread") == request(
        guidance="spread", bandwidth=3.0, budget=0.1
    )
    assert changed.unguided == request(guidance="none")
    assert request(guidance="cfg").guided() == sj.chain(sj.classifier_free(1.0))
    entropy = sj.masked(lm, length=64, reveal=sj.reveal.low_entropy).reveal
    assert request(order="entropy").build(lm).reveal == entropy != usual.reveal
    bold = request(order="even", crowd=1.0).build(lm)
    assert bold.noise == sj.systematic(crowd=1.0)
    assert bold.reveal == sj.reveal.stratified(sj.reveal.random)
    assert bold.couples_samples
    assert not usual.couples_samples


def test_families_have_their_own_samplers():
    lm = sj.load("tests/goldens/bd3lm")
    size = lm.config.network.block_size
    assert request(length=2 * size).build(lm).plan == sj.block(lm, length=2 * size).plan
    stepwise = request(length=2 * size, steps=4).build(lm)
    assert stepwise.plan.steps == 4
    assert request(length=8, block=2).build(lm).plan.width == 2


def test_chats_use_the_models_template(lm):
    talker = dataclasses.replace(lm)
    template = "{% for turn in messages %}[{{ turn.content }}]{% endfor %}"
    talker.tokenizer.chat_template = template + "{% if add_generation_prompt %}>{% endif %}"
    for wanted in (None, True):
        (ids,) = prepare_prompts(talker, ["the dog"], RunOptions(chat=wanted))
        assert talker.tokenizer.decode(ids) == "[the dog]>"
    assert prepare_prompts(talker, ["the dog"], RunOptions(chat=False)) == ["the dog"]
    assert prepare_prompts(lm, ["the dog"], RunOptions()) == ["the dog"]


def test_special_tokens_in_a_prompt_are_text_unless_asked_for(lm):
    name = lm.tokenizer.convert_ids_to_tokens([lm.config.mask_id])[0]
    code, output = run(f"the {name}", *SMALL)
    assert code == 0
    code, output = run(f"the {name}", *SMALL, "--special-tokens")
    assert code == 1
    assert "must have no mask tokens" in " ".join(output.split())


def test_show_draws_noise_the_prompt_and_what_is_new(lm):
    screen, seen = Screen(lm, "title"), []
    watch = lambda canvas: seen.append(screen.rows(canvas)[0])  # noqa: E731
    sampler = sj.masked(lm, length=4)
    sj.generate(lm, sampler, ["the dog"], key=jax.random.key(0), watch=watch)
    assert [line.plain.count(NOISE) for line in seen] == [3, 2, 1, 0], "once a step"
    assert all("the dog" in line.plain for line in seen)
    styles = [[span.style for span in line.spans] for line in seen]
    assert [found.count("green") for found in styles] == [0, 1, 1, 1]


def test_show_draws_on_the_terminal():
    code, output = run("the dog", *SMALL, "--show")
    assert code == 0
    assert "sake 1" in output
