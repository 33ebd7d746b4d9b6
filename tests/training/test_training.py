"""Training: recipes, the corpus, every loss, exact resumption, and a model that loads."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import sake_jax as sj
from conftest import GOLDENS
from disks import little_room, written_by_another
from sake_jax.cli import app
from sake_jax.training import Trainer, corpus, read, trainer
from sake_jax.training.figure import loss_curve
from sake_jax.training.objective import corrupt, loss
from sake_jax.training.optimizer import optimizer, rate
from sake_jax.training.trainer import initial

WORDS = ("the", "cat", "sat", "on", "a", "mat", ".", "dog", "ran", "to", "and", "they", "were")
PATIENCE = 1800
"""Seconds until a process counts as hanging: on a busy machine 400 steps took four minutes."""
RECIPE = """
name = "tiny"
[data]
train = "train.txt"
validation = "held.txt"
lower = true
vocabulary = 270
length = 16
[model]
kind = "llada"
layers = 2
width = 32
heads = 2
mlp = 48
context = 32
[training]
steps = 8
batch = 4
warmup = 2
every = 2
evaluate = 4
save = 4
"""


def story(random):
    return " ".join(random.choice(WORDS, 12)).capitalize()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A recipe and a corpus of made-up stories."""
    where = tmp_path_factory.mktemp("corpus")
    random = np.random.default_rng(0)
    for name, count in (("train.txt", 80), ("held.txt", 20)):
        stories = [story(random) for _ in range(count)]
        (where / name).write_text("\n<|endoftext|>\n".join(stories))
    (where / "tiny.toml").write_text(RECIPE)
    return where


def recipe_of(folder, **changes):
    """The recipe with changes like model={"kind": "mdlm"}."""
    recipe = read(folder / "tiny.toml")
    parts = {name: dataclasses.replace(getattr(recipe, name), **c) for name, c in changes.items()}
    return dataclasses.replace(recipe, **parts)


def losses(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line.get("validation")) for line in lines]


@pytest.fixture(scope="module")
def straight(folder, tmp_path_factory):
    """A run without interruption."""
    trainer = Trainer(recipe_of(folder), tmp_path_factory.mktemp("straight"))
    trainer.train()
    return trainer


def test_a_run_logs_draws_and_publishes_a_model_that_loads(straight):
    found = losses(straight.folder)
    assert [step for step, _, _ in found] == [2, 4, 6, 8]
    assert [held is not None for _, _, held in found] == [False, True, False, True]
    assert found[-1][1] < found[0][1]
    assert loss_curve(straight.folder).stat().st_size > 10_000
    lm = sj.load(straight.publish("float32"))
    assert lm.config == straight.config
    for ours, theirs in zip(
        jax.tree.leaves(lm.params), jax.tree.leaves(straight.state.ema), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    text = "the cat sat"
    ids = lm.tokenizer("The CAT sat")["input_ids"]
    assert ids[0] == lm.config.bos_id, "a prompt begins a text"
    assert lm.tokenizer.decode(ids, skip_special_tokens=True) == text
    assert lm.tokenizer("<|mask|>")["input_ids"] == [lm.config.bos_id, lm.config.mask_id]
    out = sj.generate(lm, sj.masked(lm, length=8), [text], samples=2, key=jax.random.key(0))
    assert len(out.texts[0]) == 2
    half = sj.load(straight.publish("float16"))
    np.testing.assert_allclose(
        half.params["input"]["rows"], straight.state.ema["input"]["rows"], atol=2e-3
    )


def test_a_stopped_run_goes_on_with_the_same_losses(folder, straight, tmp_path):
    """Stopped by Ctrl-C between two checkpoints."""

    def stop(step, loss):
        if step == 5:
            raise KeyboardInterrupt

    first = Trainer(recipe_of(folder), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.train(stop)
    again = Trainer(recipe_of(folder), tmp_path)
    assert int(again.state.step) == 5
    again.train()
    assert losses(tmp_path) == losses(straight.folder)
    finished = Trainer(recipe_of(folder), tmp_path)
    finished.train()
    assert losses(tmp_path) == losses(straight.folder), "nothing is left to do"


def test_a_killed_run_repeats_what_was_not_saved(folder, straight, tmp_path):
    first = Trainer(recipe_of(folder), tmp_path)

    def die(step, loss):
        if step == 7:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        first.train(die)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')  # cut while writing
    again = Trainer(recipe_of(folder), tmp_path)
    assert int(again.state.step) == 4
    again.train()
    assert losses(tmp_path) == losses(straight.folder)


def test_steps_may_change_before_the_rate_falls(folder, straight, tmp_path):
    """A run that was planned longer, stopped, and given 8 steps is the run of 8 steps."""

    def stop(step, loss):
        if step == 5:
            raise KeyboardInterrupt

    longer = Trainer(recipe_of(folder, training={"steps": 20}), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        longer.train(stop)
    Trainer(recipe_of(folder), tmp_path).train()
    assert losses(tmp_path) == losses(straight.folder)
    assert json.loads((tmp_path / "recipe.json").read_text())["training"]["steps"] == 8
    with pytest.raises(ValueError, match="may change before the rate falls, after step 6"):
        Trainer(recipe_of(folder, training={"steps": 20}), tmp_path)


def test_the_log_survives_a_kill_while_it_is_cut(folder, straight, tmp_path):
    """Without room to write it anew, too: what stays is never touched."""
    shutil.copytree(straight.folder, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "log.jsonl"
    whole = log.read_text()
    log.write_text(whole + '{"step": 9}\n{"st')
    with little_room(10):
        Trainer(recipe_of(folder), tmp_path)
    assert log.read_text() == whole


def test_the_recipe_survives_a_kill_while_it_is_extended(folder, tmp_path):
    Trainer(recipe_of(folder, training={"steps": 20}), tmp_path)
    before = (tmp_path / "recipe.json").read_text()
    with little_room(10), pytest.raises(OSError, match="too large"):
        Trainer(recipe_of(folder), tmp_path)
    assert (tmp_path / "recipe.json").read_text() == before
    Trainer(recipe_of(folder), tmp_path)


def test_a_recipe_of_an_earlier_version_lacks_fields_and_goes_on(folder, tmp_path):
    Trainer(recipe_of(folder), tmp_path)
    path = tmp_path / "recipe.json"
    written = json.loads(path.read_text())
    del written["training"]["precision"], written["model"]["tied"], written["data"]["separator"]
    path.write_text(json.dumps(written))
    Trainer(recipe_of(folder), tmp_path)
    with pytest.raises(ValueError, match=r"the same recipe, got 'another training\.precision'"):
        Trainer(recipe_of(folder, training={"precision": "bfloat16"}), tmp_path)
    path.write_text(json.dumps(written | {"model": written["model"] | {"wings": 2}}))
    with pytest.raises(
        ValueError, match=r"must hold a recipe, got .*wings.*the version of sake-jax"
    ):
        Trainer(recipe_of(folder), tmp_path)
    path.unlink()
    (tmp_path / "log.jsonl").touch()
    with pytest.raises(ValueError, match=r"the same recipe, got 'a run without recipe\.json'"):
        Trainer(recipe_of(folder), tmp_path)


def test_one_process_trains_in_a_folder(folder, tmp_path):
    with (
        written_by_another(tmp_path),
        pytest.raises(ValueError, match="must have one writer at a time"),
    ):
        Trainer(recipe_of(folder), tmp_path)
    assert not list(tmp_path.iterdir())


def test_bfloat16_learns_the_same_and_keeps_float32(folder, straight, tmp_path):
    trainer = Trainer(recipe_of(folder, training={"precision": "bfloat16"}), tmp_path)
    trainer.train()
    assert {leaf.dtype.name for leaf in jax.tree.leaves(trainer.state.params)} == {"float32"}
    found, exact = losses(tmp_path), losses(straight.folder)
    assert found != exact
    for (_, mine, _), (_, theirs, _) in zip(found, exact, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.02)


@pytest.mark.slow
def test_eight_devices_train_as_one(folder, straight, tmp_path):
    trainer = Trainer(recipe_of(folder, training={"steps": 4, "batch": 8}), tmp_path / "one")
    spread = Trainer(
        recipe_of(folder, training={"steps": 4, "batch": 8}), tmp_path / "many", sj.mesh(data=8)
    )
    trainer.train()
    spread.train()
    assert len(spread.state.params["input"]["rows"].sharding.device_set) == 8
    for one, many in zip(losses(trainer.folder), losses(spread.folder), strict=True):
        np.testing.assert_allclose(one[1], many[1], rtol=1e-4)


KINDS = {
    "causal": {"model": {"kind": "causal"}},
    "mdlm": {"model": {"kind": "mdlm", "mlp": 128}, "training": {"noise": "mdlm", "ema": 0.0}},
    "radd": {"model": {"kind": "radd", "mlp": 128}},
    "sedd": {"model": {"kind": "sedd", "mlp": 128}, "training": {"noise": "sedd", "ema": 0.0}},
    "bd3lm": {
        "model": {"kind": "bd3lm", "mlp": 128, "block": 4},
        "training": {"optimizer": "adamw", "rate": 0.003, "weight_decay": 0.1, "clip": 0.5},
    },
}


@pytest.mark.parametrize(
    "kind",
    [
        "causal",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("mdlm", "bd3lm", "sedd", "radd")),
    ],
)
def test_every_kind_learns_and_loads(kind, folder, tmp_path):
    trainer = Trainer(recipe_of(folder, **KINDS[kind]), tmp_path)
    before = trainer.validate()
    trainer.train()
    assert trainer.validate() < before
    lm = sj.load(trainer.publish("float32"))
    assert lm.config.network == trainer.config.network
    assert lm.config.mask_id == trainer.config.mask_id
    tokens = np.asarray(trainer.examples.validation[:16], np.int32)[None]
    if kind == "causal":
        assert np.isfinite(np.asarray(lm.score(tokens))).all()
    else:
        assert np.isfinite(sj.bound(lm, tokens, key=jax.random.key(0), draws=2).value).all()


def test_the_loss_is_the_bound_that_likelihood_computes(straight):
    """The same number by two ways of drawing, within the noise of both."""
    lm = sj.LanguageModel(straight.config, straight.state.ema)
    tokens = jnp.asarray(straight.examples.validation[:64].reshape(4, 16))
    found = sj.bound(lm, np.asarray(tokens), key=jax.random.key(1), draws=64)
    batch = jnp.tile(tokens, (64, 1))
    for noise in ("exact", "llada", "mdlm"):
        mine = float(loss(lm.config, noise, lm.params, batch, jax.random.key(2)))
        assert abs(mine - found.value.mean()) < 0.25, noise


def test_the_loss_of_scores_is_the_bound_too():
    """SEDD's training loss and the likelihood's estimate, drawn by different noise."""
    lm = sj.load(GOLDENS / "sedd")
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 60, (4, 8)))
    bound = sj.bound(lm, np.asarray(tokens), key=jax.random.key(1), draws=256)
    batch = jnp.tile(tokens, (256, 1))
    mine = float(
        jax.jit(loss, static_argnums=(0, 1))(lm.config, "sedd", lm.params, batch, jax.random.key(3))
    )
    assert abs(mine / bound.value.mean() - 1) < 0.1
    answers = float(loss(lm.config, "sedd", lm.params, tokens, jax.random.key(3), 4))
    assert np.isfinite(answers)


def test_noise_masks_what_it_says(folder):
    config = recipe_of(folder).config(270)
    tokens = jnp.ones((64, 16), jnp.int32)
    for noise in ("exact", "llada", "mdlm"):
        noisy, time = corrupt(config, noise, tokens, jax.random.key(0))
        masked = np.asarray(noisy == 269)
        np.testing.assert_allclose(masked.mean(), np.asarray(time).mean(), atol=0.04)
        spread = np.sort(np.asarray(time)[:, 0])
        assert np.diff(spread).max() <= 1 / 16 + 1e-6, "no gap between the batch's times"
        if noise == "exact":
            np.testing.assert_array_equal(masked.sum(axis=1), np.asarray(time)[:, 0] * 16)
    blocks = recipe_of(folder, **KINDS["bd3lm"]).config(270)
    _, time = corrupt(blocks, "exact", tokens, jax.random.key(0))
    assert len(np.unique(np.asarray(time)[0].reshape(4, 4), axis=1)[0]) == 1
    assert len(np.unique(np.asarray(time)[0])) > 1, "blocks have times of their own"


def test_the_rate_rises_stays_and_falls():
    training = recipe_training(steps=100, warmup=10, decay=0.2)
    found = [float(rate(training, 1.0)(step)) for step in (0, 5, 10, 50, 79, 90, 100)]
    np.testing.assert_allclose(found, [0, 0.5, 1, 1, 1, 0.5, 0], atol=1e-6)


def recipe_training(**changes):
    from sake_jax.training.recipe import Training

    return dataclasses.replace(Training(), **changes)


def test_muon_turns_matrices_only(straight):
    """An orthogonalised update of a kernel has equal singular values; a table's has not."""
    training = recipe_training(steps=10, warmup=0, rate=1.0, adam_rate=1.0)
    params = initial(straight.config, training).params
    gradient = jax.tree.map(
        lambda x: jax.random.normal(jax.random.key(x.size), x.shape, x.dtype), params
    )
    chosen = optimizer(training, params)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        moved, _ = chosen.update(gradient, chosen.init(params), params)
    values = np.linalg.svd(np.asarray(moved["blocks"]["mlp"]["gate"]["kernel"]))[1]
    assert values.min() / values.max() > 0.5
    values = np.linalg.svd(np.asarray(moved["output"]["rows"]))[1]
    assert values.min() / values.max() < 0.9


def test_documents_are_split_and_lowered(folder):
    data = read(folder / "tiny.toml").data
    texts = corpus.documents(data.train, data)
    assert len(texts) == 80
    assert all(text == text.lower() for text in texts)
    cased = corpus.documents(data.train, dataclasses.replace(data, lower=False))
    assert any(text != text.lower() for text in cased)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "llada"', 'kind = "gpt"', "model.kind must be one of"),
        ("batch = 4", "batch = 0", "batch must be at least 1"),
        ("batch = 4", 'batch = "four"', "training.batch must be a int"),
        ("batch = 4", 'precision = "float8"', "training.precision must be one of"),
        ("batch = 4", "bacth = 4", r"\[training\] must have .*; is 'bacth' meant to be 'batch'\?"),
        ("[training]", "[trainign]", "must have name, data, model, training"),
        ("context = 32", "context = 8", "context must be at least data.length"),
        ("context = 32", "context = 32\nblock = 4", "is for kind = 'bd3lm'"),
        ('train = "train.txt"', "", r"\[data\] must name train, validation"),
        ("lower = true", "lower = tru", "must be TOML"),
        ('kind = "llada"', 'kind = "mdlm"', "mlp must be 4 width"),
        ('kind = "llada"', 'kind = "sedd"', 'noise = "sedd" belongs to model.kind = "sedd"'),
    ],
)
def test_bad_recipes(old, new, message, folder, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(RECIPE.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read(path)


def test_recipes_have_names(tmp_path):
    found = read("tinystories", data=tmp_path)
    assert found.name == "tinystories"
    assert found.data.train == str((tmp_path / "tinystories_train_lower.txt").resolve())
    with pytest.raises(ValueError, match=r"needs the texts tinystories_train.*with --data"):
        read("tinystories")
    network = sj.load("tinystories").config.network
    assert (2048, found.model.width, found.model.layers) == (network.V, network.D, network.N)


def test_bad_runs(folder, straight, tmp_path):
    with pytest.raises(ValueError, match="must be a TOML file"):
        read(tmp_path / "none.toml")
    with pytest.raises(ValueError, match="must be new or hold a run of the same recipe"):
        Trainer(recipe_of(folder, training={"seed": 1}), straight.folder)
    with pytest.raises(ValueError, match="must be a text file"):
        Trainer(recipe_of(folder, data={"train": "nowhere"}), tmp_path / "a")
    with pytest.raises(ValueError, match="long enough for 5000 tokens"):
        Trainer(recipe_of(folder, data={"vocabulary": 5000}), tmp_path / "b")
    with pytest.raises(ValueError, match="must hold log"):
        loss_curve(tmp_path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[[[", b"a = " + b"[" * 20_000])
def test_a_recipe_that_is_no_toml_is_named(content, tmp_path):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(ValueError, match=r"bad\.toml must be TOML, got .*; mend that line"):
        read(tmp_path / "bad.toml")


def trains(recipe, out):
    script = str(Path(sys.executable).with_name("sake-jax"))
    return [script, "train", str(recipe), "--out", str(out)]


def wait_for(log, running, step):
    while not (log.exists() and len(log.read_text().splitlines()) >= step // 2):
        time.sleep(0.1)
        assert running.poll() is None


@pytest.mark.slow
def test_a_killed_command_goes_on_with_the_same_losses(folder, tmp_path):
    """40 steps, and 20 + kill + 20."""
    recipe = folder / "forty.toml"
    recipe.write_text(RECIPE.replace("steps = 8", "steps = 40"))
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run(trains(recipe, one), check=True, timeout=PATIENCE)
    running = subprocess.Popen(trains(recipe, two))
    wait_for(two / "log.jsonl", running, 20)
    running.kill()
    running.wait()
    subprocess.run(trains(recipe, two), check=True, timeout=PATIENCE)
    assert losses(one) == losses(two)
    assert (one / "model" / "model.safetensors").read_bytes() == (
        two / "model" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_in_the_middle_of_a_step_loses_nothing(
    asked, folder, straight, tmp_path, monkeypatch
):
    """The step has taken the old state, and its new one is not there yet. Nor does what is said
    depend on how long the folder's name is."""
    real, calls = trainer.step, []

    def step(*arguments):
        calls.append(real(*arguments))
        if len(calls) == 2:
            os.kill(os.getpid(), asked)
        return calls[-1]

    out = tmp_path / ("a-long-name-of-a-folder" * 3)
    words = ["train", str(folder / "tiny.toml"), "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "step", step)
        stopped = CliRunner().invoke(app, words)
    assert stopped.exit_code == 130, stopped.output
    assert f"stopped and saved in {out}; the same command goes on" in stopped.output
    assert len(calls) == 2
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "going on after step 2" in done.output
    assert losses(out) == losses(straight.folder)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_the_command_stops_when_asked_and_goes_on(asked, folder, tmp_path):
    recipe = folder / "long.toml"
    recipe.write_text(RECIPE.replace("steps = 8", "steps = 400"))
    command = trains(recipe, tmp_path)
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for(tmp_path / "log.jsonl", running, 2)
    running.send_signal(asked)
    said, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert "the same command goes on" in said
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "going on after step" in done.stdout
    assert (tmp_path / "model" / "model.safetensors").exists()
    assert (tmp_path / "loss.png").exists()


def test_a_published_model_is_trained_further_with_its_tokenizer(folder, straight, tmp_path):
    start = straight.publish("float32")
    trainer = Trainer(recipe_of(folder, training={"start": str(start), "seed": 1}), tmp_path / "on")
    assert trainer.tokenizer.to_str() == straight.tokenizer.to_str()
    ours, theirs = (jax.tree.leaves(one) for one in (trainer.state.params, straight.state.ema))
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, its)
    assert trainer.validate() == pytest.approx(straight.validate(), rel=1e-6)
    trainer.train()
    assert trainer.validate() < straight.validate()
    # What the folder holds goes on by itself, not from the start again.
    assert int(Trainer(trainer.recipe, tmp_path / "on").state.step) == 8


def test_a_model_of_other_sizes_is_not_trained_further(folder, straight, tmp_path):
    start = str(straight.publish("float32"))
    recipe = recipe_of(folder, model={"layers": 1}, training={"start": start})
    with pytest.raises(
        ValueError, match=r"must be a model like the recipe's, got 'another network\.N'"
    ):
        Trainer(recipe, tmp_path)


def test_a_start_beside_the_recipe_is_found_from_anywhere(folder, straight, monkeypatch, tmp_path):
    shutil.copytree(straight.publish("float32"), folder / "before")
    (folder / "further.toml").write_text(RECIPE + 'start = "before"\n')
    monkeypatch.chdir(tmp_path)
    assert read(folder / "further.toml").training.start == str(folder / "before")
    (folder / "named.toml").write_text(RECIPE + 'start = "tinystories"\n')
    assert read(folder / "named.toml").training.start == "tinystories"
