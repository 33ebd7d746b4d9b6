"""The commands about checkpoints, run in this process."""

import contextlib
import json
import re

import numpy as np
import pytest
from checkpoints import copied
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from typer.testing import CliRunner

import sake_jax as sj
from conftest import GOLDENS
from sake_jax import cli
from sake_jax.sharding import mesh_sizes


def run(*arguments) -> tuple[int, str]:
    """Exit code and everything printed, without colours."""
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    return result.exit_code, re.sub(r"\x1b\[[\d;]*m", "", result.output)


@pytest.mark.parametrize("command", ["inspect", "convert", "verify", "export"])
def test_help_shows_an_example(command):
    code, output = run(command, "--help")
    assert code == 0
    assert f"Example: sake-jax {command}" in output


def test_inspect_shows_config_sizes_and_parameters():
    code, output = run("inspect", GOLDENS / "llada_moe")
    assert code == 0
    for text in ("experts_per_token", "85,920", "blocks.mlp.gate.kernel", "2 × 6 × 48 × 24"):
        assert text in output
    for letter, meaning in {"V": "tokens of the vocabulary", "K": "key and value heads"}.items():
        assert any(letter in line.split() for line in output.splitlines() if meaning in line)
    code, output = run("inspect", GOLDENS / "llada_moe", "--json")
    found = json.loads(output)
    assert code == 0
    assert found["parameters"] == 85_920
    assert found["bytes"] == 4 * 85_920
    assert found["config"]["network"]["K"] == 4
    assert found["leaves"]["output.rows"] == {"shape": [262, 48], "dtype": "float32"}


def test_a_dry_run_plans_and_writes_nothing(tmp_path):
    code, output = run("convert", GOLDENS / "dream", tmp_path / "ours", "--dry-run")
    assert code == 0
    assert "27 arrays" in output
    assert "on one device" not in output
    code, output = run(
        "convert", GOLDENS / "dream", tmp_path / "ours", "--dry-run", "--mesh", "tensor=2"
    )
    assert "2 × 60 × 48" in output, "mlp.up of 2 × 120 × 48"
    assert not (tmp_path / "ours").exists()
    (tmp_path / "kept").write_text("mine")
    assert run("convert", GOLDENS / "dream", tmp_path, "--dry-run")[0] == 0, "nothing is written"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_convert_verify_inspect_export(tmp_path, golden):
    ours, theirs, npz = tmp_path / "ours", tmp_path / "theirs", GOLDENS / "llada" / "golden.npz"
    code, output = run("convert", GOLDENS / "llada", ours, "--mesh", "fsdp=2,tensor=2")
    assert code == 0, output
    assert run("inspect", ours, "--json")[0] == 0
    code, output = run("verify", ours, "--golden", npz)
    assert code == 0
    assert "ok: 21 arrays, logits within" in output
    code, output = run("verify", ours, "--golden", npz, "--tolerance", "1e-9")
    assert code == 1
    assert "logits differ from the recorded ones" in output
    code, output = run("export", ours, theirs, "--shard-gb", "0.0001")
    assert code == 0
    assert "model-00001-of-" in output
    assert run("verify", theirs, "--golden", npz)[0] == 0


def test_convert_to_int8_halves_the_kernels(tmp_path):
    assert run("convert", GOLDENS / "llada", tmp_path / "ours", "--dtype", "int8")[0] == 0
    found = json.loads(run("inspect", tmp_path / "ours", "--json")[1])
    assert found["leaves"]["blocks.mlp.up.kernel"]["dtype"] == "int8"
    assert found["config"]["network"]["quantized"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "./nowhere"], "folder that exists, or a hub name"),
        (["inspect", GOLDENS], "must hold config.json"),
        (["inspect", GOLDENS / "llada" / "model.safetensors"], "must be a folder or a .gguf file"),
        (["convert", GOLDENS / "llada", GOLDENS / "dream"], "destination must be a new folder"),
        (["convert", GOLDENS / "llada", "new", "--mesh", "rows=2"], "mesh must name axes of"),
        (["convert", GOLDENS / "llada", "new", "--dtype", "bf16"], "dtype must be one of"),
        (["export", GOLDENS / "llada", GOLDENS], "new or empty folder"),
    ],
)
def test_errors_are_one_message(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = run(*arguments)
    assert code == 1
    assert output.startswith("error: ")
    assert message in " ".join(output.split())
    assert "Traceback" not in output
    assert not (tmp_path / "new").exists()


def test_mesh_sizes():
    assert mesh_sizes("fsdp=4, tensor=2") == {"fsdp": 4, "tensor": 2}
    assert mesh_sizes(None) == {}
    for wrong in ("tensor", "tensor=0", "tensor=x"):
        with pytest.raises(ValueError, match="mesh must name axes"):
            mesh_sizes(wrong)


def test_the_tokenizer_and_its_template_travel_along(tmp_path):
    folder = copied("llada", tmp_path)
    words = Tokenizer(WordLevel({"[unk]": 0, "once": 1, "upon": 2}, unk_token="[unk]"))
    words.pre_tokenizer = Whitespace()
    words.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}{% endfor %}"
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    assert run("convert", folder, tmp_path / "ours")[0] == 0
    assert run("export", tmp_path / "ours", tmp_path / "theirs")[0] == 0
    for place in (folder, tmp_path / "ours", tmp_path / "theirs"):
        tokenizer = sj.load(place).tokenizer
        assert tokenizer("once upon once")["input_ids"] == [1, 2, 1]
        chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
        assert chat == "<user> hi"


def test_code_beside_a_checkpoint_is_never_run(tmp_path):
    """`auto_map` in a config asks for remote code; neither loading nor tokenizing follows it."""
    folder = copied("llada", tmp_path)
    trap = tmp_path / "sprung"
    for name in ("modeling_llada.py", "configuration_llada.py", "tokenization_trap.py"):
        (folder / name).write_text(f"open({str(trap)!r}, 'w').close()")
    words = Tokenizer(WordLevel({"[unk]": 0, "once": 1}, unk_token="[unk]"))
    words.save(str(folder / "tokenizer.json"))
    auto = {"auto_map": {"AutoTokenizer": ["tokenization_trap.Trap", None]}}
    described = auto | {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    lm = sj.load(folder)
    assert lm.logits(np.zeros((1, 3), int)).shape == (1, 3, 288)
    with contextlib.suppress(ValueError):  # refusing is fine too
        lm.tokenizer("once")
    assert not trap.exists()


def test_dreams_tokenizer_is_read_without_its_code(tmp_path):
    folder = copied("dream", tmp_path)
    alphabet = {c: at for at, c in enumerate(sorted(ByteLevel.alphabet()))}
    (folder / "vocab.json").write_text(json.dumps(alphabet | {"on": 256}))
    (folder / "merges.txt").write_text("#version: 0.2\no n\n")
    auto = {"auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}}
    described = auto | {"tokenizer_class": "DreamTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    assert sj.load(folder).tokenizer.tokenize("once") == ["on", "c", "e"]
