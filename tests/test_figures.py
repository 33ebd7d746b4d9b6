"""Figures and tables that can be read: legends beside the data, whole words, honest axes."""

from pathlib import Path

import numpy as np
import pytest

from sake_jax import figures
from sake_jax.cli.screen import print_markdown
from sake_jax.tables import fitting_parts, longest_word, table

pytest.importorskip("matplotlib")


def drawn(monkeypatch, draw):
    """The figure that a function saves."""
    saved = []
    monkeypatch.setattr(figures, "write_atomically", lambda path, data: Path(path))
    real = figures.save
    monkeypatch.setattr(
        figures, "save", lambda figure, *a: saved.append(figure) or real(figure, *a)
    )
    draw()
    return saved[0]


CURVES = {
    "left": {f"method {at}": np.full((2, 3, 2), at / 10) for at in range(7)},
    "right": {f"method {at}": np.full((2, 3, 2), at / 10) for at in range(7)},
}


def test_a_legend_covers_no_data(monkeypatch):
    words = {"across": "perplexity by a judge", "up": "distinct-2"}
    figure = drawn(monkeypatch, lambda: figures.trade_off("x.png", CURVES, **words))
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 7, "each method once, for both panels"
    below = legend.get_window_extent()
    assert all(below.y1 <= axes.get_window_extent().y0 for axes in figure.axes)
    assert not any(axes.get_legend() for axes in figure.axes)


@pytest.mark.parametrize("quick", [False, True])
def test_a_quick_runs_figure_says_so(monkeypatch, quick):
    words = {"across": "x", "up": "y", "quick": quick}
    figure = drawn(monkeypatch, lambda: figures.trade_off("x.png", CURVES, **words))
    assert (figure.get_suptitle() == figures.QUICK) == quick


@pytest.mark.parametrize(("highest", "top"), [(0.0, 1.0), (0.4, 0.42), (1.0, 1.02)])
def test_shares_begin_at_zero(highest, top):
    _, ((axes,),) = figures.panels(1, 1, (3, 3))
    figures.share_axis(axes, highest)
    assert axes.get_ylim() == pytest.approx((0, top))
    assert [text.get_text() for text in axes.texts] == (["all are 0"] if highest == 0 else [])


LINES = [["", "", "perplexity", *(f"distinct-{n}" for n in range(2, 8)), "evaluations"]]
LINES += [["temperature", "T = 0.1", *["0.420 (0.403 to 0.442)"] * 8]]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_word_of_a_table_is_cut(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    print_markdown(f"# Title\n\n{table(LINES)}\n\nThe end.")
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= width
    assert "…" not in told
    for word in (*LINES[0], "temperature", "(0.403"):
        assert word in told


def test_parts_of_a_table_have_its_labels():
    parts = fitting_parts(table(LINES).split("\n"), 60)
    assert len(parts) > 1
    assert all(rows[1][:2] == ["temperature", "T = 0.1"] for rows in parts)
    shown = [name for rows in parts for name in rows[0][2:]]
    assert shown == LINES[0][2:], "every column once, in its order"
    assert fitting_parts(table(LINES).split("\n"), 200) == [LINES]
    assert longest_word([]) == 1
