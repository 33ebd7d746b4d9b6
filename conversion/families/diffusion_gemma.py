"""DiffusionGemma 26B-A4B: Gemma 4's layers as an encoder of text and a decoder of what comes next.

The tower for images is left out: prompts are text.
"""

from collections.abc import Mapping
from typing import Any

from sake_jax.checks import require
from sake_jax.conversion.families.family import Family
from sake_jax.conversion.families.reading import (
    ANOTHER,
    UNSUPPORTED,
    describe_tokens,
    expect,
    part,
    positive,
    size,
    special_tokens,
)
from sake_jax.conversion.rules import Rule
from sake_jax.models import EncoderDecoderConfig, ModelConfig

FIXED = {
    "attention_bias": False,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "use_bidirectional_attention": ("vision", None),
}
KINDS = {"sliding_attention": "sliding", "full_attention": "full"}
ROTARY = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1_000_000.0,
    },
}
"""What holds where a config says nothing."""
PERIOD, FULL_HEAD, WINDOW = 6, 512, 256
"""The same: every sixth layer is full, its heads have this width; columns of a window."""
MOST_LAYERS = 1000
"""Of configs that do not name the kind of each."""


def config(c: Mapping[str, Any]) -> ModelConfig:
    """Our config from the checkpoint's."""
    own = part(c, "text_config")
    expect(c, {"tie_word_embeddings": True})
    expect(own, FIXED)
    layers = size(own, "num_hidden_layers")
    kinds = _kinds(own, layers)
    near, far = (_rotary(own, name) for name in KINDS)
    expect(near, {"rope_type": "default", "partial_rotary_factor": (1, None)})
    expect(far, {"rope_type": "proportional", "factor": (1, None)})
    full_head, full_keys = _full_heads(own, kinds)
    network = EncoderDecoderConfig(
        V=size(own, "vocab_size"),
        D=size(own, "hidden_size"),
        N=layers,
        H=size(own, "num_attention_heads"),
        F=size(own, "moe_intermediate_size"),
        context=size(own, "max_position_embeddings"),
        kinds=kinds,
        K=size(own, "num_key_value_heads"),
        head_dim=size(own, "head_dim"),
        full_K=full_keys,
        full_head_dim=full_head,
        rope_theta=positive(near, "rope_theta"),
        full_theta=positive(far, "rope_theta"),
        full_rotary_dim=2
        * int(positive(far, "partial_rotary_factor", default=1.0) * full_head / 2),
        reach=size(own, "sliding_window"),
        dense_F=size(own, "intermediate_size"),
        experts=size(own, "num_experts"),
        experts_per_token=size(own, "top_k_experts"),
        softcap=positive(own, "final_logit_softcapping"),
        eps=positive(own, "rms_norm_eps"),
        window=size(c, "canvas_length", default=WINDOW),
    )
    given = {name: c[name] for name in c if name.endswith("_token_id") and c[name] is not None}
    return FAMILY.model(network, **special_tokens({**own, **given}, network.V))


def _kinds(c: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    """The kind of each layer; the last one is full, whatever a config says."""
    names = c.get("layer_types")
    if names is None:
        rule = f"num_hidden_layers in config.json must be at most {MOST_LAYERS}"
        require(layers <= MOST_LAYERS, rule, layers, ANOTHER)
        last = layers - 1
        return tuple(
            "full" if at % PERIOD == PERIOD - 1 or at == last else "sliding" for at in range(layers)
        )
    rule = "layer_types in config.json must name one kind for each of the layers"
    right = isinstance(names, list) and len(names) == layers
    require(right, rule, names, ANOTHER)
    rule = f"layer_types in config.json must be of {' and '.join(KINDS)}, the last of them full"
    known = all(isinstance(name, str) and name in KINDS for name in names)
    require(known and names[-1] == "full_attention", rule, names, UNSUPPORTED)
    return tuple(KINDS[name] for name in names)


def _rotary(c: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """How layers of a kind turn positions."""
    given = {} if c.get("rope_parameters") is None else part(c, "rope_parameters")
    return ROTARY[kind] if given.get(kind) is None else part(given, kind)


def _full_heads(c: Mapping[str, Any], kinds: tuple[str, ...]) -> tuple[int, int]:
    """Width and number of the key heads of the full layers, from either form of a config."""
    keys = size(c, "num_key_value_heads")
    if c.get("per_layer_config") is None:
        width = size(c, "global_head_dim", default=FULL_HEAD)
        return width, size(c, "num_global_key_value_heads", default=keys)
    given = part(c, "per_layer_config")
    base = (size(c, "head_dim"), keys)
    heads: dict[str, set[tuple[int, int]]] = {"sliding": set(), "full": set()}
    for at, kind in enumerate(kinds):
        own = part(given, str(at)) if given.get(str(at)) is not None else {}
        width = size(own, "head_dim", default=base[0])
        heads[kind].add((width, size(own, "num_key_value_heads", default=base[1])))
    rule = "per_layer_config in config.json must give all layers of a kind the same heads"
    alike = len(heads["full"]) == 1 and heads["sliding"] <= {base}
    require(alike, rule, {kind: sorted(each) for kind, each in heads.items()}, UNSUPPORTED)
    return heads["full"].pop()


def describe(config: ModelConfig) -> dict[str, Any]:
    """The checkpoint's config from ours."""
    c = config.network
    assert isinstance(c, EncoderDecoderConfig)
    names = {ours: theirs for theirs, ours in KINDS.items()}
    full = {"head_dim": c.full_head_dim, "num_key_value_heads": c.full_K}
    turned = c.full_rotary_dim / c.full_head_dim
    own = {
        "attention_bias": False,
        "final_logit_softcapping": c.softcap,
        "head_dim": c.head_dim,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": c.D,
        "intermediate_size": c.dense_F,
        "layer_types": [names[kind] for kind in c.kinds],
        "max_position_embeddings": c.context,
        "model_type": "diffusion_gemma_text",
        "moe_intermediate_size": c.F,
        "num_attention_heads": c.H,
        "num_experts": c.experts,
        "num_hidden_layers": c.N,
        "num_key_value_heads": c.K,
        "per_layer_config": {str(at): full for at, kind in enumerate(c.kinds) if kind == "full"},
        "rms_norm_eps": c.eps,
        "rope_parameters": {
            "full_attention": ROTARY["full_attention"]
            | {"partial_rotary_factor": turned, "rope_theta": c.full_theta},
            "sliding_attention": ROTARY["sliding_attention"] | {"rope_theta": c.rope_theta},
        },
        "sliding_window": c.reach,
        "tie_word_embeddings": True,
        "top_k_experts": c.experts_per_token,
        "use_bidirectional_attention": "vision",
        "vocab_size": c.V,
        **describe_tokens(config),
    }
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "canvas_length": c.window,
        "model_type": "diffusion_gemma",
        "text_config": own,
        "tie_word_embeddings": True,
    }


NORMS = {
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "after_attention",
    "pre_feedforward_layernorm": "mlp_norm",
    "post_feedforward_layernorm_1": "after_mlp",
    "pre_feedforward_layernorm_2": "experts_norm",
    "post_feedforward_layernorm_2": "after_experts",
    "post_feedforward_layernorm": "after_both",
}
ATTENTION = {
    "q_proj": "query.kernel",
    "k_proj": "key.kernel",
    "v_proj": "value.kernel",
    "o_proj": "out.kernel",
    "q_norm": "query_norm.weight",
    "k_norm": "key_norm.weight",
}
MLP = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def rules(config: ModelConfig) -> list[Rule]:
    """The rule table: encoder and decoder share all but one number of each layer, and what they
    share is stored as the decoder's."""
    c, own = config.network, "model.decoder.self_conditioning"
    assert isinstance(c, EncoderDecoderConfig)
    table = [
        Rule("model.decoder.embed_tokens.weight", "input.rows"),
        Rule("model.decoder.norm.weight", "norm.weight"),
        Rule(f"{own}.pre_norm.weight", "conditioning.norm.weight"),
    ]
    for theirs, ours in MLP.items():
        table.append(Rule(f"{own}.{theirs}.weight", f"conditioning.mlp.{ours}.kernel"))
    scalar = "model.encoder.language_model.layers.{layer}.layer_scalar"
    for at, kind in enumerate(c.kinds[: c.period]):
        here: dict[str, Any] = {"first_layer": at, "every": c.period}
        for rule in _layer(kind):
            source, target = f"model.decoder.layers.{{layer}}.{rule.source}", rule.target
            table.append(Rule(source, f"blocks.layer{at}.{target}", rule.transposed, **here))
        table.append(Rule(scalar, f"blocks.layer{at}.encoder_scale", **here))
    return table


def _layer(kind: str) -> list[Rule]:
    """Rules of one layer; a full one takes its values from the keys."""
    has = {"v_proj": kind == "sliding"}
    rules = [Rule(f"{theirs}.weight", f"{ours}.weight") for theirs, ours in NORMS.items()]
    rules += [
        Rule(f"self_attn.{theirs}.weight", f"attention.{ours}")
        for theirs, ours in ATTENTION.items()
        if has.get(theirs, True)
    ]
    rules += [Rule(f"mlp.{theirs}.weight", f"mlp.{ours}.kernel") for theirs, ours in MLP.items()]
    return [
        *rules,
        Rule("layer_scalar", "decoder_scale"),
        Rule("router.proj.weight", "experts.router.kernel"),
        Rule("router.scale", "experts.router.scale"),
        Rule("router.per_expert_scale", "experts.router.expert_scale"),
        Rule("experts.gate_up_proj", "experts.gate_up.kernel", True),
        Rule("experts.down_proj", "experts.down.kernel", True),
    ]


PUBLISHED = {
    "canvas_length": WINDOW,
    "text_config": {
        "bos_token_id": 2,
        "eos_token_id": 1,
        "final_logit_softcapping": 30.0,
        "global_head_dim": FULL_HEAD,
        "head_dim": 256,
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "max_position_embeddings": 262_144,
        "moe_intermediate_size": 704,
        "num_attention_heads": 16,
        "num_experts": 128,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-6,
        "sliding_window": 1024,
        "top_k_experts": 8,
        "vocab_size": 262_144,
    },
}

FAMILY = Family(
    name="diffusion_gemma",
    architectures=("DiffusionGemmaForBlockDiffusion",),
    config=config,
    describe=describe,
    rules=rules,
    embedding="model.decoder.embed_tokens.weight",
    left_out=(r"model\.encoder\.vision_tower\..*", r"model\.encoder\.embed_vision\..*"),
    published={name: PUBLISHED for name in ("diffusiongemma-26b-a4b", "diffusiongemma-26b-a4b-it")},
    sampler="revising",
    positions="tokens",
)
