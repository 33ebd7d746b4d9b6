"""Configs from strangers: every wrong type and size is refused in words, in bounded memory."""

import dataclasses
import itertools
import json
import math
import re
import shutil
import tracemalloc

import pytest
from checkpoints import FAMILIES, copied, sharded, with_config

from conftest import GOLDENS
from sake_jax import text
from sake_jax.conversion import built_in, convert, model_config, open_checkpoint
from sake_jax.conversion.families import recognise
from sake_jax.conversion.source import read_object

WORDS = re.compile(r".+, got .+; .+\.", re.DOTALL)
"""Rule, what was given, remedy."""
BAD = ["x", "", 2.5, 0, -1, True, [], [1], ["x"], [[7]], {}, {"a": 1}, 10**30, -(10**30)]
BAD += [math.nan, math.inf, 1e308, "1" * 100_000]
HUGE = [10**6, 2**31 - 1, 2**31, 10**30]
MEMORY = 32 * 2**20


class Watched(dict):
    """A config that remembers which entries were asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = set()

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)


def described(name):
    return json.loads((GOLDENS / name / "config.json").read_text())


def nested(config):
    """Whether the sizes stand in an object inside the config."""
    return any(isinstance(config.get(part), dict) for part in ("model", "text_config"))


def refusal(read):
    """What is said where something is refused, None where it is accepted."""
    try:
        config = read()
    except ValueError as error:
        return str(error)
    for part in (config, config.network):
        for field in dataclasses.fields(part):
            _check_type(field.type, getattr(part, field.name))
    return None


def _check_type(kind, value):
    if kind is int:
        assert type(value) is int
        assert 0 <= value < 2**31
    elif kind is bool:
        assert type(value) is bool
    elif kind is float or kind == float | None:
        assert value is None or (type(value) is float and math.isfinite(value) and value > 0)
    elif kind == int | None:
        assert value is None or (type(value) is int and value >= 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_wrong_values_are_refused_or_harmless(name, record_property):
    right = described(name)
    family = recognise(right)
    watched = Watched(right)
    family.config(watched)
    tried = 0
    for key in sorted(watched.asked | right.keys()):
        for bad in BAD:
            said = refusal(lambda key=key, bad=bad: family.config(right | {key: bad}))
            tried += 1
            if said is not None:
                assert WORDS.fullmatch(said), (key, said)
                assert len(said) < 1000, "no dump of what was given"
        if key in watched.asked:
            # Whatever an entry is, an object with an unknown word is not it.
            said = refusal(lambda key=key: family.config(right | {key: {"a": 1}}))
            assert said is not None, key
            assert WORDS.fullmatch(said)
    assert tried > 100
    record_property("bad configs", tried)


@pytest.mark.parametrize("name", FAMILIES)
def test_missing_sizes_are_named(name):
    right = described(name)
    family = recognise(right)
    named = 0
    for key in right:
        without = {other: value for other, value in right.items() if other != key}
        said = refusal(lambda without=without: family.config(without))
        if said is not None:
            assert key in said
            assert WORDS.fullmatch(said)
            named += 1
    assert named >= (1 if nested(right) else 4)


@pytest.mark.parametrize("name", ["sedd", "sedd_uniform", "radd", "diffusion_gemma"])
def test_parts_of_a_config_are_checked_as_the_whole(name):
    """Their sizes stand in objects inside the config."""
    right = described(name)
    family, tried = recognise(right), 0
    parts = [part for part in ("model", "noise", "text_config") if part in right]
    for part in parts:
        for key, wrong in itertools.product(right[part], ("x", -1, 2.5, None, [], {"a": 1})):
            said = refusal(lambda: family.config(right | {part: right[part] | {key: wrong}}))  # noqa: B023
            assert said is None or (key in said and WORDS.fullmatch(said)), (key, wrong, said)
            tried += said is not None
    assert tried > 20
    for part in parts:
        assert part in (refusal(lambda: family.config(right | {part: 5})) or "")  # noqa: B023


@pytest.mark.parametrize("name", FAMILIES)
def test_sizes_are_held_against_what_is_stored(name, tmp_path):
    """Before anything is made of them: a kilobyte of config must not take a gigabyte."""
    folder = copied(name, tmp_path)
    right = described(name)
    watched = Watched(right)
    recognise(right).config(watched)
    sizes = [key for key in watched.asked if type(right.get(key)) is int and right[key] > 0]
    free = {"max_position_embeddings", "max_sequence_length", "model_length", "bos_token_id"}
    free |= {"eos_token_id", "pad_token_id", "mask_token_id", "vocab_size", "pretraining_tp"}
    free |= {
        "rope_theta",
        "block_size",
        "canvas_length",
        "n_group",
        "topk_group",
        "num_experts_per_tok",
    }
    assert len(sizes) >= (1 if nested(right) else 4)
    for key, huge in itertools.product(sizes, HUGE):
        with_config(folder, **right | {key: huge})
        tracemalloc.start()
        said = refusal(lambda: open_checkpoint(folder).config)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert said is not None or key in free, "a size that nothing stored has"
        assert said is None or len(said) < 5000
        assert peak < MEMORY, (key, huge, peak)


@pytest.mark.parametrize(
    "named", ["LLaDAModelLM", 5, {"LLaDAModelLM": 1}, [["LLaDAModelLM"]], [None], [], True]
)
def test_architectures_must_be_a_list_of_names(named):
    with pytest.raises(ValueError, match=r"`architectures` in config.json must list one of"):
        recognise({"architectures": named, "model_type": "llada"})


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"[]", b'"text"', b"5", b"{", b'{"a": }', b"\xff\xfe\x00", b"\xef\xbb\xbf{}",
        b"[" * 100_000, b'{"a":' * 100_000, b'{"n_layers": ' + b"9" * 5000 + b"}",
        b'{"architectures": ["LLaDAModelLM"], "d_model": NaN}', b"{}" + b" " * (65 * 2**20),
    ],
)  # fmt: skip
def test_files_that_are_no_configs(content, tmp_path):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=WORDS):
        model_config(tmp_path)


def test_a_large_number_is_not_written_out():
    with pytest.raises(ValueError, match="very many digits"):
        recognise({"architectures": 10**5000})


@pytest.mark.parametrize(
    "name",
    ["../other/model.safetensors", "/etc/model.safetensors", "sub/model.safetensors", "..", "",
     ".hidden.safetensors", "model.bin", "C:\\model.safetensors", "a\0.safetensors", 5, None,
     ["model.safetensors"], {"a": 1}],
)  # fmt: skip
def test_an_index_names_files_of_its_own_folder(name, tmp_path):
    other = copied("llada", tmp_path)
    outside = other.rename(tmp_path / "other")
    folder = sharded(copied("llada", tmp_path))
    file = folder / "model.safetensors.index.json"
    index = read_object(file)
    first = sorted(index["weight_map"])[0]
    index["weight_map"][first] = name
    file.write_text(json.dumps(index))
    assert (outside / "model.safetensors").is_file()
    with pytest.raises(ValueError, match=r"must name .safetensors files of its own folder"):
        open_checkpoint(folder)


def test_the_weights_of_a_mixture_are_never_scaled(golden):
    """LLaDA-MoE's code has `norm_topk_prob` and does not look at it."""
    right = described("llada_moe")
    family = recognise(right)
    assert family.config(right | {"norm_topk_prob": True}) == family.config(right)
    assert not family.config(right | {"norm_topk_prob": True}).network.normalize_experts


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted") / "llada"
    convert(GOLDENS / "llada", folder)
    return folder


UNIT = {"shape": [48], "dtype": "float32", "sha256": ""}


@pytest.mark.parametrize(
    "changes",
    [
        {"units": 5}, {"units": []}, {"units": {}}, {"units": {"a": 5}}, {"units": {"a": {}}},
        {"units": {"a": UNIT | {"shape": "48"}}}, {"units": {"a": UNIT | {"shape": [-1]}}},
        {"units": {"a": UNIT | {"shape": [2.5]}}}, {"units": {"a": UNIT | {"dtype": "object"}}},
        {"units": {"a": UNIT | {"dtype": ["float32"]}}}, {"units": {"a": UNIT | {"sha256": 5}}},
        {"units": {"../../etc": UNIT}}, {"format": "1"}, {"format": 2}, {"another": 1},
    ],
)  # fmt: skip
def test_manifests_that_nobody_wrote_are_refused(changes, converted, tmp_path):
    folder = shutil.copytree(converted, tmp_path / "copy")
    manifest = read_object(folder / "manifest.json")
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    with pytest.raises(ValueError, match=r"manifest.json|checkpoint and model do not fit|stored"):
        open_checkpoint(folder)


def test_a_converted_model_is_held_against_its_units(converted, tmp_path):
    folder = shutil.copytree(converted, tmp_path / "copy")
    for huge in HUGE:
        with_config(folder, n_layers=huge)
        with pytest.raises(ValueError, match=WORDS):
            open_checkpoint(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{"), ("tokenizer.json", "{}"), ("tokenizer.json", "5"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": 5}}'),
        ("tokenizer_config.json", "["), ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"tokenizer_class": ["A"]}'),
        ("tokenizer_config.json", '{"tokenizer_class": {"a": 1}}'),
    ],
)  # fmt: skip
def test_tokenizers_that_are_damaged_are_refused_in_words(file, content, tmp_path):
    for source in built_in()["tinystories"].glob("*.json"):
        shutil.copyfile(source, tmp_path / source.name)
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=WORDS):
        text.tokenizer(tmp_path)
