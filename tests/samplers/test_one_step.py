"""The one step and the one loop on a toy denoiser: does every noun fit?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.samplers import begin, step
from sake_jax.testing import ToyDenoiser, toy_params
from traces import traced

VOCABULARY, MASK = 17, 16


def without_mask(params):
    """As in trained models, the mask token itself is never predicted."""
    return params | {"bias": params["bias"].at[MASK].set(-30.0)}


PARAMS = without_mask(toy_params(0))
PLAN = sj.blocks(12, 12, 6)
PROMPTS = [[1, 2, 3], [4], [5, 6]]


def sampler(strength=1.0, temperature=0.7, **options):
    options = {"guidance": sj.chain(sj.top_p(0.95), sj.sake(strength))} | options
    return sj.sampler(ToyDenoiser(), PLAN, draw=sj.temperature(temperature), **options)


def canvas(prompts=PROMPTS, samples=2):
    return sj.canvas(prompts, 12, mask_id=MASK, pad_id=0, samples=samples)


KEY = jax.random.key(0)


def test_everything_is_written_and_the_prompt_is_kept():
    done, info = sj.run(sampler(), PARAMS, KEY, canvas())
    assert not bool(jnp.any(done.open))
    assert not bool(jnp.any(done.tokens[:, 3:] == MASK))
    assert jnp.array_equal(done.tokens[:, :3], canvas().tokens[:, :3])
    assert info.revealed.shape == (12, 6)
    assert (np.asarray(info.revealed) == 1).all()
    assert bool(jnp.all(info.finite))
    assert bool(jnp.all((info.confidence > 0) & (info.confidence <= 1)))


def test_one_program_for_every_number_prompt_and_key():
    run = jax.jit(traced(sj.run.__wrapped__))
    others = [
        (sampler(), PARAMS, KEY, canvas()),
        (sampler(0.3, 1.5), PARAMS, KEY, canvas()),
        (sampler(), without_mask(toy_params(5)), KEY, canvas()),
        (sampler(), PARAMS, jax.random.key(9), canvas()),
        (sampler(), PARAMS, KEY, canvas([[7, 8, 9], [1, 1], [3]])),
    ]
    outputs = [np.asarray(run(*arguments)[0].tokens) for arguments in others]
    assert len({output.tobytes() for output in outputs}) == len(outputs)


def test_a_grid_of_strengths_and_temperatures_is_one_program():
    strengths, temperatures = jnp.meshgrid(jnp.array([0.0, 1.0, 3.0]), jnp.array([0.2, 1.0]))
    flat = strengths.reshape(-1), temperatures.reshape(-1)
    grid = jax.vmap(lambda g, t: sj.run(sampler(g, t), PARAMS, KEY, canvas())[0].tokens)(*flat)
    for index, (strength, temperature) in enumerate(zip(*flat, strict=True)):
        alone, _ = sj.run(sampler(strength, temperature), PARAMS, KEY, canvas())
        assert jnp.array_equal(grid[index], alone.tokens)
    assert len({np.asarray(tokens).tobytes() for tokens in grid}) == 6


def test_a_cached_step_still_shows_sake_all_rows():
    """With a cache only the window is recomputed, yet rows outside it push the window's."""
    board = canvas()
    chosen = sampler(guidance=sj.sake(2.0), reveal=sj.reveal.random)
    view = PLAN.view(board, jnp.int32(0))
    cache, _ = ToyDenoiser().read(PARAMS, view, None)

    def entropy(cache):
        state = begin(chosen, PARAMS, KEY, board, cache)
        state, info = step(chosen, PARAMS, KEY, state)
        return state, info.entropy

    state, cached = entropy(cache)
    _, uncached = entropy(None)
    np.testing.assert_allclose(cached, uncached, atol=1e-5)  # nothing stale yet
    assert state.cache.shape == cache.shape
    disturbed = cache.at[:, -1].add(0.3)  # a column outside the first block
    assert not np.allclose(entropy(disturbed)[1], cached, atol=1e-4)
    done, _ = sj.run(chosen, PARAMS, KEY, board, cache)
    assert not bool(jnp.any(done.open))


def test_a_row_does_not_depend_on_its_batch():
    """The same tokens alone, among others, and with other padding."""
    together, _ = sj.run(sampler(), PARAMS, KEY, canvas(samples=3))
    alone = sj.canvas(PROMPTS[1:2], 12, mask_id=MASK, pad_id=0)
    for sample in range(3):
        row = alone.replace(prompt_id=jnp.array([1]), sample_id=jnp.array([sample]))
        # ToyDenoiser knows absolute positions: count them as in the padded canvas
        row = row.replace(positions=row.positions + 2)
        single, _ = sj.run(sampler(), PARAMS, KEY, row)
        assert jnp.array_equal(single.tokens[0, 1:], together.tokens[3 + sample, 3:])


def test_eight_devices_draw_what_one_draws():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    board = canvas(PROMPTS[:2], samples=4)
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    rows = jax.tree.map(lambda x: jax.device_put(x, spread if jnp.ndim(x) else everywhere), board)
    params = jax.device_put(PARAMS, everywhere)
    for guidance in (sj.sake(1.0), sj.sake(1.0, scope="both")):
        one, _ = sj.run(sampler(guidance=guidance), PARAMS, KEY, board)
        eight, _ = sj.run(sampler(guidance=guidance), params, KEY, rows)
        assert len(eight.tokens.sharding.device_set) == 8
        assert jnp.array_equal(one.tokens, eight.tokens)


@pytest.mark.parametrize("process", [sj.absorbing(), sj.uniform(0.01)])
def test_processes_that_decide_themselves(process):
    chosen = sampler(process=process)
    assert chosen.reveal == sj.reveal.Plain(sj.reveal.everything)
    done, info, tokens = sj.run(chosen, PARAMS, KEY, canvas(), trajectory=True)
    assert tokens.shape == (12, 6, 15)
    if process.revises:
        changed = np.asarray(tokens[1:6] != tokens[:5])[:, :, 3:9]
        assert changed.any()
        assert bool(jnp.all(done.open[:, 3:]))
    else:
        assert not bool(jnp.any(done.open))
        assert not bool(jnp.any(done.tokens[:, 3:] == MASK))
        assert (np.asarray(info.revealed).sum(axis=0) == 12).all()


def test_signals_are_recorded_in_the_order_of_the_chain():
    guidance = sj.chain(sj.sake(1.0), sj.temperature(0.9), sj.sake(0.5, self_term=0.0))
    brief, info = sj.run(sampler(guidance=guidance), PARAMS, KEY, canvas())
    assert info.signals == ()
    assert info.kl is None
    full, info = sj.run(sampler(guidance=guidance, record="signal"), PARAMS, KEY, canvas())
    assert jnp.array_equal(brief.tokens, full.tokens)
    first, second = info.signals
    assert first.covariance.shape == (12, 6)
    literal, repulsion = np.mean(first.correlation), np.mean(second.correlation)
    assert literal > repulsion
    assert bool(jnp.all(info.kl >= 0))
    np.testing.assert_allclose(np.asarray(first.rms[:5]), 1.0, atol=0.05)


def test_a_full_record_keeps_candidates_and_kernel_weights():
    guidance = sj.chain(sj.sake(2.0), sj.sake(1.0, scope="batch"))
    done, info = sj.run(sampler(guidance=guidance, record="full"), PARAMS, KEY, canvas())
    brief, _ = sj.run(sampler(guidance=guidance), PARAMS, KEY, canvas())
    assert jnp.array_equal(done.tokens, brief.tokens)
    assert info.window_start.tolist() == [3] * 6 + [9] * 6
    assert info.candidates.ids.shape == (12, 6, 6, 5)
    assert bool(jnp.all(jnp.diff(info.candidates.log_p, axis=-1) <= 0))
    assert info.candidates.entropy.shape == (12, 6, 6)
    assert bool(jnp.all(info.candidates.entropy > 0))
    assert not jnp.array_equal(info.candidates.ids, info.base_candidates.ids)
    within, across = info.signals
    assert within.weights.shape == (12, 6, 6, 15)  # window rows against all columns
    assert across.weights is None
    assert within.sample_weights is None
    columns = 3 + jnp.arange(6)
    assert bool(jnp.all(within.weights[0][:, jnp.arange(6), columns] == 0))  # never itself
    pads = ~canvas().attend
    assert bool(jnp.all(jnp.where(pads[None, :, None, :], within.weights, 0) == 0))
    assert across.sample_weights.shape == (12, 6, 6, 2)  # against the prompt's two samples
    own = np.asarray(across.sample_weights)[:, np.arange(6), :, np.arange(6) % 2]
    other = np.asarray(across.sample_weights)[:, np.arange(6), :, 1 - np.arange(6) % 2]
    assert (own == 0).all()
    assert (other > 0).any()
    np.testing.assert_allclose(other[0::2], other[1::2], rtol=1e-5)  # they repel each other alike


def test_numbers_of_other_types_compile_nothing_new():
    run = jax.jit(traced(sj.run.__wrapped__))
    for same in (1.0, 1, np.float32(1), np.float64(1)):
        run(sampler(same), PARAMS, KEY, canvas())


def test_a_model_that_breaks_is_marked_and_spoils_no_other_row():
    good, _ = sj.run(sampler(), PARAMS, KEY, canvas())
    broken = PARAMS | {"input": PARAMS["input"].at[4].set(jnp.nan)}  # a token of prompt 1 only
    bad, info = sj.run(sampler(), broken, KEY, canvas())
    finite = np.asarray(info.finite).all(axis=0)
    assert finite.tolist()[2:4] == [False, False]
    healthy = [row for row in (0, 1, 4, 5) if finite[row]]
    assert healthy
    for row in healthy:
        assert jnp.array_equal(bad.tokens[row], good.tokens[row])


def test_draw_does_not_change_what_the_reveal_rule_sees():
    seen = {}

    def spy(name):
        def rule(logits, drawn, view, key):
            jax.debug.callback(lambda x: seen.setdefault(name, []).append(np.asarray(x)), logits)
            return sj.reveal.confidence(logits, drawn, view, key)

        return rule

    for name, temperature in (("cold", 0.0), ("hot", 5.0)):
        sj.run(sampler(temperature=temperature, reveal=spy(name)), PARAMS, KEY, canvas())
    jax.effects_barrier()
    np.testing.assert_allclose(seen["cold"][0], seen["hot"][0], atol=1e-6)


@pytest.mark.parametrize("record", ["brief", "signal"])
def test_bfloat16_models_are_guided_in_float32(record):
    """A model in bfloat16 still has distributions, confidences and telemetry in float32."""
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    seen = []

    def spy(logits, drawn, view, key):
        seen.append(logits.dtype)
        return sj.reveal.confidence(logits, drawn, view, key)

    with jax.numpy_dtype_promotion("standard"):
        for guidance in (sj.sake(1.0), sj.chain(sj.top_p(0.9), sj.sake(1.0, source="expected"))):
            chosen = sampler(guidance=guidance, record=record, reveal=spy)
            done, info = sj.run(chosen, half, KEY, canvas())
            assert not bool(jnp.any(done.open))
            assert info.entropy.dtype == jnp.float32
    assert set(seen) == {jnp.dtype("float32")}


def test_the_plan_must_fit_the_canvas():
    short = sj.canvas(PROMPTS, 8, mask_id=MASK)
    with pytest.raises(ValueError, match="the canvas must have 12 columns to write"):
        sj.run(sampler(), PARAMS, KEY, short)


def test_absorbing_noise_never_crowds_out_the_tokens():
    """An untrained logit of the mask token must not eat the nucleus."""
    loud = PARAMS | {"bias": PARAMS["bias"].at[MASK].set(50.0)}
    chosen = sampler(process=sj.absorbing(), guidance=sj.top_p(0.9))
    quiet, _ = sj.run(chosen, PARAMS, KEY, canvas())
    noisy, _ = sj.run(chosen, loud, KEY, canvas())
    assert jnp.array_equal(quiet.tokens, noisy.tokens)


def test_more_steps_than_tokens_where_the_process_decides():
    plan = sj.blocks(12, 40)
    chosen = sj.sampler(ToyDenoiser(), plan, process=sj.absorbing())
    done, info = sj.run(chosen, PARAMS, KEY, canvas())
    assert info.revealed.shape[0] == 40
    assert not bool(jnp.any(done.open))


def test_temperature_zero_needs_no_luck():
    one, _ = sj.run(sampler(temperature=0.0), PARAMS, KEY, canvas())
    two, _ = sj.run(sampler(temperature=0.0), PARAMS, jax.random.key(1), canvas())
    assert jnp.array_equal(one.tokens, two.tokens)
