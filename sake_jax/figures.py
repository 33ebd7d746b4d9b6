"""Figures that can be read in black and white, too."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sake_jax.checks import require
from sake_jax.files import write_atomically

QUICK = "a quick run: it shows that all works, and claims nothing"
"""Above the figures of runs that are too small for a result."""
STYLES = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"), ("v", "-"), ("P", "--"), ("X", "-."))
COLOURS = ("#000000", "#c8553d", "#2a6f97", "#588157", "#8a5a9e", "#b08900", "#6c757d")


def panels(
    rows: int, columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Any, np.ndarray]:
    """A figure and its (rows, columns) axes; `shared` are options of matplotlib's `subplots`.

    Without pyplot: a notebook goes on showing its own figures as before.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = 'pip install "sake-jax[plots]"'
        raise ValueError(f"figures must have matplotlib, got none; {remedy}.") from error
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def trade_off(
    path: str | Path,
    curves: Mapping[str, Mapping[str, np.ndarray | Sequence[np.ndarray]]],
    *,
    across: str,
    up: str,
    limits: tuple[Any, Any] = (None, None),
    log: bool = False,
    quick: bool = False,
) -> Path:
    """Methods as curves through the means of their settings, with bars over seeds.

    Args:
      path: of the PNG file.
      curves: for each panel's title and method's name, one line or more through (settings, seeds,
        2) values, x and y.
      across: what x is.
      up: what y is.
      limits: of x and of y.
      log: whether x is logarithmic.
      quick: marks the figure as that of a quick run.
    """
    require(curves, "a figure must have a panel", dict(curves), "give one")
    figure, (all_axes,) = panels(1, len(curves), (5.2 * len(curves), 4.8))
    for axes, (title, methods) in zip(all_axes, curves.items(), strict=True):
        for at, (name, values) in enumerate(methods.items()):
            lines = [values] if isinstance(values, np.ndarray) else values
            for values in lines:
                _curve(axes, name if values is lines[0] else None, values, at)
        if log:
            axes.set_xscale("log")
        axes.set(xlabel=across, ylabel=up, title=title, xlim=limits[0], ylim=limits[1])
        axes.grid(alpha=0.3)
    legend(figure)
    return save(figure, path, quick)


def legend(figure: Any, columns: int = 4) -> None:
    """One legend for all panels, below them: inside it would cover what is shown."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    columns = min(columns, len(entries))
    place = {"loc": "outside lower center", "ncols": columns, "fontsize": 8, "frameon": False}
    figure.legend(list(entries.values()), list(entries), **place)


def share_axis(axes: Any, highest: float) -> None:
    """An axis for shares, from 0 to a little above the highest; to 1 where all are 0."""
    axes.set_ylim(0, min(1.05 * highest, 1.02) if highest > 0 else 1.0)
    if not highest:
        axes.text(0.5, 0.5, "all are 0", transform=axes.transAxes, ha="center", color="0.4")


def _curve(axes: Any, name: str | None, values: np.ndarray, at: int) -> None:
    marker, line = STYLES[at % len(STYLES)]
    middle, spread = values.mean(axis=1), values.std(axis=1)
    axes.errorbar(
        *middle.T,
        xerr=spread[:, 0],
        yerr=spread[:, 1],
        marker=marker,
        linestyle=line,
        color=COLOURS[at % len(COLOURS)],
        markersize=5,
        linewidth=1.2,
        elinewidth=0.6,
        label=name,
    )


def save(figure: Any, path: str | Path, quick: bool = False) -> Path:
    """Writes a figure as a PNG file; that of a quick run says so."""
    from matplotlib import rc_context

    if quick:
        figure.suptitle(QUICK, fontsize=10, style="italic")
    # Plain numbers on logarithmic axes: a perplexity is no power of ten.
    with rc_context({"axes.formatter.min_exponent": 4}), io.BytesIO() as drawn:
        figure.savefig(drawn, format="png", dpi=130)
        return write_atomically(path, drawn.getvalue())
