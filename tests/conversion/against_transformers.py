"""Checkpoints of other sizes in transformers' own torch classes, and in ours: logits of both.

DiffusionGemma in its own class, also told what it predicted last; SDAR and Fast-dLLM v2 in those of
Qwen3, Qwen3-MoE and Qwen2, on which they are built, under a mask of blocks. Needs torch, which is
no dependency of ours.

    python tests/conversion/against_transformers.py [diffusion_gemma]
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # beside the tests' helpers
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from held_out import GEMMAS, TRANSFORMERS, tensors_of, write
from transformers.models.diffusion_gemma import modeling_diffusion_gemma

import sake_jax as sj
from networks import view_of
from sake_jax.view import Reread

BATCH, TEXT, LAST = 2, 13, 37
VISION = {
    "head_dim": 8, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
    "num_hidden_layers": 1, "num_key_value_heads": 2, "patch_size": 4, "position_embedding_size": 8,
}  # fmt: skip
"""Of a tower for images that nothing looks at."""
OTHER_WORDS = ("architectures", "model_type", "block_size", "bd_size", "rope_theta")
EAGER = {"experts_implementation": "eager"}


def filled(model, tensors):
    """The model with our tensors; those that it shares under another name may be missing."""
    loaded = model.eval().load_state_dict(
        {name: torch.tensor(array) for name, array in tensors.items()}, strict=False
    )
    assert not loaded.unexpected_keys, loaded.unexpected_keys
    model.tie_weights()
    return model


def random_ids(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(3, LAST, shape)


def qwen(c: dict):
    """Qwen's class of a config, with its tensors."""
    tensors = tensors_of(c)
    given = {key: value for key, value in c.items() if key not in OTHER_WORDS}
    rotary = {"rope_parameters": {"rope_type": "default", "rope_theta": c["rope_theta"]}}
    options = given | rotary | {"attn_implementation": "eager"}
    if "bd_size" in c:
        own = transformers.Qwen2ForCausalLM
    elif "num_experts" not in c:
        own = transformers.Qwen3ForCausalLM
    else:
        own, options = transformers.Qwen3MoeForCausalLM, options | EAGER
        for at in range(c["num_hidden_layers"]):  # transformers 5 keeps all experts together
            name = f"model.layers.{at}.mlp.experts"
            parts = {
                part: np.stack([tensors.pop(f"{name}.{e}.{part}_proj.weight")
                                for e in range(c["num_experts"])])
                for part in ("gate", "up", "down")
            }  # fmt: skip
            tensors[f"{name}.gate_up_proj"] = np.concatenate([parts["gate"], parts["up"]], axis=1)
            tensors[f"{name}.down_proj"] = parts["down"]
    return filled(own(own.config_class(**options)), tensors)


@torch.no_grad()
def of_blocks(c: dict, lm: sj.LanguageModel) -> list[tuple[str, np.ndarray, np.ndarray]]:
    ids, size = random_ids(BATCH, TEXT), c.get("bd_size") or c["block_size"]
    block = np.arange(TEXT) // size
    hidden = torch.tensor(block[None, :] > block[:, None])[None, None]
    mask = torch.zeros(BATCH, 1, TEXT, TEXT).masked_fill(hidden, torch.finfo(torch.float32).min)
    theirs = qwen(c)(input_ids=torch.tensor(ids), attention_mask=mask).logits
    return [("logits", np.asarray(lm.logits(ids)), theirs.numpy())]


@torch.no_grad()
def of_windows(c: dict, lm: sj.LanguageModel) -> list[tuple[str, np.ndarray, np.ndarray]]:
    given = {key: value for key, value in c.items() if key not in OTHER_WORDS}
    images = {f"{name}_token_id": LAST + 1 for name in ("boi", "eoi", "image")}
    config = transformers.AutoConfig.for_model(
        "diffusion_gemma", **given, **images, **EAGER, vision_config=VISION
    )
    own = filled(modeling_diffusion_gemma.DiffusionGemmaForBlockDiffusion(config), tensors_of(c))
    width, vocabulary = c["canvas_length"], c["text_config"]["vocab_size"]
    ids, canvas = random_ids(BATCH, TEXT), random_ids(BATCH, width)
    told = np.random.default_rng(0).normal(0, 2, (BATCH, width, vocabulary)).astype(np.float32)
    words = {"input_ids": torch.tensor(ids), "decoder_input_ids": torch.tensor(canvas)}
    first = own(**words).logits.numpy()
    second = own(**words, self_conditioning_logits=torch.tensor(told)).logits.numpy()
    both = np.concatenate([ids, canvas], axis=1)
    spans = ((0, width), None)
    view = view_of(lm, both, start=TEXT, width=width).replace(reread=Reread(jnp.int32(1), spans))
    cache = lm.denoiser.empty_cache(lm.params, *both.shape)
    rows, cache = lm.denoiser.read(lm.params, view, cache)
    cached = lm.denoiser.head(lm.params, view.window(rows))
    cache = lm.denoiser.remember(lm.params, cache, jnp.asarray(told), view)
    again = view.replace(reread=Reread(jnp.int32(0), spans))
    rows, _ = lm.denoiser.read(lm.params, again, cache)
    conditioned = lm.denoiser.head(lm.params, view.window(rows))
    return [
        ("logits", np.asarray(lm.logits(both))[:, -width:], first),
        ("with a cache", np.asarray(cached), first),
        ("told its last prediction", np.asarray(conditioned), second),
    ]


def main() -> None:
    print("| checkpoint | what | largest logit | largest difference |\n|---|---|---|---|")
    for name, c in (TRANSFORMERS | GEMMAS).items():
        wanted = sys.argv[1:] or ["sdar", "fast_dllm", "diffusion_gemma"]  # it has no LLaDA2
        if name.split(",")[0] not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), name)
            compared = (of_windows if name in GEMMAS else of_blocks)(c, sj.load(folder))
        for what, ours, theirs in compared:
            error = np.abs(ours - theirs).max()
            print(f"| {name} | {what} | {np.abs(theirs).max():.1f} | {error:.1e} |", flush=True)


if __name__ == "__main__":
    main()
