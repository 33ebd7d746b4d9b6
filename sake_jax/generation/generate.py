"""The loop over batches, and what becomes of each row."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from sake_jax.checks import require, whole
from sake_jax.core import declared
from sake_jax.generation.batch import pairs, rows_of, run_batch
from sake_jax.generation.division import BatchResult, divide_work
from sake_jax.generation.ending import TextEnd, checked
from sake_jax.generation.identity import model_identity
from sake_jax.generation.prompts import (
    Batch,
    Prompt,
    batches,
    canvas_for,
    check_context,
    encode_prompts,
)
from sake_jax.generation.result import Generation, Row, finished
from sake_jax.generation.settings import describe_settings, rebuild
from sake_jax.generation.stack import record, stack
from sake_jax.journal import Journal, differences
from sake_jax.models import LanguageModel, NetworkDenoiser
from sake_jax.progress import bar
from sake_jax.samplers.perturbed import Perturbed
from sake_jax.samplers.sampler import Sampler
from sake_jax.typing import Key
from sake_jax.view import Canvas

MOST_ROWS = 2**22
"""Texts of one generation: each takes some kilobytes until all are drawn."""


class NotFinite(ValueError):
    """A model's logits were not numbers. `rows` are those that were finished.

    >>> try:
    ...     raise NotFinite("logits must be numbers, got NaN", rows=[])
    ... except NotFinite as error:
    ...     print(len(error.rows), "rows were finished")
    0 rows were finished
    """

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
    special_tokens: bool | None = None,
    cond: Sequence[int] | None = None,
    names: Sequence[int] | None = None,
    trajectory: bool = False,
    progress: bool = False,
    watch: Callable[[Canvas], None] | None = None,
    save: str | Path | None = None,
    divided: bool = False,
) -> Generation:
    """Draws `samples` continuations of every prompt.

    A (prompt, sample) pair's tokens belong to its key: they do not depend on the batch, on the
    other prompts, or on an interruption.

    In a run of several processes (`sake_jax.sharding`) all must call this alike where the model
    is spread over their devices, and where it is `divided`. They all get all rows; process 0 alone
    needs to see the folder, and shows the bar.

    >>> import jax
    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> sampler = sj.masked(lm, length=8, guidance=sj.sake(1.0), draw=sj.temperature(0.7))
    >>> out = sj.generate(lm, sampler, ["once upon a time"], samples=2, key=jax.random.key(0))
    >>> out.texts[0][0]
    ', there was a little boy named timmy'

    Args:
      lm: a loaded model.
      sampler: made for it by `masked`, `ancestral`, `block`, `revising` or `sampler`.
      prompts: texts, or token ids; "" and [] are empty prompts.
      key: of the run, `jax.random.key(seed)`.
      samples: of each prompt.
      batch: rows that are run together, at most.
      stop: token ids and strings that end a row; its text ends before them.
      stop_at_end: whether the model's own end token does too.
      infill: writes the mask tokens inside the prompts and nothing else. The sampler's `length`
        is then that of the whole text, prompts are padded to it on the left.
      special_tokens: reads the names of special tokens in texts, such as <|endoftext|>, as these
        tokens. By default only when infilling, where the mask token marks what is to be written;
        elsewhere they are text like any other.
      cond: a label for each prompt, for models that take one.
      names: the prompts' identities for random keys, 0, 1, ... by default. Give them to split one
        run over several calls.
      trajectory: also returns the tokens after each step.
      progress: shows a progress bar on the standard error stream.
      watch: is called with a batch's canvas after each step, to show it; it must not keep it.
      save: a folder for settings and finished rows. If an interrupted run left it, this one
        goes on there.
      divided: among the processes of a run, for a model that each has on its own devices: they
        draw different batches.
    """
    samples, batch = whole("samples", samples), whole("batch", batch)
    right = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    require(right, "key must be a random key", key, "pass jax.random.key(0)")
    check_sampler(lm, sampler)
    block = declared(sampler.denoiser, "block_size")
    rule = "samples of a prompt must fit into a batch where they repel each other"
    together = samples <= batch or not sampler.couples_samples
    require(together, rule, samples, "raise batch, or lower samples")
    rule, remedy = "stop is for writing after a prompt", "leave it out when infilling"
    require(not (infill and stop), rule, stop, remedy)
    special_tokens = infill if special_tokens is None else special_tokens
    if isinstance(prompts, Iterable) and not isinstance(prompts, str | bytes):
        prompts = list(prompts)  # they are gone through twice
    ids = encode_prompts(lm, prompts, special_tokens=special_tokens)
    length, stop = sampler.plan.length, checked(lm, stop)
    rule = f"prompts × samples must be at most {MOST_ROWS:,}: all rows are held in memory"
    remedy = "draw them in several calls, with names= for the prompts"
    require(len(ids) * samples <= MOST_ROWS, rule, len(ids) * samples, remedy)
    names, cond = _names(names, len(ids)), _labels(lm, cond, len(ids))
    check_context(lm, ids, length, infill)

    options = {
        "prompts": [
            prompt if isinstance(prompt, str) else own
            for prompt, own in zip(prompts, ids, strict=True)
        ],
        "samples": samples,
        "batch": batch,
        "stop": stop,
        "stop_at_end": stop_at_end,
        "infill": infill,
        "special_tokens": special_tokens,
        "cond": cond,
        "names": names,
        "trajectory": trajectory,
    }
    settings = _settings(lm, sampler, key, options, strict=save is not None)
    among = divide_work(lm, divided)
    journal = Journal(save, settings) if save is not None and among.writes else None
    done = among.broadcast_from_leader(lambda: finished(journal) if journal else {})
    progress = among.broadcast_from_leader(lambda: progress)

    ending = TextEnd(lm, stop, stop_at_end, infill)
    missing = _missing(len(ids), samples, done, sampler)
    unit = samples if sampler.couples_samples else 1
    work = batches([len(p) for p in ids], missing, among.rows(missing, batch, unit))

    def run(part: Batch) -> BatchResult:
        about = {"names": names, "infill": infill, "cond": cond, "align": block or 1}
        canvas = canvas_for(lm, ids, part, length, **about)
        sampler.guidance.check(canvas)
        often = progress or bool(ending.strings)
        ran = run_batch(lm, sampler, key, canvas, ending, trajectory, often, advance, watch)
        return BatchResult(part, *rows_of(ran, canvas, part, ending), record(ran, canvas))

    seen = {}
    steps = among.rounds(work) * sampler.plan.steps
    writing = journal or contextlib.nullcontext()
    with writing, bar("generating", steps, progress and among.writes) as advance:
        for ran in among.run(run, work):
            done |= {(row.prompt, row.sample): row for row in ran.rows}
            seen |= {(p, s): (ran.kept, at) for at, p, s in pairs(ran.part)}
            if journal:
                journal.append(dataclasses.asdict(row) for row in ran.rows)
            if ran.bad:
                raise NotFinite(_complaint(ran.bad, sampler.plan.steps), _in_order(done))
    order = [(p, s) for p in range(len(ids)) for s in range(samples)]
    info, tokens = stack(seen, order)
    own = getattr(lm, "given_tokenizer", None)
    return Generation([done[pair] for pair in order], samples, settings, info, tokens, own)


def replay(
    settings: str | Path | dict, lm: LanguageModel | None = None, trusted: Sequence[str] = ()
) -> Generation:
    """Runs a generation again from its saved settings.

    >>> import jax
    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> sampler = sj.masked(lm, length=8, guidance=sj.sake(1.0), draw=sj.temperature(0.7))
    >>> out = sj.generate(lm, sampler, ["once upon a time"], samples=2, key=jax.random.key(0))
    >>> bool((sj.replay(out.settings, lm).tokens == out.tokens).all())
    True

    Args:
      settings: a folder that `generate` or `Generation.save` wrote, or `Generation.settings`.
      lm: the model; loaded from where it was by default.
      trusted: modules with guidances or rules of your own; see `generation.settings.rebuild`.
    """
    saved = settings if isinstance(settings, dict) else _read(Path(settings))
    rule, remedy = "settings must be complete to be replayed", "see why, and define it by a name"
    require("incomplete" not in saved, rule, saved.get("incomplete"), remedy)
    missing = [name for name in ("model", "key", "options", "sampler") if name not in saved]
    rule, remedy = "settings must be those of a generation", "name a folder that generate saved"
    require(not missing, rule, f"none for {', '.join(missing)}", remedy)
    model = saved["model"]
    if lm is None:
        from sake_jax.conversion import load  # a plain import of the library reads no checkpoints

        rule, remedy = "the model must have come from a folder", "pass lm=, as it was wrapped"
        require(model["folder"], rule, None, remedy)
        lm = load(model["folder"], dtype=model["dtype"])
    theirs = {name: part for name, part in model.items() if name != "folder"}
    mine = _as_known_to(theirs, json.loads(json.dumps(model_identity(lm))))
    changed = differences(theirs, mine)
    require(not changed, "the model must be the one that was saved", changed, "load that model")
    sampler = rebuild(saved["sampler"], trusted, own=lm.denoiser)
    # Versions before 0.3 read the names of special tokens as these tokens, and did not say so.
    options = {"special_tokens": True} | saved["options"]
    return generate(lm, sampler, key=rebuild(saved["key"]), **options)


def check_sampler(lm: LanguageModel, sampler: Sampler) -> None:
    """Refuses a sampler that is not one for this model."""
    right = isinstance(sampler, Sampler)
    require(right, "sampler must be a Sampler", sampler, "make one with sampler_for")
    rule, remedy = "the sampler must be made for this model", "make it with lm"
    require(_is_for(sampler, lm), rule, "one for another network", remedy)
    noisy = lm.config.mask_id is not None or sampler.process.decides
    rule = "this sampler needs a model with a mask token"
    remedy = "name its mask_token_id in the model's config.json"
    require(noisy, rule, lm.config.family, remedy)


def _is_for(sampler: Sampler, lm: LanguageModel) -> bool:
    """Whether a sampler reads with the model's denoiser, in blocks of any size."""
    mine, theirs = lm.denoiser, sampler.denoiser
    if isinstance(theirs, Perturbed):
        theirs = theirs.inner
    if isinstance(mine, NetworkDenoiser):
        mine = mine.with_block(declared(theirs, "block_size"))
    return theirs == mine


def _as_known_to(theirs: Any, mine: Any) -> Any:
    """Our description of a model without the fields that theirs, of an earlier version, lacks."""
    if not isinstance(theirs, dict) or not isinstance(mine, dict):
        return mine
    return {key: _as_known_to(theirs[key], part) for key, part in mine.items() if key in theirs}


def _read(folder: Path) -> dict:
    path = folder / "settings.json"
    rule = f"{folder} must hold settings.json"
    require(path.is_file(), rule, "nothing", "name a folder that generate saved")
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must be JSON, got {error}; take it from a copy.") from error
    require(isinstance(saved, dict), f"{path} must hold an object", saved, "take it from a copy")
    return saved


def _missing(prompts: int, samples: int, done: dict, sampler: Sampler) -> dict[int, list[int]]:
    """Which samples of each prompt are still to be drawn."""
    missing = {}
    for prompt in range(prompts):
        left = [s for s in range(samples) if (prompt, s) not in done]
        if left:
            first = 0 if sampler.couples_samples else left[0]
            missing[prompt] = list(range(first, samples))
    return missing


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
    folder = None if lm.folder is None else str(lm.folder.resolve())
    settings = {
        "model": {"folder": folder} | model_identity(lm),
        "key": describe_settings(key, "key"),
        "options": options,
        "align": declared(sampler.denoiser, "block_size") or 1,
        "versions": {name: version(name) for name in names},
    }
    try:
        return settings | {"sampler": describe_settings(sampler, "sampler")}
    except ValueError as error:
        if strict:
            raise
        return settings | {"incomplete": str(error)}


def _names(names: Sequence[int] | None, count: int) -> list[int]:
    """The prompts' identities for random keys."""
    if names is None:
        return list(range(count))
    rule, remedy = "names must have one entry for each prompt, all different", f"give {count}"
    require(len(names) == count == len(set(names)), rule, names, remedy)
    return [whole("a name", name, at_least=0, at_most=2**31 - 1) for name in names]


def _labels(lm: LanguageModel, cond: Sequence[int] | None, count: int) -> list[int] | None:
    """A label for each prompt, for networks with classes."""
    if cond is None:
        return None
    classes = lm.config.network.classes
    require(classes, "cond is for models with labels", cond, "leave it out")
    rule, remedy = "cond must have one entry for each prompt", f"give {count}"
    require(len(cond) == count, rule, cond, remedy)
    return [whole("a label", label, at_least=0, at_most=classes) for label in cond]
