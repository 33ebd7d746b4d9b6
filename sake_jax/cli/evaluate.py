"""The commands that evaluate a model on tasks, and tell what came out."""

import dataclasses
import functools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import sake_jax as sj
from sake_jax.checks import number, one_of, require
from sake_jax.cli.command import changes, command, fields
from sake_jax.cli.options import RunOptions, parse_numbers
from sake_jax.cli.printable import print_line
from sake_jax.cli.screen import print_markdown
from sake_jax.conversion import built_in
from sake_jax.generation import has_chat_template
from sake_jax.sharding import broadcast_from_leader, is_leader

# `sake_jax.evaluate` and `sake_jax.metrics` are imported where they are used: others' --help should
# not wait for them.
if TYPE_CHECKING:
    from sake_jax.evaluate import Task
    from sake_jax.evaluate.results import Results
    from sake_jax.evaluate.run import Shard

app = typer.Typer()

PUZZLES = ("countdown-3", "countdown-4", "products")
"""Made by code, for models that recipes of the same names train."""
TASKS = ("humaneval", "mbpp", "gsm8k", "story", "brainstorm", *PUZZLES)
OWN = sj.Request(temperature=0.2)
"""Where no row of the paper's tables is named."""
EVAL = """Examples:

sake-jax eval humaneval --preset sake-0.2 --samples 32 --k 1,2,8,16,32 --out runs/sake-0.2

sake-jax eval gsm8k --data test.jsonl --examples train.jsonl --samples 5 --k 1,5 --temperature 0.2

sake-jax eval countdown-3 --samples 32 --k 1,8,32 --batch 512

sake-jax eval story --data prompts.txt --model tinystories --length 64 --judge tinystories-causal
"""
REPORT = """Example:

sake-jax report runs/base-0.2 runs/d-cfg-0.2 runs/sake-0.2 --k 1,2,8,16,32 --out runs/figure
"""
SEARCH = """Example:

sake-jax search humaneval --model path/to/llada --k 32 --length 256 --out runs/search
"""

TaskName = Annotated[str, typer.Argument(help=f"One of {', '.join(TASKS)}.")]
Data = Annotated[
    Path | None, typer.Option(help="The problems: a JSON Lines file; from the hub by default.")
]
Examples = Annotated[
    Path | None, typer.Option(help="Where few-shot examples come from, for mbpp and gsm8k.")
]
Shots = Annotated[
    int | None,
    typer.Option(min=0, help="Examples that a prompt shows; 3 for mbpp, 5 for gsm8k by default."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first that many problems.")]
Unsafe = Annotated[
    bool, typer.Option("--unsafe", help="Run programs where they cannot be contained.")
]
Seconds = Annotated[
    float, typer.Option(help="Of processor time for a program; by the clock three times as many.")
]
Ks = Annotated[str, typer.Option("--k", help="Numbers of samples for pass@k and votes: '1,8,32'.")]


@command(app, "eval", epilog=EVAL)
def evaluate(
    task: TaskName,
    *,
    data: Data = None,
    examples: Examples = None,
    shots: Shots = None,
    limit: Limit = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A row of the paper's tables, such as 'base-0.2', 'd-cfg-0.5', 'sake-0.7', "
            "'top-p-0.95', or 'spread', which solves more within many tries than temperature does; "
            "other options change it. The paper's numbers stand beside its own model only, known "
            "by its name or its folder's, LLaDA-8B-Base."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="As in generate; by default the preset's, a puzzle's own, or 'tinystories'."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Answers to each problem.")] = 1,
    k: Ks = "1",
    changed: Annotated[dict[str, Any], changes(sj.Request)],
    run: Annotated[RunOptions, fields(without=("model", "chat", "special_tokens"))],
    chat: Annotated[bool, typer.Option("--chat", help="Use the model's chat template.")] = False,
    judge: Annotated[
        str | None, typer.Option(help="Also the perplexity under this causal model, or 'smollm2'.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder; runs/TASK by default. It is resumed.")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="'0/4': the first of four processes that share a run and a folder.")
    ] = "0/1",
    seconds: Seconds = 10.0,
    unsafe: Unsafe = False,
) -> None:
    """Evaluate a model on a task: pass@k and votes with intervals, and how diverse answers are.

    Samples go to results.jsonl as they are drawn; a stopped run goes on with the same command.
    Programs that the model wrote run contained, without network, files, or much of anything.
    Without --preset there is no guidance, the temperature is 0.2 and the length 64, or the
    puzzle's: the plainest row of the paper's tables, which others are held against; but several
    answers to a puzzle are drawn with the preset 'spread', unless --guidance names another. What
    `generate` does by itself is meant to be looked at: --guidance sake --temperature 0.9.
    """
    from sake_jax.evaluate import presets
    from sake_jax.evaluate.run import run as run_task

    if preset is None and task in PUZZLES and samples > 1 and "guidance" not in changed:
        preset = "spread"
    row = presets.preset(preset) if preset else presets.Preset("", OWN, RunOptions.model)
    guided = changed.get("guidance", row.request.guidance) != "none"
    strength, remedy = changed.get("strength"), "name one with --guidance"
    require(guided or strength is None, "--strength is for guidances", strength, remedy)
    part, ks = _shard(shard), parse_numbers("--k", k)
    require(max(ks) <= samples, "k must be at most --samples", max(ks), "raise --samples")
    run.connect()
    chosen = _task(task, data, _shown(task, examples, shots), limit, _execute(seconds, unsafe))
    own = {} if chosen.length is None else {"length": chosen.length}
    request = row.request.changed(**own | changed)
    folder = out or Path("runs") / task
    own_model = task if task in built_in() else row.model
    rule, remedy = f"{task} needs a model of its own", f"train it: sake-jax train {task}; --model"
    known = model or own_model == task or task not in PUZZLES
    require(known, rule, "none", f"{remedy} runs/{task}/model")
    run = dataclasses.replace(run, model=model or own_model)
    configuration = {"task": task, "model": run.model, "samples": samples, "seed": run.seed}
    configuration |= {"preset": preset, "request": dataclasses.asdict(request)}
    if is_leader():
        typer.echo(json.dumps(configuration, indent=1))
    lm = run.load()
    rule = "--chat needs a model with a chat template"
    require(has_chat_template(lm) or not chat, rule, lm.config.family, "leave it out")
    results = run_task(
        lm,
        request.build(lm),
        chosen,
        folder,
        samples=samples,
        seed=run.seed,
        batch=run.batch,
        chat=chat,
        shard=part,
        about=configuration | {"name": _title(request)},
        progress=sys.stderr.isatty(),
    )
    # The other processes wait until it is written: one that ends takes the rest with it.
    broadcast_from_leader(lambda: _conclude(results, chosen, ks, judge))


@command(app, epilog=REPORT)
def report(
    folders: Annotated[list[Path], typer.Argument(help="Runs of one task, as eval wrote them.")],
    k: Ks = "1",
    out: Annotated[Path, typer.Option(help="The folder of the report.")] = Path("runs/report"),
) -> None:
    """Compare runs of a task: tables, the paper's figures beside them, and pass@k as a figure."""
    from sake_jax.evaluate.report import report as write_report
    from sake_jax.evaluate.results import read_results

    _show(
        write_report([read_results(folder) for folder in folders], out, parse_numbers("--k", k)),
        out,
    )


@command(app, epilog=SEARCH)
def search(
    task: TaskName,
    *,
    data: Data = None,
    examples: Examples = None,
    shots: Shots = None,
    limit: Limit = None,
    k: Annotated[int, typer.Option(min=1, help="Settings are chosen by pass@k.")] = 8,
    share: Annotated[float, typer.Option(help="Of the problems, to choose on.")] = 0.5,
    request: Annotated[sj.Request, fields(["top_p", "length", "steps", "block"], top_p=0.95)],
    run: Annotated[RunOptions, fields(without=("chat", "special_tokens", "distributed"))],
    out: Annotated[Path | None, typer.Option(help="The folder; it is resumed.")] = None,
    seconds: Seconds = 10.0,
    unsafe: Unsafe = False,
) -> None:
    """Choose settings of temperature, D-CFG and SAKE, twelve tried for each, on one part of the
    problems, and compare the chosen ones on the other.

    Temperatures, strengths and bandwidths are searched; --top-p is for the guided methods, that of
    plain temperature is searched too.
    """
    from sake_jax.evaluate import search as searching

    chosen = _task(task, data, _shown(task, examples, shots), limit, _execute(seconds, unsafe))
    lm, folder = run.load(), out or Path("runs") / f"{task}-search"
    requests = searching.default_grid(request, lm.config.network.D)
    settings = {"k": k, "share": share, "seed": run.seed, "batch": run.batch}
    searching.search(lm, chosen, requests, folder, **settings, progress=sys.stderr.isatty())
    _show((folder / "search.md").read_text() + (folder / "report.md").read_text(), folder)


def _conclude(results: "Results", task: "Task", ks: tuple[int, ...], judge: str | None) -> None:
    """Writes and shows the report, if every problem is there."""
    folder = results.folder
    if not results.complete:
        ready = f"{len(results.lines)} of {len(task.problems)} problems are in {folder}"
        typer.echo(f"{ready}; the report is written when the other shards are there.")
        return
    from sake_jax.evaluate.report import report as write_report
    from sake_jax.metrics import load_judge

    critic = load_judge(judge) if judge else None
    prompts = {problem.name: problem.prompt for problem in task.problems}
    _show(write_report([results], folder, ks, judge=critic, prompts=prompts), folder)


def _title(request: sj.Request) -> str:
    return f"{request.name}, T {request.temperature:g}"


def _shown(task: str, examples: Path | None, shots: int | None) -> dict[str, Any]:
    """Which examples a prompt shows, of those options that were given."""
    given = {"examples": examples, "shots": shots}
    given = {name: value for name, value in given.items() if value is not None}
    one_of("TASK", task, TASKS)
    rule = "--examples and --shots are for mbpp and gsm8k"
    require(task in ("mbpp", "gsm8k") or not given, rule, task, "leave them out")
    return given


def _task(
    name: str, data: Path | None, shown: dict[str, Any], limit: int | None, run: Any
) -> "Task":
    """The task of that name; refuses here rather than after the first answers."""
    from sake_jax.evaluate import gsm8k, humaneval, mbpp, open_ended, puzzle

    if name in PUZZLES:
        require(data is None, f"{name} is made by code", f"--data {data}", "leave it out")
        return puzzle(name, limit=limit)
    if name in ("story", "brainstorm"):
        require(data is not None, f"{name} needs prompts", "none", "give a file with --data")
        return open_ended(data or "", name=name, limit=limit)
    if name == "humaneval":
        run([])  # raises where programs cannot be contained
        return humaneval(data, limit=limit, execute=run)
    if name == "mbpp":
        run([])
        return mbpp(data, **shown, limit=limit, execute=run)
    return gsm8k(data, **shown, limit=limit)


def _execute(seconds: float, unsafe: bool) -> Any:
    """What runs programs, with their limits.

    Verdicts must not depend on how busy the machine is: what counts is processor time.
    """
    from sake_jax.evaluate.sandbox import Limits, run_programs

    seconds = number("--seconds", seconds, above=0)
    limits = Limits(seconds=3 * seconds, cpu_seconds=math.ceil(seconds))
    if not is_leader():  # of several processes the first alone runs programs
        return lambda programs: []
    return functools.partial(run_programs, limits=limits, unsafe=unsafe)


def _shard(text: str) -> "Shard":
    """'0/4' as the first of four shards."""
    from sake_jax.evaluate.run import Shard

    index, _, of = text.partition("/")
    right = index.isdecimal() and of.isdecimal()
    require(right, "--shard must be INDEX/NUMBER", text, "such as 0/4 for the first of four")
    return Shard(int(index), int(of))


def _show(text: str, folder: Path) -> None:
    print_markdown(text)
    print_line(f"in {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
