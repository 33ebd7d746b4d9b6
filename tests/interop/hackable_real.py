"""Our guidance in the real hackable-diffusion, and the other way round.

Run by `tools/matrix hackable` in an environment that has the package; not a test module by itself.
"""

from importlib.metadata import version

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from hackable_diffusion.lib import diffusion_network
from hackable_diffusion.lib.architecture import conditioning_encoder, discrete
from hackable_diffusion.lib.corruption import discrete as corruption
from hackable_diffusion.lib.corruption import schedules
from hackable_diffusion.lib.inference import diffusion_inference, guidance, wrappers
from hackable_diffusion.lib.sampling import discrete_step_sampler, sampling, time_scheduling

import sake_jax as sj
from sake_jax.interop import hackable

K, D, B, L, STEPS = 13, 8, 2, 12, 9
"""Categories, width, rows, columns, and times of their sampler: a step between each two."""


class Backbone(nn.Module):
    """Mixes each column with those before it, and with the label if there is one."""

    @nn.compact
    def __call__(self, x, conditioning_embeddings, is_training):
        x = x + nn.Dense(D)(jnp.cumsum(x, axis=1) * 0.3)
        return jnp.tanh(x + conditioning_embeddings["sum"][:, None, :])


def network():
    encoder = conditioning_encoder.ConditioningEncoder(
        time_embedder=conditioning_encoder.ZeroTimeEmbedder(num_features=D),
        conditioning_embedders={
            "label": conditioning_encoder.LabelEmbedder(
                num_classes=3, num_features=D, conditioning_key="label"
            )
        },
        merge_embeddings_fn=conditioning_encoder.SumEmbeddings(),
        conditioning_rules={"time": "sum", "label": "sum"},
    )
    backbone = discrete.ConditionalDiscreteBackbone(
        base_backbone=Backbone(),
        token_embedder=discrete.TokenEmbedder(process_num_categories=K + 1, embedding_dim=D),
        token_projector=discrete.DenseProjector(num_categories=K, embedding_dim=D),
    )
    return diffusion_network.DiffusionNetwork(
        backbone_network=backbone,
        conditioning_encoder=encoder,
        prediction_type="logits",
        data_dtype=jnp.int32,
    )


NETWORK = network()
LABELS = {"label": jnp.array([0, 2])}
NOISE = jnp.full((B, L, 1), K)
PARAMS = NETWORK.init(
    jax.random.key(0), time=jnp.ones((B, 1, 1)), xt=NOISE, conditioning=LABELS, is_training=False
)["params"]
PARAMS = jax.tree.map(lambda x: x * 2, PARAMS)  # at their start its logits are nearly all alike
INFERENCE = wrappers.FlaxLinenInferenceFn(network=NETWORK, params=PARAMS)
PROCESS = corruption.CategoricalProcess.masking_process(
    schedule=schedules.LinearDiscreteSchedule(), num_categories=K
)
SAMPLER = sampling.DiffusionSampler(
    time_schedule=time_scheduling.UniformTimeSchedule(),
    stepper=discrete_step_sampler.UnMaskingStep(
        corruption_process=PROCESS,
        corruption_mask_fn=discrete_step_sampler.MaskValueCorruptedMaskFn(process=PROCESS),
    ),
    num_steps=STEPS,
)
LM = hackable.wrap_network(NETWORK, PARAMS, classes=3)
KEY = jax.random.key(7)


def theirs(inference, conditioning=LABELS):
    """Tokens after each time of their sampler."""
    _, steps = SAMPLER(inference, KEY, NOISE, conditioning)
    return steps.xt[..., 0]


def ours(guidance, written, model=LM, cond=LABELS["label"]):
    """Our run with their noise, that writes where they have written."""
    keys = jax.random.split(KEY, STEPS)[1:]

    def drawn(key):  # as their step splits its key
        candidates = jax.random.split(key, 4)[1]
        return jax.random.gumbel(jax.random.split(candidates)[0], (B, L, K))

    noise = jnp.pad(jax.vmap(drawn)(keys), ((0, 0),) * 3 + ((0, 1),))
    kept = written[1:] != written[:-1]
    index = lambda view: jnp.round(view.progress[0] * (STEPS - 1)).astype(jnp.int32)  # noqa: E731
    sampler = sj.sampler(
        model.denoiser,
        sj.blocks(length=L, steps=STEPS - 1),
        guidance=guidance,
        process=sj.identity_process(draws_mask=False),
        noise=lambda keys, view, size: noise[index(view)],
        reveal=lambda logits, drawn, view, key: kept[index(view)],
    )
    canvas = sj.canvas([[]] * B, L, mask_id=K).replace(cond=cond)
    return sj.run(sampler, model.params, KEY, canvas)[0].tokens


def check_network():
    """Rows and tables are those of their network, and it obeys our laws, but for padding."""
    tokens = jax.random.randint(jax.random.key(1), (B, L), 0, K + 1)
    base = INFERENCE(time=jnp.ones((B, 1, 1)), xt=tokens[..., None], conditioning=LABELS)["logits"]
    mine = LM.logits(tokens, sigma=jnp.ones(B), cond=LABELS["label"])
    np.testing.assert_allclose(mine[..., :K], base, atol=1e-5)
    assert (mine[..., K] < -1e29).all()
    sj.testing.check_denoiser(LM, cond=1, skip=("attend", "padding"))


def check_sampler():
    """Tokens of their sampler with our SAKE are ours from the same logits and noise."""
    guidance = sj.chain(sj.top_p(0.95), sj.sake(2.0))
    plain = theirs(INFERENCE)
    for inference in (LM, INFERENCE):
        guided = hackable.guided_inference(guidance, inference, mask_id=K)
        steps = theirs(guided)
        assert (steps[-1] < K).all(), "all is written"
        assert (steps[-1] != plain[-1]).any(), "guidance changes something"
        if inference is LM:
            np.testing.assert_array_equal(ours(guidance, steps), steps[-1])
    same = theirs(hackable.guided_inference(sj.sake(0.0), LM))
    np.testing.assert_array_equal(same, plain)
    np.testing.assert_array_equal(ours(None, plain), plain[-1])


def check_traces():
    """One program for all strengths."""
    traces = []

    @jax.jit
    def run(guidance):
        traces.append(1)
        return theirs(hackable.guided_inference(guidance, LM))[-1]

    outs = [run(sj.sake(strength)) for strength in (0.0, 1.0, 3.0)]
    assert len(traces) == 1, traces
    assert (outs[0] != outs[2]).any()


def check_guidance_fn():
    """Their guidance in our run gives what it gives in theirs."""
    for function in (
        guidance.ScalarGuidanceFn(guidance=1.5),
        guidance.LimitedIntervalGuidanceFn(guidance=1.5, lower=0.0, upper=1.0),
    ):
        guided = diffusion_inference.GuidedDiffusionInferenceFn(
            base_inference_fn=INFERENCE, guidance_fn=function
        )
        steps = theirs(guided)
        # Theirs without a label is all zeros: a label more, whose embedding is zeros, is the same.
        table = PARAMS["conditioning_encoder"]["conditioning_embedders_label"]
        zeros = jax.tree.map(lambda x: jnp.pad(x, ((0, 1), (0, 0))), table)
        encoder = PARAMS["conditioning_encoder"] | {"conditioning_embedders_label": zeros}
        params = PARAMS | {"conditioning_encoder": encoder}
        wider = hackable.wrap_network(_with_classes(4), params, classes=4)
        mine = hackable.from_guidance_fn(function, unconditional=sj.with_label(3))
        np.testing.assert_array_equal(ours(mine, steps, wider), steps[-1])
        assert (steps[-1] != theirs(INFERENCE)[-1]).any()


def _with_classes(classes):
    """The same network for more labels."""
    embedder = conditioning_encoder.LabelEmbedder(
        num_classes=classes, num_features=D, conditioning_key="label"
    )
    encoder = NETWORK.conditioning_encoder.copy(conditioning_embedders={"label": embedder})
    return NETWORK.copy(conditioning_encoder=encoder)


def check_generate():
    """Their network through `generate`: whole canvases, since they see padding."""
    sampler = sj.masked(LM, length=L, guidance=sj.sake(1.0), draw=sj.temperature(0.8))
    out = sj.generate(LM, sampler, [[]], samples=2, cond=[1], key=KEY)
    assert (out.tokens < K).all()


if __name__ == "__main__":
    for check in (check_network, check_sampler, check_traces, check_guidance_fn, check_generate):
        check()
        print("ok:", check.__doc__.splitlines()[0])
    print("hackable-diffusion", version("hackable_diffusion"), "with jax", version("jax"))
