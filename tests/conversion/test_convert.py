"""Converting, loading, verifying and exporting, also when something goes wrong half-way."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from checkpoints import FAMILIES, copied, read_of, with_config, with_tensors
from orbax.checkpoint import v1 as orbax

import sake_jax as sj
from conftest import GOLDENS
from disks import written_by_another
from sake_jax.conversion import convert, export, open_checkpoint, verify
from sake_jax.conversion import manifest as manifests
from sake_jax.conversion.loader import parameters
from sake_jax.conversion.manifest import Manifest
from sake_jax.models import flatten_params


def same(ours, theirs):
    assert flatten_params(ours).keys() == flatten_params(theirs).keys()
    for path, leaf in flatten_params(ours).items():
        other = flatten_params(theirs)[path]
        assert leaf.dtype == other.dtype, path
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(other), err_msg=path)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_converted_checkpoint_loads_the_same_and_exports_bit_for_bit(name, tmp_path):
    convert(GOLDENS / name, tmp_path / "ours")
    same(sj.load(tmp_path / "ours").params, sj.load(GOLDENS / name).params)
    assert verify(tmp_path / "ours").ok
    export(tmp_path / "ours", tmp_path / "theirs")
    before, after = open_checkpoint(GOLDENS / name), open_checkpoint(tmp_path / "theirs")
    assert after.described == before.described
    assert after.source.shapes == read_of(before)
    for tensor in read_of(before):
        first, second = before.source.read(tensor, ()), after.source.read(tensor, ())
        assert first.dtype == second.dtype
        assert first.tobytes() == second.tobytes(), tensor


def test_plain_orbax_reads_what_we_write(tmp_path):
    from orbax.checkpoint import v1 as orbax

    convert(GOLDENS / "llada", tmp_path / "ours")
    tree = orbax.load(str(tmp_path / "ours" / "weights"))
    kernel = sj.load(GOLDENS / "llada").params["blocks"]["mlp"]["up"]["kernel"]
    np.testing.assert_array_equal(tree["blocks.1.mlp.up.kernel"], kernel[1])


def test_export_splits_into_files_of_a_chosen_size(tmp_path):
    files = export(GOLDENS / "llada", tmp_path / "parts", shard_bytes=100_000)
    assert len(files) > 2
    same(sj.load(tmp_path / "parts").params, sj.load(GOLDENS / "llada").params)
    usual = tmp_path / "usual"
    usual.touch()
    assert {file.stat().st_mode for file in files} == {usual.stat().st_mode}
    with pytest.raises(ValueError, match="new or empty folder"):
        export(GOLDENS / "llada", tmp_path / "parts")


def test_dtype_is_the_same_before_and_after_conversion(tmp_path):
    convert(GOLDENS / "dream", tmp_path / "ours", dtype="bfloat16")
    stored, cast = sj.load(tmp_path / "ours"), sj.load(GOLDENS / "dream", dtype="bfloat16")
    assert stored.params["input"]["rows"].dtype == jnp.bfloat16
    same(stored.params, cast.params)
    with pytest.raises(ValueError, match="dtype must be one of 'float32', 'bfloat16', 'int8', got"):
        sj.load(GOLDENS / "dream", dtype="int32")


@pytest.mark.parametrize("dtype", [None, "int8"])
def test_float16_is_for_files_only(dtype, tmp_path):
    convert(GOLDENS / "mdlm", tmp_path / "ours", dtype="float16")
    stored, exact = sj.load(tmp_path / "ours", dtype=dtype), sj.load(GOLDENS / "mdlm")
    rows = stored.params["input"]["rows"]
    assert rows.dtype == jnp.float32
    np.testing.assert_array_equal(rows, np.float16(exact.params["input"]["rows"]))
    with pytest.raises(ValueError, match="do not compute in float16"):
        sj.load(GOLDENS / "mdlm", dtype="float16")


@pytest.mark.parametrize("name", ["llada", "llada_moe", "mdlm"])
def test_bfloat16_gives_coarser_logits(name, golden):
    """8 bits of mantissa through two layers; routing may flip for a token."""
    tokens = golden(f"{name}/golden.npz")["input_ids"]
    exact = np.asarray(sj.load(GOLDENS / name).logits(tokens))
    coarse = sj.load(GOLDENS / name, dtype="bfloat16").logits(tokens)
    assert coarse.dtype == jnp.float32
    assert 1e-4 < np.sqrt(np.mean((coarse - exact) ** 2)) / np.std(exact) < 0.1


@pytest.mark.parametrize("name", ["llada", "llada_moe", "mdlm"])
def test_int8_is_the_same_before_and_after_conversion(name, tmp_path):
    convert(GOLDENS / name, tmp_path / "ours", dtype="int8")
    stored, made = sj.load(tmp_path / "ours"), sj.load(GOLDENS / name, dtype="int8")
    same(stored.params, made.params)
    assert made.params["blocks"]["attention"]["out"]["kernel"].dtype == jnp.int8
    assert verify(tmp_path / "ours").ok
    with pytest.raises(ValueError, match="only float weights"):
        export(tmp_path / "ours", tmp_path / "theirs")
    with pytest.raises(ValueError, match="int8 is made from float weights"):
        sj.load(tmp_path / "ours", dtype="int8")


@pytest.mark.parametrize("name", ["llada", "mdlm", "gpt2"])
def test_int8_logits_are_about_as_good_as_bfloat16(name, golden):
    tokens = golden(f"{name}/golden.npz")["input_ids"]
    exact = np.asarray(sj.load(GOLDENS / name).logits(tokens))

    def error(dtype):
        logits = np.asarray(sj.load(GOLDENS / name, dtype=dtype).logits(tokens))
        return np.sqrt(np.mean((logits - exact) ** 2)) / np.std(exact)

    assert error("int8") < 4 * error("bfloat16")
    assert error("int8") < 0.05


def test_casts_and_int8_hold_a_wide_copy_of_one_layer_only(monkeypatch):
    checkpoint = open_checkpoint(GOLDENS / "llada")
    read, sizes = type(checkpoint.weights).read, []

    def counting(self, target, index):
        found = read(self, target, index)
        sizes.append(found.size)
        return found

    monkeypatch.setattr(type(checkpoint.weights), "read", counting)
    for dtype in ("bfloat16", "int8"):
        sj.load(GOLDENS / "llada", dtype=dtype)
    assert max(sizes) == 288 * 48, "the tables, which have no layers"


def test_load_follows_the_default_device():
    with jax.default_device(jax.devices()[3]):
        lm = sj.load(GOLDENS / "llada")
    assert lm.params["norm"]["weight"].devices() == {jax.devices()[3]}


def test_int8_kernels_are_within_half_a_step():
    exact = flatten_params(sj.load(GOLDENS / "llada_moe").params)
    made = flatten_params(sj.load(GOLDENS / "llada_moe", dtype="int8").params)
    kernels = [path for path, leaf in made.items() if leaf.dtype == jnp.int8]
    assert len(kernels) == 7
    for path in kernels:
        axis = -2 if made[path].ndim == 4 else -1
        scale = np.expand_dims(made[path.replace("kernel", "scale")], axis)
        assert np.all(np.abs(np.asarray(made[path]) * scale - exact[path]) <= scale * 0.5001), path


class Killed(Exception):
    pass


def killed_after(count):
    seen = []

    def on_unit(unit):
        seen.append(unit)
        if len(seen) == count:
            raise Killed

    return on_unit


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("sake_jax.conversion.units.BATCH", 20_000)


def files_of(folder):
    return {p.name for p in folder.iterdir()}


@pytest.mark.parametrize("count", [1, 7, 20])
def test_a_killed_run_goes_on_and_ends_the_same(count, tmp_path, small_batches):
    whole = convert(GOLDENS / "llada", tmp_path / "whole")
    with pytest.raises(Killed):
        convert(GOLDENS / "llada", tmp_path / "ours", on_unit=killed_after(count))
    with pytest.raises(ValueError, match="conversion must be finished"):
        sj.load(tmp_path / "ours")
    read = []
    resumed = convert(GOLDENS / "llada", tmp_path / "ours", on_unit=read.append)
    assert len(read) == 21
    assert resumed.units == whole.units
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "whole")
    assert verify(tmp_path / "ours").ok
    same(sj.load(tmp_path / "ours").params, sj.load(GOLDENS / "llada").params)


@pytest.mark.parametrize("last", [False, True])
def test_killed_between_the_save_and_the_journal(last, tmp_path, small_batches, monkeypatch):
    """orbax then refuses the batch, and no other one takes away what it leaves of the last."""
    whole = convert(GOLDENS / "llada", tmp_path / "whole")
    final = list(whole.units)[-1]
    calls = []

    def add(self, arrays):
        calls.append(arrays)
        if (final in arrays) if last else (len(calls) == 3):
            raise Killed
        real(self, arrays)

    real = manifests.UnfinishedConversion.add
    with monkeypatch.context() as patch:
        patch.setattr(manifests.UnfinishedConversion, "add", add)
        with pytest.raises(Killed):
            convert(GOLDENS / "llada", tmp_path / "ours")
    assert convert(GOLDENS / "llada", tmp_path / "ours").units == whole.units
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "whole")
    assert verify(tmp_path / "ours").ok


def test_killed_in_the_middle_of_a_journal_line(tmp_path, small_batches):
    with pytest.raises(Killed):
        convert(GOLDENS / "llada", tmp_path / "ours", on_unit=killed_after(7))
    journal = tmp_path / "ours" / "journal.jsonl"
    journal.write_text(journal.read_text()[:-20])
    convert(GOLDENS / "llada", tmp_path / "ours")
    assert verify(tmp_path / "ours").ok


def test_killed_after_the_weights_and_before_the_manifest(tmp_path, monkeypatch):
    def write(self, folder):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write", write)
        with pytest.raises(Killed):
            convert(GOLDENS / "llada", tmp_path / "ours")
    convert(GOLDENS / "llada", tmp_path / "ours")
    assert verify(tmp_path / "ours").ok


FINALIZE = "orbax.checkpoint.experimental.v1._src.partial.saving"


@pytest.mark.parametrize("step", ["BasePyTreeCheckpointHandler.finalize", "_merge_pytree_metadata"])
def test_killed_while_orbax_puts_the_parts_together(step, tmp_path, small_batches, monkeypatch):
    """Not all is pending then: orbax would take what is there for a whole checkpoint."""
    whole = convert(GOLDENS / "llada", tmp_path / "whole")

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"{FINALIZE}.{step}", killed)
        with pytest.raises(Killed):
            convert(GOLDENS / "llada", tmp_path / "ours")
    assert '{"finalizing": true}' in (tmp_path / "ours" / "journal.jsonl").read_text()
    assert convert(GOLDENS / "llada", tmp_path / "ours").units == whole.units
    assert files_of(tmp_path / "ours") == files_of(tmp_path / "whole")
    assert verify(tmp_path / "ours").ok


@pytest.mark.parametrize("times", [1, 2])
def test_what_cannot_be_read_back_is_written_again(times, tmp_path, small_batches, monkeypatch):
    """Also what an earlier version left half finalized, without a mark; at last it gives up."""
    real, left = orbax.partial.finalize, [times]

    def damage(path):
        real(path)
        if left[0]:
            left[0] -= 1
            largest = max(Path(path).rglob("d/*"), key=lambda file: file.stat().st_size)
            largest.write_bytes(bytes(largest.stat().st_size))

    monkeypatch.setattr(orbax.partial, "finalize", damage)
    if times == 2:
        with pytest.raises(ValueError, match=r"cannot be read back \(\['.*; check the disk"):
            convert(GOLDENS / "llada", tmp_path / "ours")
        assert files_of(tmp_path / "ours") == {"journal.jsonl"}
    convert(GOLDENS / "llada", tmp_path / "ours")
    assert verify(tmp_path / "ours").ok


def test_killed_before_the_journal_went(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("sake_jax.conversion.writer._forget", lambda folder, journal: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            convert(GOLDENS / "llada", tmp_path / "ours")
    assert {"manifest.json", "journal.jsonl"} <= files_of(tmp_path / "ours")
    assert verify(tmp_path / "ours").ok
    convert(GOLDENS / "llada", tmp_path / "ours", on_unit=lambda unit: 1 / 0)
    assert "journal.jsonl" not in files_of(tmp_path / "ours")


def test_one_process_converts_into_a_folder(tmp_path):
    (tmp_path / "ours").mkdir()
    with (
        written_by_another(tmp_path / "ours"),
        pytest.raises(ValueError, match="ours must have one writer at a time"),
    ):
        convert(GOLDENS / "llada", tmp_path / "ours")
    assert not files_of(tmp_path / "ours")


def test_an_export_appears_when_it_is_whole(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("sake_jax.conversion.exporter.copy_description", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export(GOLDENS / "llada", tmp_path / "ours")
    assert not files_of(tmp_path)
    (tmp_path / "ours.partial").mkdir()
    (tmp_path / "ours.partial" / "stale").touch()  # left by a kill
    files = export(GOLDENS / "llada", tmp_path / "ours")
    assert [file.parent for file in files] == [tmp_path / "ours"]
    assert files_of(tmp_path) == {"ours"}
    assert "stale" not in files_of(tmp_path / "ours")


def test_another_job_may_not_go_on_with_it(tmp_path, small_batches):
    with pytest.raises(Killed):
        convert(GOLDENS / "llada", tmp_path / "ours", on_unit=killed_after(7))
    with pytest.raises(ValueError, match="must be the same one"):
        convert(GOLDENS / "llada", tmp_path / "ours", dtype="bfloat16")
    with pytest.raises(ValueError, match="must be the same one"):
        convert(copied("llada", tmp_path), tmp_path / "ours")


def test_another_converted_source_may_not_go_on_with_it(tmp_path, small_batches):
    other = with_tensors(copied("llada", tmp_path), lambda ts: {n: t + 1 for n, t in ts.items()})
    for name, source in (("first", GOLDENS / "llada"), ("second", other)):
        convert(source, tmp_path / name)
    with pytest.raises(Killed):
        convert(tmp_path / "first", tmp_path / "ours", on_unit=killed_after(7))
    with pytest.raises(ValueError, match="must be the same one"):
        convert(tmp_path / "second", tmp_path / "ours")


def test_other_batches_may_not_go_on_with_it(tmp_path, small_batches, monkeypatch):
    """They might overlap with what was written just before the kill."""
    with pytest.raises(Killed):
        convert(GOLDENS / "llada", tmp_path / "ours", on_unit=killed_after(7))
    monkeypatch.setattr("sake_jax.conversion.units.BATCH", 30_000)
    with pytest.raises(ValueError, match="must be the same one"):
        convert(GOLDENS / "llada", tmp_path / "ours")


def test_killed_while_the_journal_began(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "journal.jsonl").write_text('{"files": {"model.saf')
    convert(GOLDENS / "llada", tmp_path / "ours", dtype=jnp.bfloat16)
    assert verify(tmp_path / "ours").ok


def test_a_folder_in_use_is_not_written_to(tmp_path):
    convert(GOLDENS / "llada", tmp_path / "ours")
    for folder in (tmp_path / "ours", GOLDENS / "dream"):
        with pytest.raises(ValueError, match="destination must be a new folder"):
            convert(GOLDENS / "llada", folder)


def test_verify_finds_changed_bytes_and_numbers_that_are_none(tmp_path):
    convert(GOLDENS / "mdlm", tmp_path / "ours")
    path = tmp_path / "ours" / "manifest.json"
    found = json.loads(path.read_text())
    found["units"]["output.rows"]["sha256"] = "0" * 64
    path.write_text(json.dumps(found))
    assert verify(tmp_path / "ours").problems == (
        "output.rows: its bytes are not those that were converted",
    )

    def broken(tensors):
        table = tensors["backbone.vocab_embed.embedding"].copy()
        table[3, 4] = np.nan
        return tensors | {"backbone.vocab_embed.embedding": table}

    verdict = verify(with_tensors(copied("mdlm", tmp_path), broken))
    assert verdict.problems == ("backbone.vocab_embed.embedding: it holds NaN or infinity",)


@pytest.mark.parametrize("name", FAMILIES)
def test_verify_against_recorded_logits(name, golden, tmp_path):
    arrays = golden(f"{name}/golden.npz")
    if name == "udlm":
        arrays["logits"] = arrays["logits_cond"]
    if name == "diffusion_gemma":
        arrays["logits"] = arrays["logits_left_padded"]
    if name == "llada2":  # its config names no block; this was recorded with blocks of four
        arrays["block_size"] = 4
    np.savez(tmp_path / "golden.npz", **arrays)
    verdict = verify(GOLDENS / name, tmp_path / "golden.npz")
    assert verdict.ok
    assert verdict.error < 5e-5
    arrays["logits"] = arrays["logits"] + 1e-3
    np.savez(tmp_path / "other.npz", **arrays)
    assert "logits differ" in verify(GOLDENS / name, tmp_path / "other.npz").problems[0]


@pytest.mark.parametrize("name", ["llada2", "sdar"])
def test_verify_against_logits_that_were_recorded_without_blocks(name, golden, tmp_path):
    """What a plain forward pass of the original gives."""
    g = golden(f"{name}/golden.npz")
    arrays = {"input_ids": g["input_ids"], "logits": g["logits_bidirectional"]}
    np.savez(tmp_path / "plain.npz", **arrays, block_size=0)
    assert verify(GOLDENS / name, tmp_path / "plain.npz").ok
    np.savez(tmp_path / "three.npz", **arrays, block_size=3)
    assert not verify(GOLDENS / name, tmp_path / "three.npz").ok
    if name == "llada2":  # its blocks of 32 are all of these columns
        arrays["logits"] = g["logits"]
    np.savez(tmp_path / "unsaid.npz", **arrays)
    (problem,) = verify(GOLDENS / name, tmp_path / "unsaid.npz").problems
    assert "not recorded in blocks of" in problem
    np.savez(tmp_path / "wrong.npz", **arrays, block_size=1.5)
    with pytest.raises(ValueError, match="block_size must be one whole number"):
        verify(GOLDENS / name, tmp_path / "wrong.npz")


def test_verify_needs_the_right_arrays(tmp_path, golden):
    np.savez(tmp_path / "golden.npz", input_ids=np.zeros((1, 2), int))
    with pytest.raises(ValueError, match="'input_ids' and 'logits'"):
        verify(GOLDENS / "llada", tmp_path / "golden.npz")


def test_a_damaged_weights_folder_is_named(tmp_path):
    convert(GOLDENS / "llada", tmp_path / "ours")
    for file in (tmp_path / "ours" / "weights").rglob("d/*"):
        file.unlink()
    with pytest.raises(ValueError, match="convert the checkpoint again"):
        sj.load(tmp_path / "ours")


def test_a_manifest_of_another_format_is_refused(tmp_path):
    convert(GOLDENS / "llada", tmp_path / "ours")
    path = tmp_path / "ours" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError, match="must have format 1"):
        sj.load(tmp_path / "ours")
    path.write_text("{")
    with pytest.raises(ValueError, match="must be JSON"):
        sj.load(tmp_path / "ours")


class Counting:
    """A source that remembers how many numbers were read of each tensor."""

    def __init__(self, source):
        self.source, self.read_sizes = source, {}
        self.shapes, self.dtypes, self.files = source.shapes, source.dtypes, source.files

    def read(self, name, index):
        array = self.source.read(name, index)
        self.read_sizes.setdefault(name, []).append(array.size)
        return array


@pytest.mark.parametrize("converted", [False, True])
def test_a_mesh_reads_every_tensor_once_and_loads_the_same(converted, tmp_path):
    folder = GOLDENS / "llada"
    if converted:
        convert(folder, tmp_path / "ours", mesh={"fsdp": 2, "tensor": 4})
        folder = tmp_path / "ours"
    checkpoint = open_checkpoint(folder)
    counting = Counting(checkpoint.source)
    checkpoint.weights.source = counting
    mesh = sj.mesh(fsdp=2, tensor=4)
    spread = parameters(checkpoint, mesh)
    same(spread, sj.load(GOLDENS / "llada").params)
    kernel = spread["blocks"]["mlp"]["up"]["kernel"]
    assert kernel.sharding.shard_shape(kernel.shape) == (2, 32, 24)
    name = next(n for n in counting.read_sizes if n.endswith(("up_proj.weight", "mlp.up.kernel")))
    assert counting.read_sizes[name] == [8 * 32 * 24], "its eight slices are read together"


def test_sharded_logits_equal_those_on_one_device(golden):
    tokens = golden("llada/golden.npz")["input_ids"]
    alone = sj.load(GOLDENS / "llada").logits(tokens)
    spread = sj.load(GOLDENS / "llada", mesh=sj.mesh(fsdp=2, tensor=4))
    np.testing.assert_allclose(spread.logits(tokens), alone, atol=2e-5)


def test_what_a_mesh_does_not_divide_stays_whole():
    """6 experts do not split into 4, nor does a router into anything."""
    mlp = sj.load(GOLDENS / "llada_moe", mesh=sj.mesh(fsdp=4, tensor=2)).params["blocks"]["mlp"]
    gate, router = mlp["gate"]["kernel"], mlp["router"]["kernel"]
    assert gate.sharding.shard_shape(gate.shape) == (2, 6, 12, 12)
    assert router.sharding.shard_shape(router.shape) == (2, 6, 12)


def test_int8_on_a_mesh_is_int8_on_one_device():
    """But for the vocabulary's tables: 262 rows become 264."""
    spread = sj.load(GOLDENS / "llada_moe", mesh=sj.mesh(fsdp=2, tensor=4), dtype="int8").params
    for table in (spread["input"], spread["output"]):
        assert not np.asarray(table["rows"][262:]).any()
        table["rows"] = table["rows"][:262]
    same(spread, sj.load(GOLDENS / "llada_moe", dtype="int8").params)


def test_names_that_are_no_model(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="folder that exists, or a hub name"):
        sj.load("./nowhere")
    with pytest.raises(ValueError, match="check the name and the network"):
        sj.load("nobody/no-such-model-anywhere")


def test_mesh_errors():
    with pytest.raises(ValueError, match="number of devices"):
        sj.mesh(tensor=jax.device_count() + 1)
    with pytest.raises(ValueError, match="between 1 and"):
        sj.mesh(data=0)


def test_eos_may_be_a_list(tmp_path):
    folder = with_config(copied("llama", tmp_path), eos_token_id=[7, 8])
    assert open_checkpoint(folder).config.eos_id == 7
