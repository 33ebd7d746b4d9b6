"""Checkpoints of other sizes than the goldens': nothing is fitted to those. Logits are held to a
description in numpy where there is one, and everything else to itself."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from described import Described
from held_out import DITS, EVERY, GEMMAS, TRANSFORMERS, tensors_of, write

import sake_jax as sj
from networks import close
from sake_jax.conversion import convert, export, family, open_checkpoint, verify
from tiers import few_quick

KEY = jax.random.key(4)
PROMPTS = [[3, 4, 5, 6, 7], list(range(10, 21)), [8]]
"""Of other lengths, which no block divides."""


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_logits_are_what_is_described(name, tmp_path):
    c = write(tmp_path, name, shards=3)
    expected = Described(c, tensors_of(c))
    ids = np.random.default_rng(1).integers(0, c["vocab_size"], (2, 13))
    close(sj.load(tmp_path).logits(ids), np.stack([expected.logits(row) for row in ids]))


def test_every_part_of_the_description_is_seen():
    """Without it, the logits are others: the test above can fail."""
    c = TRANSFORMERS["llada2"]
    tensors, ids = tensors_of(c), np.arange(13) % 41
    whole = Described(c, tensors).logits(ids)
    changes = {"topk_group": 4, "routed_scaling_factor": 1.0, "num_experts_per_tok": 3}
    changes |= {"partial_rotary_factor": 0.5, "block_size": 4}
    for key, value in changes.items():
        assert np.abs(Described(c | {key: value}, tensors).logits(ids) - whole).max() > 0.01, key
    for part in ("gate.expert_bias", "query_key_value.bias", "query_layernorm.weight"):
        without = {k: 0 * t if part in k else t for k, t in tensors.items()}
        if "layernorm" in part:
            without = {k: t for k, t in tensors.items() if part not in k}
        assert np.abs(Described(c, without).logits(ids) - whole).max() > 0.01, part


@pytest.mark.parametrize("name", EVERY)
def test_converted_verified_and_exported_bit_for_bit(name, tmp_path):
    source, ours, theirs = (tmp_path / part for part in ("source", "ours", "theirs"))
    c = write(source, name, shards=2)
    convert(source, ours)
    assert verify(ours).ok
    export(ours, theirs)
    again = open_checkpoint(theirs)
    assert again.config == open_checkpoint(source).config
    assert json.loads((theirs / "config.json").read_text()) == c
    tensors = tensors_of(c)
    assert again.source.shapes.keys() == tensors.keys()
    for path, tensor in tensors.items():
        assert again.source.read(path, ()).tobytes() == tensor.tobytes(), path


def test_llada2_without_the_sum_of_one_is_refused():
    """Its original ignores the entry, others follow it: neither reading is known to be right."""
    with pytest.raises(ValueError, match="norm_topk_prob in config"):
        family("llada2").config(TRANSFORMERS["llada2"] | {"norm_topk_prob": False})


def sampler_of(lm, **options):
    shared = {"guidance": sj.chain(sj.top_p(0.9), sj.sake(0.5)), "draw": sj.temperature(0.9)}
    kind = {"block": sj.block, "revising": sj.revising, "ancestral": sj.ancestral}
    return kind[lm.config.sampler](lm, **shared | options)


def written(lm, prompts, length=12, samples=2, align=1, only=None, **options):
    """What a prompt's rows get, all prompts together or one of them alone."""
    canvas = sj.canvas(
        prompts if only is None else [prompts[only]],
        length,
        mask_id=lm.config.mask_id,
        pad_id=0,
        samples=samples,
        align=align,
        positions=lm.config.positions,
    )
    if only is not None:
        canvas = canvas.replace(prompt_id=jnp.full(samples, only))
    done, info = sj.run(sampler_of(lm, length=length, **options), lm.params, KEY, canvas)
    assert bool(jnp.all(info.finite))
    tokens = np.asarray(done.tokens)[:, canvas.generation_start :]
    if lm.config.mask_id is not None:
        assert (tokens != lm.config.mask_id).all(), "every column is written"
    return tokens


BLOCKS = [(name, block) for name in TRANSFORMERS for block in (None, 4)]


@pytest.mark.parametrize("case", few_quick(BLOCKS, 1), ids=str)
def test_blocks_with_a_cache_and_in_company(case, tmp_path):
    """The exact cache changes no token, in blocks of the file's size or another; nor do other
    prompts in the batch, whose padding is on the left."""
    name, block = case
    write(tmp_path, name)
    lm = sj.load(tmp_path)
    size = block or lm.config.network.block_size
    options = {"length": 2 * size, "align": size, **({"block": block} if block else {})}
    tokens = written(lm, PROMPTS, cache="exact", **options)
    np.testing.assert_array_equal(tokens, written(lm, PROMPTS, cache="none", **options))
    for at in (0, 2):
        alone = written(lm, PROMPTS, only=at, **options)
        own = slice(2 * at, 2 * at + 2)
        np.testing.assert_array_equal(tokens[own, -alone.shape[1] :], alone)
    assert len(np.unique(tokens, axis=0)) > 2


@pytest.mark.parametrize("name", few_quick(GEMMAS, 0))
@pytest.mark.parametrize("block", [None, 4])
def test_windows_with_a_cache_and_in_company(name, block, tmp_path):
    write(tmp_path, name)
    lm = sj.load(tmp_path)
    size = block or lm.config.network.window
    options = {"length": 2 * size, "steps": 12, **({"block": block} if block else {})}
    tokens = written(lm, PROMPTS, cache="exact", **options)
    np.testing.assert_array_equal(tokens, written(lm, PROMPTS, cache="none", **options))
    for at in (0, 2):
        alone = written(lm, PROMPTS, only=at, **options)
        np.testing.assert_array_equal(tokens[2 * at : 2 * at + 2, -alone.shape[1] :], alone)


@pytest.mark.parametrize("name", few_quick(DITS, 0))
@pytest.mark.parametrize("step", ["tweedie", "euler"])
def test_scores_in_company(name, step, tmp_path):
    """Prompts of one length: these networks count columns, padding among them."""
    write(tmp_path, name)
    lm = sj.load(tmp_path)
    options = {"length": 8, "steps": 10, "step": step}
    prompts = [[3, 4], [5, 6], [7, 8]]
    tokens = written(lm, prompts, **options)
    for at in (0, 2):
        alone = written(lm, prompts, only=at, **options)
        np.testing.assert_array_equal(tokens[2 * at : 2 * at + 2], alone)


@pytest.mark.parametrize("name", few_quick(EVERY, 0))
def test_eight_devices_write_what_one_does(name, tmp_path):
    """Heads, experts and vocabulary that no axis of the mesh divides among those that one does."""
    write(tmp_path, name)
    prompts = [[3, 4, 5, 6], [5, 6, 7, 8]]
    found = []
    for sizes in (None, (2, 2, 2), (1, 4, 2)):
        lm = sj.load(tmp_path, mesh=sj.mesh(*sizes) if sizes else None)
        block, window = lm.config.network.block_size, lm.config.network.window
        options = {"length": 2 * window or 10, "steps": 2 * window or 10}
        options = {"length": 2 * block, "align": block} if block else options
        found.append(written(lm, prompts, **options))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
