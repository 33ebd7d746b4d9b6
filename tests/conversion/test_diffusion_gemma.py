"""DiffusionGemma's configs in their forms, and the commands on its tiny checkpoint."""

import json
import re
import types

import jax
import numpy as np
import pytest
from checkpoints import copied, with_config, with_tensors
from typer.testing import CliRunner

import sake_jax as sj
from conftest import GOLDENS
from sake_jax import cli
from sake_jax.conversion import convert, export, model_config, open_checkpoint, verify
from sake_jax.conversion.checkpoint import leaves
from sake_jax.conversion.rules import MismatchError
from sake_jax.planning import Job, forecast
from sake_jax.planning.chips import Chip
from sake_jax.planning.topology import Topology

NAME = "diffusion_gemma"
FOLDER = GOLDENS / NAME
DESCRIBED = json.loads((FOLDER / "config.json").read_text())
TEXT = DESCRIBED["text_config"]


def with_text(tmp_path, **changes):
    """A copy whose text_config has other entries; None removes one."""
    own = {key: value for key, value in (TEXT | changes).items() if value is not None}
    return with_config(copied(NAME, tmp_path), text_config=own)


def run(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, re.sub(r"\x1b\[[\d;]*m", "", result.output)


def test_older_configs_say_the_same(tmp_path):
    older = {"per_layer_config": None, "global_head_dim": 16, "num_global_key_value_heads": 1}
    folder = with_text(tmp_path, **older)
    assert open_checkpoint(folder).config == open_checkpoint(FOLDER).config


def test_what_a_config_leaves_out_is_as_published(tmp_path):
    absent = {"rope_parameters": None, "layer_types": None, "num_hidden_layers": 13}
    described = json.loads((with_text(tmp_path, **absent) / "config.json").read_text())
    described["text_config"].pop("per_layer_config")
    described.pop("canvas_length")
    config = sj.conversion.family(NAME).config(described).network
    assert config.kinds == (*(("sliding",) * 5 + ("full",)) * 2, "full"), "the last one is full"
    assert (config.full_theta, config.rope_theta, config.window) == (1e6, 1e4, 256)
    assert (config.full_head_dim, config.full_K, config.full_rotary_dim) == (512, 2, 128)
    assert config.period == 13


def test_end_tokens_of_the_whole_model_come_first(tmp_path):
    folder = with_config(copied(NAME, tmp_path), eos_token_id=[7, 1])
    assert open_checkpoint(folder).config.eos_id == 7
    assert open_checkpoint(FOLDER).config.eos_id == 1


def test_the_published_model_by_name():
    config = model_config("google/diffusiongemma-26B-A4B-it")
    assert config == model_config("diffusiongemma-26b-a4b")
    c = config.network
    assert (c.period, c.count("full"), c.window, config.sampler) == (6, 5, 256, "revising")
    sizes = {path: leaf.size for path, leaf in leaves(config).items()}
    experts = sum(
        size for path, size in sizes.items() if re.search(r"experts\.(gate_up|down)", path)
    )
    total = sum(sizes.values())
    assert total == pytest.approx(25.25e9, abs=1e7)
    active = total - experts * (c.experts - c.experts_per_token) // c.experts
    assert active == pytest.approx(3.84e9, abs=1e7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}, "the last of them full"),
        ({"layer_types": ["full_attention"]}, "one kind for each of the layers"),
        ({"layer_types": None, "num_hidden_layers": 2**30}, "num_hidden_layers"),
        ({"per_layer_config": {"0": {"head_dim": 4}}}, "all layers of a kind the same heads"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1.0}}},
            "rope_type",
        ),
        (
            {"rope_parameters": {"sliding_attention": TEXT["rope_parameters"]["full_attention"]}},
            "rope_type",
        ),
        ({"top_k_experts": 5}, "between 1 and experts"),
    ],
)
def test_what_the_network_does_not_compute_is_refused(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        open_checkpoint(with_text(tmp_path, **changes))


def test_the_tower_for_images_is_left_out_and_nothing_else(tmp_path):
    names = open_checkpoint(FOLDER).source.shapes
    assert sum("vision" in name for name in names) == 16
    without = lambda tensors: {k: v for k, v in tensors.items() if "vision" not in k}  # noqa: E731
    folder = with_tensors(copied(NAME, tmp_path), without)
    export(folder, tmp_path / "again")
    assert set(open_checkpoint(tmp_path / "again").source.shapes) == set(without(names))
    more = "model.encoder.language_model.norm.weight"
    with_tensors(folder, lambda tensors: tensors | {more: tensors["model.decoder.norm.weight"]})
    with pytest.raises(MismatchError, match=more.replace(".", r"\.")):
        open_checkpoint(folder)


def test_verify_compares_the_logits_of_a_window(golden, tmp_path):
    g = golden(f"{NAME}/golden.npz")
    parts = {name: g[name] for name in ("input_ids", "canvas", "logits")}
    convert(FOLDER, tmp_path / "ours")
    np.savez(tmp_path / "plain.npz", **parts)
    verdict = verify(tmp_path / "ours", tmp_path / "plain.npz")
    assert verdict.ok
    assert 0 < verdict.error < 2e-5
    padded = parts | {"attention_mask": g["attention_mask"], "logits": g["logits_left_padded"]}
    np.savez(tmp_path / "padded.npz", **padded)
    assert verify(FOLDER, tmp_path / "padded.npz").ok
    np.savez(tmp_path / "wrong.npz", **parts | {"logits": g["logits_self_conditioned"]})
    assert not verify(FOLDER, tmp_path / "wrong.npz").ok
    np.savez(tmp_path / "without.npz", input_ids=g["input_ids"], logits=g["logits"])
    with pytest.raises(ValueError, match="needs the array 'canvas'"):
        verify(FOLDER, tmp_path / "without.npz")


@pytest.mark.slow
def test_int8_and_bfloat16_are_near(golden, tmp_path):
    g = golden(f"{NAME}/golden.npz")
    tokens = np.concatenate([g["input_ids"], g["canvas"]], axis=1)
    for dtype in ("bfloat16", "int8"):
        coarse = np.asarray(sj.load(FOLDER, dtype=dtype).logits(tokens))[:, -6:]
        error = np.sqrt(np.mean((coarse - g["logits"]) ** 2)) / np.std(g["logits"])
        assert 1e-4 < error < 0.1, dtype
    convert(FOLDER, tmp_path / "ours", dtype="int8")
    stored = np.asarray(sj.load(tmp_path / "ours").logits(tokens))[:, -6:]
    np.testing.assert_allclose(stored, coarse, atol=1e-5)


def test_commands(tmp_path):
    code, output = run("inspect", FOLDER)
    assert code == 0
    for text in ("full_head_dim", "blocks.layer2.experts.gate_up.kernel", "1 × 4 × 32 × 32"):
        assert text in output
    code, output = run("convert", FOLDER, tmp_path / "ours")
    assert code == 0, output
    code, output = run("verify", tmp_path / "ours")
    assert code == 0, output
    code, output = run("export", tmp_path / "ours", tmp_path / "theirs")
    assert code == 0, output
    assert sj.load(tmp_path / "theirs").config == sj.load(FOLDER).config


@pytest.mark.slow
def test_plan_by_name():
    """From shapes alone: what a chip holds, and the steps of a window."""
    job = Job(model_config("diffusiongemma-26b-a4b"), sj.Request(length=512), batch=8, prompt=64)
    chip = Chip("one", "cpu", memory=1e12, flops=1e15, bandwidth=1e12, link=1e11, clock=1e9)
    here = Topology("here", chip, types.SimpleNamespace(devices=jax.devices()))
    result = forecast(job, here, {"data": 4, "tensor": 2}, compile_it=False)
    assert result.steps == 2 * 48
    assert 25e9 < result.parameter_bytes < 30e9, "two bytes each, on two chips"
    assert result.cost.flops > 0
