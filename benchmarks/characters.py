"""Ten different valid JSON characters: what guidance does to diversity inside a form.

The built-in model writes children of small stories as JSON, held to a JSON Schema. Without the
form, what it writes after the same prompt is never JSON. Means over seeds, of ten texts each, with
the standard deviation between seeds.

    python benchmarks/characters.py [--seeds 8] [--strength 2]
"""

import argparse
import json
import re
from typing import NamedTuple

import jax
import numpy as np

import sake_jax as sj
from sake_jax.metrics import distinct

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,9}$"},
        "age": {"type": "integer", "minimum": 1, "maximum": 12},
        "likes": {"type": "string", "pattern": "^[a-z]{2,9}(?: [a-z]{2,9}){0,2}$"},
        "pet": {"type": "string", "pattern": "^[a-z]{3,9}$"},
    },
    "required": ["name", "age", "likes", "pet"],
}
PROMPT = "there was a little child. the child had a name, and liked to play."
LENGTH, SAMPLES = 48, 10


class Measured(NamedTuple):
    """Of one seed's texts."""

    valid: float
    """The share that is JSON of the schema."""
    pairs: float
    """Distinct-2 of the values' words, of a text that is no character of all words."""
    names: int
    """Different names among the valid ones."""
    texts: list[str]


def guidances(form: sj.Guidance, strength: float) -> dict[str, sj.Guidance]:
    """The rows of the table."""
    return {
        "no form": sj.identity(),
        "the form": form,
        "SAKE + the form": sj.chain(sj.sake(strength), form),
        "spread + the form": sj.chain(sj.sake(strength, scope="batch", self_term=0.0), form),
    }


def read_character(text: str, expression: str) -> dict | None:
    """The character that a text is, by Python's own readers of JSON and expressions."""
    return json.loads(text) if re.fullmatch(expression, text) else None


def words_of(text: str, character: dict | None) -> list[str]:
    values = [text] if character is None else map(str, character.values())
    return [word for value in values for word in value.split()]


def measure(
    lm: sj.LanguageModel, guidance: sj.Guidance, expression: str, seed: int, steps: int = LENGTH
) -> Measured:
    shape = {"length": LENGTH, "steps": steps, "block": LENGTH}
    sampler = sj.masked(lm, guidance=guidance, draw=sj.temperature(0.7), **shape)
    out = sj.generate(lm, sampler, [PROMPT], samples=SAMPLES, key=jax.random.key(seed))
    found = [read_character(text, expression) for text in out.texts[0]]
    words = [words_of(*both) for both in zip(out.texts[0], found, strict=True)]
    valid = [character for character in found if character]
    names = len({character["name"] for character in valid})
    return Measured(len(valid) / SAMPLES, distinct(words), names, out.texts[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--strength", type=float, default=2.0)
    options = parser.parse_args()
    lm = sj.load("tinystories")
    form = sj.matches(SCHEMA, lm.tokenizer)
    print(f"| of {SAMPLES} texts | valid | distinct-2 of the values | different names |")
    print("|---|---|---|---|")
    for name, guidance in guidances(form, options.strength).items():
        runs = [measure(lm, guidance, form.expression, seed) for seed in range(options.seeds)]
        pairs, names = (np.array([run[at] for run in runs]) for at in (1, 2))
        shown = f"{names.mean():.1f} ± {names.std():.1f}" if names.any() else ""
        valid = np.mean([run.valid for run in runs])
        print(f"| {name} | {valid:.0%} | {pairs.mean():.3f} ± {pairs.std():.3f} | {shown} |")
    print("\nThree of the last row:\n")
    print("\n".join(["```text", *runs[0].texts[:3], "```"]))


if __name__ == "__main__":
    main()
