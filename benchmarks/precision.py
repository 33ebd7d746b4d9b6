"""What bfloat16 and int8 weights cost in accuracy, against float32, on a model's own terms.

Logits of a text under each dtype: root mean square error over the logits' own deviation, KL
divergence from float32 in nats a token, how often the likeliest token stays the same, and for
causal models the perplexity.

    python benchmarks/precision.py MODEL [MODEL ...] [--text LICENSE] [--columns 256]

Models without a tokenizer read random tokens.
"""

import argparse
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj

DTYPES = ("float32", "bfloat16", "int8")


@dataclasses.dataclass(frozen=True)
class Error:
    """How far one dtype is from float32."""

    rms: float
    kl: float
    agreement: float
    perplexity: float | None


def tokens_of(lm: sj.LanguageModel, text: str, columns: int) -> np.ndarray:
    """(1, L) the beginning of a text, or random tokens for a model without a tokenizer."""
    columns = min(columns, lm.config.network.context)
    try:
        ids = lm.tokenizer(text)["input_ids"][:columns]
    except ValueError:
        ids = np.random.default_rng(0).integers(0, lm.config.network.V, columns)
    return np.asarray(ids, np.int32)[None]


def errors(path: str, text: str, columns: int) -> dict[str, Error]:
    """All dtypes of one model."""
    found, exact = {}, None
    for dtype in DTYPES:
        lm = sj.load(path, dtype=dtype)
        tokens = tokens_of(lm, text, columns)
        sigma = [0.5] if lm.config.network.time_conditioning else None
        logits = lm.logits(tokens, sigma=sigma)
        exact = logits if exact is None else exact
        log_p, log_q = jax.nn.log_softmax(exact), jax.nn.log_softmax(logits)
        found[dtype] = Error(
            rms=float(jnp.sqrt(jnp.mean(jnp.square(logits - exact))) / jnp.std(exact)),
            kl=float(jnp.mean(jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1))),
            agreement=float(jnp.mean(jnp.argmax(logits, -1) == jnp.argmax(exact, -1))),
            perplexity=perplexity(lm, tokens) if lm.config.network.causal else None,
        )
    return found


def perplexity(lm: sj.LanguageModel, tokens: np.ndarray) -> float:
    """exp of the mean surprise of every token but the first."""
    return float(jnp.exp(-jnp.mean(lm.score(tokens)[:, 1:])))


def table(name: str, found: dict[str, Error]) -> list[str]:
    """One line per dtype."""
    shown = lambda value: "" if value is None else f"{value:.2f}"  # noqa: E731
    return [
        f"| {name} | {dtype} | {e.rms:.1e} | {e.kl:.1e} | {e.agreement:.3f} "
        f"| {shown(e.perplexity)} |"
        for dtype, e in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="folders, GGUF files or hub names")
    parser.add_argument("--text", type=Path, default=Path(__file__).parents[1] / "LICENSE")
    parser.add_argument("--columns", type=int, default=256)
    options = parser.parse_args()
    print("| model | weights | logit error | KL, nats | same top token | perplexity |")
    print("|---|---|---|---|---|---|")
    for path in options.models:
        found = errors(path, options.text.read_text(), options.columns)
        print("\n".join(table(Path(path).stem, found)), flush=True)


if __name__ == "__main__":
    main()
