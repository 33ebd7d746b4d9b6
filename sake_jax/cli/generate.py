"""The command that writes text."""

import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.console import Console

import sake_jax as sj
from sake_jax.checks import require
from sake_jax.cli.command import command, fields
from sake_jax.cli.compare import ENOUGH, Comparison, compare_scores, score_pairs, typical_pairs
from sake_jax.cli.options import RunOptions
from sake_jax.cli.screen import MEASURES, Pair, Screen, print_comparison, print_texts
from sake_jax.generation import (
    Prompt,
    chat_prompts,
    gap_prompts,
    has_chat_template,
    read_prompts,
    split_prompts,
)
from sake_jax.sharding import broadcast_from_leader, is_leader

app = typer.Typer()

EXAMPLES = r"""Examples:

sake-jax generate "once upon a time" --samples 8

sake-jax generate --compare

sake-jax generate "the dog" --guidance sake --strength 1 --temperature 0.7 --compare

sake-jax generate --file prompts.txt --json > out.json

sake-jax generate "the dog" --match " [a-z]{3,8} in the [a-z]{3,8}\." --length 8

sake-jax generate --infill "the ____ dog ____ in the ____."

sake-jax generate "Name five uses of a brick." --model GSAI-ML/LLaDA-8B-Instruct --cache dual
"""


@command(app, epilog=EXAMPLES)
def generate(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="The beginning of the text; standard input without one, or, to --compare, eight "
            "beginnings of stories."
        ),
    ] = None,
    *,
    file: Annotated[Path | None, typer.Option(help="Prompts, one on each line.")] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Texts for each prompt; 8 by default, or {ENOUGH} in all to compare prompts of "
            "one's own.",
        ),
    ] = None,
    run: Annotated[RunOptions, fields()],
    request: Annotated[sj.Request, fields(guidance="sake", temperature=0.9)],
    infill: Annotated[
        bool,
        typer.Option(
            "--infill",
            help="Write what the prompt leaves out, where each _ is a token; --length is for all "
            "of the text.",
        ),
    ] = False,
    stop: Annotated[list[str] | None, typer.Option(help="A string that ends a text.")] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Also without guidance, from the same noise: means with intervals, what differs "
            "clearly and what does not, and two typical pairs.",
        ),
    ] = False,
    judge: Annotated[
        str,
        typer.Option(
            help="Whose perplexity --compare shows: a causal model, 'smollm2', 'none'; by default "
            "the built-in model's twin, or SmolLM2 if it is installed."
        ),
    ] = "auto",
    show: Annotated[bool, typer.Option("--show", help="Watch the canvas fill.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="A folder for the texts; an interrupted run goes on there.")
    ] = None,
) -> None:
    """Write texts with a diffusion language model, made diverse by guidance.

    Without --model it is the built-in one, which knows small stories in lower case. The first
    call compiles for some seconds; the next ones find the programs in the cache. Guidance is on,
    at a temperature that suits stories; `eval`, which measures, begins without, at 0.2.
    """
    require(not (show and as_json), "--show draws, --json does not", "both", "choose one")
    variants = [request.unguided, request] if compare else [request]
    rule, remedy = "--compare needs a guidance to compare with none", "choose one"
    require(not compare or request.name != request.unguided.name, rule, request.guidance, remedy)
    run.connect()
    prompts, own = broadcast_from_leader(lambda: _prompts(prompt, file, compare and not infill))
    lm = run.load()
    critic = _judge(judge, run.model) if compare and is_leader() else None
    prepared = prepare_prompts(lm, prompts, run, infill)
    if samples is None:
        samples = max(2, -(-ENOUGH // len(prompts))) if compare and own else 8
    before = [""] * len(prompts) if infill else prompts  # what stands before the texts
    results: dict[str, sj.Generation] = {}
    numbers: dict[str, dict[str, float]] = {}
    for variant in variants:
        begun = time.perf_counter()
        screen = Screen(lm, variant.name) if show and is_leader() else None
        with screen or contextlib.nullcontext():
            out = sj.generate(
                lm,
                variant.build(lm),
                prepared,
                samples=samples,
                batch=run.batch,
                key=jax.random.key(run.seed),
                stop=stop or (),
                infill=infill,
                special_tokens=run.special_tokens,
                progress=sys.stderr.isatty() and not show,
                watch=screen.update if screen else _ignore if show else None,
                save=_folder(save, variant.name if compare else ""),
                divided=True,
            )
        seconds = time.perf_counter() - begun
        if is_leader():
            results[variant.name] = out
            numbers[variant.name] = measure(before, out, critic) | {"seconds": seconds}
    # The other processes wait until it is printed: one that ends takes the rest with it.
    shown = prompts if as_json else before
    broadcast_from_leader(lambda: _print(shown, results, numbers, critic, as_json))


def _print(
    prompts: list[str],
    results: dict[str, sj.Generation],
    numbers: dict[str, dict[str, float]],
    critic: sj.LanguageModel | None,
    as_json: bool,
) -> None:
    scores = score_pairs(prompts, list(results.values()), critic) if len(results) > 1 else []
    compared = compare_scores(*scores) if scores else {}
    if as_json:
        report = _report(prompts, results, numbers)
        if compared:
            report[list(results)[1]]["compared"] = _compared_for_json(compared)
        typer.echo(json.dumps(report, indent=1))
    elif scores:
        count = next(iter(results.values())).samples
        plain, guided = scores
        chosen = typical_pairs(plain, guided)
        texts = [[out.texts[at // count][at % count] for out in results.values()] for at in chosen]
        pairs = [
            Pair(at + 1, prompts[at // count], *both)
            for at, both in zip(chosen, texts, strict=True)
        ]
        seconds = [measured["seconds"] for measured in numbers.values()]
        whole = count * len(prompts)
        print_comparison(Console(), list(results), pairs, whole, list(compared.values()), seconds)
    else:
        ((name, out),) = results.items()
        print_texts(Console(), prompts, out, numbers[name])


def _ignore(canvas: sj.Canvas) -> None:
    """What the other processes show, where process 0 shows a canvas: they must keep in step."""


def measure(
    prompts: list[str], out: sj.Generation, judge: sj.LanguageModel | None
) -> dict[str, float]:
    """What is shown of the texts: their diversity, and the judge's perplexity if there is one."""
    from sake_jax.metrics import measure_texts

    texts = [[text or "" for text in group] for group in out.texts]
    measured = measure_texts(texts, prompts=prompts, judge=judge)
    return {name: measured[name] for name in MEASURES if name in measured}


def _prompts(prompt: str | None, file: Path | None, usual: bool) -> tuple[list[str], bool]:
    """What texts begin with, and whether these are the user's own words: where there are none,
    and `usual` ones will do, they are those of the story experiment."""
    require(prompt is None or file is None, "give a prompt or --file", "both", "leave one out")
    if prompt is not None:
        return [prompt], True
    if file is not None:
        return read_prompts(file), True
    waiting = sys.stdin.isatty()
    written = "" if waiting else sys.stdin.read()
    if usual and not written.strip():
        from sake_jax.experiments.story import BEGINNINGS

        return list(BEGINNINGS), False
    remedy = "write it in quotes, or give --file"
    require(not waiting, "generate needs a prompt", "none", remedy)
    return split_prompts(written), True


def prepare_prompts(
    lm: sj.LanguageModel, prompts: list[str], run: RunOptions, infill: bool = False
) -> Sequence[Prompt]:
    """The prompts, or their token ids: as chats, by default where the model has a template, or
    with gaps."""
    if infill:
        require(not run.chat, "--infill is for texts, not for chats", "--chat", "leave it out")
        return gap_prompts(lm, prompts, special_tokens=run.special_tokens)
    chats = run.chat is not False and has_chat_template(lm)
    rule = "--chat needs a model with a chat template"
    require(chats or not run.chat, rule, lm.config.family, "use --no-chat")
    return chat_prompts(lm, prompts, special_tokens=run.special_tokens) if chats else prompts


def _folder(save: Path | None, name: str) -> Path | None:
    return save and save / name.replace(" ", "-")


def _judge(judge: str, model: str) -> sj.LanguageModel | None:
    """The model that judges, or None."""
    from sake_jax.metrics import default_judge, load_judge

    judge = default_judge(model) if judge == "auto" else judge
    return None if judge == "none" else load_judge(judge)


def _compared_for_json(compared: dict[str, Comparison]) -> dict[str, Any]:
    return {
        name: {
            "means": [each._asdict() for each in measure.each],
            "difference": measure.difference._asdict(),
            "pairs": measure.pairs,
            "verdict": measure.verdict,
        }
        for name, measure in compared.items()
    }


def _report(
    prompts: list[str], results: dict[str, sj.Generation], numbers: dict[str, dict[str, float]]
) -> dict[str, Any]:
    return {
        name: {
            "prompts": prompts,
            "texts": out.texts,
            "ended": out.ended,
            "log_p": [[round(float(x), 4) for x in group.sum(axis=-1)] for group in out.log_p],
            "measures": numbers[name],
            "settings": out.settings,
        }
        for name, out in results.items()
    }
