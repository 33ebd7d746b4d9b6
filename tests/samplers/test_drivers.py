"""Scan, while loop and stream write the same tokens, whatever the batch, padding and devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from replay import model

import registry
import sake_jax as sj
from sake_jax import reveal
from sake_jax.samplers import gumbel, loop
from sake_jax.testing import ToyDenoiser, toy_params
from traces import programs, traced

KEY, MASK = jax.random.key(7), 270
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
SAMPLERS = {
    "random order": {"reveal": reveal.random},
    "prefix": {"cache": "prefix"},
    "guided, dual": {"guidance": sj.sake(1.0), "cache": "dual"},
}


def masked(**options):
    defaults = {"length": 8, "steps": 8, "block": 4, "draw": sj.temperature(0.9)}
    return sj.masked(model("llada"), **defaults | options)


def canvas(prompts=PROMPTS, samples=2, length=8):
    return sj.canvas(prompts, length, mask_id=MASK, pad_id=0, samples=samples)


@pytest.mark.parametrize("name", SAMPLERS)
def test_all_drivers_write_the_same(name):
    sampler, params = masked(**SAMPLERS[name]), model("llada").params
    scanned, info = sj.run(sampler, params, KEY, canvas())
    looped, other, taken = sj.run_until(sampler, params, KEY, canvas())
    np.testing.assert_array_equal(scanned.tokens, looped.tokens)
    assert int(taken) == 8
    np.testing.assert_allclose(info.entropy, other.entropy, atol=1e-5)
    *_, (last, _) = sj.stream(sampler, params, KEY, canvas(), chunk=4)
    np.testing.assert_array_equal(scanned.tokens, last.tokens)


def test_a_stream_shows_every_step_and_compiles_once():
    sampler, params = masked(block=8, steps=4), model("llada").params
    *_, states = sj.run(sampler, params, KEY, canvas(), trajectory=True)
    (before,) = programs(loop._scan_steps)
    seen = [shown.tokens for shown, _ in sj.stream(sampler, params, KEY, canvas())]
    assert programs(loop._scan_steps) == [before + 1]
    np.testing.assert_array_equal(np.stack(seen), states)


@pytest.mark.parametrize("name", ["random order", "guided, dual"])
def test_tokens_do_not_depend_on_the_batch(name):
    """A (prompt, sample) pair alone, in a batch of 8 or 32, and with other padding."""
    sampler, params = masked(**SAMPLERS[name]), model("llada").params
    prompt = PROMPTS[1]
    large = sj.run(sampler, params, KEY, canvas([prompt], 32))[0].tokens
    middle = sj.run(sampler, params, KEY, canvas([prompt], 8))[0].tokens
    np.testing.assert_array_equal(large[:8], middle)
    single = canvas([prompt], 1)
    for sample in (0, 5):
        alone = single.replace(sample_id=jnp.array([sample]))
        tokens = sj.run(sampler, params, KEY, alone)[0].tokens
        np.testing.assert_array_equal(tokens[0], large[sample])


def test_tokens_do_not_depend_on_padding():
    """Dream counts positions from the first token, so padding changes nothing at all."""
    lm = model("dream")
    sampler = sj.masked(lm, length=6, draw=sj.temperature(0.9))
    make = lambda prompts: sj.canvas(  # noqa: E731
        prompts, 6, mask_id=290, pad_id=280, positions="tokens"
    )
    together = sj.run(sampler, lm.params, KEY, make([[1, 2, 3], [4, 5, 6, 7, 8, 9]]))[0].tokens
    alone = sj.run(sampler, lm.params, KEY, make([[1, 2, 3]]))[0].tokens
    np.testing.assert_array_equal(together[0, 3:], alone[0])


def test_tokens_do_not_depend_on_the_devices():
    sampler, params = masked(cache="dual"), model("llada").params
    start = canvas([PROMPTS[0]], 8)
    one = sj.run(sampler, params, KEY, start)[0].tokens
    mesh = sj.mesh(data=8)

    def spread(leaf):
        axes = PartitionSpec("data") if leaf.ndim and leaf.shape[0] == 8 else PartitionSpec()
        return jax.device_put(leaf, NamedSharding(mesh, axes))

    whole = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    many = sj.run(sampler, whole, KEY, jax.tree.map(spread, start))[0].tokens
    assert len(many.sharding.device_set) == 8
    np.testing.assert_array_equal(one, many)


def test_another_prompt_key_temperature_or_strength_compiles_nothing():
    params = model("llada").params

    run, run_until = (jax.jit(traced(f.__wrapped__)) for f in (sj.run, sj.run_until))

    def go(temperature, strength, bar, key, prompt):
        sampler = masked(
            draw=sj.temperature(temperature),
            guidance=sj.sake(strength),
            reveal=reveal.threshold(bar),
        )
        run(sampler, params, key, canvas([prompt]))
        run_until(sampler, params, key, canvas([prompt]))

    go(0.5, 1.0, 0.9, KEY, [1, 2, 3])
    go(0.8, 2.0, 0.7, jax.random.key(1), [7, 8, 9])


def test_a_grid_of_numbers_is_one_program():
    params, start = model("llada").params, canvas([[1, 2]], 1)
    strengths, temperatures = jnp.linspace(0.0, 2.0, 8), jnp.linspace(0.2, 1.0, 8)

    def one(strength, temperature):
        sampler = masked(guidance=sj.sake(strength), draw=sj.temperature(temperature))
        return sj.run(sampler, params, KEY, start)[0].tokens

    together = jax.jit(jax.vmap(one))(strengths, temperatures)
    np.testing.assert_array_equal(together[5], one(strengths[5], temperatures[5]))


def test_a_row_ends_at_its_end_token_with_the_same_tokens_before_it():
    params = model("llada").params
    sampler = masked(block=2)
    full = np.asarray(sj.run(sampler, params, KEY, canvas())[0].tokens)
    end = int(full[0, 5 + 3])  # what row 0 writes in its fourth column
    stopped, _, taken = sj.run_until(sampler, params, KEY, canvas(), stop=sj.end_tokens([end]))
    tokens = np.asarray(stopped.tokens)
    column = 5 + list(full[0, 5:]).index(end)
    np.testing.assert_array_equal(tokens[0, : column + 1], full[0, : column + 1])
    assert (tokens[0, 5:] == MASK).any(), "what comes after the end is not written"
    unstopped = ~np.isin(full[:, 5:], end).any(axis=1)
    np.testing.assert_array_equal(tokens[unstopped], full[unstopped])
    alone, _, fewer = sj.run_until(
        sampler, params, KEY, canvas([PROMPTS[0]], 1), stop=sj.end_tokens([end])
    )
    assert int(fewer) < int(taken) or (tokens != MASK).all()
    assert bool(np.any(np.asarray(alone.tokens) == MASK))
    *_, (last, _) = sj.stream(sampler, params, KEY, canvas(), stop=sj.end_tokens([end]), chunk=8)
    np.testing.assert_array_equal(last.tokens, tokens)


FEW = ("chain", "sake, batch", "classifier_free")


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize(
    "name",
    [
        name if name in FEW else pytest.param(name, marks=pytest.mark.slow)
        for name in registry.ENTRIES
    ],
)
def test_every_guidance_works_under_every_cache(name, cache):
    entry = registry.ENTRIES[name]
    sampler = sj.masked(ToyDenoiser(), length=6, block=3, guidance=entry.guidance, cache=cache)
    start = sj.canvas([[1, 2], [3]], 6, mask_id=16, pad_id=0, samples=2)
    start = start.replace(cond=jnp.zeros(4, jnp.int32))
    done, info = sj.run(sampler, toy_params(0), KEY, start)
    assert bool(jnp.all(info.finite))
    assert (np.asarray(done.tokens)[:, 2:] != 16).mean() > 0.5


OWN = np.random.default_rng(0).dirichlet(np.ones(17), size=(6, 17))
PROCESSES = {
    "scores, absorbing": sj.concrete_score(noise=sj.Geometric(1e-3, 5.0), scaled=True),
    "scores, uniform": sj.concrete_score("uniform", step="euler"),
    "absorbing, euler": sj.absorbing(sj.Geometric(1e-3, 5.0), "euler"),
    "matrices": sj.transitions(OWN),
}


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize(
    "name",
    [
        name if name == "chain" else pytest.param(name, marks=pytest.mark.slow)
        for name in registry.ENTRIES
    ],
)
def test_every_guidance_works_under_every_process(name, process):
    guidance, plan = registry.ENTRIES[name].guidance, sj.descent(6, 6, final="draw")
    sampler = sj.sampler(ToyDenoiser(), plan, process=PROCESSES[process], guidance=guidance)
    start = sj.canvas([[1, 2], [3]], 6, mask_id=16, pad_id=0, samples=2)
    start = start.replace(cond=jnp.zeros(4, jnp.int32))
    done, info = sj.run(sampler, toy_params(0), KEY, start)
    assert bool(jnp.all(info.finite))
    tokens = np.asarray(done.tokens)[:, 2:]
    if process == "scores, uniform":  # there 16 is a token like any other
        assert (tokens != 16).any()
    else:
        assert (tokens != 16).mean() > 0.5


@pytest.mark.parametrize(
    "name",
    [
        name if name in FEW else pytest.param(name, marks=pytest.mark.slow)
        for name in registry.ENTRIES
    ],
)
def test_every_guidance_works_where_written_tokens_are_edited(name):
    """Block after block, as LLaDA2.1 does it, in sub-blocks of one column; but for forms, which
    would not hold where single tokens of a text that matches are replaced."""
    guidance = registry.ENTRIES[name].guidance
    make = functools.partial(
        sj.sampler,
        ToyDenoiser(),
        sj.blocks(6, 6, 3, edits=2, ahead=False),
        process=sj.editing_process(),
        guidance=guidance,
        reveal=sj.reveal.editing(sj.reveal.sub_blocks(sj.reveal.dynamic(0.9), 1), 0.3),
    )
    if guidance.joint:
        with pytest.raises(ValueError, match="a form needs a process that leaves written tokens"):
            make()
        return
    sampler = make()
    start = sj.canvas([[1, 2], [3]], 6, mask_id=16, pad_id=0, samples=2)
    start = start.replace(cond=jnp.zeros(4, jnp.int32))
    done, info = sj.run(sampler, toy_params(0), KEY, start)
    assert bool(jnp.all(info.finite))
    assert (np.asarray(done.tokens)[:, 2:] != 16).all()
    assert not bool(jnp.any(done.open))


def test_classifier_free_under_a_cache_keeps_a_cache_of_its_own():
    """One step a block refreshes always, so the cache must change nothing in either branch."""
    guidance, params = sj.classifier_free(1.5), model("llada").params
    plain, cached = (
        sj.run(masked(steps=2, guidance=guidance, cache=cache), params, KEY, canvas())[0].tokens
        for cache in ("none", "dual")
    )
    np.testing.assert_array_equal(plain, cached)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 9, "block": 8}, "steps must be at most length"),
        ({"block": 3}, "length must be a multiple of block"),
        ({"steps": 3}, "steps must be a multiple of the 2 blocks"),
        ({"cache": "triple"}, "cache must be one of"),
        ({"pace": "fast"}, "pace must be one of"),
        ({"ends": "soon"}, "ends must be one of"),
        ({"confidence": "high"}, "confidence must be one of"),
        ({"ends": "late", "end_ids": []}, "needs end tokens"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        masked(**options)


def test_a_reveal_rule_must_be_a_function():
    with pytest.raises(ValueError, match="a reveal rule must be a function"):
        reveal.as_rule("confident")


def test_a_denoiser_without_a_cache_cannot_have_one():
    class Bare(ToyDenoiser):
        empty_cache = property()

    with pytest.raises(ValueError, match=r"needs denoiser\.empty_cache"):
        sj.masked(Bare(), length=4, cache="dual")


def test_confidence_decides_the_order():
    """Judged before guidance, after it, or as drawn: three orders."""
    params, guidance = model("llada").params, sj.temperature(0.1)
    runs = {
        kind: np.asarray(
            sj.run(
                masked(guidance=guidance, confidence=kind, steps=2, block=8, draw=sj.top_k(3)),
                params, KEY, canvas(), trajectory=True,
            )[2]
        )
        for kind in ("guided", "base", "drawn")
    }  # fmt: skip
    assert not np.array_equal(runs["guided"][0], runs["base"][0])
    assert not np.array_equal(runs["base"][0], runs["drawn"][0])


def test_greedy_decoding_makes_no_noise():
    """Gumbel noise for a large window costs more than the network; at temperature 0 it is idle."""
    greedy, warm = masked(draw=sj.temperature(0.0)), masked(draw=sj.temperature(0.1))
    assert greedy.noise is sj.still
    assert warm.noise is not sj.still
    filtered = masked(draw=sj.chain(sj.top_k(5), sj.temperature(0.0)))
    assert filtered.noise is sj.still
    tokens = [
        sj.run(s, model("llada").params, KEY, canvas(samples=1))[0].tokens
        for s in (greedy, greedy.replace(noise=gumbel))
    ]
    np.testing.assert_array_equal(*tokens)
