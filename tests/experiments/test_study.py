"""A study that is stopped and goes on."""

import pytest

from sake_jax.experiments.study import Study
from sake_jax.tables import table

CELLS = [{"x": x, "seed": seed} for x in (1, 2) for seed in (0, 1)]


def squares(group):
    return [{"square": cell["x"] ** 2} for cell in group]


def begin(folder):
    return Study(folder, {"experiment": "squares"}, progress=False)


def test_measures_each_cell_once(tmp_path):
    asked = []

    def measured(group):
        asked.extend(group)
        return squares(group)

    begin(tmp_path).measure([CELLS[:2]], measured)
    study = begin(tmp_path)
    study.measure([CELLS[1:3], CELLS[3:]], measured)
    assert asked == CELLS
    assert [row["square"] for row in study.rows(seed=1)] == [1, 4]
    assert study.rows(x=2, seed=0)[0].keys() == {"x", "seed", "square", "seconds"}
    assert len(begin(tmp_path).rows()) == 4


def test_goes_on_after_an_error_and_after_a_line_that_was_cut(tmp_path):
    def broken(group):
        if group[0]["x"] == 2:
            raise KeyboardInterrupt
        return squares(group)

    study = begin(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        study.measure([CELLS[:2], CELLS[2:]], broken)
    with study.journal.path.open("a") as file:
        file.write('{"cell": {"x": 2, "se')
    again = begin(tmp_path)
    assert len(again.rows()) == 2
    again.measure([CELLS], squares)
    assert len(begin(tmp_path).rows()) == 4


def test_another_experiments_folder_is_refused(tmp_path):
    begin(tmp_path)
    with pytest.raises(ValueError, match="must be new or hold a run with the same"):
        Study(tmp_path, {"experiment": "cubes"})


def test_shows_a_bar(tmp_path, capsys):
    Study(tmp_path / "squares", {}, progress=True).measure([CELLS], squares)
    assert "4/4" in capsys.readouterr().err


def test_tables_and_files(tmp_path):
    text = table([["", "x"], ["a", "1"]])
    assert text == "| | x |\n|---|---|\n| a | 1 |"
    assert begin(tmp_path).write("table.md", text).read_text() == text
