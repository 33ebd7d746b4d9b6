"""Tables of speed from their JSON: numbers by hand, the file, and the pages made of it."""

import json

import pytest

from conftest import GOLDENS
from sake_jax.planning.bench.report import (
    added_table,
    describe_measurement,
    format_added,
    published_table,
    rates_table,
    render_markdown,
)
from sake_jax.planning.bench.results_file import (
    read_results,
    replace_between_markers,
    summary_table,
    write_results,
)
from sake_jax.planning.forms import BASE, FORMS
from test_benchmarks import load

SAKE = "SAKE folded"


def row(ms, ratio=None, **more):
    timing = {} if ratio is None else {"ratio": ratio, "compile": 1.25}
    return {"ms": ms, "tokens_per_second": 1000 / ms} | timing | more


def cell(at, base, guided, ratio=None, **more):
    own = ratio and [1.0, 1.0, 1.0]
    return {
        "at": at,
        "others": 0.5,
        "forms": {BASE: row(base, own), SAKE: row(guided, ratio, **more)},
    }


ASKED = {"fits": True, "peak": 2**31, "ms": 12.345, "compile": 30.2}
REFUSED = {"fits": False, "peak": None, "ms": None, "compile": 3.0}
FOUND = {
    "measured": {
        "machine": {"device": "cpu", "devices": 1, "cores": 2, "load": [0.1], "jax": "0.10.2"},
        "model": dict(name="scaled", D=8, N=2, H=2, F=24, V=64, dtype="float32"),
        "setting": {"length": 8, "steps": 4, "rounds": 3, "batch": 1},
        "tables": {
            "prompt": [
                cell(128, 10.0, 10.5, [1.05, 1.0, 1.1]),
                cell(1024, 80.0, 88.0, [1.1, 1.09, 1.12]),
            ],
            "batch": [cell(1, 10.0, 10.5, [1.05, 1.0, 1.1])],
            "devices": [],
        },
    },
    "planned": {
        "model": {"name": "llada-8b", "dtype": "bfloat16"},
        "setting": {"length": 128, "steps": 128, "batch": 1},
        "chips": [
            {
                "chips": "v5e:2x4",
                "devices": 8,
                "mesh": {"data": 1, "tensor": 8},
                "prompt": [cell(128, 4.0, 4.4, compiler=ASKED), cell(1024, 9.0, 9.9)],
            },
            {
                "chips": "v6e:1x1",
                "devices": 1,
                "mesh": {"data": 1},
                "prompt": [cell(128, 12.0, 12.06), cell(1024, 32.0, 32.0, compiler=REFUSED)],
            },
        ],
    },
}


def test_what_is_added_by_hand():
    first, last = FOUND["measured"]["tables"]["prompt"]
    assert format_added(first["forms"], BASE) == "10.00 ms"
    assert format_added(last["forms"], SAKE) == "+10.0 % (+9.0 to +12.0)"
    assert format_added(FOUND["planned"]["chips"][1]["prompt"][0]["forms"], SAKE) == "+0.50 %"
    assert added_table([first, last], "size").splitlines()[0] == "| size | 128 | 1,024 |"
    assert rates_table([first], "size").splitlines()[-1] == f"| {SAKE} | 95.2 |"


def test_the_papers_own_numbers():
    lines = published_table().splitlines()
    assert lines[-1].endswith("| +8.8 % | +6.2 % | +7.1 % | +7.8 % |")
    assert lines[-2].endswith("| +31.4 % | +47.9 % | +67.6 % | +93.6 % |")


def test_everything_is_told():
    text = render_markdown(FOUND)
    for said in (
        "N 2, D 8, F 24, V 64, float32",
        "up to 0.50 cores meanwhile, **too many",
        "### With the rows of a batch",
        "With devices: not measured",
        "### v5e:2x4, tensor=8",
        f"| {SAKE} | 128 | 2.00 GiB | 12.35 | 30 s |",
        f"| {SAKE} | 1,024 | does not fit | not told | 3 s |",
    ):
        assert said in text
    assert "planned" not in render_markdown({"measured": FOUND["measured"]})
    assert "With the vocabulary" not in text


def quiet() -> dict:
    """The same, measured while nobody else was there."""
    prompts = [each | {"others": 0.05} for each in FOUND["measured"]["tables"]["prompt"]]
    return FOUND | {"measured": FOUND["measured"] | {"tables": {"prompt": prompts}}}


def test_a_quiet_machine_is_not_blamed():
    assert "up to 0.05 cores meanwhile." in describe_measurement(quiet()["measured"])


def test_a_summary_has_one_chip_and_both_ends():
    head, _, line, _, *notes = summary_table(quiet()).splitlines()
    assert "planned, v6e:1x1, prompt 128" in head
    assert "measured, prompt 1,024" in head
    cells = ["+0.50 %", "+0.00 %", "+5.0 % (+0.0 to +10.0)", "+10.0 % (+9.0 to +12.0)"]
    assert [part.strip() for part in line.split("|")[2:-1]] == cells
    assert "classifier-free +31 to +94 %" in " ".join(notes)
    assert max(map(len, notes)) <= 115


def test_times_of_a_busy_machine_are_not_shown():
    text = summary_table(FOUND)
    assert "planned, v6e:1x1, prompt 128" in text
    assert "measured, prompt" not in text
    assert "only on a busy machine" in text


def test_a_file_keeps_the_other_part(tmp_path):
    path = tmp_path / "new" / "speed.json"
    assert read_results(path) == {}
    write_results(path, {"planned": FOUND["planned"]})
    assert write_results(path, {"measured": FOUND["measured"]}) == FOUND == read_results(path)
    changed = FOUND["measured"] | {"model": {"name": "other"}}
    assert write_results(path, {"measured": changed})["planned"] == FOUND["planned"]
    assert json.loads(path.read_text())["measured"]["model"]["name"] == "other"


@pytest.mark.parametrize("text", ["not json", "[1, 2]", '{"results": 1}'])
def test_files_of_others_are_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=r"other.json must hold .*a file that sake-jax bench wrote"
    ):
        read_results(path)
    assert path.read_text() == text


@pytest.mark.parametrize("page", ["none", "<!-- x -->", "<!-- /x --><!-- x -->"])
def test_pages_without_a_place(page):
    with pytest.raises(ValueError, match="put them where the table belongs"):
        replace_between_markers(page, "x", "new")


def test_pages_are_what_the_results_give():
    """README's table and results/speed.md."""
    for path, text in load("speed").pages().items():
        remedy = "python benchmarks/speed.py writes it"
        assert path.read_text() == text, f"{path.name} is not what speed.json gives; {remedy}"


def test_recorded_results_have_every_form():
    result = read_results(GOLDENS.parents[1] / "benchmarks/results/speed.json")
    tables = [result["measured"]["tables"]["prompt"]]
    tables += [chips["prompt"] for chips in result["planned"]["chips"]]
    for cells in tables:
        assert [each["at"] for each in cells] == [128, 256, 512, 1024]
        assert all(set(each["forms"]) == set(FORMS) for each in cells)
    named = {chips["chips"] for chips in result["planned"]["chips"]}
    assert named == {"v5e:2x4", "v5p:2x2x1", "v6e:1x1", "h100:1"}
