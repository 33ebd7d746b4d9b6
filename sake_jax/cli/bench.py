"""The command that measures what guidance costs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sake_jax.checks import require
from sake_jax.cli.command import command, fields
from sake_jax.cli.options import RunOptions, parse_numbers
from sake_jax.cli.screen import print_markdown
from sake_jax.sharding import mesh_sizes

if TYPE_CHECKING:
    from sake_jax.planning.bench.clock import BenchSetting

app = typer.Typer()

PROMPTS = "128,256,512,1024"
"""The paper's."""

EXAMPLES = """Examples:

sake-jax bench --quick

sake-jax bench --out speed.json

sake-jax bench --model path/to/model --prompts 64,128 --length 64 --batch 4 --no-growth

sake-jax bench --plan v5e:2x4,tensor=8 --plan v6e:1x1 --plan h100:1 --compile --out speed.json
"""


@command(app, epilog=EXAMPLES)
def bench(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Any model that loads; by default 'scaled', LLaDA's proportions in small with "
            "random weights. With --plan 'llada-8b', or what sake-jax plan takes."
        ),
    ] = None,
    prompts: Annotated[
        str | None, typer.Option(help="Tokens of the prompts; '128,256,512,1024' by default.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(min=1, help="Tokens to write; 32, or 128 with --plan.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Of a run; one for two tokens, or for each with --plan."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows together.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each form, all in turn; 5 by default.")
    ] = None,
    run: Annotated[RunOptions, fields(["dtype"])],
    growth: Annotated[
        bool | None,
        typer.Option("--growth/--no-growth", help="Also with vocabulary, batch, devices."),
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            help="Plan for chips that are not here, such as 'v5e:2x4,tensor=8', and measure "
            "nothing; the fastest mesh by our count if none is given."
        ),
    ] = None,
    compile_it: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="With --plan: ask the compiler, too, about the shortest and the longest prompt "
            "without guidance and with SAKE. Half a minute each.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="A JSON file for the numbers; its other part is kept.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Tiny sizes and no growth, to see that it runs; numbers mean little."
        ),
    ] = False,
) -> None:
    """Measure what guidance costs here, as in the paper's table of speed, or plan it for chips.

    All forms run in turn, so that a busy moment hits them alike. Use a quiet machine.
    """
    from sake_jax.planning.bench import report, results_file
    from sake_jax.planning.bench.clock import BenchSetting

    only_measured = {"--rounds": rounds, "--dtype": run.dtype, "--growth": growth}
    given = [name for name, value in only_measured.items() if value is not None]
    given += ["--quick"] * quick
    rule, remedy = "a plan measures nothing", f"leave out --plan, or {' and '.join(given)}"
    require(not (plan and given), rule, ["--plan", *given], remedy)
    rule, remedy = "--compile is for plans", "add --plan CHIPS, or leave it out"
    require(plan or not compile_it, rule, "--compile", remedy)
    if out is not None:
        results_file.read_results(out)  # refuses now, not after minutes
    if plan:
        sizes = (parse_numbers("--prompts", prompts or PROMPTS), length or 128, steps, batch)
        result = {"planned": _plan(model or "llada-8b", sizes, plan, compile_it)}
    else:
        length = length or (8 if quick else 32)
        setting = BenchSetting(
            parse_numbers("--prompts", prompts or ("8,16" if quick else PROMPTS)),
            length,
            steps or max(1, length // 2),
            batch,
            rounds or (2 if quick else 5),
        )
        wanted = not quick if growth is None else growth
        result = {"measured": _measure(model or "scaled", setting, run.dtype, wanted, quick)}
    if out is not None:
        results_file.write_results(out, result)
    if as_json:
        typer.echo(json.dumps(result, indent=1))
    else:
        print_markdown(report.render_markdown(result))


def _measure(
    name: str, setting: "BenchSetting", dtype: str | None, growth: bool, quick: bool
) -> dict[str, Any]:
    from sake_jax.conversion import load
    from sake_jax.planning.bench.measured import measure_tables
    from sake_jax.planning.bench.scaled import scaled_model

    rule, remedy = "the scaled model is float32", "leave --dtype out, or give --model"
    require(name != "scaled" or dtype is None, rule, dtype, remedy)
    rule, remedy = "growth is for the scaled model's full size", "leave out --growth or --quick"
    require(not (name == "scaled" and quick and growth), rule, "both", remedy)
    lm = (
        load(name, dtype=dtype)
        if name != "scaled"
        else scaled_model(*((32, 2, 2) if quick else ()))
    )
    return measure_tables(lm, setting, name, growth)


def _plan(model: str, sizes: tuple[Any, ...], plans: list[str], compile_it: bool) -> dict[str, Any]:
    from sake_jax import planning
    from sake_jax.planning.bench.planned import Outline, Target, plan_tables

    targets = []
    for text in plans:
        chips, _, mesh = text.partition(",")
        targets.append(Target(planning.topology(chips, compile_it), mesh_sizes(mesh) or None))
    return plan_tables(Outline(model, *sizes), targets, compile_it)
