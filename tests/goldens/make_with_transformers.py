"""Makes goldens of causal families, and of iLLaDA, with transformers. Only this needs torch.

    pip install torch transformers && python tests/goldens/make_with_transformers.py

Weights are seeded normals, so that nothing that starts at zero or one stays there.
"""

import json
from pathlib import Path

import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES = {
    "vocab_size": 70,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SIZES, tie_word_embeddings=True, rope_theta=1e5)),
    # iLLaDA is a tied Llama that reads both ways; its own code is not in transformers.
    "illada": (LlamaForCausalLM, LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, rope_theta=1e6)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=12, rope_theta=1e6)),
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=70,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
}


def deviation(name: str) -> tuple[float, float]:
    """Mean and standard deviation of a parameter's values."""
    if name.endswith("norm.weight") or (".ln_" in name and name.endswith("weight")):
        return 1.0, 0.15
    return (0.0, 0.1) if name.endswith("bias") else (0.0, 0.3)


def both_ways(attend: torch.Tensor) -> torch.Tensor:
    """An attention mask, to be added, that hides padding and nothing else."""
    hidden = torch.finfo(torch.float32).min * (1 - attend.float())
    return hidden[:, None, None, :].expand(-1, 1, attend.shape[1], -1)


def main() -> None:
    folder = Path(__file__).parent
    for seed, (name, (kind, config)) in enumerate(MODELS.items()):
        torch.manual_seed(seed)
        config._attn_implementation = "eager"
        model = kind(config).eval()
        with torch.no_grad():
            for path, parameter in model.named_parameters():
                mean, spread = deviation(path)
                parameter.copy_(mean + spread * torch.randn(parameter.shape))
            ids = torch.randint(0, config.vocab_size, (2, 17))
            attend = torch.ones_like(ids)
            attend[1, 12:] = 0  # padding on the right, as scored texts have it
            seen = both_ways(attend) if name == "illada" else attend
            out = model(ids, attention_mask=seen, output_hidden_states=True)
        model.save_pretrained(folder / name)
        if name == "illada":
            described = json.loads((folder / name / "config.json").read_text())
            described |= {"architectures": ["ILLaDAForCausalLM"], "model_type": "illada"}
            (folder / name / "config.json").write_text(json.dumps(described, indent=2))
        (folder / name / "generation_config.json").unlink(missing_ok=True)
        np.savez_compressed(
            folder / name / "golden.npz",
            input_ids=ids.numpy().astype(np.int32),
            attention_mask=attend.numpy().astype(np.int32),
            logits=out.logits.numpy(),
            last_hidden=out.hidden_states[-1].numpy(),
        )


if __name__ == "__main__":
    main()
