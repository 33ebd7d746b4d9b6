"""Different valid JSON characters: what guidance does to diversity inside a form.

The built-in model writes characters of small stories as JSON, held to a JSON Schema. "Free" is
without the form: what the same model writes after the same prompt is never JSON.

    python benchmarks/characters.py [--samples 64] [--seeds 3]
"""

import argparse
import json

import jax
import numpy as np

import sake_jax as sj
from sake_jax.metrics import distinct

WORDS = "^[a-z]{2,9}(?: [a-z]{2,9}){0,2}$"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{2,9}$"},
        "age": {"type": "integer", "minimum": 1, "maximum": 12},
        "likes": {"type": "string", "pattern": WORDS},
        "pet": {"type": "string", "pattern": "^[a-z]{3,9}$"},
    },
    "required": ["name", "age", "likes", "pet"],
}
PROMPT = "there was a little child. the child had a name, and liked to play."
LENGTH, STEPS = 48, 48


def guidances(form: sj.Guidance, strength: float) -> dict[str, sj.Guidance]:
    """The rows of the table."""
    return {
        "free": sj.identity(),
        "the form": form,
        "the form + sake": sj.chain(sj.sake(strength), form),
        "the form + spread": sj.chain(sj.sake(strength, scope="batch", self_term=0.0), form),
    }


def is_character(text: str) -> bool:
    """Whether a text is JSON that the schema describes, by Python's own reader."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and list(found) == list(SCHEMA["properties"])


def values(text: str) -> list[str]:
    """The words that a character's form leaves free; of a text that is none, all words."""
    if not is_character(text):
        return text.split()
    return [word for value in json.loads(text).values() for word in str(value).split()]


def measure(lm: sj.LanguageModel, guidance: sj.Guidance, samples: int, seed: int) -> tuple:
    """(valid share, distinct-2 of the values, different names) of one seed's texts."""
    draw = sj.temperature(0.7)
    sampler = sj.masked(lm, length=LENGTH, steps=STEPS, block=LENGTH, guidance=guidance, draw=draw)
    key = jax.random.key(seed)
    out = sj.generate(lm, sampler, [PROMPT], samples=samples, batch=samples, key=key)
    texts = out.texts[0]
    names = {json.loads(text)["name"] for text in texts if is_character(text)}
    valid = sum(map(is_character, texts)) / samples
    return valid, distinct([values(text) for text in texts]), len(names) / samples, texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strength", type=float, default=2.0)
    options = parser.parse_args()
    lm = sj.load("tinystories")
    form = sj.matches(SCHEMA, lm.tokenizer)
    print("| guidance | valid | distinct-2 of the values | different names |")
    print("|---|---|---|---|")
    shown = {}
    for name, guidance in guidances(form, options.strength).items():
        runs = [measure(lm, guidance, options.samples, seed) for seed in range(options.seeds)]
        valid, pairs, names = (np.array([run[at] for run in runs]) for at in range(3))
        print(f"| {name} | {valid.mean():.0%} | {pairs.mean():.3f} ± {pairs.std():.3f}", end=" ")
        print(f"| {names.mean():.0%} |" if valid.any() else "| |", flush=True)
        shown[name] = runs[0][-1][:3]
    for name, texts in shown.items():
        print(f"\n{name}:\n")
        print("\n".join(f"    {text!r}" for text in texts))


if __name__ == "__main__":
    main()
