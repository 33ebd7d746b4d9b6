"""The command that shows how a text came to be."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import jax
import typer

import sake_jax as sj
from sake_jax.checks import require
from sake_jax.cli.command import command, fields
from sake_jax.cli.compare import FEWEST, compare_scores, score_pairs, typical_pairs
from sake_jax.cli.generate import prepare_prompts
from sake_jax.cli.options import RunOptions
from sake_jax.cli.printable import print_line
from sake_jax.generation import Prompt
from sake_jax.viewer import render_generations

app = typer.Typer()

EXAMPLES = """Examples:

sake-jax view "once upon a time" --out run.html

sake-jax view "the dog" --guidance spread --samples 8 --temperature 1 --out spread.html

sake-jax view "the dog" --guidance none --length 32 --steps 8 --out plain.html
"""


@command(app, epilog=EXAMPLES)
def view(
    prompt: Annotated[str, typer.Argument(help="The beginning of the text.")],
    *,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("run.html"),
    samples: Annotated[int, typer.Option(min=1, help="Texts.")] = FEWEST,
    run: Annotated[RunOptions, fields(without=("batch", "distributed"))],
    request: Annotated[sj.Request, fields(guidance="sake", temperature=0.9)],
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave out the texts without guidance beside it.")
    ] = False,
) -> None:
    """Write a page that shows a text being denoised, step by step, in any browser.

    Texts with and without guidance, from the same seed, side by side; curves of what guidance
    did; for each token its candidates and what repels it; how alike the samples are. It opens
    with a typical pair, and says whether texts repeat themselves clearly less. One file, no
    network.
    """
    rule = "the page must go into a folder that exists"
    require(out.parent.is_dir(), rule, str(out.parent), "make it first")
    lm = run.load()
    (prepared,) = prepare_prompts(lm, [prompt], run)
    plain = request.unguided
    both = not alone and request.name != plain.name
    wanted = [request, plain][: 1 + both]
    runs = [record_run(lm, each, prepared, samples, run) for each in wanted]
    opens, note = _typical(prompt, runs, request.name) if both else (0, "")
    names = (request.name, plain.name)
    path = render_generations(runs, names, lm.tokenizer, opens=opens, note=note).save(out)
    print_line(f"wrote {path}: {path.stat().st_size / 1e6:.2f} MB, open it in a browser")


def _typical(prompt: str, runs: list[sj.Generation], name: str) -> tuple[int, str]:
    """The sample that the page opens with, and whether guidance makes a clear difference."""
    guided, plain = score_pairs([prompt], runs, judge=None)
    (opens,) = typical_pairs(plain, guided, 1)
    within = compare_scores(plain, guided).get("distinct-2 within")
    said = f"{name} in {within.pairs} pairs, {within.sentence}." if within else ""
    return opens, f"{said} Sample {opens + 1} is near both means.".strip()


def record_run(
    lm: sj.LanguageModel,
    request: sj.Request,
    prompt: Prompt,
    samples: int,
    run: RunOptions,
    watch: Callable[[sj.Canvas], None] | None = None,
) -> sj.Generation:
    """A generation of one prompt, with all that the page shows; see `generate` for `watch`."""
    return sj.generate(
        lm,
        request.build(lm).replace(record="full"),
        [prompt],
        samples=samples,
        batch=samples,
        key=jax.random.key(run.seed),
        special_tokens=run.special_tokens,
        trajectory=True,
        progress=sys.stderr.isatty() and watch is None,
        watch=watch,
    )
