"""Ten different valid JSON characters: what guidance does to diversity inside a form.

The built-in model writes characters of small stories as JSON, held to a JSON Schema. Without the
form, what it writes after the same prompt is never JSON. Means over seeds, of ten texts each, with
the standard deviation between seeds.

    python benchmarks/characters.py [--seeds 4] [--strength 2]
"""

import argparse
import json
import re
from typing import NamedTuple

import jax
import numpy as np

import sake_jax as sj
from sake_jax.metrics import distinct

VALUES = {
    "name": "tim lily ben sue tom mia max anna jack lucy sam amy ella leo bob sara",
    "kind": "girl boy dog cat bird bear bunny frog fish mouse duck fox bee pig lion owl",
    "mood": "happy sad brave kind shy funny angry scared proud tired gentle silly wise lonely",
    "likes": "cake books music trees flowers toys balls rain snow stories apples boats games",
}
SCHEMA = {
    "type": "object",
    "properties": {name: {"enum": words.split()} for name, words in VALUES.items()}
    | {"age": {"type": "integer", "minimum": 1, "maximum": 12}},
    "required": [*VALUES, "age"],
}
PROMPT = "once upon a time, there was a little one who had a friend."
LENGTH, SAMPLES = 64, 10


class Measured(NamedTuple):
    """Of one seed's texts."""

    valid: float
    """The share that is JSON of the schema."""
    pairs: float
    """Distinct-2 of the values' words, of a text that is no character of all words."""
    names: int
    """Different names among the valid ones."""
    characters: int
    """Different characters among them: any value differs."""
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
    sampler = sj.masked(lm, guidance=guidance, draw=sj.temperature(0.5), **shape)
    out = sj.generate(lm, sampler, [PROMPT], samples=SAMPLES, key=jax.random.key(seed))
    found = [read_character(text, expression) for text in out.texts[0]]
    words = [words_of(*both) for both in zip(out.texts[0], found, strict=True)]
    valid = [character for character in found if character]
    names = len({character["name"] for character in valid})
    each = len({json.dumps(character) for character in valid})
    return Measured(len(valid) / SAMPLES, distinct(words), names, each, out.texts[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--strength", type=float, default=2.0)
    options = parser.parse_args()
    lm = sj.load("tinystories")
    form = sj.matches(SCHEMA, lm.tokenizer)
    print(f"| of {SAMPLES} texts | valid | distinct-2 of the values | names | characters |")
    print("|---|---|---|---|---|")
    for name, guidance in guidances(form, options.strength).items():
        runs = [measure(lm, guidance, form.expression, seed) for seed in range(options.seeds)]
        valid, pairs, names, each = (np.array([run[at] for run in runs]) for at in range(4))
        cells = [name, f"{valid.mean():.0%}", f"{pairs.mean():.3f} ± {pairs.std():.3f}"]
        cells += [f"{n.mean():.1f} ± {n.std():.1f}" if valid.any() else "" for n in (names, each)]
        print(f"| {' | '.join(cells)} |", flush=True)
    print("\nThree of the last row:\n")
    print("\n".join(["```text", *runs[0].texts[:3], "```"]))


if __name__ == "__main__":
    main()
