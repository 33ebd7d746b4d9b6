"""Models by their shapes alone: a plan needs no weights."""

from pathlib import Path

from sake_jax.checks import require
from sake_jax.conversion import families
from sake_jax.conversion.checkpoint import read_config
from sake_jax.conversion.loader import built_in
from sake_jax.models.config import DiTConfig, ModelConfig, TransformerConfig

LLADA = TransformerConfig(
    V=126_464, D=4096, N=32, H=32, K=32, head_dim=128, F=12_288, context=4096, rope_theta=5e5
)
DREAM = TransformerConfig(
    V=152_064,
    D=3584,
    N=28,
    H=28,
    K=4,
    head_dim=128,
    F=18_944,
    context=131_072,
    eps=1e-6,
    rope_theta=1e6,
    qkv_bias=True,
    shifted=True,
)
MDLM = DiTConfig(V=50_258, D=768, N=12, H=12, F=3072, context=1024, cond_dim=128)
KNOWN = {
    "llada-8b": ModelConfig(family="llada", network=LLADA, mask_id=126_336, eos_id=126_081),
    "dream-7b": ModelConfig(
        family="dream", network=DREAM, mask_id=151_666, eos_id=151_643, positions="tokens"
    ),
    "mdlm-owt": ModelConfig(family="mdlm", network=MDLM, mask_id=50_257, eos_id=50_256),
}
"""Published models by name; the last part of a hub name finds them too."""
NICKNAMES = {
    "llada-8b-base": "llada-8b",
    "llada-8b-instruct": "llada-8b",
    "llada-1.5": "llada-8b",
    "dream-v0-base-7b": "dream-7b",
    "dream-v0-instruct-7b": "dream-7b",
}


def described(name: str) -> ModelConfig:
    """A model's config, by one of the names above or from a folder with a config.json."""
    short = name.rpartition("/")[2].lower()
    if NICKNAMES.get(short, short) in KNOWN:
        return KNOWN[NICKNAMES.get(short, short)]
    folder = built_in().get(name, Path(name).expanduser())
    rule = f"the model must be {', '.join(KNOWN)}, or a folder with a config.json"
    require(folder.is_dir(), rule, name, "check the name")
    found = read_config(folder)
    return families.recognise(found).config(found)
