"""What a page holds: enough to draw every step again, and little more."""

import dataclasses
import json

import numpy as np
import pytest

from sake_jax.viewer import render_page
from sake_jax.viewer.events import REPELLERS, replay_events, row_events
from sake_jax.viewer.html_page import json_for_script
from sake_jax.viewer.payload import payload

LARGEST = 5_000_000


@pytest.mark.parametrize("rewrites", [0, 3])
def test_events_are_the_trajectory(recording, rewrites):
    run = recording(rewrites=rewrites)
    for row in range(3):
        changes = row_events(run, row, np.arange(12))
        again = replay_events(run.blank(row), changes, 12)
        np.testing.assert_array_equal(again, run.trajectory[:, row])
        assert len(changes.step) == run.info.revealed[:, row].sum()
        assert changes.last.sum() == 12, "every column is written in the end"


def test_a_token_has_what_was_true_when_it_was_written(recording):
    run = recording()
    tree = payload([run])
    row, ids = tree["runs"][0]["rows"][1], tree["ids"]
    assert len(row["details"]) == 12
    for at in range(12):
        step, column = row["step"][at], row["column"][at]
        place = step, 1, column - run.info.window_start[step, 1]
        before, after, repel, nats, samples = row["details"][str(at)]
        assert [ids[n] for n in before[::2]] == run.info.base_candidates.ids[place].tolist()
        assert [ids[n] for n in after[::2]] == run.info.candidates.ids[place].tolist()
        np.testing.assert_allclose(after[1::2], -100 * run.info.candidates.log_p[place], atol=0.5)
        weights = run.info.signals[0].weights[place]
        assert len(repel) == 2 * REPELLERS
        assert repel[0] == np.argmax(weights) - 4, "columns are counted from the first written"
        np.testing.assert_allclose(repel[1::2], np.sort(weights)[::-1][:6], rtol=1e-2)
        np.testing.assert_allclose(nats, run.info.candidates.entropy[place], rtol=1e-2)
        across = run.info.signals[0].sample_weights[place]
        assert samples[::2] == sorted((0, 2), key=lambda sample: -across[sample])
        np.testing.assert_allclose(samples[1::2], across[samples[::2]], rtol=1e-2)
        np.testing.assert_allclose(row["chance"][at], -100 * run.log_p[1, column], atol=0.5)
        assert ids[row["token"][at]] == run.tokens[1, column]


def test_tokens_that_were_written_again_keep_their_probability(recording):
    run = recording(rewrites=2)
    tree = payload([run])
    row = tree["runs"][0]["rows"][0]
    changes = row_events(run, 0, np.arange(12))
    assert sorted(map(int, row["details"])) == np.flatnonzero(changes.last).tolist()
    earlier = np.flatnonzero(~changes.last)
    place = changes.step[earlier], 0, changes.column[earlier]
    expected = -100 * run.info.candidates.log_p[place][:, -1]
    np.testing.assert_allclose(np.take(row["chance"], earlier), expected, atol=0.5)


def test_a_token_outside_the_candidates_has_no_probability(recording):
    run = recording(rewrites=2)
    run.info.candidates.ids[...] = 1000
    row = payload([run])["runs"][0]["rows"][0]
    changes = row_events(run, 0, np.arange(12))
    assert all(row["chance"][at] is None for at in np.flatnonzero(~changes.last))


def test_forbidden_candidates_are_left_out(recording):
    run = recording()
    run.info.candidates.log_p[..., 3:] = -1e30
    row = payload([run])["runs"][0]["rows"][0]
    assert {len(after) for _, after, *_ in row["details"].values()} == {6}
    assert {len(before) for before, *_ in row["details"].values()} == {10}


def test_curves_and_steps_that_were_not_taken(recording):
    run = recording()
    curves = payload([run])["runs"][0]["rows"][2]["curves"]
    np.testing.assert_allclose(curves["entropy"], run.info.entropy[:, 2], rtol=1e-2)
    np.testing.assert_allclose(curves["base_entropy"], run.info.base_entropy[:, 2], rtol=1e-2)
    np.testing.assert_allclose(curves["kl"], run.info.kl[:, 2], rtol=1e-2)
    slope = run.info.signals[0].covariance[:, 2]
    np.testing.assert_allclose(curves["covariance"], slope, rtol=1e-2)
    assert curves["revealed"] == run.info.revealed[:, 2].tolist()
    run.info.candidates.log_p[7:] = 0  # as records of steps that nobody took
    run.info.candidates.log_p[5, 2] = 0
    run.trajectory[7:] = run.trajectory[6]
    shown = payload([run])["runs"][0]
    assert shown["steps"] == 7
    gaps = [at for at, value in enumerate(shown["rows"][2]["curves"]["entropy"]) if value is None]
    assert gaps == [5], "only this row's batch left the step out"


def test_repellers_of_almost_no_weight_are_left_out(recording):
    run = recording()
    run.info.signals[0].weights[...] *= 5e-3
    run.info.signals[0].weights[..., 0] = 1
    run.info.signals[0].sample_weights[...] = 0
    row = payload([run])["runs"][0]["rows"][0]
    assert {tuple(repel[::2]) for _, _, repel, *_ in row["details"].values()} == {(-4,)}
    assert all(samples == [] for *_, samples in row["details"].values())


def test_guidance_without_a_kernel_has_no_repellers_and_no_slope(recording):
    run = recording()
    run = dataclasses.replace(run, info=run.info.replace(signals=()))
    row = payload([run])["runs"][0]["rows"][0]
    assert "covariance" not in row["curves"]
    assert all(repel == [] == samples for _, _, repel, _, samples in row["details"].values())


@pytest.mark.parametrize("rewrites", [0, 6])
def test_the_largest_run_stays_small(recording, rewrites):
    size = {"columns": 256, "steps": 256, "samples": 8, "window": 32, "size": 126_000}
    if rewrites:  # their window is the canvas: two samples show what eight would take
        size |= {"samples": 2}
    run = recording(**size, rewrites=rewrites)
    beside = dataclasses.replace(run, name="unguided")
    taken = len(render_page([run, beside]).encode()) * 8 / size["samples"]
    assert taken < LARGEST


def test_nothing_in_the_payload_ends_its_script(recording, words):
    run = dataclasses.replace(recording(), prompts=[[0, 1, 2]])
    made = render_page([run], words, title="<script>&")
    text = json_for_script(payload([run], words))
    assert "<" not in text
    assert json.loads(text)["pieces"][:3] == [words.decode([at]) for at in range(3)]
    assert made.count("</script>") == 2, "the payload's and the program's"
    assert "<h1>&lt;script&gt;&amp;</h1>" in made


def test_words_ids_and_special_tokens(recording, words):
    run = dataclasses.replace(recording(), prompts=[[0, 1, 2]])
    named, bare = payload([run], words), payload([run])
    assert named["words"]
    assert named["special"] == [0]
    assert not bare["words"]
    assert bare["pieces"] == [str(token) for token in bare["ids"]]
    assert bare["special"] == []
    assert named["prompts"] == [{"tokens": [0, 1, 2], "first": -3}]


def test_the_page_opens_where_it_is_told_to(recording):
    assert (payload([recording()])["opens"], payload([recording()])["note"]) == (0, "")
    told = payload([recording()], opens=2, note="no clear difference")
    assert (told["opens"], told["note"]) == (2, "no clear difference")


def test_side_by_side_needs_the_same_prompts(recording):
    with pytest.raises(ValueError, match="must have the same prompts"):
        payload([recording(), recording(prompt=2)])
    with pytest.raises(ValueError, match="must have as many samples"):
        payload([recording(), recording(samples=2)])


def test_pages_need_nothing_else_and_show_in_notebooks(recording, words, tmp_path):
    made = render_page([recording()], words, title='a "title"')
    assert "{{" not in made
    assert "http://" not in made.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in made
    saved = made.save(tmp_path / "run.html")
    assert saved.read_text(encoding="utf-8") == made
    shown = made._repr_html_()
    assert shown.startswith("<iframe")
    assert shown.count('"') == 6, "the document's own quotes are escaped"
