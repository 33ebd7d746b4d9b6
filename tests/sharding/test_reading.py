"""What each of two processes reads of a checkpoint: its share, and little more."""

import sys
import time

import pairs
import pytest
import scenarios

from benches import load
from sake_jax.conversion import convert, units, verify

BENCHMARK = load("conversion")
SMALL = BENCHMARK.LLADA | {
    "d_model": 1024,
    "mlp_hidden_size": 2816,
    "n_heads": 16,
    "n_kv_heads": 16,
}
SMALL |= {"embedding_size": 8192, "mask_token_id": 8101, "pad_token_id": 8100, "n_layers": 4}
SMALL |= {"eos_token_id": 8100}


@pytest.mark.slow
def test_converting_and_loading_read_a_share_each(tmp_path):
    BENCHMARK.make(tmp_path / "model", SMALL, 60_000_000)
    alone = convert(tmp_path / "model", tmp_path / "alone", mesh={"tensor": 8})
    given = (str(tmp_path / "model"), str(tmp_path / "ours"))
    for found in pairs.scenario(tmp_path / "pair", "counted", *given):
        share = found["bytes"] / pairs.COUNT
        print({name: round(found[name] / share, 3) for name in ("convert", "load", "files")})
        assert found["units"] == alone.units, "the same arrays, the same hashes"
        assert found["same"]
        for name in ("convert", "load", "files"):
            assert share <= found[name] <= 1.1 * share, name
    assert verify(tmp_path / "ours").ok


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, "int8"])
def test_two_go_on_with_the_conversion_of_one(tmp_path, monkeypatch, dtype):
    """Also where a batch was saved, and a kill came before it was in the journal."""
    BENCHMARK.make(tmp_path / "model", SMALL | {"n_layers": 2}, 60_000_000)
    monkeypatch.setattr(units, "BATCH", scenarios.BATCH)
    expected = convert(tmp_path / "model", tmp_path / "alone", dtype=dtype)
    seen = []

    def stop(unit) -> None:
        seen.append(unit)
        if len(seen) == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "model", tmp_path / "ours", dtype=dtype, on_unit=stop)
    journal = tmp_path / "ours" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) > 2
    journal.write_text("".join(lines[:-1]))
    given = (str(tmp_path / "model"), str(tmp_path / "ours"), dtype or "")
    for found in pairs.scenario(tmp_path / "pair", "converted", *given):
        assert found["units"] == expected.units
        assert 0 < found["read"] < found["all"] / pairs.COUNT
    assert verify(tmp_path / "ours").ok


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_conversion_whose_process_was_killed_goes_on(tmp_path, victim):
    BENCHMARK.make(tmp_path / "model", SMALL, 60_000_000)
    expected = convert(tmp_path / "model", tmp_path / "alone")
    words = ("converted", str(tmp_path / "model"), str(tmp_path / "ours"), "")
    given = (sys.executable, str(pairs.HERE / "scenarios.py"), *words)
    journal, until = tmp_path / "ours" / "journal.jsonl", time.monotonic() + 100
    with pairs.started(tmp_path / "killed", *given) as running:
        while not journal.exists() or journal.read_text().count("\n") < 3:
            assert time.monotonic() < until, pairs.said(tmp_path / "killed", 0)
            time.sleep(0.01)
        running[victim].kill()
        pairs.ended(running, 1 - victim, within=60)
    assert not (tmp_path / "ours" / "manifest.json").exists(), "it was killed half-way"
    for found in pairs.scenario(tmp_path / "pair", *words):
        assert found["units"] == expected.units
        assert found["read"] < found["all"] / pairs.COUNT, "what was written is not read again"
    assert verify(tmp_path / "ours").ok


@pytest.mark.slow
def test_the_command_that_converts(tmp_path):
    BENCHMARK.make(tmp_path / "model", SMALL | {"n_layers": 1}, 60_000_000)
    words = pairs.command("convert", str(tmp_path / "model"), "ours")
    assert pairs.run(tmp_path, *words) == [0, 0], pairs.said(tmp_path, 0)
    assert verify(tmp_path / "ours").ok
    assert "blocks.attention.key.kernel" in (tmp_path / "out-0").read_text()
    assert (tmp_path / "out-1").read_text() == ""
    assert pairs.run(tmp_path, *words) == [1, 1]
    for number in range(pairs.COUNT):
        assert "destination must be a new folder" in pairs.said(tmp_path, number)
