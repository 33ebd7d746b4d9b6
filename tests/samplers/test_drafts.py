"""Drafted steps write what steps write, one by one: tokens, log-probabilities and Info."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model

import registry
import sake_jax as sj
from meshes import BLOCK, ODD, canvas_for, load, sampler_for
from sake_jax import reveal
from sake_jax.chips import CHIPS
from sake_jax.samplers.drafts import PARENTS, group_size
from sake_jax.samplers.paying import drafts_of, drafts_that_pay
from sake_jax.samplers.sampler import MOST_DRAFTS
from sake_jax.testing import ToyDenoiser, toy_params
from tiers import few_quick

KEY = jax.random.key(5)
TOLERANCE = 1e-5
"""Of floating-point numbers: a batch of other shape adds up in another order."""
REVEALS = {
    "random": reveal.random,
    "margin": reveal.margin,
    "low entropy": reveal.low_entropy,
    "leftmost": reveal.leftmost,
    "threshold": reveal.threshold(0.3),
    "dynamic": reveal.dynamic(0.3),
    "entropy bound": reveal.entropy_bound(2.0),
    "coin": reveal.coin,
    "sub-blocks": reveal.sub_blocks(reveal.confidence, 2),
    "late": reveal.late(reveal.confidence, [3]),
    "tempered": reveal.tempered(0.5),
    "stratified": reveal.stratified(reveal.confidence),
    "apart": reveal.apart(2.0),
}


def toy(drafts=1, **options):
    given = {"length": 8, "block": 4, "draw": sj.temperature(0.9)} | options
    return sj.masked(ToyDenoiser(), drafts=drafts, **given)


def toy_canvas(samples=4, cond=None):
    prompts = [[1, 2, 3], [4, 5]]
    made = sj.canvas(prompts, 8, mask_id=16, samples=samples)
    return made if cond is None else made.replace(cond=jnp.full(2 * samples, cond))


def reads(info) -> np.ndarray:
    """(B,) how many reads served each row."""
    return np.array([len(np.unique(row)) for row in np.asarray(info.read).T])


def assert_same(plain, drafted, tolerance=TOLERANCE):
    """The canvas and Info of two runs; Info of the second has its reads, too."""
    np.testing.assert_array_equal(plain[0].tokens, drafted[0].tokens)
    np.testing.assert_array_equal(plain[0].open, drafted[0].open)
    np.testing.assert_allclose(plain[0].log_p, drafted[0].log_p, atol=tolerance)
    assert drafted[1].read is not None
    info = drafted[1].replace(read=None)
    assert jax.tree.structure(plain[1]) == jax.tree.structure(info)
    for ours, theirs in zip(jax.tree.leaves(plain[1]), jax.tree.leaves(info), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if jnp.issubdtype(ours.dtype, jnp.floating):
            np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=1e-4)
        else:
            np.testing.assert_array_equal(ours, theirs)


def both(make, drafts, params, start, runner=sj.run, **options):
    """The stepwise run and the drafted one, after they were found to be the same."""
    plain, drafted = (runner(make(k), params, KEY, start, **options) for k in (1, drafts))
    assert_same(plain, drafted)
    return plain, drafted


CASES = [(4, 0.9), (2, 0.0), (8, 0.3), (2, 0.9), (4, 0.0), (8, 0.0), (2, 0.3), (4, 0.3), (8, 0.9)]


@pytest.mark.parametrize("case", few_quick(CASES, 2))
def test_tokens_and_info_are_those_of_steps(case):
    drafts, heat = case
    make = lambda k: toy(k, draw=sj.temperature(heat), length=8)  # noqa: E731
    _, (_, info) = both(make, drafts, toy_params(0), toy_canvas())
    assert reads(info).max() <= 8
    assert reads(info).min() < 8, "no draft was ever right"


HEATS = (0.0, 0.3, 0.9)


def rounding(sampler, params, start) -> float:
    """How far the last two bits of the weights move log-probabilities of a stepwise run.

    Guidances that compare samples push along the difference of equal ones, of which float32 has
    few digits: 3e-4 with `sake` over both, 7e-4 with `dpp`, 2e-2 where a cap is searched for as
    well. Another batch size, which drafts are, moves them as far.
    """
    moved = []
    plain, _ = sj.run(sampler, params, KEY, start)
    for bits in (-2, -1, 1, 2):
        nudge = np.float32(1 + bits * 2**-23)
        nudged = jax.tree.map(lambda leaf, nudge=nudge: leaf * nudge, params)
        moved.append(np.abs(plain.log_p - sj.run(sampler, nudged, KEY, start)[0].log_p).max())
    return float(max(moved))


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.ENTRIES)
def test_with_every_guidance(name):
    """With 2, 4 and 8 canvases at three temperatures, alternately with a cache."""
    at = list(registry.ENTRIES).index(name)
    options = {
        "guidance": registry.ENTRIES[name].guidance,
        "cache": ("none", "dual", "prefix")[at % 3],
        "record": ("brief", "signal")[at % 2],
    }
    start = toy_canvas(cond=1 if "label" in name else None)
    for heat in HEATS:
        make = lambda k, heat=heat: toy(k, draw=sj.temperature(heat), **options)  # noqa: E731
        plain = sj.run(make(1), toy_params(0), KEY, start)
        allowed = TOLERANCE + 2 * rounding(make(1), toy_params(0), start)
        for drafts in (2, 4, 8):
            assert_same(plain, sj.run(make(drafts), toy_params(0), KEY, start), allowed)


@pytest.mark.parametrize("name", few_quick(REVEALS, 0))
def test_with_every_reveal_rule(name):
    both(lambda k: toy(k, reveal=REVEALS[name]), 4, toy_params(0), toy_canvas())


@pytest.mark.parametrize("cache", few_quick(["dual", "prefix", "none"], 1))
@pytest.mark.parametrize("rows", few_quick([8, 1], 1))
def test_a_network_with_a_cache(cache, rows):
    lm = model("llada")
    start = sj.canvas([[1, 2, 3]], 8, mask_id=270, samples=rows)
    options = {"length": 8, "block": 4, "guidance": sj.sake(1.0), "cache": cache}
    make = lambda k: sj.masked(lm, drafts=k, draw=sj.temperature(0.3), **options)  # noqa: E731
    both(make, 4, lm.params, start)


FAMILIES = ["bd3lm", "dream", "sdar", "llada", "llada2", "llada_moe", "illada"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_goldens(family):
    lm = load(family)
    for heat in HEATS:
        draw = sj.temperature(heat)
        make = lambda k, draw=draw: sampler_for(lm, sj.sake(1.0), draw=draw, drafts=k)  # noqa: E731
        plain = sj.run(make(1), lm.params, KEY, canvas_for(lm))
        for drafts in (2, 4, 8):
            assert_same(plain, sj.run(make(drafts), lm.params, KEY, canvas_for(lm)))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llada", "llada_moe"])
def test_guidances_that_read_the_network_themselves(family):
    """For each group of rows by itself, experts included."""
    lm = load(family)
    guidance = sj.chain(sj.classifier_free(1.5), sj.sake(1.0))
    for cache in ("none", "dual"):
        make = lambda k, cache=cache: sampler_for(lm, guidance, cache=cache, drafts=k)  # noqa: E731
        both(make, 4, lm.params, canvas_for(lm))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"cache": "none"}, {"edit": 0.5, "edit_steps": 2}])
def test_block_diffusion_without_a_cache_and_with_edits(options):
    lm = load("sdar")
    make = lambda k: sj.block(  # noqa: E731
        lm, length=8, block=BLOCK, draw=sj.temperature(0.9), drafts=k, **options
    )
    both(make, 4, lm.params, canvas_for(lm))
    both(make, 4, lm.params, canvas_for(lm), sj.run_until)


def test_run_until_leaves_out_the_same_steps_and_stops_at_the_same_tokens():
    stop = sj.end_tokens([3, 7])
    make = lambda k: toy(k, reveal=reveal.threshold(0.12), record="signal")  # noqa: E731
    given = {"stop": stop, "trajectory": True}
    plain, drafted = both(make, 4, toy_params(0), toy_canvas(), sj.run_until, **given)
    assert int(plain[2]) == int(drafted[2]) < 8
    np.testing.assert_array_equal(plain[3], drafted[3])


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["none", "dual"])
def test_run_until_with_a_cache_and_everything_recorded(cache):
    make = lambda k: toy(k, reveal=reveal.threshold(0.12), record="full", cache=cache)  # noqa: E731
    plain, drafted = both(make, 4, toy_params(0), toy_canvas(), sj.run_until)
    assert int(plain[2]) == int(drafted[2])


def test_a_stream_shows_the_same_and_its_chunks_bound_the_drafts():
    make = lambda k: toy(k, cache="dual")  # noqa: E731
    chunks = [list(sj.stream(make(k), toy_params(0), KEY, toy_canvas(), chunk=3)) for k in (1, 8)]
    for (canvas, info), (other, drafted) in zip(*chunks, strict=True):
        assert_same((canvas, info), (other, drafted))
    steps = [len(info.finite) for _, info in chunks[1]]
    assert steps == [3, 3, 2]
    (_, info), *_ = sj.stream(make(8), toy_params(0), KEY, toy_canvas())
    assert info.read is None, "a chunk of one step is a step"


def test_rows_move_on_by_themselves_unless_they_look_at_each_other():
    start = toy_canvas()
    assert group_size(toy(4), start) == 1
    assert group_size(toy(4, guidance=sj.sake(1.0, scope="batch")), start) == 4
    assert group_size(toy(4, record="full"), start) == 8
    by_row = sj.temperature(jnp.linspace(0.1, 1.0, 8))
    assert group_size(toy(4, draw=by_row), start) == 8
    assert group_size(toy(4, noise=lambda keys, view, size: 0.0), start) == 8


@pytest.mark.slow
def test_numbers_of_each_row_and_shared_draws():
    heats = sj.temperature(jnp.linspace(0.1, 1.0, 8))
    both(lambda k: toy(k, draw=heats), 4, toy_params(0), toy_canvas())
    both(lambda k: toy(k, noise=sj.systematic()), 4, toy_params(0), toy_canvas())


def test_what_cannot_be_drafted_is_refused():
    with pytest.raises(ValueError, match="drafts must be a whole number"):
        toy("many")
    with pytest.raises(ValueError, match="drafts must be at least 1"):
        toy(0)
    assert len(PARENTS) + 1 == MOST_DRAFTS
    with pytest.raises(ValueError, match="drafts must be at most 16"):
        toy(17)
    with pytest.raises(ValueError, match="drafts and reuse both save reads"):
        sj.sampler(ToyDenoiser(), sj.blocks(8, 8), reuse=True, drafts=2)
    gemma = load("diffusion_gemma")
    sampler = sampler_for(gemma, sj.identity())
    with pytest.raises(ValueError, match="not told what it predicted"):
        sampler.replace(drafts=2)
    with pytest.raises(ValueError, match="drafts is for masked or block decoding"):
        sj.Request(sampler="ancestral", drafts="2", length=8).build(model("mdlm"))
    with pytest.raises(ValueError, match="drafts must be a whole number, or 'auto'"):
        sj.Request(drafts="many")
    with pytest.raises(ValueError, match="run_selected takes one step at a time"):
        sj.run_selected(toy(2), toy_params(0), KEY, toy_canvas())


def test_auto_drafts_where_the_device_waits_for_its_memory(monkeypatch):
    """A CPU computes; a TPU reads weights, unless there are many rows."""
    lm = model("llada")
    sampler = sj.masked(lm, length=8, block=4, cache="dual", drafts="auto")
    start = lambda rows: sj.canvas([[1]], 8, mask_id=270, samples=rows)  # noqa: E731
    assert drafts_of(sampler, lm.params, start(1)) == 1
    given = toy_params(0), KEY, toy_canvas()
    plain, auto = (sj.run.lower(toy(drafts), *given).as_text() for drafts in (1, "auto"))
    assert plain == auto, "on a CPU it is the same program"
    monkeypatch.setattr("sake_jax.samplers.paying.local_chip", lambda: CHIPS["v6e"])
    assert drafts_of(sampler, lm.params, start(1)) > 1
    assert drafts_of(sampler, lm.params, start(512)) == 1
    assert drafts_of(sampler.replace(drafts=2), lm.params, start(512)) == 2
    ancestral = sj.sampler(ToyDenoiser(), sj.descent(8, 8), reuse=True, drafts="auto")
    assert drafts_of(ancestral, lm.params, start(1)) == 1
    weights = 16e9
    bound = [drafts_that_pay(CHIPS[name], weights, 8e9, 32) for name in ("v5e", "v5p", "h100")]
    assert min(bound) > 1 == drafts_that_pay(CHIPS["v5e"], weights, 8e9, 1024)


@pytest.mark.slow
def test_texts_are_the_same_and_replayed(tmp_path):
    lm = sj.load("tinystories")
    make = lambda drafts: sj.Request(  # noqa: E731
        drafts=drafts, length=32, block=16, temperature=0.9, guidance="sake", cache="dual"
    ).build(lm)
    options = {"samples": 3, "key": KEY, "stop": ["."]}
    plain = sj.generate(lm, make("1"), ["once upon a time"], **options)
    drafted = sj.generate(lm, make("4"), ["once upon a time"], save=tmp_path / "run", **options)
    assert plain.texts == drafted.texts
    np.testing.assert_array_equal(plain.tokens, drafted.tokens)
    again = sj.replay(tmp_path / "run", lm)
    assert again.texts == drafted.texts
    assert again.info.read.max() < 32
    shown = []
    sj.generate(lm, make("4"), ["once upon a time"], watch=shown.append, **options)
    np.testing.assert_array_equal(shown[-1].tokens[:, -32:], np.concatenate(plain.tokens))


MESHES = [(2, 2, 2), (8, 1, 1), (1, 2, 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    # A mesh of eight heads needs a network that has them.
    [*itertools.product(["llada", "sdar", "llada_moe"], MESHES), (ODD, (1, 1, 8))],
    ids=lambda part: "x".join(map(str, part)) if isinstance(part, tuple) else None,
)
def test_eight_devices_write_what_one_writes(name, sizes):
    """Rows over the data axis, and what reads all samples of a prompt."""
    alone, spread = load(name), load(name, sizes)
    for guidance in (sj.sake(1.0), sj.sake(1.0, scope="batch", self_term=0.0)):
        plain = sj.run(sampler_for(alone, guidance), alone.params, KEY, canvas_for(alone))
        sampler = sampler_for(spread, guidance, drafts=4)
        many = sj.run(sampler, spread.params, KEY, canvas_for(spread))
        np.testing.assert_array_equal(plain[0].tokens, many[0].tokens)
        np.testing.assert_allclose(plain[0].log_p, many[0].log_p, atol=5e-5)
