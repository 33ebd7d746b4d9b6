"""The loop over batches, and what becomes of each row."""

import contextlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import jax

from sake_jax.checks import number, require
from sake_jax.conversion import load
from sake_jax.generation.batch import pairs, rows_of, run_batch
from sake_jax.generation.ending import Ending
from sake_jax.generation.prompts import Prompt, batches, canvas_for, check_context, encode
from sake_jax.generation.result import Generation, Journal, Row, differences
from sake_jax.generation.stack import stack
from sake_jax.models import LanguageModel
from sake_jax.samplers.step import Sampler
from sake_jax.settings import describe, rebuild
from sake_jax.typing import Key


class NotFinite(ValueError):
    """A model's logits were not numbers. `rows` are those that were finished."""

    def __init__(self, message: str, rows: list[Row]):
        super().__init__(message)
        self.rows = rows


def generate(
    lm: LanguageModel,
    sampler: Sampler,
    prompts: Sequence[Prompt],
    *,
    key: Key,
    samples: int = 1,
    batch: int = 32,
    stop: Sequence[str | int] = (),
    stop_at_end: bool = True,
    infill: bool = False,
    cond: Sequence[int] | None = None,
    names: Sequence[int] | None = None,
    trajectory: bool = False,
    progress: bool = False,
    save: str | Path | None = None,
) -> Generation:
    """Draws `samples` continuations of every prompt.

    A (prompt, sample) pair's tokens belong to its key: they do not depend on the batch, on the
    other prompts, or on an interruption.

    Args:
      lm: a loaded model.
      sampler: made for it by `masked`, `ancestral`, `block` or `sampler`.
      prompts: texts, or token ids; "" and [] are empty prompts.
      key: of the run, `jax.random.key(seed)`.
      samples: of each prompt.
      batch: rows that are run together, at most.
      stop: token ids and strings that end a row; its text ends before them.
      stop_at_end: whether the model's own end token does too.
      infill: writes the mask tokens inside the prompts and nothing else. The sampler's `length`
        is then that of the whole text, prompts are padded to it on the left.
      cond: a label for each prompt, for models that take one.
      names: the prompts' identities for random keys, 0, 1, ... by default. Give them to split one
        run over several calls.
      trajectory: also returns the tokens after each step.
      progress: shows a progress bar.
      save: a folder for settings and finished rows. If an interrupted run left it, this one
        goes on there.
    """
    number("samples", samples, at_least=1)
    number("batch", batch, at_least=1)
    rule, remedy = "the sampler must be made for this model", "make it with lm"
    require(sampler.denoiser == lm.denoiser, rule, sampler.denoiser, remedy)
    rule = "samples of a prompt must fit into a batch where they repel each other"
    apart = samples <= batch or not _across_samples(sampler)
    require(apart, rule, samples, "raise batch, or lower samples")
    rule, remedy = "stop is for writing after a prompt", "leave it out when infilling"
    require(not (infill and stop), rule, stop, remedy)
    ids, length = encode(lm, prompts), sampler.plan.length
    names = list(range(len(ids))) if names is None else [int(name) for name in names]
    for what, given in (("names", names), ("cond", cond)):
        fits = given is None or len(given) == len(ids)
        require(fits, f"{what} must have one entry for each prompt", given, f"give {len(ids)}")
    if not infill:
        check_context(lm, ids, length)

    options = {
        "prompts": [p if isinstance(p, str) else [int(i) for i in p] for p in prompts],
        "samples": samples,
        "batch": batch,
        "stop": list(stop),
        "stop_at_end": stop_at_end,
        "infill": infill,
        "cond": None if cond is None else [int(label) for label in cond],
        "names": names,
        "trajectory": trajectory,
    }
    settings = _settings(lm, sampler, key, options, strict=save is not None)
    journal = Journal(Path(save), settings) if save is not None else None
    done = journal.rows() if journal else {}

    ends = [i for i in stop if not isinstance(i, str)]
    if stop_at_end and not infill and lm.config.eos_id is not None:
        ends.append(lm.config.eos_id)
    ending = Ending(lm, ends, [text for text in stop if isinstance(text, str)], infill)
    work = batches([len(p) for p in ids], _missing(len(ids), samples, done, sampler), batch)
    seen = {}
    with _bar(progress, len(work) * sampler.plan.steps) as advance:
        for part in work:
            canvas = canvas_for(lm, ids, part, length, names=names, infill=infill, cond=cond)
            often = progress or bool(ending.strings)
            trip = run_batch(lm, sampler, key, canvas, ending, trajectory, often, advance)
            rows, bad = rows_of(trip, canvas, part, ending)
            done |= {(row.prompt, row.sample): row for row in rows}
            seen |= {(p, s): (trip, at) for at, p, s in pairs(part)}
            if journal:
                journal.append(rows)
            if bad:
                raise NotFinite(_complaint(bad, sampler.plan.steps), _in_order(done))
    order = [(p, s) for p in range(len(ids)) for s in range(samples)]
    info, tokens = stack(seen, order, length)
    return Generation([done[pair] for pair in order], samples, settings, info, tokens)


def replay(
    settings: str | Path | dict, lm: LanguageModel | None = None, trusted: Sequence[str] = ()
) -> Generation:
    """Runs a generation again from its saved settings.

    Args:
      settings: a folder that `generate` or `Generation.save` wrote, or `Generation.settings`.
      lm: the model; loaded from where it was by default.
      trusted: modules with guidances or rules of your own, see `sake_jax.settings.rebuild`.
    """
    found = settings if isinstance(settings, dict) else _read(Path(settings))
    rule, remedy = "settings must be complete to be replayed", "see why, and define it by a name"
    require("incomplete" not in found, rule, found.get("incomplete"), remedy)
    if lm is None:
        lm = load(found["model"]["folder"])
    changed = differences(found["model"]["config"], json.loads(json.dumps(describe(lm.config))))
    require(not changed, "the model must have the saved configuration", changed, "load that model")
    sampler = rebuild(found["sampler"], trusted)
    return generate(lm, sampler, key=rebuild(found["key"]), **found["options"])


def _read(folder: Path) -> dict:
    path = folder / "settings.json"
    rule = f"{folder} must hold settings.json"
    require(path.is_file(), rule, "nothing", "name a folder that generate saved")
    return json.loads(path.read_text())


def _missing(prompts: int, samples: int, done: dict, sampler: Sampler) -> dict[int, list[int]]:
    """Which samples of each prompt are still to be drawn."""
    found = {}
    for prompt in range(prompts):
        missing = [s for s in range(samples) if (prompt, s) not in done]
        if missing:
            first = 0 if _across_samples(sampler) else missing[0]
            found[prompt] = list(range(first, samples))
    return found


def _across_samples(sampler: Sampler) -> bool:
    """Whether samples of a prompt look at each other."""
    has_scope = lambda node: hasattr(node, "scope")  # noqa: E731
    nodes = jax.tree.leaves(sampler.guidance, is_leaf=has_scope)
    return any(node.scope != "sequence" for node in nodes if has_scope(node))


def _in_order(done: dict) -> list[Row]:
    return [done[pair] for pair in sorted(done)]


def _complaint(bad: list, steps: int) -> str:
    step, prompt, sample = min(bad)
    others = f" and {len(bad) - 1} more rows" if len(bad) > 1 else ""
    where = f"step {step} of {steps} in prompt {prompt}, sample {sample}{others}"
    remedy = "check the weights and the guidance. Finished rows are in this error's `rows`"
    return f"logits must be numbers, got NaN or infinity at {where}; {remedy}."


def _settings(lm: LanguageModel, sampler: Sampler, key, options: dict, strict: bool) -> dict:
    names = ("sake-jax", "jax", "flax")
    settings = {
        "model": {"folder": str(lm.folder), "config": describe(lm.config, "config")},
        "key": describe(key, "key"),
        "options": options,
        "versions": {name: version(name) for name in names},
    }
    try:
        return settings | {"sampler": describe(sampler, "sampler")}
    except ValueError as error:
        if strict:
            raise
        return settings | {"incomplete": str(error)}


@contextlib.contextmanager
def _bar(shown: bool, total: int):
    """A progress bar, or nothing; gives the function that moves it on."""
    from rich.progress import Progress

    with Progress(disable=not shown, transient=True) as bar:
        task = bar.add_task("generating", total=total)
        yield lambda steps: bar.advance(task, steps)
