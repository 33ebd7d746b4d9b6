"""Rule tables are one-to-one, and what does not fit is named."""

import json
import math

import ml_dtypes
import numpy as np
import pytest
from checkpoints import FAMILIES, copied, read_of, sharded, with_config, with_tensors

from conftest import GOLDENS
from sake_jax.conversion import CheckpointError, MismatchError, open_checkpoint
from sake_jax.conversion.checkpoint import leaves
from sake_jax.conversion.families import FAMILIES as KNOWN
from sake_jax.conversion.families import family, recognise
from sake_jax.conversion.rules import Rule, check, expand

QUERY = {
    "llada": "model.transformer.blocks.1.q_proj.weight",
    "dream": "model.layers.1.mlp.up_proj.weight",
}


def test_every_family_has_a_golden():
    of = {open_checkpoint(GOLDENS / name).config.family for name in FAMILIES}
    without = {"fast_dllm"}  # held to Qwen2's and SDAR's instead, see test_fast_dllm.py
    assert {known.name for known in KNOWN} == of | without


@pytest.mark.parametrize("name", FAMILIES)
def test_every_tensor_is_used_once_and_every_parameter_filled_once(name):
    checkpoint = open_checkpoint(GOLDENS / name)
    expected = leaves(checkpoint.config)
    own = family(checkpoint.config.family)
    entries = expand(own.table(checkpoint.config, checkpoint.prefix), expected)
    sources = [entry.source for entry in entries]
    places = [(entry.target, entry.index) for entry in entries]
    assert sorted(sources) == sorted(read_of(checkpoint))
    assert len(set(places)) == len(places)
    filled = sum(math.prod(entry.shape) for entry in entries)
    assert filled == sum(leaf.size for leaf in expected.values())


@pytest.mark.parametrize("name", FAMILIES)
def test_dropping_any_tensor_is_an_error_that_names_it(name):
    checkpoint = open_checkpoint(GOLDENS / name)
    expected = leaves(checkpoint.config)
    own = family(checkpoint.config.family)
    entries = expand(own.table(checkpoint.config, checkpoint.prefix), expected)
    stored = read_of(checkpoint)
    for dropped in stored:
        rest = {n: s for n, s in stored.items() if n != dropped}
        with pytest.raises(MismatchError, match="missing from the checkpoint") as error:
            check(entries, expected, rest)
        assert dropped in str(error.value)


@pytest.mark.parametrize("name", QUERY)
def test_renamed_transposed_and_truncated_tensors_are_named(name, tmp_path):
    victim = QUERY[name]

    def renamed(tensors):
        return {("stray" if n == victim else n): t for n, t in tensors.items()}

    def shorter(tensors):
        return tensors | {victim: tensors[victim][:-1]}

    folder = with_tensors(copied(name, tmp_path), renamed)
    with pytest.raises(MismatchError, match="not in the model:\n    stray") as error:
        open_checkpoint(folder)
    assert victim in str(error.value)
    (tmp_path / name).rename(tmp_path / "first")
    with pytest.raises(MismatchError, match=r"of another shape than config\.json says") as error:
        open_checkpoint(with_tensors(copied(name, tmp_path), shorter))
    assert victim in str(error.value)


def test_a_transposed_tensor_is_named(tmp_path):
    victim = QUERY["dream"]
    folder = copied("dream", tmp_path)
    with_tensors(folder, lambda tensors: tensors | {victim: tensors[victim].T})
    with pytest.raises(MismatchError, match=r"mlp.up_proj.weight: .*transposed\?"):
        open_checkpoint(folder)


def test_a_tensor_added_is_named(tmp_path):
    folder = copied("mdlm", tmp_path)
    with_tensors(folder, lambda tensors: tensors | {"backbone.extra": np.zeros(3, np.float32)})
    with pytest.raises(MismatchError, match=r"backbone\.extra"):
        open_checkpoint(folder)


def test_long_lists_are_cut():
    stored = {f"tensor{at:02d}": (1,) for at in range(30)}
    with pytest.raises(MismatchError, match="and 18 more"):
        check([], {}, stored)


def test_a_table_that_names_a_tensor_twice_is_refused():
    expected = leaves(open_checkpoint(GOLDENS / "llada").config)
    twice = expand([Rule("a", "norm.weight"), Rule("a", "norm.weight")], expected)
    with pytest.raises(MismatchError, match="named by two rules"):
        check(twice, expected, {"a": (48,)})


def test_a_config_that_disagrees_with_the_shapes(tmp_path):
    folder = with_config(copied("llada", tmp_path), mlp_hidden_size=96)
    with pytest.raises(
        MismatchError, match=r"ff_proj.weight: expected \(96, 48\), got \(128, 48\)"
    ):
        open_checkpoint(folder)
    folder = with_config(copied("dream", tmp_path), num_hidden_layers=3)
    with pytest.raises(MismatchError, match=r"missing.*\n.*layers\.2"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llada", {"alibi": True}),
        ("llada", {"block_type": "sequential"}),
        ("llada_moe", {"moe_layer_freq": [1, 0]}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1.0}}),
        ("llama", {"rope_parameters": None, "rope_scaling": {"factor": 2.0}}),
        ("llada", {"activation_type": "swiglu"}),
        ("illada", {"layer_norm_eps": 1e-5}),
        ("qwen2", {"use_sliding_window": True}),
        ("gpt2", {"activation_function": "relu"}),
        ("bd3lm", {"adaln": False}),
    ],
)
def test_variants_we_do_not_compute_are_refused(name, changes, tmp_path):
    with pytest.raises(ValueError, match="not supported"):
        open_checkpoint(with_config(copied(name, tmp_path), **changes))


def test_llada_moe_is_told_apart_by_its_architecture():
    moe, dense = (
        json.loads((GOLDENS / n / "config.json").read_text()) for n in ("llada_moe", "llada")
    )
    assert moe["model_type"] == dense["model_type"]
    assert recognise(moe).name == "llada_moe"
    with pytest.raises(ValueError, match=r"`architectures` in config.json must list one of"):
        recognise({"architectures": ["BertModel"]})


def test_the_mask_token_comes_from_the_config(tmp_path):
    assert open_checkpoint(GOLDENS / "llada").config.mask_id == 270
    folder = with_config(copied("llada", tmp_path), mask_token_id=5)
    assert open_checkpoint(folder).config.mask_id == 5
    with pytest.raises(
        ValueError, match="must be a whole number below the vocabulary's 288, got 4000"
    ):
        open_checkpoint(with_config(folder, mask_token_id=4000))


def test_shards_read_like_one_file(tmp_path):
    whole = open_checkpoint(GOLDENS / "llada").source
    parts = open_checkpoint(sharded(copied("llada", tmp_path))).source
    assert parts.shapes == whole.shapes
    for name in whole.shapes:
        np.testing.assert_array_equal(parts.read(name, ()), whole.read(name, ()))


def test_damaged_shards_are_refused(tmp_path):
    folder = sharded(copied("llada", tmp_path))
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    moved = weight_map | {next(iter(weight_map)): "model-00002-of-00002.safetensors"}
    index.write_text(json.dumps({"weight_map": moved}))
    with pytest.raises(ValueError, match="must name the same tensors"):
        open_checkpoint(folder)
    index.write_text("[]")
    with pytest.raises(ValueError, match="must hold an object"):
        open_checkpoint(folder)
    index.write_text("{}")
    with pytest.raises(ValueError, match="must have a weight_map"):
        open_checkpoint(folder)
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match="every shard must be there"):
        open_checkpoint(folder)


def test_a_truncated_file_is_refused(tmp_path):
    folder = copied("llada", tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="truncated"):
        open_checkpoint(folder)


def test_integer_weights_are_refused(tmp_path):
    folder, victim = copied("llada", tmp_path), QUERY["llada"]
    with_tensors(folder, lambda tensors: tensors | {victim: np.zeros((48, 48), np.int32)})
    with pytest.raises(ValueError, match=f"{victim} must be stored as one of .*I32"):
        open_checkpoint(folder)


def test_pickles_are_never_opened(tmp_path):
    folder = copied("llada", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin.*pickles are never opened"):
        open_checkpoint(folder)


@pytest.mark.parametrize("content", ["{", ""])
def test_a_broken_config_is_refused(content, tmp_path):
    folder = copied("llada", tmp_path)
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match="must be JSON"):
        open_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"must hold config\.json"):
        open_checkpoint(folder)


def test_tensors_that_follow_from_the_config_are_passed_over(tmp_path):
    folder = copied("gpt2", tmp_path)
    triangle = {"transformer.h.0.attn.bias": np.zeros((1, 1, 4, 4), np.float32)}
    with_tensors(folder, lambda tensors: tensors | triangle)
    assert "transformer.h.0.attn.bias" in open_checkpoint(folder).source.shapes


@pytest.mark.parametrize("name", ["qwen3", "llama", "gpt2", "llada"])
def test_a_tied_head_may_be_stored_too(name, tmp_path):
    prefix, known = open_checkpoint(GOLDENS / name).prefix, family(name)
    head, table = known.head, prefix + known.embedding
    head = prefix + head if name == "llada" else head  # transformers' heads have no prefix
    folder = with_config(copied(name, tmp_path), tie_word_embeddings=True, weight_tying=True)
    with_tensors(folder, lambda tensors: tensors | {head: tensors[table]})
    assert open_checkpoint(folder).config.network.tied
    with_tensors(folder, lambda tensors: tensors | {head: tensors[table] + 1})
    with pytest.raises(ValueError, match=r"must equal .*: the config ties them"):
        open_checkpoint(folder)


def test_special_tokens_outside_the_vocabulary_stand_for_none(tmp_path):
    folder = with_config(copied("llama", tmp_path), pad_token_id=70, eos_token_id=-1)
    config = open_checkpoint(folder).config
    assert (config.pad_id, config.eos_id, config.bos_id) == (None, None, 1)


def test_tensors_of_mixed_dtypes_are_read_as_float32(tmp_path):
    folder = copied("llama", tmp_path)
    norm = "model.layers.{}.input_layernorm.weight"

    def mixed(tensors):
        first, second = tensors[norm.format(0)] * 1e6, tensors[norm.format(1)]
        short = {norm.format(0): first.astype(ml_dtypes.bfloat16)}
        return tensors | short | {norm.format(1): second.astype(np.float16)}

    weights = open_checkpoint(with_tensors(folder, mixed)).weights
    assert weights.leaves["blocks.attention_norm.weight"].dtype == np.float32
    assert np.isfinite(weights.read("blocks.attention_norm.weight", ())).all()


def test_gpt2_may_have_no_prefix(tmp_path):
    folder = copied("gpt2", tmp_path)
    with_tensors(folder, lambda ts: {n.removeprefix("transformer."): t for n, t in ts.items()})
    assert open_checkpoint(folder).prefix == ""
    assert open_checkpoint(GOLDENS / "gpt2").prefix == "transformer."
