"""How good the built-in model is: its bound and its samples, against a 5-gram of the same tokens.

First the bound on held-out text in nats per token and bits per byte, on windows as long as the
model's context. The 5-gram (`kneser_ney.py`) learns from the same training tokens and is scored on
the same windows, with all that stands before them, which the model does not see. Errors are
standard errors over windows; those of the bound hold the noise's too.

Then samples: their perplexity under a judge, with 95 % intervals from a bootstrap over texts, and
how much they repeat themselves and each other, beside held-out stories and samples of the 5-gram.
At last collapse: what is left of held-out text's diversity at a low temperature.

    python benchmarks/tinystories.py --train FILE --validation FILE [--judge none]

Documents of both files are separated by <|endoftext|>; text is turned to lower case. The result
is printed, and written to benchmarks/results/tinystories.md.
"""

import argparse
import dataclasses
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import kneser_ney
import numpy as np
from interleaved import progress
from tokenizers import Tokenizer

import sake_jax as sj
from sake_jax import evaluate
from sake_jax.checks import require
from sake_jax.training import corpus
from sake_jax.training.recipe import Data

PROMPT = "once upon a time"
LENGTH, BLOCK = 64, 32
"""Tokens of a sample, one for each step, and of a block."""
HOT, WARM, COLD = 1.0, 0.7, 0.2
"""Temperatures of the draw; the last one is to collapse."""
HALF = 0.5
"""The share of held-out text's distinct-2 that collapsed samples have at most."""
ORDER = 5
BOOTSTRAP = 2000


@dataclasses.dataclass(frozen=True)
class Bench:
    """What is measured, on what."""

    lm: sj.LanguageModel
    tokenizer: Tokenizer
    text: corpus.Corpus
    ngram: kneser_ney.KneserNey
    prompt: list[int]
    samples: int
    seed: int

    @property
    def end_id(self) -> int:
        return self.ngram.end_id


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts and what each of them goes on from, as token ids."""

    before: list[list[int]]
    after: list[list[int]]


def prepare(options: argparse.Namespace) -> Bench:
    """Loads the model, cuts both files into its tokens, and counts n-grams."""
    lm = sj.load(options.model)
    # Without what a tokenizer may put before or after each text.
    tokenizer = Tokenizer.from_str(lm.tokenizer.backend_tokenizer.to_str())
    tokenizer.post_processor = None
    data = Data(str(options.train), str(options.validation), lower=True)
    text = corpus.load(dataclasses.replace(data, length=lm.config.network.context), tokenizer)
    progress(f"{len(text.train):,} training tokens, {len(text.validation):,} held out")
    end_id = tokenizer.token_to_id(data.separator)
    ngram = kneser_ney.fit(text.train, lm.config.network.V, end_id, ORDER)
    prompt = tokenizer.encode(PROMPT).ids
    return Bench(lm, tokenizer, text, ngram, prompt, options.samples, options.seed)


def windows_of(stream: np.ndarray, length: int, count: int) -> np.ndarray:
    """(count, length) places of windows that are spread over a stream and do not overlap."""
    there = len(stream) // length
    first = np.linspace(0, there - 1, min(count, there)).round().astype(int) * length
    return first[:, None] + np.arange(length)[None]


def measure_bounds(bench: Bench, count: int, draws: int) -> dict[str, np.ndarray]:
    """(windows,) nats per token of each."""
    held, lm = bench.text.validation, bench.lm
    places = windows_of(held, lm.config.network.context, count)
    unigram = kneser_ney.fit(bench.text.train, bench.ngram.vocabulary, bench.end_id, 1)
    progress(f"bound on {len(places)} windows, {draws} draws of noise for each")
    key = jax.random.key(bench.seed)
    return {
        "the model, bound": sj.bound(lm, held[places], key=key, draws=draws).value,
        f"{ORDER}-gram, Kneser-Ney": -bench.ngram.log_p(held)[places].mean(axis=1),
        "unigram": -unigram.log_p(held)[places].mean(axis=1),
    }


def bound_table(nats: dict[str, np.ndarray], bytes_per_token: float) -> list[str]:
    """One line for each, and one for what the model gains on the 5-gram, window by window."""
    model, ngram, *_ = nats
    gain = {f"{model}, less the {ngram}": nats[model] - nats[ngram]}
    body = [["", "nats per token", "bits per byte"]]
    for name, each in (nats | gain).items():
        mean, error = each.mean(), each.std(ddof=1) / np.sqrt(len(each))
        bits = 1 / np.log(2) / bytes_per_token
        shown = [f"{mean:.3f} ± {error:.3f}", f"{mean * bits:.3f} ± {error * bits:.3f}"]
        body.append([name, *shown])
    return table(body)


def drawn(bench: Bench, temperature: float, guidance: sj.Guidance | None = None) -> Texts:
    """The model's samples."""
    progress(f"drawing {bench.samples} samples, {names(temperature, guidance)}")
    sampler = sj.masked(
        bench.lm,
        length=LENGTH,
        steps=LENGTH,
        block=BLOCK,
        guidance=guidance,
        draw=sj.temperature(temperature),
    )
    key = jax.random.key(bench.seed)
    out = sj.generate(bench.lm, sampler, [bench.prompt], samples=bench.samples, key=key)
    after = [np.asarray(row.tokens)[row.written].tolist() for row in out.rows]
    return Texts([bench.prompt] * len(after), after)


def names(temperature: float, guidance: sj.Guidance | None = None) -> str:
    return f"the model, T = {temperature}" + (", SAKE" if guidance is not None else "")


def ngram_texts(bench: Bench) -> Texts:
    """The 5-gram's samples, after the same prompt at the beginning of a story."""
    random, context = np.random.default_rng(bench.seed), [bench.end_id, *bench.prompt]
    after = [bench.ngram.sample(context, LENGTH, random) for _ in range(bench.samples)]
    return Texts([bench.prompt] * len(after), after)


def held_out_texts(bench: Bench) -> Texts:
    """Held-out stories after as many tokens as the prompt has; those that begin like it first."""
    size, stream = len(bench.prompt), bench.text.validation
    ends = np.flatnonzero(stream == bench.end_id)
    stories = [part[part != bench.end_id].tolist() for part in np.split(stream, ends + 1)]
    stories = [story for story in stories if len(story) >= size + LENGTH]
    rule = f"the validation text must have {bench.samples} stories of {size + LENGTH} tokens"
    require(len(stories) >= bench.samples, rule, len(stories), "lower --samples")
    stories = sorted(stories, key=lambda story: story[:size] != bench.prompt)[: bench.samples]
    same = sum(story[:size] == bench.prompt for story in stories)
    progress(f"{same} of {len(stories)} held-out stories begin with the prompt")
    before = [story[:size] for story in stories]
    return Texts(before, [story[size : size + LENGTH] for story in stories])


def diversity(bench: Bench, texts: Texts) -> dict[str, float]:
    """How much texts repeat themselves and each other, by words; and their mean length."""
    found = [evaluate.words(text) for text in decoded(bench, texts.after)]
    return {
        "distinct-2": evaluate.distinct(found),
        "distinct-2 within": evaluate.distinct_within(found),
        "entropy": evaluate.entropy(found),
        "tokens": float(np.mean([len(ids) for ids in texts.after])),
    }


def decoded(bench: Bench, many: Iterable[Sequence[int]]) -> list[str]:
    return [bench.tokenizer.decode(list(ids)) for ids in many]


def bootstrap(found: evaluate.Perplexity) -> tuple[float, float]:
    """The ends of the 95 % interval of a perplexity, over texts."""
    size = len(found.nats)
    some = np.random.default_rng(0).integers(0, size, (BOOTSTRAP, size))
    means = found.nats[some].sum(axis=1) / np.maximum(found.tokens[some].sum(axis=1), 1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return float(low), float(high)


def judged(bench: Bench, judge: sj.LanguageModel, name: str, texts: Texts) -> list[str]:
    """A line of the table."""
    progress(f"judging {name}")
    parts = decoded(bench, texts.after), decoded(bench, texts.before)
    found = evaluate.perplexity(judge, *parts)
    low, high = bootstrap(found)
    return [name, f"{found.value:.1f} ({low:.1f} to {high:.1f})", *numbers(diversity(bench, texts))]


def numbers(found: dict[str, float]) -> list[str]:
    return [f"{value:.1f}" if name == "tokens" else f"{value:.3f}" for name, value in found.items()]


def judge_table(bench: Bench, judge: sj.LanguageModel, held: Texts) -> list[str]:
    """Perplexity and diversity of samples and of held-out text."""
    sides = {names(temperature): drawn(bench, temperature) for temperature in (HOT, WARM)}
    sides |= {"held-out stories": held, f"{ORDER}-gram, Kneser-Ney": ngram_texts(bench)}
    lines = [judged(bench, judge, name, texts) for name, texts in sides.items()]
    return table([["", "perplexity", *diversity(bench, held)], *lines])


def collapse_table(bench: Bench, held: Texts) -> list[str]:
    """Diversity at the low temperature, without and with guidance, and its share of held-out."""
    sides = {"held-out stories": held}
    for guidance in (None, sj.sake(1.0)):
        sides[names(COLD, guidance)] = drawn(bench, COLD, guidance)
    found = {name: diversity(bench, texts) for name, texts in sides.items()}
    whole = diversity(bench, held)["distinct-2"]
    lines = [
        [name, *numbers(each), f"{each['distinct-2'] / whole:.2f}"] for name, each in found.items()
    ]
    share = found[names(COLD)]["distinct-2"] / whole
    verdict = f"collapsed: at most {HALF}" if share <= HALF else f"not collapsed: above {HALF}"
    head = ["", *diversity(bench, held), "distinct-2 of held-out"]
    return [*table([head, *lines]), f"Unguided at T = {COLD}: {verdict}.", ""]


def table(lines: Sequence[Sequence[str]]) -> list[str]:
    first, *others = ("| " + " | ".join(line) + " |" for line in lines)
    return [first, "|" + "---|" * len(lines[0]), *others, ""]


def command(arguments: Sequence[str]) -> str:
    """What was typed, but for the folders of files: nobody else has them."""
    bare = [re.sub(r"[^=]*/", "", argument) for argument in arguments]
    return shlex.join(["python", "benchmarks/tinystories.py", *bare])


def report(bench: Bench, options: argparse.Namespace, typed: Sequence[str]) -> list[str]:
    """All tables as Markdown."""
    text, context = bench.text, bench.lm.config.network.context
    nats = measure_bounds(bench, options.windows, options.draws)
    count, held = len(nats["unigram"]), held_out_texts(bench)
    lines = ["# The model `tinystories`", "", f"`{command(typed)}`", ""]
    lines += [f"Held-out text: {count} windows of {context} tokens, of {len(text.validation):,}; "]
    lines[-1] += f"{text.bytes_per_token:.3f} bytes per token; {options.draws} draws of noise."
    lines += [f"The {ORDER}-gram has seen all {len(text.train):,} training tokens, and sees what "]
    lines[-1] += "stands before a window."
    lines += ["", "### Held-out text", "", *bound_table(nats, text.bytes_per_token)]
    lines += [f"{bench.samples} texts of at most {LENGTH} tokens after “{PROMPT}”, in blocks of "]
    lines[-1] += f"{BLOCK}, one token a step; words for distinct-2 and entropy (nats)."
    if options.judge != "none":
        judge = evaluate.load_judge(options.judge)
        title = f"### Samples, perplexity under {Path(options.judge).name}"
        lines += ["", title, "", *judge_table(bench, judge, held)]
    lines += ["", "### Collapse", "", *collapse_table(bench, held)]
    return lines


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--train", type=Path, required=True, help="the text that the model was trained on")
    add("--validation", type=Path, required=True, help="text that it was not")
    add("--model", default="tinystories", help="a name, or a folder")
    add("--windows", type=int, default=512, help="of held-out text, for the bound")
    add("--draws", type=int, default=16, help="of noise for each window")
    add("--samples", type=int, default=64, help="texts of each kind")
    add("--judge", default="smollm2", help="a causal model: a name or a folder; none leaves it out")
    add("--seed", type=int, default=0)
    results = Path(__file__).parent / "results" / "tinystories.md"
    add("--out", type=Path, default=results, help="where the result is written")
    return parser.parse_args(arguments)


def main() -> None:
    typed = sys.argv[1:]
    options = read_options(typed)
    text = "\n".join(report(prepare(options), options, typed)).rstrip() + "\n"
    print(text)
    options.out.write_text(text)


if __name__ == "__main__":
    main()
