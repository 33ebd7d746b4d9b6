"""Particles on a lattice: the walk's law, the library's step, and the report."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import sake_jax as sj
from sake_jax import cli
from sake_jax.core import Context
from sake_jax.experiments import gaussian as module
from sake_jax.experiments import lattice
from sake_jax.experiments.frontier import gains
from sake_jax.experiments.gaussian import curves, gaussian
from sake_jax.experiments.lattice import CELL, WalkSetting, modes, walk


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def test_one_step_follows_the_law():
    """From a mode's middle, softmax of half the rise of log p over T, over 7 x 7 moves."""
    draws, heat = 20_000, 2.0
    setting = WalkSetting(heat, strength=0.0)
    params = lattice.landscape("grid9")
    start = int(lattice.cell(modes("grid9")[0]))
    wanted = np.asarray(jax.nn.softmax(params["rise"][start] / heat))
    ends = walk("grid9", [setting], keys(1), particles=draws, steps=1)[0]
    moved = lattice.cell(ends)[None] == np.asarray(params["to"][start])[:, None]
    found = moved.mean(axis=1)
    assert found.sum() == pytest.approx(1)
    expected = wanted * draws
    seen = expected > 5
    chi = (np.square(found * draws - expected) / expected)[seen].sum()
    assert chi < 2 * seen.sum(), "about one for each move"


def test_a_guided_step_moves_along_the_closed_form():
    """Two heaps of particles: each is pushed away from the other, as C says."""
    places = jnp.asarray([[0.0, 0.0]] * 3 + [[1.5, 0.0]] * 3)
    index = jnp.arange(6.0)
    apart = jnp.square(places[:, None] - places[None]).sum(-1)
    near = jnp.exp(-jnp.square(index[:, None] - index[None]) / lattice.ATTENTION_BANDWIDTH**2)
    weight = near * jnp.exp(-apart / lattice.BANDWIDTH**2) * (1 - jnp.eye(6))
    force = 2 / lattice.BANDWIDTH**2 * (weight.sum(1)[:, None] * places - weight @ places)
    numbers = jnp.asarray([1.0, 1.0, 5.0, 5.0])
    guidance = lattice.walk_sampler(numbers, 6, 1, guided=True).guidance
    canvas = sj.canvas([[]], 6, mask_id=lattice.STAY)
    view = sj.descent(6, 1, final="none").view(canvas, jnp.int32(0))
    moves = jnp.asarray(lattice.offsets() * CELL, jnp.float32)
    ctx = Context(
        view=view,
        features=places[None],
        tables=sj.Tables(moves, moves),
        head=lambda rows: jnp.zeros((1, 6, lattice.MOVES)),
        read=lambda view, cache: (places[None], cache),
        log_q=lambda logits: logits,
        affine=False,
    )
    push, _ = guidance.push(guidance.init(ctx), ctx)
    (direction,) = jax.tree.leaves(push)
    np.testing.assert_allclose(direction[0], 5.0 * force, atol=1e-5)


def test_a_setting_does_not_depend_on_its_company():
    settings = [WalkSetting(strength=0.5), WalkSetting(strength=2.0, late_strength=0.0)]
    both = walk("ring8", settings, keys(2), particles=40, steps=5)
    alone = walk("ring8", settings[1:], keys(2)[1:], particles=40, steps=5)
    np.testing.assert_array_equal(both[1], alone[0])


def test_late_settings_differ_only_at_last():
    assert WalkSetting(2.0).numbers == (2.0, 2.0, 0.0, 0.0)
    assert WalkSetting(2.0, late_temperature=1.0).numbers == (2.0, 1.0, 0.0, 0.0)
    assert WalkSetting(strength=1.0, late_strength=0.0).numbers == (1.0, 1.0, 1.0, 0.0)
    same = [WalkSetting(5.0), WalkSetting(5.0, late_temperature=1.0)]
    one, other = walk("ring8", same, keys(1)[jnp.asarray([0, 0])], particles=200, steps=5)
    assert not np.array_equal(one, other)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaussian")
    done = CliRunner().invoke(
        cli.app, ["experiment", "gaussian", "--quick", "--seeds", "1", "--out", str(folder)]
    )
    assert done.exit_code == 0, done.output
    assert "table.md" in done.output
    return gaussian(folder, quick=True, seeds=1, progress=False)  # reads, measures nothing


def test_the_report(study):
    made = {path.name for path in study.folder.glob("*.png")}
    assert made == {"frontier.png", "scatter-ring8.png", "scatter-grid9.png"}
    text = (study.folder / "table.md").read_text()
    for title in ("eight modes on a ring", "nine modes on a grid"):
        assert f"## {title}" in text
    assert "**This is a quick run" in text
    assert text.count("| SAKE, off at last | γ = 2 |") == 2


def test_guidance_covers_more_at_equal_density(study):
    for mixture in lattice.MIXTURES:
        found = curves(study, mixture, seeds=1)
        gained = gains(found["SAKE"], found["temperature"], beyond=True)
        assert (gained[module.STRENGTHS.index(1.0) :] > 0.05).all(), gained


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gausian"], "NAME must be one of"),
        (["gaussian", "--judge", "smollm2"], "--judge is for story, brainstorm, sensitivity"),
        (["entropy", "--prompts", "x.txt"], "--prompts is for story, brainstorm"),
        (["story", "--model", "nowhere"], "the model must be one of countdown-3"),
    ],
)
def test_bad_requests(arguments, message):
    done = CliRunner().invoke(cli.app, ["experiment", *arguments])
    assert done.exit_code == 1
    assert message in " ".join(done.output.split())
