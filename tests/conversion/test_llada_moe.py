"""LLaDA-MoE's variants have no golden: they are held to the description of its layers, computed
here in numpy from the checkpoint's own tensors, expert by expert."""

import json

import numpy as np
import pytest
from checkpoints import with_config
from safetensors.numpy import load_file, save_file

import sake_jax as sj
from sake_jax.conversion import convert, export, family, open_checkpoint, verify
from sake_jax.conversion.families import llada_moe
from sake_jax.conversion.families.family import Family

PLAIN = {
    "architectures": ["LLaDAMoEModelLM"], "model_type": "llada", "dense_intermediate_size": 20,
    "eos_token_id": 1, "expert_intermediate_size": 6, "hidden_size": 16, "mask_token_id": 5,
    "max_position_embeddings": 64, "moe_layer_freq": [1, 1, 1], "num_attention_heads": 2,
    "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3, "num_key_value_heads": 2,
    "pad_token_id": 1, "qk_layernorm": True, "rms_norm_eps": 1e-5, "rope_theta": 50_000.0,
    "vocab_size": 40,
}  # fmt: skip
VARIANTS = {
    "part of a head turns": {"partial_rotary_factor": 0.5},
    "a shared expert": {"shared_expert_intermediate_size": 10},
    "a dense first layer": {"moe_layer_freq": [0, 1, 1]},
    "no norms of queries": {"qk_layernorm": False},
    "entries that are not looked at": {"norm_topk_prob": True, "routed_scaling_factor": 2.5},
}
ALL = {key: value for variant in VARIANTS.values() for key, value in variant.items()}
ALL |= {"moe_layer_freq": [0, 0, 1], "qk_layernorm": True}
IDS = np.random.default_rng(1).integers(0, 40, (2, 9))


def tensors_of(c: dict) -> dict[str, np.ndarray]:
    """Random tensors under the names and in the shapes of the original's modules."""
    draw = np.random.default_rng(0).normal
    D, V, head = c["hidden_size"], c["vocab_size"], c["hidden_size"] // c["num_attention_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (V, D), "lm_head": (V, D)}
    shapes["model.norm"] = (D,)

    def mlp(name: str, width: int) -> None:
        shapes[f"{name}.gate_proj"] = shapes[f"{name}.up_proj"] = (width, D)
        shapes[f"{name}.down_proj"] = (D, width)

    for at, sparse in enumerate(c["moe_layer_freq"]):
        layer = f"model.layers.{at}"
        shapes |= {f"{layer}.{norm}_layernorm": (D,) for norm in ("input", "post_attention")}
        shapes |= {f"{layer}.self_attn.{part}_proj": (D, D) for part in "qkvo"}
        if c["qk_layernorm"]:
            shapes |= {f"{layer}.self_attn.{part}_norm": (head,) for part in "qk"}
        if not sparse:
            mlp(f"{layer}.mlp", c["dense_intermediate_size"])
            continue
        shapes[f"{layer}.mlp.gate"] = (c["num_experts"], D)
        for expert in range(c["num_experts"]):
            mlp(f"{layer}.mlp.experts.{expert}", c["expert_intermediate_size"])
        if c.get("shared_expert_intermediate_size"):
            mlp(f"{layer}.shared_expert", c["shared_expert_intermediate_size"])
    drawn = {name: draw(1.0 if len(s) == 1 else 0.0, 0.3, s) for name, s in shapes.items()}
    return {f"{name}.weight": array.astype(np.float32) for name, array in drawn.items()}


class Described:
    """The network as its original's layers are described, one row and one expert at a time."""

    def __init__(self, c: dict, tensors: dict[str, np.ndarray], sum_to_one: bool = False):
        self.c, self.sum_to_one = c, sum_to_one
        self.w = {name.removesuffix(".weight"): np.float64(t) for name, t in tensors.items()}

    def norm(self, x, name):
        scale = np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + self.c["rms_norm_eps"])
        return self.w[name] * x / scale

    def mlp(self, x, name):
        gate, up = (x @ self.w[f"{name}.{part}_proj"].T for part in ("gate", "up"))
        return (gate / (1 + np.exp(-gate)) * up) @ self.w[f"{name}.down_proj"].T

    def turn(self, x):
        """Of (L, head), the first entries by their position; frequencies are over those."""
        wide = int(x.shape[-1] * self.c.get("partial_rotary_factor", 1))
        speeds = self.c["rope_theta"] ** (-np.arange(0, wide, 2) / wide)
        angles = np.arange(len(x))[:, None] * speeds[None]
        one, two = x[:, : wide // 2], x[:, wide // 2 : wide]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate([one * cos - two * sin, two * cos + one * sin, x[:, wide:]], axis=-1)

    def attention(self, x, name):
        heads = self.c["num_attention_heads"]
        q, k, v = (np.split(x @ self.w[f"{name}.{p}_proj"].T, heads, axis=-1) for p in "qkv")
        if self.c["qk_layernorm"]:
            q = [self.norm(head, f"{name}.q_norm") for head in q]
            k = [self.norm(head, f"{name}.k_norm") for head in k]
        mixed = []
        for query, key, value in zip(q, k, v, strict=True):
            scores = self.turn(query) @ self.turn(key).T / np.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed.append(weights / weights.sum(axis=-1, keepdims=True) @ value)
        return np.concatenate(mixed, axis=-1) @ self.w[f"{name}.o_proj"].T

    def experts(self, x, layer):
        logits = x @ self.w[f"{layer}.mlp.gate"].T
        chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        out = np.zeros_like(x)
        for row, chance in enumerate(chances):
            chosen = np.argsort(-chance)[: self.c["num_experts_per_tok"]]
            weights = chance[chosen] / (chance[chosen].sum() if self.sum_to_one else 1)
            for expert, weight in zip(chosen, weights, strict=True):
                out[row] += weight * self.mlp(x[row], f"{layer}.mlp.experts.{expert}")
        shared = self.c.get("shared_expert_intermediate_size")
        return out + self.mlp(x, f"{layer}.shared_expert") if shared else out

    def logits(self, ids):
        x = self.w["model.embed_tokens"][ids]
        for at, sparse in enumerate(self.c["moe_layer_freq"]):
            layer = f"model.layers.{at}"
            x = x + self.attention(self.norm(x, f"{layer}.input_layernorm"), f"{layer}.self_attn")
            rows = self.norm(x, f"{layer}.post_attention_layernorm")
            x = x + (self.experts(rows, layer) if sparse else self.mlp(rows, f"{layer}.mlp"))
        return self.norm(x, "model.norm") @ self.w["lm_head"].T


def made(folder, changes: dict) -> dict:
    """Writes a checkpoint of a variant; its config."""
    c = PLAIN | changes
    (folder / "config.json").write_text(json.dumps(c))
    save_file(tensors_of(c), folder / "model.safetensors")
    return c


@pytest.mark.parametrize("variant", [*VARIANTS, "all of them"])
def test_variants_are_what_is_described(variant, tmp_path):
    c = made(tmp_path, VARIANTS.get(variant, ALL))
    expected = Described(c, load_file(tmp_path / "model.safetensors"))
    ours = sj.load(tmp_path).logits(IDS)
    np.testing.assert_allclose(ours, [expected.logits(ids) for ids in IDS], rtol=0, atol=2e-4)


@pytest.mark.parametrize("sum_to_one", [False, True])
def test_sdar_with_experts_has_the_same_layers(sum_to_one, tmp_path):
    """Within one block; and there the weights of the chosen experts may be made to sum to one."""
    c = made(tmp_path, {})
    words = {"architectures": ["SDARMoeForCausalLM"], "model_type": "sdar_moe", "block_size": 16}
    words |= {"moe_intermediate_size": 6, "intermediate_size": 20, "norm_topk_prob": sum_to_one}
    with_config(tmp_path, **words)
    expected = Described(c, load_file(tmp_path / "model.safetensors"), sum_to_one)
    ours = sj.load(tmp_path).logits(IDS)
    np.testing.assert_allclose(ours, [expected.logits(ids) for ids in IDS], rtol=0, atol=2e-4)


def test_what_a_variant_changes_is_seen():
    """Without its part of the description the logits are others: the test above can fail."""
    for variant in VARIANTS.values():
        for key in variant.keys() & {"partial_rotary_factor", "shared_expert_intermediate_size"}:
            c = PLAIN | variant
            tensors = tensors_of(c)
            whole = Described(c, tensors).logits(IDS[0])
            other = Described({k: v for k, v in c.items() if k != key}, tensors).logits(IDS[0])
            assert np.abs(whole - other).max() > 0.01


def test_a_variant_is_converted_verified_and_exported(tmp_path):
    source, ours, theirs = (tmp_path / name for name in ("source", "ours", "theirs"))
    source.mkdir()
    c = made(source, ALL)
    tensors = load_file(source / "model.safetensors")
    expected = Described(c, tensors)
    recorded = np.float32([expected.logits(ids) for ids in IDS])
    np.savez(tmp_path / "golden.npz", input_ids=IDS, logits=recorded)
    convert(source, ours)
    for folder in (source, ours):
        assert verify(folder, tmp_path / "golden.npz").ok
    export(ours, theirs)
    assert json.loads((theirs / "config.json").read_text()) == c
    again = open_checkpoint(theirs)
    assert again.source.shapes.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(again.source.read(name, ()), tensor)


@pytest.mark.parametrize("variant", [*VARIANTS, "all of them"])
def test_descriptions_come_back(variant):
    own: Family = family("llada_moe")
    config = own.config(PLAIN | VARIANTS.get(variant, ALL))
    assert own.config(json.loads(json.dumps(own.describe(config)))) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moe_layer_freq": [1, 0, 1]}, "must stand before those with experts"),
        ({"moe_layer_freq": [0, 0, 0]}, "dense_layers must be fewer than the layers"),
        ({"moe_layer_freq": [0, 1]}, "for each of the 3 layers"),
        ({"moe_layer_freq": [0, 1, 2]}, "must have a 0 or a 1"),
        ({"moe_layer_freq": "dense"}, "must have a 0 or a 1"),
        ({"partial_rotary_factor": 0.01}, "must leave something of a head to turn"),
        ({"partial_rotary_factor": 0.4}, "rotary_dim must be even"),
        ({"shared_expert_intermediate_size": -1}, "must be a whole number from 0 on"),
        ({"moe_router_enable_expert_bias": True}, "moe_router_enable_expert_bias"),
        ({"router_num_group": 4}, "router_num_group"),
    ],
)
def test_what_is_not_computed_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        llada_moe.config(PLAIN | changes)


def test_a_dense_layer_needs_its_width(tmp_path):
    made(tmp_path, {"moe_layer_freq": [0, 1, 1]})
    with pytest.raises(ValueError, match="must have 'dense_intermediate_size'"):
        open_checkpoint(with_config(tmp_path, dense_intermediate_size=None))
