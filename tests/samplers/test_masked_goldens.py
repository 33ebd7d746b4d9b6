"""`masked` against the original samplers of LLaDA, LLaDA-MoE, Fast-dLLM and Dream, every state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import (
    canvas_of,
    case_of,
    distinct,
    gumbel_from,
    model,
    order_from,
    states_of,
    states_until,
)

import sake_jax as sj
from sake_jax import reveal

EOS, EOT = 256, 275
LLADA = {
    "full_16": {},
    "semi_ar_b4": {},
    "half_steps_b8": {},
    "remainder_b8": {},
    "coarse_b8x3": {},
    "cfg_1p5": {"guidance": sj.classifier_free(1.5)},
    "logits_eos_inf": {"ends": "never"},
    "conf_eos_eot_inf": {"ends": "late", "end_ids": [EOS, EOT]},
    "batch_leftpad": {},
    "batch_leftpad_cfg": {"guidance": sj.classifier_free(0.5)},
    "temp_0p7": {"draw": sj.temperature(0.7)},
    # Above temperature 0 the reference forgets the first of the two tokens.
    "temp_0p5_conf_eos_inf": {"draw": sj.temperature(0.5), "ends": "late", "end_ids": [EOT]},
    "random_remask": {},
}


def llada_sampler(name, options, args, arrays):
    steps, more = args["steps"], {}
    if "gumbel_uniform" in arrays:
        more["noise"] = gumbel_from(arrays["gumbel_uniform"], steps)
    else:
        more["draw"] = sj.temperature(0.0)
    if "random_confidence" in arrays:
        more["reveal"] = order_from(arrays["random_confidence"], steps)
    return sj.masked(
        model(name),
        length=args["gen_length"],
        steps=steps,
        block=args["block_length"],
        **more | options,
    )


@pytest.mark.parametrize("case", LLADA)
def test_llada(case, golden):
    args, arrays = case_of(golden, "llada/sampler_llada", case)
    lm = model("llada")
    canvas = canvas_of(lm, arrays, args["gen_length"], args["mask_id"])
    sampler = llada_sampler("llada", LLADA[case], args, arrays)
    np.testing.assert_array_equal(states_of(sampler, lm.params, canvas), arrays["states"])


def test_all_recorded_cases_of_llada_are_run(golden):
    assert set(golden("llada/sampler_llada.json")["cases"]) == set(LLADA)


@pytest.mark.parametrize("case", ["b4", "half"])
def test_llada_moe(case, golden):
    args, arrays = case_of(golden, "llada_moe/sampler_llada", case)
    lm = model("llada_moe")
    canvas = canvas_of(lm, arrays, args["gen_length"], args["mask_id"])
    sampler = llada_sampler("llada_moe", {}, args, arrays)
    np.testing.assert_array_equal(states_of(sampler, lm.params, canvas), arrays["states"])


FAST = ("nocache", "prefix", "dual")


def fast_sampler(name, args, options=None):
    kind, ending = name.split("_", 1)
    length = args["gen_length"]
    bold = ending.startswith("thr")
    return sj.masked(
        model("llada"),
        length=length,
        steps=length if bold else args["steps"],  # a threshold takes the steps it needs
        block=args["block_length"],
        draw=sj.temperature(0.0),
        reveal=reveal.threshold(args["threshold"]) if bold else reveal.confidence,
        cache="none" if kind == "nocache" else kind,
        **options or {},
    )


FAST_CASES = [
    "nocache_steps", "nocache_thr", "prefix_steps", "prefix_thr", "prefix_thr_low",
    "dual_steps", "dual_thr", "dual_thr_low",
]  # fmt: skip


def test_all_recorded_cases_of_fast_dllm_are_run(golden):
    assert set(golden("llada/sampler_fastdllm.json")["cases"]) == set(FAST_CASES)


@pytest.mark.parametrize("case", FAST_CASES)
def test_fast_dllm(case, golden):
    args, arrays = case_of(golden, "llada/sampler_fastdllm", case)
    lm = model("llada")
    canvas = canvas_of(lm, arrays, args["gen_length"], args["mask_id"])
    sampler = fast_sampler(case, args)
    found = states_until(sampler, lm.params, canvas)
    np.testing.assert_array_equal(found, distinct(arrays["states"]))
    if "thr" not in case:
        np.testing.assert_array_equal(states_of(sampler, lm.params, canvas), arrays["states"])


@pytest.mark.parametrize("case", ["nocache_thr", "prefix_thr_low", "dual_thr", "dual_steps"])
def test_every_row_of_a_batch_equals_its_own_run(case, golden):
    """The original has batch 1 only. Rows that are ahead wait at the end of a block."""
    args, arrays = case_of(golden, "llada/sampler_fastdllm", case)
    lm = model("llada")
    sampler = fast_sampler(case, args)
    others = np.random.default_rng(0).integers(0, 250, (2, 9))
    prompts = [arrays["prompt"][0].tolist(), *others.tolist()]

    def final(prompts):
        canvas = sj.canvas(prompts, args["gen_length"], mask_id=args["mask_id"])
        return states_until(sampler, lm.params, canvas)[-1]

    together = final(prompts)
    np.testing.assert_array_equal(together[:1], arrays["output"])
    for row, prompt in enumerate(prompts):
        np.testing.assert_array_equal(together[row : row + 1], final([prompt]))


ORDERS = {
    "maskgit_plus": reveal.confidence,
    "topk_margin": reveal.margin,
    "entropy": reveal.low_entropy,
}
DREAM = [
    "maskgit_plus_full", "maskgit_plus_half", "topk_margin", "entropy", "entropy_more_steps",
    "entropy_eps", "entropy_top_p_top_k", "maskgit_plus_top_p", "entropy_batch_leftpad",
    "maskgit_plus_batch_leftpad", "origin_recorded_noise",
]  # fmt: skip


def recorded_coins(uniform, steps):
    """The original draws one number for each masked position, row by row."""

    def rule(logits, drawn, view, key):
        index = jnp.round(view.progress[0] * steps).astype(jnp.int32)
        numbers = jnp.asarray(uniform, jnp.float32)[index]
        is_open = view.window(view.open)
        rank = jnp.cumsum(is_open.reshape(-1)).reshape(is_open.shape) - 1
        coins = numbers[jnp.clip(rank, 0, numbers.size - 1)]
        return coins < (1 - view.next_time / view.time)[:, None]

    return rule


@pytest.mark.parametrize("case", DREAM)
def test_dream(case, golden):
    args, arrays = case_of(golden, "dream/sampler_dream", case)
    lm, steps = model("dream"), args["steps"]
    filters = [sj.top_p(args["top_p"])] if args["top_p"] else []
    filters += [sj.top_k(args["top_k"])] if args["top_k"] else []
    rule = ORDERS.get(args["alg"]) or recorded_coins(arrays["transfer_uniform"], steps)
    sampler = sj.masked(
        lm,
        length=args["max_new_tokens"],
        steps=steps,
        draw=sj.chain(*filters) if filters else None,
        reveal=rule,
        confidence="drawn",
        pace="truncated",
        least=args["eps"],
        noise=sj.still,
    )
    canvas = canvas_of(lm, arrays, args["max_new_tokens"], args["mask_token_id"])
    np.testing.assert_array_equal(states_of(sampler, lm.params, canvas), arrays["states"])


def test_all_recorded_cases_of_dream_are_run(golden):
    assert set(golden("dream/sampler_dream.json")["cases"]) == set(DREAM)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("plain", reveal.confidence),
        ("margin", reveal.margin),
        ("entropy", reveal.low_entropy),
        ("topp_topk", reveal.confidence),
        ("topp_topk_entropy", reveal.low_entropy),
    ],
)
def test_dream_ranks_positions_by_the_recorded_confidence(kind, rule, golden):
    """Its `sample_tokens`: whatever the quota, the positions of highest confidence are chosen."""
    g = golden("dream/golden_sample_tokens.npz")
    logits, scores = jnp.asarray(g["logits"])[None], g[f"{kind}/confidence"]
    view = sj.testing.toy_view(0, rows=1, length=8, width=8)
    every = jnp.ones((1, 8), bool)
    view = view.replace(open=every, attend=every, window_start=jnp.int32(0))
    if kind.startswith("topp_topk"):
        ctx = sj.testing.toy_context(sj.testing.toy_params(0), view)
        for part in (sj.top_p(0.9), sj.top_k(12)):
            logits, _, _ = part.apply(logits, None, (), ctx)
    drawn = jnp.argmax(logits, axis=-1)
    np.testing.assert_array_equal(drawn[0], g[f"{kind}/x0"])
    for quota in range(9):
        kept = rule(logits, drawn, view.replace(quota=jnp.array([quota])), jax.random.key(0))
        best = np.argsort(-scores)[:quota]
        assert set(np.flatnonzero(kept[0])) == set(best.tolist())
