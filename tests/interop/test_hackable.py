"""hackable-diffusion by its forms. With the package itself: `hackable_real.py`, by the slow test
below, in an environment that it makes."""

import dataclasses
import os
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from letters import MASK, logits, make_params, rows, tables
from sake_jax.interop import hackable

PARAMS, K = make_params(), MASK
TOKENS = jnp.array([[0, 1, K, K, 2, K], [3, K, K, K, K, 4]])
TIME = jnp.full((2, 1, 1), 0.5)


def inference(time, xt, conditioning):
    """As their `InferenceFn`: logits of the categories alone."""
    tokens = xt[..., 0]
    return {"logits": logits(PARAMS, tokens, jnp.ones(tokens.shape, bool))[..., :K]}


def test_guidance_around_logits():
    guidance = sj.chain(sj.sake(1.0), sj.top_p(0.9))
    guided = hackable.guided_inference(guidance, inference, mask_id=K)
    found = guided(time=TIME, xt=TOKENS[..., None], conditioning=None)
    base = inference(TIME, TOKENS[..., None], None)["logits"]
    expected, _ = sj.guided_logits(
        guidance,
        tokens=TOKENS,
        features=base,
        head=lambda rows: rows,
        tables=sj.Tables(jnp.eye(K), jnp.eye(K)),
        open=TOKENS == K,
        progress=0.5,
    )
    assert found.keys() == {"logits"}
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)
    closed = np.asarray(TOKENS != K)
    np.testing.assert_allclose(found["logits"][closed], base[closed], atol=1e-5)


def test_without_a_mask_all_columns_are_guided():
    guided = hackable.guided_inference(sj.temperature(0.5), inference)
    found = guided(time=TIME, xt=TOKENS[..., None])["logits"]
    np.testing.assert_allclose(found, 2 * inference(TIME, TOKENS[..., None], None)["logits"])


def test_samples_of_a_prompt_see_each_other():
    apart = sj.sake(1.0, scope="batch", self_term=0.0)
    guided = hackable.guided_inference(apart, inference, mask_id=K, samples=2)
    found = guided(time=TIME, xt=TOKENS[..., None])["logits"]
    base = inference(TIME, TOKENS[..., None], None)["logits"]
    assert not np.allclose(found, base, atol=1e-3)


def test_one_program_for_all_strengths():
    traces = []

    @jax.jit
    def step(guidance):
        traces.append(1)
        return hackable.guided_inference(guidance, inference, mask_id=K)(TIME, TOKENS[..., None])

    outs = [step(sj.sake(strength))["logits"] for strength in (0.5, 1.0, 2.0)]
    assert len(traces) == 1
    assert not np.allclose(outs[0], outs[2], atol=1e-3)


def test_a_state_that_would_be_lost_is_refused():
    class Growing(sj.Guidance):
        def init(self, ctx):
            return jnp.float32(1)

        def apply(self, logits, psi, state, ctx):
            return logits * state, state + 1, None

    guided = hackable.guided_inference(Growing(), inference, mask_id=K)
    with pytest.raises(ValueError, match="keeps no state"):
        guided(time=TIME, xt=TOKENS[..., None])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scalar:
    """As their `ScalarGuidanceFn`."""

    guidance: float = 0.0

    def __call__(self, xt, conditioning, time, cond_outputs, uncond_outputs):
        assert xt.shape[-1] == 1
        assert time.shape[1:] == (1, 1)
        return jax.tree.map(
            lambda a, b: a * (1 + self.guidance) - b * self.guidance, cond_outputs, uncond_outputs
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled(Scalar):
    def __call__(self, xt, conditioning, **outputs):
        assert set(conditioning) == {"kind"}
        return super().__call__(xt, conditioning, **outputs)


def written(guidance, **options):
    lm = sj.wrap(rows, PARAMS, tables=tables, mask_id=MASK, predicts_mask=False)
    sampler = sj.masked(lm, length=6, guidance=guidance, draw=sj.temperature(0.7), **options)
    return sj.generate(lm, sampler, [[0, 1], [2]], samples=2, key=jax.random.key(0)).tokens


def test_their_guidance_is_one_of_ours():
    """Their scalar guidance is classifier-free guidance."""
    ours = written(sj.classifier_free(1.5))
    np.testing.assert_array_equal(written(hackable.from_guidance_fn(Scalar(guidance=1.5))), ours)
    assert (written(None) != ours).any()


def test_their_guidance_obeys_the_laws():
    guidance = hackable.from_guidance_fn(
        Labelled(guidance=0.5), unconditional=sj.with_label(3), condition="kind"
    )
    sj.testing.check_guidance(guidance)  # other numbers compile nothing, among others


@pytest.mark.slow
def test_with_the_package_itself(tmp_path):
    """Makes an environment: a Python of 3.12 or 3.13, the package, kauldron without its needs."""
    root = Path(__file__).parents[2]
    kept = os.environ.get("MATRIX_KEEP")
    tool = [root / "tools" / "matrix", "--present", "hackable"]
    environment = os.environ | {"MATRIX_KEEP": kept or str(tmp_path)}
    environment.pop("XLA_FLAGS", None)  # ours: another jaxlib ends at a flag it does not know
    done = subprocess.run(tool, env=environment, capture_output=True, text=True)
    if "no Python" in done.stderr:
        pytest.skip("there is no Python 3.12 or 3.13")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hackable-diffusion 1." in done.stdout
