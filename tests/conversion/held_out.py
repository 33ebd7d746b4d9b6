"""Checkpoints of other sizes than the goldens', with random weights, under the names and in the
shapes of the originals' modules: written here by hand, not by the rules that are tested."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

Shapes = dict[str, tuple[int, ...]]

QWEN = {
    "eos_token_id": 1, "hidden_act": "silu", "hidden_size": 20, "intermediate_size": 28,
    "mask_token_id": 38, "max_position_embeddings": 64, "num_attention_heads": 6,
    "num_hidden_layers": 3, "num_key_value_heads": 2, "pad_token_id": 0, "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0, "tie_word_embeddings": False, "vocab_size": 41,
}  # fmt: skip
SDAR = QWEN | {
    "architectures": ["SDARForCausalLM"], "model_type": "sdar", "head_dim": 6, "block_size": 3
}  # fmt: skip
SDAR_MOE = SDAR | {
    "architectures": ["SDARMoeForCausalLM"], "model_type": "sdar_moe", "moe_intermediate_size": 10,
    "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": True,
}  # fmt: skip
FAST = QWEN | {
    "architectures": ["Fast_dLLM_QwenForCausalLM"], "model_type": "Fast_dLLM_Qwen", "bd_size": 6,
    "hidden_size": 24,
}  # fmt: skip
LLADA2 = QWEN | {
    "architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe", "head_dim": 8,
    "block_size": 3, "first_k_dense_replace": 2, "moe_intermediate_size": 10,
    "moe_router_enable_expert_bias": True, "n_group": 4, "norm_topk_prob": True,
    "num_experts": 12, "num_experts_per_tok": 4, "num_hidden_layers": 4, "num_shared_experts": 2,
    "partial_rotary_factor": 0.25, "routed_scaling_factor": 1.7, "score_function": "sigmoid",
    "topk_group": 2, "use_qk_norm": True, "use_qkv_bias": True,
}  # fmt: skip
TRANSFORMERS = {
    "sdar": SDAR,
    "sdar, tied, one key head": SDAR
    | {"tie_word_embeddings": True, "num_key_value_heads": 1, "block_size": 5},
    "sdar, experts": SDAR_MOE,
    "sdar, experts, weights as they are": SDAR_MOE
    | {"norm_topk_prob": False, "num_experts_per_tok": 1, "tie_word_embeddings": True},
    "fast_dllm": FAST,
    "fast_dllm, tied": FAST | {"tie_word_embeddings": True, "bd_size": 2, "num_key_value_heads": 3},
    "llada2": LLADA2,
    "llada2, one group, one expert": LLADA2
    | {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "num_shared_experts": 0,
       "first_k_dense_replace": 0, "partial_rotary_factor": 1.0, "use_qkv_bias": False},
    "llada2, tied, half of a head turns": LLADA2
    | {"n_group": 3, "topk_group": 3, "tie_word_embeddings": True, "use_qk_norm": False,
       "num_key_value_heads": 6, "num_shared_experts": 1, "first_k_dense_replace": 1,
       "partial_rotary_factor": 0.5, "block_size": 4},
}  # fmt: skip

NESTED = {"hidden_size": 24, "n_blocks": 3, "n_heads": 2, "length": 20, "cond_dim": 10}
DITS = {
    "sedd": {
        "graph": {"type": "absorb"}, "model": NESTED | {"type": "ddit", "scale_by_sigma": True},
        "noise": {"type": "geometric", "sigma_min": 1e-3, "sigma_max": 5.0}, "tokens": 37,
    },
    "sedd, uniform": {
        "graph": {"type": "uniform"}, "model": NESTED | {"type": "ddit", "scale_by_sigma": False},
        "noise": {"type": "loglinear", "eps": 1e-2}, "tokens": 37,
    },
    "radd": {
        "model": NESTED | {"type": "ddit_wot", "cond_dim": 128},
        "noise": {"type": "loglinear", "eps": 1e-3}, "tokens": 37,
    },
}  # fmt: skip
KINDS = ["sliding_attention", "full_attention"]
GEMMA = {
    "architectures": ["DiffusionGemmaForBlockDiffusion"], "canvas_length": 5,
    "model_type": "diffusion_gemma", "tie_word_embeddings": True,
    "text_config": {
        "attention_bias": False, "bos_token_id": 2, "eos_token_id": 1,
        "final_logit_softcapping": 7.0, "head_dim": 6, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 20, "intermediate_size": 28, "layer_types": KINDS * 2,
        "max_position_embeddings": 64, "model_type": "diffusion_gemma_text",
        "moe_intermediate_size": 12, "num_attention_heads": 6, "num_experts": 6,
        "num_hidden_layers": 4, "num_key_value_heads": 3, "pad_token_id": 0,
        "per_layer_config": {
            str(at): {"head_dim": 12, "num_key_value_heads": 2} for at in (1, 3)
        },
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "full_attention": {
                "partial_rotary_factor": 0.5, "rope_theta": 5e5, "rope_type": "proportional"
            },
            "sliding_attention": {"rope_theta": 2e4, "rope_type": "default"},
        },
        "sliding_window": 4, "tie_word_embeddings": True, "top_k_experts": 3,
        "use_bidirectional_attention": "vision", "vocab_size": 41,
    },
}  # fmt: skip
TEXT = GEMMA["text_config"]
GEMMAS = {
    "diffusion_gemma": GEMMA,
    "diffusion_gemma, kinds that do not repeat": GEMMA
    | {
        "canvas_length": 3,
        "text_config": TEXT
        | {"layer_types": [KINDS[0], KINDS[1], KINDS[0], KINDS[0], KINDS[1]],
           "num_hidden_layers": 5, "sliding_window": 9, "num_experts": 3, "top_k_experts": 1,
           "per_layer_config": {str(at): {"head_dim": 8, "num_key_value_heads": 1}
                                for at in (1, 4)}},
    },
}  # fmt: skip
EVERY = TRANSFORMERS | DITS | GEMMAS


def shapes_of(c: dict) -> Shapes:
    """Names and shapes of a checkpoint's tensors, from its config.json."""
    if "text_config" in c:
        return _gemma(c["text_config"])
    return _dit(c) if "noise" in c else _transformer(c)


def _gated(name: str, D: int, F: int) -> Shapes:
    down = {f"{name}.down_proj.weight": (D, F)}
    return {f"{name}.{part}_proj.weight": (F, D) for part in ("gate", "up")} | down


def _transformer(c: dict) -> Shapes:
    D, V, H, K = (c[n] for n in ("hidden_size", "vocab_size", *HEADS))
    width, llada2 = c.get("head_dim", D // H), "LLaDA2MoeModelLM" in c["architectures"]
    embedding = "word_embeddings" if llada2 else "embed_tokens"
    shapes: Shapes = {f"model.{embedding}.weight": (V, D), "model.norm.weight": (D,)}
    shapes |= {} if c["tie_word_embeddings"] else {"lm_head.weight": (V, D)}
    for at in range(c["num_hidden_layers"]):
        layer = f"model.layers.{at}"
        shapes |= {f"{layer}.{n}_layernorm.weight": (D,) for n in ("input", "post_attention")}
        if llada2:
            own = {
                "query_key_value.weight": ((H + 2 * K) * width, D),
                "dense.weight": (D, H * width),
            }
            own |= {"query_key_value.bias": ((H + 2 * K) * width,)} if c["use_qkv_bias"] else {}
            norms = ("query_layernorm", "key_layernorm") if c["use_qk_norm"] else ()
            own |= {f"{norm}.weight": (width,) for norm in norms}
            shapes |= {f"{layer}.attention.{name}": shape for name, shape in own.items()}
        else:
            sizes = {"q": H, "k": K, "v": K}
            own = {f"{p}_proj.weight": (n * width, D) for p, n in sizes.items()}
            own |= {"o_proj.weight": (D, H * width)}
            if "bd_size" in c:  # Qwen2: biases, no norms of queries
                own |= {f"{p}_proj.bias": (n * width,) for p, n in sizes.items()}
            else:
                own |= {f"{p}_norm.weight": (width,) for p in "qk"}
            shapes |= {f"{layer}.self_attn.{name}": shape for name, shape in own.items()}
        if at < c.get("first_k_dense_replace", 0) or "num_experts" not in c:
            shapes |= _gated(f"{layer}.mlp", D, c["intermediate_size"])
            continue
        shapes[f"{layer}.mlp.gate.weight"] = (c["num_experts"], D)
        for expert in range(c["num_experts"]):
            shapes |= _gated(f"{layer}.mlp.experts.{expert}", D, c["moe_intermediate_size"])
        if llada2:
            shapes[f"{layer}.mlp.gate.expert_bias"] = (c["num_experts"],)
            shared = c["num_shared_experts"] * c["moe_intermediate_size"]
            shapes |= _gated(f"{layer}.mlp.shared_experts", D, shared) if shared else {}
    return shapes


HEADS = ("num_attention_heads", "num_key_value_heads")


def _dit(c: dict) -> Shapes:
    model = c["model"]
    D, C = model["hidden_size"], model["cond_dim"]
    timed = model["type"] == "ddit"
    V = c["tokens"] + (c.get("graph", {}).get("type") != "uniform")
    shapes: Shapes = {
        "vocab_embed.embedding": (V, D),
        "rotary_emb.inv_freq": (D // model["n_heads"] // 2,),
        "output_layer.linear.weight": (V, D),
        "output_layer.linear.bias": (V,),
    }
    norms = ["output_layer.norm_final"]
    modulated = {"output_layer.adaLN_modulation": 2 * D}
    for at in range(model["n_blocks"]):
        layer = f"blocks.{at}"
        norms += [f"{layer}.norm1", f"{layer}.norm2"]
        modulated[f"{layer}.adaLN_modulation"] = 6 * D
        shapes |= {f"{layer}.attn_qkv.weight": (3 * D, D), f"{layer}.attn_out.weight": (D, D)}
        shapes |= {f"{layer}.mlp.0.weight": (4 * D, D), f"{layer}.mlp.0.bias": (4 * D,)}
        shapes |= {f"{layer}.mlp.2.weight": (D, 4 * D), f"{layer}.mlp.2.bias": (D,)}
    shapes |= {f"{norm}.weight": (D,) for norm in norms}
    if not timed:
        return shapes | {f"{norm}.bias": (D,) for norm in norms}
    shapes |= {"sigma_map.mlp.0.weight": (C, 256), "sigma_map.mlp.2.weight": (C, C)}
    shapes |= {f"sigma_map.mlp.{at}.bias": (C,) for at in (0, 2)}
    shapes |= {f"{name}.weight": (width, C) for name, width in modulated.items()}
    return shapes | {f"{name}.bias": (width,) for name, width in modulated.items()}


def _gemma(c: dict) -> Shapes:
    D, F, E = c["hidden_size"], c["moe_intermediate_size"], c["num_experts"]
    root, dense = "model.decoder", c["intermediate_size"]
    shapes: Shapes = {f"{root}.embed_tokens.weight": (c["vocab_size"], D)}
    shapes |= {f"{root}.norm.weight": (D,), f"{root}.self_conditioning.pre_norm.weight": (D,)}
    shapes |= _gated(f"{root}.self_conditioning", D, dense)
    feed = "feedforward_layernorm"
    norms = ["input_layernorm", "post_attention_layernorm", f"pre_{feed}", f"pre_{feed}_2"]
    norms += [f"post_{feed}", f"post_{feed}_1", f"post_{feed}_2"]
    for at, kind in enumerate(c["layer_types"]):
        layer = f"{root}.layers.{at}"
        own = c | c["per_layer_config"].get(str(at), {})
        H, K = (own[name] for name in HEADS)
        width = own["head_dim"]
        shapes |= {f"{layer}.{norm}.weight": (D,) for norm in norms}
        shapes |= {f"{layer}.self_attn.{p}_norm.weight": (width,) for p in "qk"}
        shapes |= {f"{layer}.self_attn.q_proj.weight": (H * width, D)}
        for part in "kv" if kind == "sliding_attention" else "k":
            shapes[f"{layer}.self_attn.{part}_proj.weight"] = (K * width, D)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (D, H * width)
        shapes |= _gated(f"{layer}.mlp", D, dense)
        shapes |= {
            f"{layer}.experts.gate_up_proj": (E, 2 * F, D),
            f"{layer}.experts.down_proj": (E, D, F),
            f"{layer}.router.proj.weight": (E, D),
            f"{layer}.router.scale": (D,),
            f"{layer}.router.per_expert_scale": (E,),
            f"{layer}.layer_scalar": (1,),
            f"model.encoder.language_model.layers.{at}.layer_scalar": (1,),
        }
    return shapes


def tensors_of(c: dict) -> dict[str, np.ndarray]:
    """Random tensors: weights around 0, and vectors that scale around 1."""
    random, tensors = np.random.default_rng(0), {}
    for name, shape in shapes_of(c).items():
        scales = len(shape) == 1 and not name.endswith("bias")
        wide = name.endswith(("embed_tokens.weight", "word_embeddings.weight", "embedding"))
        drawn = random.normal(float(scales), 0.6 if wide else 0.25, shape)
        tensors[name] = drawn.astype(np.float32)
    if "rotary_emb.inv_freq" in tensors:
        count = len(tensors["rotary_emb.inv_freq"])
        speeds = 10_000.0 ** (-np.arange(count) / count)
        tensors["rotary_emb.inv_freq"] = speeds.astype(np.float32)
    return tensors


def write(folder: Path, name: str, shards: int = 1) -> dict:
    """Writes a checkpoint, in several files if asked; its config."""
    c = EVERY[name]
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c))
    tensors = tensors_of(c)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return c
    home: dict[str, str] = {}
    for at, names in enumerate(np.array_split(sorted(tensors), shards)):
        file = f"model-{at + 1:05d}-of-{shards:05d}.safetensors"
        save_file({str(n): tensors[str(n)] for n in names}, folder / file)
        home |= dict.fromkeys(map(str, names), file)
    index = {"metadata": {}, "weight_map": home}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return c
