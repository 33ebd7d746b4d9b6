"""How good the built-in model is: its bound and its samples, against a 5-gram of the same tokens.

First the bound on held-out text in nats per token and bits per byte, on windows as long as the
model's context, or as `--window` says. The 5-gram (`kneser_ney.py`) learns from the same training
tokens and is scored on the same windows, with all that stands before them, which the model does not
see. Errors are standard errors over windows; those of the bound hold the noise's too.

Then samples: their perplexity under a judge, with 95 % intervals from a bootstrap over texts, and
how much they repeat themselves and each other, beside held-out stories and samples of the 5-gram.
At last collapse: what is left of held-out text's diversity at a low temperature.

    python benchmarks/tinystories.py --train FILE --validation FILE [--judge none]

Documents of both files are separated by <|endoftext|>; text is turned to lower case, unless the
model is `--cased`. The result is printed, and written to benchmarks/results/tinystories.md.
"""

import argparse
import dataclasses
import functools
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import kneser_ney
import numpy as np
from tokenizers import Tokenizer

import sake_jax as sj
from sake_jax import metrics
from sake_jax.checks import require
from sake_jax.files import write_atomically
from sake_jax.planning.bench.interleaved import report_progress
from sake_jax.training import TextData, Training, corpus

PROMPT = "once upon a time"
LENGTH, BLOCK = 64, 32
"""Tokens of a sample, one for each step, and of a block."""
HOT, WARM, COLD = 1.0, 0.7, 0.2
"""Temperatures of the draw; the last one is to collapse."""
HALF = 0.5
"""The share of held-out text's distinct-2 that collapsed samples have at most."""
ORDER, BOOTSTRAP = 5, 2000
NGRAM, STORIES = f"{ORDER}-gram, Kneser-Ney", "held-out stories"
GUIDANCES = {
    "sake(1)": sj.sake(1.0),
    "sake(1, scope='batch', self_term=0)": sj.sake(1.0, scope="batch", self_term=0.0),
}
RESULTS = Path(__file__).parent / "results" / "tinystories.md"


@dataclasses.dataclass(frozen=True)
class Bench:
    """What is measured, on what."""

    lm: sj.LanguageModel
    judge: sj.LanguageModel | None
    tokenizer: Tokenizer
    text: corpus.TextExamples
    ngram: kneser_ney.KneserNey
    beginning: str
    options: argparse.Namespace

    @functools.cached_property
    def prompt(self) -> list[int]:
        """The beginning of all samples."""
        return self.tokenizer.encode(self.beginning).ids

    @property
    def end_id(self) -> int:
        return self.ngram.end_id


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts and what each of them goes on from, as token ids."""

    before: list[list[int]]
    after: list[list[int]]


def prepare(options: argparse.Namespace) -> Bench:
    """Loads model and judge, cuts both files into the model's tokens, and counts n-grams."""
    lm = sj.load(options.model)
    judge = None if options.judge == "none" else metrics.load_judge(options.judge)
    # Without what a tokenizer may put before or after each text.
    tokenizer = Tokenizer.from_str(lm.tokenizer.backend_tokenizer.to_str())
    tokenizer.post_processor = None
    length, lower = options.window or lm.config.network.context, not options.cased
    data = TextData(str(options.train), str(options.validation), lower=lower, length=length)
    end_id = tokenizer.token_to_id(data.separator)
    if end_id is None:
        raise SystemExit(f"{options.model} must have a token {data.separator}")
    text = corpus.TextExamples(data, Training(), tokenizer)
    report_progress(f"{len(text.stream):,} training tokens, {len(text.validation):,} held out")
    ngram = kneser_ney.fit(np.asarray(text.stream), lm.config.network.V, end_id, ORDER)
    prompt = PROMPT.capitalize() if options.cased else PROMPT
    return Bench(lm, judge, tokenizer, text, ngram, prompt, options)


def windows_of(stream: np.ndarray, length: int, count: int) -> np.ndarray:
    """(count, length) places of windows that are spread over a stream and do not overlap."""
    there = len(stream) // length
    first = np.linspace(0, there - 1, min(count, there)).round().astype(int) * length
    return first[:, None] + np.arange(length)[None]


def measure_bounds(bench: Bench) -> dict[str, np.ndarray]:
    """(windows,) nats per token of each."""
    held, lm, draws = bench.text.validation, bench.lm, bench.options.draws
    places = windows_of(held, bench.text.length, bench.options.windows)
    unigram = kneser_ney.fit(np.asarray(bench.text.stream), bench.ngram.vocabulary, bench.end_id, 1)
    report_progress(f"bound on {len(places)} windows, {draws} draws of noise for each")
    key = jax.random.key(bench.options.seed)
    return {
        "model, bound": sj.bound(lm, held[places], key=key, draws=draws).value,
        NGRAM: -bench.ngram.log_p(held)[places].mean(axis=1),
        "unigram": -unigram.log_p(held)[places].mean(axis=1),
    }


def bound_section(bench: Bench) -> list[str]:
    """The bound beside the n-grams, and what it gains on the 5-gram, window by window."""
    text, nats = bench.text, measure_bounds(bench)
    bits = 1 / np.log(2) / text.bytes_per_token
    body = [["", "nats per token", "bits per byte"]]
    for name, each in (nats | {"model less 5-gram": nats["model, bound"] - nats[NGRAM]}).items():
        mean, error = each.mean(), each.std(ddof=1) / np.sqrt(len(each))
        shown = (f"{mean * unit:.3f} ± {error * unit:.3f}" for unit in (1, bits))
        body.append([name, *shown])
    about = (
        f"{len(nats[NGRAM])} windows of {bench.text.length} tokens, of "
        f"{len(text.validation):,} held-out tokens of {text.bytes_per_token:.3f} bytes; "
        f"{bench.options.draws} draws of noise a window. The n-grams have seen the same "
        f"{len(text.stream):,} training tokens, and see what stands before a window."
    )
    return ["### Held-out text", "", about, "", *table(body)]


def drawn(bench: Bench, temperature: float, guidance: sj.Guidance | None = None) -> Texts:
    """The model's samples."""
    options = bench.options
    report_progress(f"drawing {options.samples} samples, T = {temperature}")
    sampler = sj.masked(
        bench.lm,
        length=LENGTH,
        steps=LENGTH,
        block=BLOCK,
        guidance=guidance,
        draw=sj.temperature(temperature),
    )
    key = jax.random.key(options.seed)
    prompt = [bench.end_id, *bench.prompt]  # the beginning of a story
    count = options.samples
    out = sj.generate(bench.lm, sampler, [prompt], samples=count, batch=count, key=key)
    after = [np.asarray(row.tokens)[row.written].tolist() for row in out.rows]
    return Texts([bench.prompt] * len(after), after)


def ngram_texts(bench: Bench) -> Texts:
    """The 5-gram's samples, after the same prompt at the beginning of a story."""
    random = np.random.default_rng(bench.options.seed)
    context = [bench.end_id, *bench.prompt]
    after = [bench.ngram.sample(context, LENGTH, random) for _ in range(bench.options.samples)]
    return Texts([bench.prompt] * len(after), after)


def held_out_texts(bench: Bench) -> Texts:
    """Held-out stories after as many tokens as the prompt has; those that begin like it first."""
    size, count, stream = len(bench.prompt), bench.options.samples, bench.text.validation
    ends = np.flatnonzero(stream == bench.end_id)
    stories = [part[:-1].tolist() for part in np.split(stream, ends + 1)]
    stories = [story for story in stories if len(story) >= size + LENGTH]
    rule = f"the validation text must have {count} stories of {size + LENGTH} tokens"
    require(len(stories) >= count, rule, len(stories), "lower --samples")
    stories = sorted(stories, key=lambda story: story[:size] != bench.prompt)[:count]
    same = sum(story[:size] == bench.prompt for story in stories)
    report_progress(f"{same} of {count} held-out stories begin with the prompt")
    before = [story[:size] for story in stories]
    return Texts(before, [story[size : size + LENGTH] for story in stories])


def decoded(bench: Bench, many: list[list[int]]) -> list[str]:
    return [bench.tokenizer.decode(ids) for ids in many]


def diversity(bench: Bench, texts: Texts) -> dict[str, float]:
    """How much texts repeat themselves and each other, by words; and their mean length."""
    found = [metrics.words(text) for text in decoded(bench, texts.after)]
    return {
        "distinct-2": metrics.distinct(found),
        "distinct-2 within": metrics.distinct_within(found),
        "entropy": metrics.sample_entropy(found),
        "tokens": float(np.mean([len(ids) for ids in texts.after])),
    }


def bootstrap(found: metrics.Perplexity) -> tuple[float, float]:
    """The ends of the 95 % interval of a perplexity, over texts."""
    size = len(found.nats)
    some = np.random.default_rng(0).integers(0, size, (BOOTSTRAP, size))
    means = found.nats[some].sum(axis=1) / np.maximum(found.tokens[some].sum(axis=1), 1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return float(low), float(high)


def judged(bench: Bench, judge: sj.LanguageModel, texts: Texts) -> str:
    """The perplexity of texts after their beginnings, and its interval."""
    found = metrics.perplexity(judge, decoded(bench, texts.after), decoded(bench, texts.before))
    low, high = bootstrap(found)
    return f"{found.value:.1f} ({low:.1f} to {high:.1f})"


def judge_section(bench: Bench, judge: sj.LanguageModel, held: Texts) -> list[str]:
    """Perplexity and diversity of samples and of held-out stories."""
    sides = {f"model, T = {heat}": drawn(bench, heat) for heat in (HOT, WARM)}
    sides |= {STORIES: held, NGRAM: ngram_texts(bench)}
    body = [["", "perplexity", *diversity(bench, held)]]
    for name, texts in sides.items():
        report_progress(f"judging {name}")
        body.append([name, judged(bench, judge, texts), *numbers(diversity(bench, texts))])
    title = f"### Samples, perplexity under {Path(bench.options.judge).name}"
    return [title, "", *about_samples(bench), *table(body)]


def collapse_section(bench: Bench, held: Texts) -> list[str]:
    """Diversity at the low temperature, and its ratio to that of held-out stories."""
    cold = f"model, T = {COLD}"
    sides = {STORIES: held, cold: drawn(bench, COLD)}
    sides |= {f"{cold}, `{name}`": drawn(bench, COLD, each) for name, each in GUIDANCES.items()}
    found = {name: diversity(bench, texts) for name, texts in sides.items()}
    ratio = {
        name: each["distinct-2"] / found[STORIES]["distinct-2"] for name, each in found.items()
    }
    body = [["", *found[cold], "distinct-2 against held-out"]]
    body += [[name, *numbers(each), f"{ratio[name]:.2f}"] for name, each in found.items()]
    verdict = "collapse" if ratio[cold] <= HALF else "no collapse"
    goal = f"Unguided, T = {COLD}: {verdict} (a ratio of at most {HALF} is one)."
    return ["### Collapse", "", *about_samples(bench), *table(body), goal, ""]


def about_samples(bench: Bench) -> list[str]:
    return [
        f"{bench.options.samples} texts of at most {LENGTH} tokens after “{bench.beginning}”, in "
        f"blocks of {BLOCK}, one token a step. Diversity is of words, entropy in nats.",
        "",
    ]


def numbers(found: dict[str, float]) -> list[str]:
    return [f"{value:.1f}" if name == "tokens" else f"{value:.3f}" for name, value in found.items()]


def table(lines: Sequence[Sequence[str]]) -> list[str]:
    first, *others = ("| " + " | ".join(line) + " |" for line in lines)
    return [first, "|" + "---|" * len(lines[0]), *others, ""]


def command(arguments: Sequence[str]) -> str:
    """What was typed, but for the folders of files: nobody else has them."""
    bare = [re.sub(r"[^=]*/", "", argument) for argument in arguments]
    return shlex.join(["python", "benchmarks/tinystories.py", *bare])


def report(bench: Bench, typed: Sequence[str]) -> str:
    """All tables as Markdown."""
    name, held = Path(bench.options.model).name, held_out_texts(bench)
    lines = [f"# The model `{name}`", "", f"`{command(typed)}`", "", *bound_section(bench)]
    if bench.judge is not None:
        lines += judge_section(bench, bench.judge, held)
    return "\n".join([*lines, *collapse_section(bench, held)])


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, about in (("train", "what the model was trained on"), ("validation", "what not")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"a text file: {about}")
    parser.add_argument("--model", default="tinystories", help="a name, or a folder")
    parser.add_argument("--windows", type=int, default=512, help="of held-out text, for the bound")
    parser.add_argument("--window", type=int, help="tokens of one; the model's context by default")
    parser.add_argument("--cased", action="store_true", help="the model knows capital letters")
    parser.add_argument("--draws", type=int, default=16, help="of noise, for each window")
    parser.add_argument("--samples", type=int, default=64, help="texts of each kind")
    parser.add_argument("--judge", default="smollm2", help="a causal model, or none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the result is written")
    return parser.parse_args(arguments)


def main() -> None:
    typed = sys.argv[1:]
    options = read_options(typed)
    found = report(prepare(options), typed)
    print(found)
    write_atomically(options.out, found)


if __name__ == "__main__":
    main()
