"""GGUF files: the tiny Llama written as llama.cpp would, read back without torch."""

import contextlib
import itertools
import struct
import sys
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind

import sake_jax as sj
from conftest import GOLDENS
from sake_jax import text
from sake_jax.conversion import convert, families, open_checkpoint, verify
from sake_jax.conversion.gguf import GGUF
from sake_jax.conversion.source import DTYPES

TOKENS = ["<unk>", "<s>", "</s>", "<think>", *"the12Ġ", "ĠĠ", "he", "the", "Ġthe", "12"]
SIZES = {"block_count": 2, "context_length": 64, "embedding_length": 32, "feed_forward_length": 56}
FLOATS = {"rope.freq_base": 1e5, "attention.layer_norm_rms_epsilon": 1e-6}
HEADS = {"attention.head_count": 4, "attention.head_count_kv": 2}
THEIRS = open_checkpoint(GOLDENS / "llama")
NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)


def written(path: Path, kind: Kind = Kind.F32, arch: str = "llama", pre="smollm", **extra) -> Path:
    """The golden Llama as a GGUF file, with `extra` tensors."""
    writer = gguf.GGUFWriter(path, arch)
    for key, value in (SIZES | HEADS | FLOATS).items():
        writer.add_key_value(f"llama.{key}", value, gguf.GGUFValueType.get_type(value))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, 4] + [1] * (len(TOKENS) - 4))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_token_merges(["Ġ Ġ", "h e", "t he", "Ġ the", "1 2"])
    writer.add_chat_template("{{ messages }}")
    for name in THEIRS.source.shapes:
        tensor = THEIRS.source.read(name, ())
        if heads := {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2]):
            tensor = tensor.reshape(heads, 2, 4, 32).swapaxes(1, 2).reshape(tensor.shape)
        extra[NAMES.get_name(name, (".weight",))] = tensor
    for name, tensor in extra.items():
        narrow = tensor.shape[-1] % GGML_QUANT_SIZES[kind][0]  # llama.cpp keeps these wider
        stored = Kind.F32 if tensor.ndim == 1 else Kind.F16 if narrow else kind
        writer.add_tensor(name, gguf.quantize(tensor, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_float32_is_the_safetensors_checkpoint(tmp_path):
    ours = GGUF(written(tmp_path / "a.gguf"))
    assert (ours.shapes, ours.dtypes) == (THEIRS.source.shapes, THEIRS.source.dtypes)
    for name in ours.shapes:
        np.testing.assert_array_equal(ours.read(name, ()), THEIRS.source.read(name, ()), name)
    assert families.recognise(ours.described).config(ours.described) == THEIRS.config


# This network makes 25 times as much of a relative error: float16's 2^-11 moves logits by 0.013.
# Q8_0 is off by up to 1/254 of the largest of 32 weights, 0.32 in logits that reach 6.
@pytest.mark.parametrize(("kind", "most"), [(Kind.F32, 2e-4), (Kind.F16, 0.03), (Kind.Q8_0, 0.7)])
def test_logits_are_the_recorded_ones(kind, most, tmp_path, golden):
    g = golden("llama/golden.npz")
    lm = sj.load(written(tmp_path / "a.gguf", kind), dtype="float32")
    valid = g["attention_mask"].astype(bool)
    logits = np.asarray(lm.logits(g["input_ids"], valid))
    np.testing.assert_allclose(logits[valid], g["logits"][valid], rtol=0, atol=most)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0])
def test_weights_are_as_near_as_their_type_allows(kind, tmp_path):
    ours = GGUF(written(tmp_path / "a.gguf", kind))
    assert ours.dtypes["model.embed_tokens.weight"] == DTYPES.get(kind.name, np.float32)
    for name in ours.shapes:
        x, y = THEIRS.source.read(name, ()), ours.read(name, ())
        assert y.dtype == ours.dtypes[name]
        if y.dtype == np.float32 and y.ndim == 2:
            # Half a step, and the step itself in float16: 127 times 2^-11 of one.
            step = np.abs(x).max(-1, keepdims=True) / 127
            assert np.all(np.abs(x - y) <= (0.5 + 127 * 2.0**-11) * step)
        else:
            np.testing.assert_array_equal(y, x.astype(y.dtype))


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_1])
def test_slices_are_parts_of_the_whole_and_no_more_is_decoded(kind, tmp_path, monkeypatch):
    noise = np.random.default_rng(0).normal(size=(6, 96)).astype(np.float32)
    source = GGUF(written(tmp_path / "a.gguf", kind, **{"extra.weight": noise}))
    decoded, decode = [], gguf.dequantize
    monkeypatch.setattr(gguf, "dequantize", lambda d, k: decoded.append(d.size) or decode(d, k))
    for name, shape in source.shapes.items():
        whole = source.read(name, ())
        for index in [np.s_[3:6,], np.s_[:, 5:40], np.s_[3:6, 5:40], np.s_[1:2, 7:9]]:
            part = source.read(name, index[: len(shape)])
            np.testing.assert_array_equal(part, whole[index[: len(shape)]], name)
    if kind in (Kind.Q8_0, Kind.Q4_1):  # the extra tensor comes first: 6 rows of 3 blocks
        assert np.allclose(decoded[:5], np.array([18, 9, 12, 6, 1]) * GGML_QUANT_SIZES[kind][1])


def test_a_head_of_its_own_and_factors_of_rope(tmp_path):
    more = {"rope_freqs.weight": np.ones(4, np.float32), "output.weight": np.zeros((70, 32), "f")}
    source = GGUF(written(tmp_path / "a.gguf", **more))
    assert source.shapes["lm_head.weight"] == (70, 32)
    assert not source.described["tie_word_embeddings"]
    assert "rope_freqs.weight" not in source.shapes
    with pytest.raises(ValueError, match=r"must not be scaled, .*'llama3'.*; .* not supported"):
        sj.load(written(tmp_path / "b.gguf", **{"rope_freqs.weight": np.zeros(4, np.float32)}))


@pytest.mark.parametrize(("pre", "cut"), [("smollm", "ĠĠ 1 2"), ("gpt-2", "Ġ Ġ 12")])
def test_the_tokenizer_comes_from_the_metadata(pre, cut, tmp_path):
    tokenizer = text.tokenizer(written(tmp_path / "a.gguf", pre=pre))
    pieces = f"<s> the Ġthe {cut} <think>".split()
    assert tokenizer.tokenize("<s>the the  12<think>") == pieces
    ids = tokenizer("<s>he  12</s>").input_ids
    assert tokenizer.decode(ids) == "<s>he  12</s>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "he  12"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token) == (1, 2, None)
    assert tokenizer.chat_template == "{{ messages }}"


def test_files_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    whole = written(tmp_path / "a.gguf").read_bytes()
    cases = [(whole[:n], "whole GGUF file.*truncated") for n in (6, 30, 200, 900, -100)]
    for content, message in [(b"PK" * 9, "must begin with b'GGUF', got b'PKPK'"), *cases]:
        (tmp_path / "broken.gguf").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            GGUF(tmp_path / "broken.gguf")
    with pytest.raises(ValueError, match=r"architecture must be 'llama', got 'gemma3'"):
        GGUF(written(tmp_path / "b.gguf", arch="gemma3"))
    with pytest.raises(ValueError, match=r"must be 'gpt2', cut as .*got \('gpt2', 'tekken'\)"):
        text.gguf_tokenizer(written(tmp_path / "c.gguf", pre="tekken"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ImportError, match=r'pip install "sake-jax\[gguf\]"'):
        GGUF(tmp_path / "a.gguf")


def test_a_gguf_file_converts_with_config_and_tokenizer(tmp_path, golden):
    convert(written(tmp_path / "a.gguf"), tmp_path / "ours")
    g, lm = golden("llama/golden.npz"), sj.load(tmp_path / "ours")
    assert verify(tmp_path / "ours", GOLDENS / "llama" / "golden.npz").ok
    assert lm.tokenizer.tokenize("the the") == ["the", "Ġthe"]
    odd = written(tmp_path / "odd.gguf", pre="tekken")
    with pytest.warns(UserWarning, match="written without a tokenizer"):
        convert(odd, tmp_path / "mute")
    assert verify(tmp_path / "mute").ok
    assert lm.score(g["input_ids"]).shape == g["input_ids"].shape


def _header(*fields: bytes, tensors: bytes = b"", count: int = 0) -> bytes:
    """A GGUF header with these fields, and descriptions of `count` tensors."""
    numbers = (count, len(fields))
    return b"GGUF" + struct.pack("<I2Q", 3, *numbers) + b"".join(fields) + tensors


def _name(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _array(kind: int, count: int, content: bytes = b"") -> bytes:
    return _name(b"a") + struct.pack("<IIQ", 9, kind, count) + content


HOSTILE = {
    "bytes": _header(_array(0, 2**40)),
    "numbers": _header(_array(4, 2**40, b"\0" * 4096)),
    "texts": _header(_array(8, 2**40, b"\0" * 4096)),
    "more than 64 bits can count": _header(_array(12, 2**63)),
    "arrays of arrays": _header(_array(9, 1, struct.pack("<IQ", 9, 2**40))),
    "very many entries": _header(_array(0, 2**22 + 1, b"\0" * (2**22 + 1))),
    "an unknown type": _header(_array(77, 1, b"\0" * 64)),
    "a long name": _header(struct.pack("<Q", 2**40)),
    "a long text": _header(_name(b"a") + struct.pack("<IQ", 8, 2**62)),
    "many fields": b"GGUF" + struct.pack("<I2Q", 3, 0, 2**40),
    "many tensors": b"GGUF" + struct.pack("<I2Q", 3, 2**40, 0),
    "many axes": _header(tensors=_name(b"t") + struct.pack("<I", 2**31) + b"\0" * 64, count=1),
    "a shape that wraps around": _header(
        tensors=_name(b"t") + struct.pack("<I2QIQ", 2, 2**32, 2**32, 0, 0), count=1
    ),
    "half a header": b"GGUF" + struct.pack("<I", 3),
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_counts_are_held_against_the_bytes_that_are_there(name, tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(HOSTILE[name])
    tracemalloc.start()
    with pytest.raises(ValueError, match=r".+, got .+; .+\."):
        GGUF(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_damaged_files_are_refused_or_read(tmp_path):
    """Bytes of the header set to others, one at a time: a ValueError, or a model."""
    whole = written(tmp_path / "a.gguf").read_bytes()
    path, refused = tmp_path / "b.gguf", 0
    for at, value in itertools.product(range(4, 1200, 7), (0, 255)):
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        with contextlib.suppress(ValueError):
            open_checkpoint(path)
            continue
        refused += 1
    assert refused > 50
