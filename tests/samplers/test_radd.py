"""RADD: rates, filters and orders, every state against the original."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import at_step, model

import sake_jax as sj
from sake_jax.noise_levels import unmask_chance
from sake_jax.samplers import advance, begin
from sake_jax.samplers.reveal import Coin
from tiers import few_quick

KEY, MASK = jax.random.key(0), 60
NOISES = {"loglinear": sj.LogLinear(), "geometric": sj.Geometric(1e-4, 20.0)}
EPS = 1e-5
DIRECT = (
    "tweedie_direct",
    "euler_direct",
    "tweedie_direct_cache",
    "tweedie_geometric",
    "euler_geometric",
    "tweedie_cond_prefix_suffix",
)
FILTERED = ("tweedie_top_p", "tweedie_top_k", "euler_top_p_cache", "euler_top_k_cond")
ORDERED = ("ordered_direct", "ordered_top_p_random", "ordered_top_k")


def gumbel(uniform):
    """The original divides by 1e-10 - log(u + 1e-10), in float32."""
    tiny = np.float32(1e-10)
    return -np.log(tiny - np.log(np.asarray(uniform, np.float32) + tiny))


class Recorded(sj.Guidance):
    """Adds recorded noise to what is drawn, by rank where it was recorded so: of k candidates in
    descending order."""

    noise: jax.Array
    ranked: bool = False

    def apply(self, logits, psi, state, ctx):
        noise = at_step(self.noise, ctx.view, self.noise.shape[0])
        if self.noise.shape[-1] < logits.shape[-1]:
            order = jnp.argsort(-logits, axis=-1)
            rank = jnp.argsort(order, axis=-1)
            known = jnp.minimum(rank, noise.shape[-1] - 1)
            noise = jnp.take_along_axis(noise, known, axis=-1)
        return logits + noise, state, None


class Replay:
    """A recorded run, with its draws put where they were used."""

    def __init__(self, golden, case):
        self.about = golden("radd/sampler_radd.json")["cases"][case]
        arrays = golden("radd/sampler_radd.npz")
        self.arrays = {k.split("/")[1]: v for k, v in arrays.items() if k.split("/")[0] == case}
        self.states, self.steps = self.arrays["states"], self.about["steps"]
        self.noise = NOISES[self.about["noise"]]

    def draws(self):
        return (self.arrays[f"draw_{at:03d}"] for at in range(len(self.about["draw_kinds"])))

    def canvas(self):
        prompts = np.full((self.about["batch"], self.about["length"]), MASK)
        prompts[:, self.about.get("locs", [])] = self.arrays.get("input_ids", np.zeros((2, 0)))
        return sj.canvas(prompts.tolist(), self.about["length"], mask_id=MASK, infill=True)

    def spread(self, chosen, draw):
        """(B, L, K) a draw of so many rows where these positions are, in their order."""
        assert chosen.sum() == len(draw)
        wide = np.full((*chosen.shape, draw.shape[-1]), 0.5, np.float32)
        wide[chosen] = draw
        return wide

    def chances(self):
        t = 1 - (1 - EPS) * np.arange(self.steps) / self.steps
        method = self.about["method"]
        times = jnp.asarray(t, jnp.float32), jnp.asarray(t - (1 - EPS) / self.steps, jnp.float32)
        return np.asarray(unmask_chance(self.noise, method, *times))

    def holds(self, sampler, params):
        """Every state of a run."""
        state = begin(sampler, params, KEY, self.canvas())
        go = jax.jit(functools.partial(advance, sampler, params, KEY))
        assert len(self.states) == sampler.plan.steps + 1
        np.testing.assert_array_equal(state.canvas.tokens, self.states[0])
        for expected in self.states[1:]:
            state, _ = go(state)
            np.testing.assert_array_equal(state.canvas.tokens, expected)
        np.testing.assert_array_equal(state.canvas.tokens, self.arrays["output"])


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("step", ["tweedie", "euler"])
def test_rates_are_the_references(name, step, golden):
    g = golden("radd/golden_update_rate.npz")
    time = jnp.asarray(g["t"])
    ours = unmask_chance(NOISES[name], step, time, time - (1 - EPS) / 8)
    np.testing.assert_allclose(ours, g[f"{name}/{step}/update_rate"], rtol=2e-3)


@pytest.mark.parametrize("case", few_quick(DIRECT, 2))
def test_direct_sampling(case, golden):
    run, lm = Replay(golden, case), model("radd")
    noise = [run.spread(s == MASK, d) for s, d in zip(run.states, run.draws(), strict=False)]
    noise = gumbel(np.stack(noise))
    process = sj.absorbing(run.noise, run.about["method"])
    sampler = sj.ancestral(
        lm,
        length=run.about["length"],
        steps=run.steps,
        process=process,
        final="draw",
        extra=False,
        noise=lambda keys, view, vocabulary: at_step(noise, view, run.steps),
    )
    assert sampler.reuse, "nothing is read again that did not change: the original's cache"
    run.holds(sampler, lm.params)


@pytest.mark.parametrize("case", few_quick(FILTERED, 1))
def test_filters_as_the_reference_has_them(case, golden):
    """Its top-p and top-k see the mask token, which may be drawn: `draws_mask=True`."""
    run, lm = Replay(golden, case), model("radd")
    draws, chances = list(run.draws()), run.chances()
    coins, noise = [], []
    for at in range(run.steps):
        hidden = run.states[at] == MASK
        coin = np.zeros(hidden.shape, np.float32) if at == run.steps - 1 else draws.pop(0)
        coins.append(coin)
        noise.append(run.spread(hidden & (coin < chances[at]), draws.pop(0)))
    coins, number = np.stack(coins), run.about["strategy_para"]
    kept = sj.top_p(number) if run.about["strategy"] == "top_p" else sj.top_k(number)
    rule = Coin(run.noise, run.about["method"])

    def replayed(logits, drawn, view, key):
        chance = unmask_chance(rule.noise, rule.step, view.time, view.next_time)
        return at_step(coins, view, run.steps) < chance[:, None]

    sampler = sj.sampler(
        lm.denoiser,
        sj.descent(run.about["length"], run.steps, final="draw", least=EPS, extra=False),
        process=sj.identity_process(draws_mask=True),
        draw=sj.chain(kept, Recorded(jnp.asarray(gumbel(np.stack(noise))))),
        reveal=replayed,
        noise=sj.still,
        reuse=True,
    )
    run.holds(sampler, lm.params)


@pytest.mark.parametrize("case", few_quick(ORDERED, 1))
def test_orders(case, golden):
    run, lm = Replay(golden, case), model("radd")
    order, strategy = run.about["order"], run.about["strategy"]
    noise = []
    for at, draw in enumerate(run.draws()):
        chosen = np.zeros(run.states[0].shape, bool)
        chosen[:, order[at]] = True
        if strategy != "top_k":  # of all tokens but the mask
            draw = np.pad(draw, ((0, 0), (0, 1)), constant_values=0.5)
        noise.append(run.spread(chosen, draw))
    kept = {"direct": sj.identity, "top_p": sj.top_p, "top_k": sj.top_k}[strategy]
    kept = kept(*([run.about["strategy_para"]] if strategy != "direct" else []))
    sampler = sj.masked(
        lm,
        length=run.about["length"],
        block=run.about["length"],
        draw=sj.chain(kept, Recorded(jnp.asarray(gumbel(np.stack(noise))))),
        reveal=sj.reveal.ordered(order),
        noise=sj.still,
    )
    assert not sampler.process.draws_mask, "the network never learned to predict it"
    run.holds(sampler, lm.params)


def test_filters_never_write_a_mask_and_keep_the_pace():
    """The corrected form: filters in the draw of `ancestral`, and coins with the mask left out."""
    lm, canvas = model("radd"), sj.canvas([[]], 8, mask_id=MASK, samples=16)
    plan = sj.descent(8, 8, final="draw", extra=False)
    by_coin = sj.sampler(
        lm.denoiser,
        plan,
        process=sj.identity_process(draws_mask=False),
        reveal=sj.reveal.coin_of(sj.LogLinear(), "euler"),
        draw=sj.top_k(5),
    )
    direct = sj.ancestral(lm, length=8, steps=8, final="draw", extra=False, draw=sj.top_k(5))
    for sampler in (by_coin, direct):
        done, info = sj.run(sampler, lm.params, KEY, canvas)
        assert (np.asarray(done.tokens) != MASK).all()
        np.testing.assert_allclose(np.asarray(info.revealed).mean(axis=1), 1, atol=0.75)


def test_an_order_must_be_a_permutation_of_the_columns():
    with pytest.raises(ValueError, match="must name every column once"):
        sj.reveal.ordered([0, 0, 1])
    lm = model("radd")
    sampler = sj.masked(lm, length=4, reveal=sj.reveal.ordered([1, 0]))
    with pytest.raises(ValueError, match="must name every column that is written"):
        sj.run(sampler, lm.params, KEY, sj.canvas([[]], 4, mask_id=MASK))


def test_an_order_goes_on_from_block_to_block():
    lm = model("radd")
    sampler = sj.masked(lm, length=6, block=3, reveal=sj.reveal.ordered([5, 4, 3, 2, 1, 0]))
    canvas = sj.canvas([[1, 2]], 6, mask_id=MASK)
    *_, states = sj.run(sampler, lm.params, KEY, canvas, trajectory=True)
    first = [int(np.argmax(a != b)) - 2 for a, b in zip(states[:-1, 0], states[1:, 0], strict=True)]
    assert first == [1, 0, 5, 4, 3], "after column 2: the last of a block first"
