"""The configs of published checkpoints, as their repositories and readers quote them.

Only what decides something is kept of each; names of tensors are counted.
"""

import pytest

from sake_jax import Request
from sake_jax.conversion import model_config
from sake_jax.conversion.checkpoint import leaves
from sake_jax.conversion.families import recognise
from sake_jax.conversion.rules import expand
from sake_jax.planning import Job

LLADA = {
    "activation_type": "silu", "alibi": False, "architectures": ["LLaDAModelLM"],
    "attention_layer_norm": False, "bias_for_layer_norm": False, "block_group_size": 1,
    "block_type": "llama", "d_model": 4096, "embedding_size": 126464, "eos_token_id": 126081,
    "include_bias": False, "include_qkv_bias": False, "input_emb_norm": False,
    "layer_norm_type": "rms", "layer_norm_with_affine": True, "mask_token_id": 126336,
    "max_sequence_length": 4096, "mlp_hidden_size": 12288, "mlp_ratio": 4, "model_type": "llada",
    "multi_query_attention": None, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32,
    "pad_token_id": 126081, "rms_norm_eps": 1e-5, "rope": True, "rope_theta": 500000.0,
    "scale_logits": False, "vocab_size": 126464, "weight_tying": False,
}  # fmt: skip
ILLADA = {
    "architectures": ["ILLaDAForCausalLM"], "model_type": "illada", "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 155136, "max_position_embeddings": 8192,
    "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
    "hidden_act": "silu", "layer_norm_eps": None, "rope_scaling": None,
}  # fmt: skip
LLADA_MOE = {
    "architectures": ["LLaDAMoEModel"], "model_type": "llada", "attention_bias": False,
    "clip_qkv": None, "dense_intermediate_size": 8192, "eos_token_id": 156892,
    "expert_intermediate_size": 1024, "hidden_act": "silu", "hidden_size": 2048,
    "max_position_embeddings": 8192, "moe_layer_freq": [1] * 16,
    "moe_router_enable_expert_bias": False, "moe_router_score_function": "softmax",
    "norm_topk_prob": None, "num_attention_heads": 16, "num_experts": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
    "pad_token_id": 156892, "partial_rotary_factor": 1, "qk_layernorm": True,
    "rope_scaling": None, "rope_theta": 50000, "routed_scaling_factor": 1,
    "router_num_group": None, "router_topk_group": None,
    "shared_expert_intermediate_size": None, "tie_word_embeddings": False, "vocab_size": 157184,
}  # fmt: skip
DREAM = {
    "architectures": ["DreamModel"], "bos_token_id": 151643, "eos_token_id": 151643,
    "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
    "mask_token_id": 151666, "max_position_embeddings": 131072, "model_type": "Dream",
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "pad_token_id": 151643, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1e6,
    "sliding_window": None, "tie_word_embeddings": False, "use_mrope": False,
    "use_sliding_window": False, "vocab_size": 152064,
}  # fmt: skip
MDLM = {
    "architectures": ["MDLM"], "cond_dim": 128, "hidden_dim": 768, "model_length": 1024,
    "model_type": "mdlm", "n_blocks": 12, "n_heads": 12, "time_conditioning": False,
    "vocab_size": 50258,
}  # fmt: skip
BD3LM = MDLM | {
    "architectures": ["BD3LM"], "model_type": "bd3lm", "block_size": 4, "cross_attn": True,
    "adaln": True, "attn_backend": "flex", "causal": False, "var_min": True,
}  # fmt: skip
UDLM = MDLM | {
    "architectures": ["UDLM"], "model_type": "udlm", "vocab_size": 30522, "model_length": 128,
    "time_conditioning": True, "cfg": False, "cfg_num_classes": -1,
}  # fmt: skip
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "intermediate_size": 1536,
    "max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 9,
    "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
    "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 100000,
    "tie_word_embeddings": True, "vocab_size": 49152,
}  # fmt: skip
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
    "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "bos_token_id": 50256, "eos_token_id": 50256, "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "vocab_size": 50257,
}  # fmt: skip

KNOWN = {  # family, mask token, tensors, millions of parameters
    "LLaDA-8B-Instruct": (LLADA, "llada", 126336, 291, 8015.6),
    "iLLaDA-8B-Base": (ILLADA, "illada", 5, 290, 7615.0),
    "LLaDA-MoE-7B-A1B": (LLADA_MOE, "llada_moe", 156895, 3219, 7356.9),
    "Dream-v0-7B": (DREAM, "dream", 151666, 339, 7615.6),
    "mdlm-owt": (MDLM, "mdlm", 50257, 131, 169.6),
    "bd3lm-owt-block_size4": (BD3LM, "bd3lm", 50257, 133, 169.6),
    "udlm-lm1b": (UDLM, "udlm", None, 131, 139.3),
    "SmolLM2-135M": (SMOLLM2, "llama", None, 272, 134.5),
    "Qwen3-0.6B": (QWEN3, "qwen3", None, 310, 596.0),
    "gpt2": (GPT2, "gpt2", None, 148, 124.4),
}


BY_NAME = {  # millions of parameters, of all and of those a token goes through
    "JetLM/SDAR-1.7B-Chat": (1720.6, 1720.6),  # Qwen3's sizes
    "JetLM/SDAR-4B-Chat": (4022.5, 4022.5),
    "JetLM/SDAR-8B-Chat-b32": (8190.7, 8190.7),
    "JetLM/SDAR-30B-A3B-Chat": (30_532.1, 3353.0),
    "inclusionAI/LLaDA2.0-mini": (16_255.6, 1433.0),  # 16B, 1.4B active
    "inclusionAI/LLaDA2.1-flash": (102_889.7, 6152.3),  # 100B, 6.1B active
    "Efficient-Large-Model/Fast_dLLM_v2_1.5B": (1543.7, 1543.7),  # Qwen2.5's sizes
    "Efficient-Large-Model/Fast_dLLM_v2_7B": (7615.6, 7615.6),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_models_that_are_known_by_name_have_their_size(name):
    job = Job(model_config(name), Request(length=32))
    millions, active = BY_NAME[name]
    assert job.parameters / 1e6 == pytest.approx(millions, abs=0.1)
    assert job.active_parameters / 1e6 == pytest.approx(active, abs=0.1)


@pytest.mark.parametrize("name", KNOWN)
def test_published_configs_are_read(name):
    described, family_name, mask_id, tensors, millions = KNOWN[name]
    family = recognise(described)
    config = family.config(described)
    expected = leaves(config)
    assert family.name == family_name
    assert config.mask_id == mask_id
    assert len(expand(family.table(config, family.prefixes[0]), expected)) == tensors
    count = sum(leaf.size for leaf in expected.values()) / 1e6
    assert count == pytest.approx(millions, abs=0.1)
