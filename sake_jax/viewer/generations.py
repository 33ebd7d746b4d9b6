"""From generations to recordings, and to the page that shows them."""

from collections.abc import Sequence
from typing import Any

from sake_jax.checks import require
from sake_jax.generation import Generation
from sake_jax.viewer.html_page import HtmlPage, render_page
from sake_jax.viewer.recording import Recording

Prompt = str | Sequence[int]


def render_generations(
    runs: Sequence[Generation],
    names: Sequence[str],
    tokenizer: Any = None,
    *,
    opens: int = 0,
    note: str = "",
) -> HtmlPage:
    """The page of one generation, or of two of the same prompts side by side.

    Args:
      runs: made with trajectory=True by a sampler with record="full".
      names: what they are called; there may be more names than runs.
      tokenizer: the first model's own by default; tokens are shown as ids where it has none.
      opens: the sample that the page opens with.
      note: what stands below the title.
    """
    tokenizer = tokenizer or runs[0].tokenizer
    recordings = [
        recording_of(run, name, tokenizer) for run, name in zip(runs, names, strict=False)
    ]
    title = _title(runs[0], tokenizer)
    return render_page(recordings, tokenizer, title, opens=opens, note=note)


def recording_of(run: Generation, name: str, tokenizer: Any = None) -> Recording:
    """What the page shows of a generation, or an error that says what it did not keep.

    Args:
      run: a generation with a trajectory and everything that record="full" keeps.
      name: what it is called on the page.
      tokenizer: turns prompts that are texts into tokens, as the model's own did.
    """
    info, trajectory = _require_recorded(run)
    options, config = run.settings["options"], run.config
    prompts = [_token_ids(prompt, tokenizer) for prompt in options["prompts"]]
    columns = trajectory.shape[-1]
    # Earlier versions wrote nothing down, and had no block but the model's own.
    block = run.settings.get("align", config.network.block_size or 1)
    begin = _begin_of_infilled if options["infill"] else _begin_of_continued
    return Recording(
        name=name,
        prompts=prompts,
        first=[begin(len(ids), columns, block) for ids in prompts],
        infill=options["infill"],
        samples=run.samples,
        tokens=run.tokens.reshape(-1, columns),
        written=run.written.reshape(-1, columns),
        log_p=run.log_p.reshape(-1, columns),
        ended=[row.ended for row in run.rows],
        info=info,
        trajectory=trajectory,
        mask_id=config.mask_id,
    )


def _require_recorded(run: Generation) -> tuple[Any, Any]:
    """A generation's info and trajectory, if it kept what the page shows."""
    info, trajectory = run.info, run.trajectory
    rule = "a generation must be recorded to be shown"
    remedy = 'make its sampler with record="full", and pass trajectory=True to generate'
    require(info is not None, rule, "info=None, as after an interruption", remedy)
    full = info is not None and info.candidates is not None
    require(full, rule, 'a sampler without record="full"', remedy)
    require(trajectory is not None, rule, "trajectory=None", remedy)
    return info, trajectory


def _title(run: Generation, tokenizer: Any) -> str:
    """The first prompt as text, and how many others there are."""
    first, *others = run.settings["options"]["prompts"]
    if not isinstance(first, str):
        first = tokenizer.decode(first) if tokenizer else f"{len(first)} tokens"
    return first + (f" (and {len(others)} more)" if others else "")


def _token_ids(prompt: Prompt, tokenizer: Any) -> list[int]:
    rule = "a page about texts needs the model's tokenizer"
    remedy = "pass tokenizer=lm.tokenizer"
    require(tokenizer or not isinstance(prompt, str), rule, "none where the model was", remedy)
    return list(tokenizer(prompt)["input_ids"]) if isinstance(prompt, str) else list(prompt)


# Canvases hold whole blocks. A continued prompt's last, incomplete block is read together with the
# columns after it, so it counts among the written ones; a text to fill in has no columns after it.


def _begin_of_continued(count: int, columns: int, block: int) -> int:
    """The column where a prompt begins: its whole blocks stand before the first written column."""
    return -(count // block * block)


def _begin_of_infilled(count: int, columns: int, block: int) -> int:
    """The column where a text to fill in begins: it ends with the last column, or just before."""
    return (columns - count) // block * block
