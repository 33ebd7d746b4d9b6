"""Lists of five: a judge's perplexity against diversity across the items of a list.

A diffusion model fills the five slots of one canvas together, so that a guidance can keep them
apart while they are written. Instruct models answer a plain prompt instead.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import sake_jax as sj
from sake_jax.checks import require
from sake_jax.experiments import texts
from sake_jax.experiments.models import Model
from sake_jax.experiments.study import Study
from sake_jax.experiments.texts import Sample
from sake_jax.experiments.texts_report import report
from sake_jax.generation import chat_prompts, has_chat_template

GAP = "[gap]"
"""Where a frame has a slot."""
FRAMES = (
    "the dog found five things in the garden. 1. he found [gap]. 2. he found [gap]. "
    "3. he found [gap]. 4. he found [gap]. 5. he found [gap].",
    "lily had five wishes. first, she wished for [gap]. second, she wished for [gap]. "
    "third, she wished for [gap]. fourth, she wished for [gap]. fifth, she wished for [gap].",
    "tim and his mom made a list of five games. 1. they can [gap]. 2. they can [gap]. "
    "3. they can [gap]. 4. they can [gap]. 5. they can [gap].",
    "there were five animals in the forest. first, there was [gap]. second, there was [gap]. "
    "third, there was [gap]. fourth, there was [gap]. fifth, there was [gap].",
)
QUESTIONS = (
    "Name five things that a dog could find in a garden. Answer with a numbered list.",
    "Name five wishes of a child. Answer with a numbered list.",
    "Name five unusual uses of a brick. Answer with a numbered list.",
    "Name five games to play on a rainy day. Answer with a numbered list.",
)
ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s*", re.MULTILINE)
"""What an item of an answer begins with."""
SLOTS = {
    "inside": "distinct-2 across slots of a canvas",
    "across": "distinct-2 across canvases of a frame",
    "meaning inside": "semantic diversity across slots",
    "meaning": "semantic diversity across canvases",
}
ANSWERS = {
    "inside": "distinct-2 inside an answer",
    "across": "distinct-2 across answers to a question",
    "meaning inside": "semantic diversity across items",
    "meaning": "semantic diversity across answers",
}


def brainstorm(
    folder: str | Path,
    *,
    quick: bool = False,
    seeds: int = 5,
    progress: bool = True,
    model: Model = "tinystories",
    judge: str | Path = "auto",
    prompts: str | Path | None = None,
    samples: int | None = None,
    gap: int | None = None,
    plain: bool | None = None,
    length: int | None = None,
) -> Study:
    """Lists of five, and what a judge says of them; writes table.md and figures.

    Args:
      folder: for results.jsonl and the report; a stopped run goes on there.
      quick: fewer prompts, samples, tokens, settings and seeds, to see it work.
      seeds: runs of each setting.
      progress: whether to show a bar.
      model: who writes: a name, a folder, or a model.
      judge: a causal model; "auto" is the built-in model's twin, or else SmolLM2.
      prompts: a file with one frame on each line, its slots written [gap]; or one question.
      samples: of each, 8 by default.
      gap: tokens of a slot, 10 by default.
      plain: questions in place of frames; by default where the model has a chat template.
      length: tokens of an answer, one for each step, 128 by default.
    """
    bench = texts.prepare(model, judge)
    plain = has_chat_template(bench.lm) if plain is None else plain
    given = texts.lines_of(prompts, QUESTIONS if plain else FRAMES)[: 2 if quick else None]
    samples = texts.size("samples", samples, 2 if quick else 8, at_least=2)
    gap = texts.size("gap", gap, 3 if quick else 10)
    length = texts.size("length", length, 16 if quick else 128)
    seeds = min(seeds, 2) if quick else seeds
    sizes = {"prompts": given, "samples": samples, "plain": plain}
    sizes |= {"length": length} if plain else {"gap": gap}
    study = Study(folder, {"experiment": "brainstorm", **bench.names, **sizes}, progress)
    writer, wide = (asking, length) if plain else (filling, gap)
    texts.measure(study, bench, writer(bench.lm, given, samples, wide), seeds, quick)
    about = f"{_about(plain, given, samples, wide)} {bench.title}"
    labels = ANSWERS if plain else SLOTS
    report(study, "Brainstorming", about, labels, seeds, quick, bench.judge_name)
    return study


def _about(plain: bool, given: Sequence[str], samples: int, size: int) -> str:
    if plain:
        return (
            f"{samples} answers to each of {len(given)} questions, of at most {size} tokens, one a "
            "step. Perplexity of an answer after its question."
        )
    return (
        f"{samples} canvases of each of {len(given)} frames, whose slots of {size} tokens are "
        "filled together, one token a step. Perplexity of all that follows the first slot's "
        "beginning, the frame's own words included, which are the same for all methods."
    )


class Frame(NamedTuple):
    """A text with slots, as token ids."""

    ids: list[int]
    """With mask tokens in the slots."""
    slots: list[slice]

    @property
    def open(self) -> int:
        """How many tokens are to be written."""
        return sum(slot.stop - slot.start for slot in self.slots)


def framed(lm: sj.LanguageModel, text: str, gap: int) -> Frame:
    """Cuts a frame into tokens, with `gap` mask tokens for each slot."""
    pieces = re.split(r"\s*" + re.escape(GAP), text)
    rule = f"a frame must have two slots or more, written {GAP}"
    require(len(pieces) > 2, rule, text, "add some, or pass plain=True")
    noise = lm.config.mask_id
    require(noise is not None, "slots need a model with a mask token", noise, "pass plain=True")
    first, *others = pieces
    ids, slots = lm.tokenizer(first)["input_ids"], []
    for piece in others:
        slots.append(slice(len(ids), len(ids) + gap))
        ids = ids + [noise] * gap + lm.tokenizer(piece, add_special_tokens=False)["input_ids"]
    return Frame(ids, slots)


def filling(lm: sj.LanguageModel, given: Sequence[str], samples: int, gap: int) -> texts.Writer:
    """Fills the slots of frames."""
    size = lm.config.network.block_size
    require(not size, "slots need a model that sees a whole canvas", size, "pass plain=True")
    frames = [framed(lm, text, gap) for text in given]
    length, steps = max(len(f.ids) for f in frames), max(f.open for f in frames)

    def write(guidance: sj.Guidance, draw: sj.Guidance, seed: int) -> texts.Written:
        sampler = texts.text_sampler(lm, length, guidance, draw, steps=steps)
        ids = [frame.ids for frame in frames]
        out = texts.generate(lm, sampler, ids, samples, seed, infill=True)
        return out, filled(lm, frames, out)

    return write


def filled(lm: sj.LanguageModel, frames: Sequence[Frame], out: sj.Generation) -> list[list[Sample]]:
    """The canvases of each frame, cut into slots; the judge reads on from the first slot."""
    decode = lambda ids: lm.tokenizer.decode(ids, skip_special_tokens=True)  # noqa: E731

    def sample(frame: Frame, tokens: np.ndarray) -> Sample:
        ids = tokens[len(tokens) - len(frame.ids) :].tolist()  # frames are padded on the left
        first = frame.slots[0].start
        parts = [decode(ids[slot]) for slot in frame.slots]
        return Sample(decode(ids[:first]), decode(ids[first:]), parts)

    pairs = zip(frames, out.tokens, strict=True)
    return [[sample(frame, tokens) for tokens in group] for frame, group in pairs]


def asking(lm: sj.LanguageModel, given: Sequence[str], samples: int, length: int) -> texts.Writer:
    """Asks questions, in the model's own form of a chat if it has one."""
    asked = chat_prompts(lm, given) if has_chat_template(lm) else given

    def write(guidance: sj.Guidance, draw: sj.Guidance, seed: int) -> texts.Written:
        sampler = texts.text_sampler(lm, length, guidance, draw, ends=True)
        out = texts.generate(lm, sampler, asked, samples, seed)
        pairs = zip(given, out.texts, strict=True)
        return out, [[Sample(q, t or "", items(t or "")) for t in group] for q, group in pairs]

    return write


def items(answer: str) -> list[str]:
    """The items of a list, or the whole answer where there is none."""
    items = [part.strip() for part in ITEM.split(answer)[1:] if part.strip()]
    return items or [answer]
