"""Text in, text out: the same tokens however a run is cut into batches, stopped or resumed."""

import dataclasses
import json
import shutil
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replay import model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import registry
import sake_jax as sj
from conftest import GOLDENS
from sake_jax.generation import batch
from sake_jax.generation.prompts import batches, prompt_room
from sake_jax.generation.settings import describe_settings, rebuild
from sake_jax.samplers import loop
from traces import programs

KEY, EOS, MASK = jax.random.key(3), 256, 270
PROMPTS = ["abc", "", "hello", "xyz"]


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    """The golden LLaDA checkpoint with a tokenizer whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("model") / "llada"
    shutil.copytree(GOLDENS / "llada", folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: at for at, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [f"<{at}>" for at in range(256, 288)]
    names[MASK - 256] = "<mask>"
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<256>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return sj.load(folder)


def masked(lm, **options):
    defaults = {"length": 8, "block": 4, "draw": sj.temperature(0.9)}
    return sj.masked(lm, **defaults | options)


@pytest.fixture(scope="module")
def whole(lm):
    """One run that the others are compared with."""
    return sj.generate(
        lm, masked(lm), PROMPTS, samples=3, key=KEY, stop_at_end=False, trajectory=True
    )


def test_texts_tokens_and_records(lm, whole):
    assert [len(texts) for texts in whole.texts] == [3] * 4
    assert all(isinstance(text, str) for texts in whole.texts for text in texts)
    assert whole.tokens.shape == whole.log_p.shape == (4, 3, 8)
    assert whole.written.all()
    assert (whole.log_p < 0).all()
    assert whole.info.entropy.shape == (8, 12)
    assert whole.info.revealed.sum() == 12 * 8
    np.testing.assert_array_equal(whole.trajectory[-1], whole.tokens.reshape(12, 8))
    assert {end for ends in whole.ended for end in ends} == {"length"}
    tokens = whole.tokens[2, 1]
    assert whole.texts[2][1] == lm.tokenizer.decode(tokens, skip_special_tokens=True)


def test_it_is_the_scan_behind_a_tokenizer(lm, whole):
    ids = [lm.tokenizer(prompt)["input_ids"] for prompt in PROMPTS]
    canvas = sj.canvas(ids, 8, mask_id=MASK, pad_id=EOS, samples=3)
    done, _ = sj.run(masked(lm), lm.params, KEY, canvas)
    np.testing.assert_array_equal(
        whole.tokens.reshape(12, 8), done.tokens[:, canvas.generation_start :]
    )
    np.testing.assert_allclose(
        whole.log_p.reshape(12, 8), done.log_p[:, canvas.generation_start :], atol=1e-4
    )


def test_tokens_do_not_depend_on_batch_or_company(lm, whole):
    small = sj.generate(lm, masked(lm), PROMPTS, samples=3, key=KEY, batch=2, stop_at_end=False)
    np.testing.assert_array_equal(small.tokens, whole.tokens)
    np.testing.assert_allclose(small.info.entropy, whole.info.entropy, atol=1e-4)
    alone = sj.generate(
        lm, masked(lm), PROMPTS[2:3], names=[2], samples=3, key=KEY, stop_at_end=False
    )
    np.testing.assert_array_equal(alone.tokens[0], whole.tokens[2])


def test_prompts_of_one_room_share_a_program(lm):
    sampler = masked(lm, block=8)
    go = lambda prompt: sj.generate(lm, sampler, [prompt], key=KEY)  # noqa: E731
    go("abcde")
    before = programs(loop.advance_until, loop.begin_progress)
    go("abc")
    go("abcdefgh")
    assert programs(loop.advance_until, loop.begin_progress) == before


def test_rooms_and_batches():
    rooms = [prompt_room(tokens) for tokens in (0, 1, 8, 9, 33, 64, 65, 129)]
    assert rooms == [0, 8, 8, 16, 64, 64, 128, 192]
    found = batches([3, 70, 4, 5], {0: [0, 1], 1: [0, 1], 2: [0, 1], 3: [1]}, 4)
    assert [(b.prompts, b.first, b.samples, b.room, b.real) for b in found] == [
        ([0, 2], 0, 2, 8, 2),
        ([1], 0, 2, 128, 1),
        ([3], 1, 1, 8, 1),
    ]
    [first, second] = batches([3] * 3, {at: [0, 1] for at in range(3)}, 4)
    assert (second.prompts, second.real) == ([2, 2], 1), "the last batch has the first one's shape"
    assert first.real == 2


def test_a_row_ends_before_a_token(lm, whole):
    end = int(whole.tokens[0, 0, 3])
    cut = sj.generate(lm, masked(lm), PROMPTS, samples=3, key=KEY, stop=[end], stop_at_end=False)
    for prompt, sample in np.ndindex(4, 3):
        full = whole.tokens[prompt, sample].tolist()
        count = full.index(end) if end in full else 8
        written = cut.written[prompt, sample]
        assert written.tolist() == [True] * count + [False] * (8 - count)
        assert cut.tokens[prompt, sample][:count].tolist() == full[:count]
        assert cut.ended[prompt][sample] == ("token" if end in full else "length")
    assert (cut.log_p[~cut.written] == 0).all()


def test_a_row_ends_before_a_string(lm, whole):
    text = next(t for texts in whole.texts for t in texts if len(t) > 4)
    string = text[2:4]
    cut = sj.generate(lm, masked(lm), PROMPTS, samples=3, key=KEY, stop=[string], stop_at_end=False)
    for prompt, sample in np.ndindex(4, 3):
        full, found = whole.texts[prompt][sample], cut.texts[prompt][sample]
        assert found == full.split(string)[0]
        assert cut.ended[prompt][sample] == ("string" if string in full else "length")
    early = sj.generate(lm, masked(lm, block=1), ["abc"], key=KEY, stop_at_end=False)
    string = early.texts[0][0][:1]
    stopped = sj.generate(lm, masked(lm, block=1), ["abc"], key=KEY, stop=[string])
    assert stopped.texts[0][0] == ""
    assert stopped.rows[0].steps < 8, "nothing is computed after the string"


def test_infilling_writes_the_gaps_and_nothing_else(lm):
    sampler = masked(lm, length=12, block=6)
    prompts = ["ab<mask><mask>ef", "<mask>bcdefgh<mask>", "abcdefghijk<mask>"]
    out = sj.generate(lm, sampler, prompts, samples=2, key=KEY, infill=True)
    for prompt, rows in zip(prompts, out.tokens, strict=True):
        ids = np.asarray(lm.tokenizer(prompt)["input_ids"])
        for row in rows:
            text = row[12 - len(ids) :]
            np.testing.assert_array_equal(text[ids != MASK], ids[ids != MASK])
            assert (text != MASK).all()
    assert out.texts[0][0].startswith("ab")
    assert out.written.sum(axis=-1).tolist() == [[6, 6], [9, 9], [12, 12]]
    with pytest.raises(ValueError, match="must have mask tokens to fill in"):
        sj.generate(lm, sampler, ["abc"], key=KEY, infill=True)
    with pytest.raises(ValueError, match="must fit into length"):
        sj.generate(lm, sampler, ["abcdefghijklm<mask>"], key=KEY, infill=True)
    with pytest.raises(ValueError, match="leave it out when infilling"):
        sj.generate(lm, sampler, ["<mask>"], key=KEY, infill=True, stop=["."])


def test_a_killed_run_goes_on_and_is_the_same(lm, whole, tmp_path, monkeypatch):
    options = {"samples": 3, "key": KEY, "batch": 3, "stop_at_end": False, "save": tmp_path / "run"}
    calls = []

    def dies(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return batch.run_batch(*args)

    monkeypatch.setattr(sys.modules["sake_jax.generation.generate"], "run_batch", dies)
    with pytest.raises(KeyboardInterrupt):
        sj.generate(lm, masked(lm), PROMPTS, **options)
    monkeypatch.undo()
    rows = tmp_path / "run" / "rows.jsonl"
    lines = rows.read_text().splitlines()
    assert len(lines) == 6
    rows.write_text("\n".join(lines)[:-20])  # killed while writing
    out = sj.generate(lm, masked(lm), PROMPTS, **options)
    np.testing.assert_array_equal(out.tokens, whole.tokens)
    assert out.texts == whole.texts
    assert out.info is None
    assert len(rows.read_text().splitlines()) >= 12
    again = sj.generate(lm, masked(lm), PROMPTS, **options)  # nothing is left to do
    assert again.texts == whole.texts
    with pytest.raises(ValueError, match=r"same settings, got other sampler.*draw"):
        sj.generate(lm, masked(lm, draw=sj.temperature(0.5)), PROMPTS, **options)


def test_saved_settings_replay_the_run(lm, whole, tmp_path):
    sampler = masked(
        lm,
        guidance=sj.chain(sj.top_p(0.95), sj.sake(sj.linear(1.0, 0.5))),
        reveal=sj.reveal.threshold(0.3),
        cache="dual",
    )
    out = sj.generate(lm, sampler, PROMPTS[:2], samples=2, key=KEY, stop=["q", 5], batch=4)
    folder = out.save(tmp_path / "saved")
    again = sj.replay(folder)
    np.testing.assert_array_equal(again.tokens, out.tokens)
    assert again.texts == out.texts
    with pytest.raises(ValueError, match="must be the one that was saved"):
        sj.replay(folder, lm=model("llada_moe"))
    with pytest.raises(ValueError, match=r"must hold settings\.json"):
        sj.replay(tmp_path)


def test_settings_name_what_they_cannot_save(lm, tmp_path):
    odd = masked(lm, noise=lambda keys, view, size: sj.still(keys, view, size))
    with pytest.raises(ValueError, match=r"sampler\.noise must be found again by its name"):
        sj.generate(lm, odd, ["a"], key=KEY, save=tmp_path)
    out = sj.generate(lm, odd, ["a"], key=KEY)
    with pytest.raises(ValueError, match="must be complete to be replayed"):
        sj.replay(out.settings)


def test_settings_know_the_weights_and_their_dtype(lm, tmp_path):
    half = sj.load(lm.folder, dtype="bfloat16")
    out = sj.generate(half, masked(half), ["abc"], samples=4, key=KEY, save=tmp_path / "half")
    np.testing.assert_array_equal(sj.replay(tmp_path / "half").tokens, out.tokens)
    with pytest.raises(ValueError, match=r"same settings, got other model\.checksum, model\.dtype"):
        sj.generate(lm, masked(lm), ["abc"], samples=4, key=KEY, save=tmp_path / "half")


def test_a_run_may_go_on_with_another_batch(lm, whole, tmp_path):
    options = {"samples": 3, "key": KEY, "stop_at_end": False, "trajectory": True}
    folder = whole.save(tmp_path / "run")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:5]))
    out = sj.generate(lm, masked(lm), PROMPTS, **options, batch=1, save=folder)
    np.testing.assert_array_equal(out.tokens, whole.tokens)
    rows.write_text('{"prompt": 0}\n')
    with pytest.raises(ValueError, match=r"line 1 of .* must be a row of ours"):
        sj.generate(lm, masked(lm), PROMPTS, **options, save=folder)


@pytest.mark.parametrize("name", registry.ENTRIES)
def test_every_guidance_is_described_and_rebuilt(name):
    guidance = registry.ENTRIES[name].guidance
    described = json.loads(json.dumps(describe_settings(guidance)))
    rebuilt = rebuild(described, trusted=["registry", "scenes"])
    assert jax.tree.structure(rebuilt) == jax.tree.structure(guidance)
    chex.assert_trees_all_equal(rebuilt, guidance)


def cap(logits, ctx, ceiling):
    return jnp.minimum(logits, ceiling)


def test_settings_import_only_what_is_trusted():
    described = json.loads(json.dumps(describe_settings(sj.transform(cap, 3.0))))
    with pytest.raises(ValueError, match=r"must be ours or trusted.*trusted="):
        rebuild(described)
    module = described["fields"]["function"]["function"].split(":")[0]
    rebuilt = rebuild(described, trusted=[module])
    assert rebuilt.function is cap
    assert rebuilt.numbers == (3.0,)
    with pytest.raises(ValueError, match="must be a class of data"):
        rebuild({"class": "sake_jax.generation.settings:describe_settings", "fields": {}})
    for stranger in (
        "sake_jax.text:json.codecs.builtins.exec",
        "sake_jax.generation.settings:importlib",
    ):
        with pytest.raises(ValueError, match="must stand there"):
            rebuild({"function": stranger})
    key = jax.random.key(1, impl="rbg")
    assert jnp.array_equal(
        jax.random.key_data(rebuild(json.loads(json.dumps(describe_settings(key))))),
        jax.random.key_data(key),
    )
    with pytest.raises(ValueError, match="at most 10000 numbers"):
        describe_settings(jnp.zeros((101, 100)))


def spoil(logits, ctx, token):
    """Not numbers from the middle on, for rows whose prompt ends with a token."""
    bad = jnp.any(ctx.view.prompt & (ctx.view.tokens == token), axis=1) & (ctx.view.progress >= 0.5)
    return jnp.where(bad[:, None, None], jnp.nan, logits)


def test_not_a_number_names_the_step_and_keeps_finished_rows(lm, whole):
    token = lm.tokenizer("z")["input_ids"][0]
    sampler = masked(lm, guidance=sj.transform(spoil, token))
    options = {"names": [0, 2, 3], "samples": 3, "key": KEY, "stop_at_end": False}
    prompts = [PROMPTS[0], *PROMPTS[2:]]
    with pytest.raises(sj.NotFinite, match="at step 4 of 8 in prompt 2, sample 0 and 2 more") as e:
        sj.generate(lm, sampler, prompts, **options)
    assert [(row.prompt, row.sample) for row in e.value.rows] == list(np.ndindex(2, 3))
    for row in e.value.rows:
        assert row.tokens == whole.tokens[(0, 2)[row.prompt], row.sample].tolist()


def nothing(logits, ctx):
    return logits * jnp.nan


def test_not_a_number_is_seen_in_the_draw_too(lm):
    with pytest.raises(sj.NotFinite, match="at step 0 of 8 in prompt 0, sample 0"):
        sj.generate(lm, masked(lm, draw=sj.transform(nothing)), ["abc"], key=KEY)


def test_records_follow_the_plan_whatever_the_batch(lm):
    """Under a threshold rows finish a block at different steps, and alone they skip the rest."""
    sampler = masked(lm, reveal=sj.reveal.threshold(0.2), record="full")
    options = {"key": KEY, "stop_at_end": False, "trajectory": True}
    both = sj.generate(lm, sampler, ["abc", "hello"], **options)
    alone = sj.generate(lm, sampler, ["abc", "hello"], batch=1, **options)
    assert both.info.revealed.shape == (8, 2)
    assert both.info.revealed.sum() == 16
    np.testing.assert_array_equal(both.info.revealed, alone.info.revealed)
    np.testing.assert_allclose(both.info.entropy, alone.info.entropy, atol=1e-4)
    np.testing.assert_array_equal(both.trajectory, alone.trajectory)
    np.testing.assert_array_equal(both.trajectory[-1], both.tokens[:, 0])
    assert both.info.finite.all()
    assert set(np.unique(both.info.window_start)) <= {0, 4}


def test_samples_that_repel_each_other_do_not_depend_on_other_prompts(lm):
    """Distances between nearly equal rows must not be lost to rounding."""
    sampler = masked(lm, length=16, block=16, guidance=sj.sake(10.0, scope="batch"))
    prompts = [[at, at + 1, at + 2] for at in range(10)]
    together, apart = (
        sj.generate(lm, sampler, prompts, samples=4, key=jax.random.key(0), batch=batch)
        for batch in (40, 4)
    )
    np.testing.assert_array_equal(together.tokens, apart.tokens)
    np.testing.assert_allclose(together.log_p, apart.log_p, atol=1e-3)


def test_block_models_fill_in_at_the_places_of_their_blocks():
    """Later blocks are not seen, so what stands in them changes nothing."""
    lm, mask = model("bd3lm"), 259
    sampler = sj.block(lm, length=8, noise=sj.still)
    texts = [[1, mask, 3, 4, 5, 6], [1, mask, 3, 4, 5, 6, 7, 8]]
    out = sj.generate(lm, sampler, texts, key=KEY, infill=True)
    assert out.tokens[0, 0, 1] == out.tokens[1, 0, 1]
    assert out.written.sum(axis=-1).tolist() == [[6], [8]]


def test_a_special_token_may_be_named_as_a_string(lm, whole):
    end = next(int(t) for t in whole.tokens.reshape(-1) if t > 256)
    named, numbered = (
        sj.generate(lm, masked(lm), PROMPTS, samples=3, key=KEY, stop=[stop], stop_at_end=False)
        for stop in (f"<{end}>", end)
    )
    np.testing.assert_array_equal(named.written, numbered.written)
    assert not named.written.all()


@pytest.mark.parametrize("name", ["mdlm", "bd3lm", "udlm", "dream", "sedd", "sedd_uniform", "radd"])
def test_every_family_generates(name):
    lm = model(name)
    sampler = {
        "mdlm": lambda: sj.ancestral(lm, length=8, steps=8),
        "udlm": lambda: sj.ancestral(lm, length=8, steps=8),
        "bd3lm": lambda: sj.block(lm, length=8),
        "dream": lambda: sj.masked(lm, length=8, draw=sj.temperature(0.7)),
    }.get(name, lambda: sj.sampler_for(lm, length=8))()
    cond = [1, 2] if name == "udlm" else None
    out = sj.generate(lm, sampler, [[1, 2, 3], []], samples=2, key=KEY, cond=cond)
    if name == "bd3lm":  # the first block of the first prompt holds three given tokens
        assert out.written.sum(axis=-1).tolist() == [[5, 5], [8, 8]]
        assert (out.tokens[0, :, :3] == [1, 2, 3]).all()
    elif lm.config.eos_id is None:
        assert out.written.all()
    assert out.texts[0][0] is None, "no tokenizer"
    assert len({row.tobytes() for row in out.tokens.reshape(4, 8)}) == 4


def test_bad_input(lm):
    sampler = masked(lm)
    go = lambda prompts, **options: sj.generate(lm, sampler, prompts, key=KEY, **options)  # noqa: E731
    for prompts, options, message in [
        ("abc", {}, "put a single prompt in a list"),
        ([], {}, "at least one prompt"),
        ([[1, 999]], {}, "whole numbers from 0 to 287"),
        (["a<mask>"], {"special_tokens": True}, "must have no mask tokens .*infill=True"),
        ([[1] * 5000], {}, r"must fit the model's context of \d+, got 5000"),
        (["a"], {"samples": 0}, "samples must be at least 1"),
        (["a"], {"names": [1, 2]}, "names must have one entry for each prompt"),
        (["a"], {"batch": 0}, "batch must be at least 1"),
        (["a"], {"names": [2**40]}, "a name must be at most"),
        (["a"], {"stop": "END"}, "stop must be a list"),
        (["a"], {"stop": [""]}, "must not be empty"),
        (["a"], {"stop": [9999]}, "a stop token must be at most 287"),
        (["a"], {"cond": [1]}, "cond is for models with labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            go(prompts, **options)
    with pytest.raises(ValueError, match=r"within the model's context of 128, got 256"):
        sj.generate(lm, masked(lm, length=256), ["<mask>"], key=KEY, infill=True)
    with pytest.raises(ValueError, match="a label must be at most"):
        sj.generate(
            model("udlm"), sj.ancestral(model("udlm"), length=4, steps=2), [[]], key=KEY, cond=[99]
        )
    with pytest.raises(ValueError, match="needs a model with a mask token"):
        sj.generate(model("udlm"), sj.masked(model("udlm"), length=4), [[1]], key=KEY)
    with pytest.raises(ValueError, match="samplers are for diffusion models"):
        sj.ancestral(model("llama"), length=4, steps=4)
    with pytest.raises(ValueError, match="must be made for this model"):
        sj.generate(model("dream"), sampler, [[1]], key=KEY)
    repel = masked(lm, guidance=sj.sake(1.0, scope="batch"))
    with pytest.raises(ValueError, match="must fit into a batch where they repel"):
        sj.generate(lm, repel, ["a"], key=KEY, samples=4, batch=2)
    bare = dataclasses.replace(lm, folder=GOLDENS / "llada")
    with pytest.raises(ValueError, match="need the model's tokenizer"):
        sj.generate(bare, sampler, [[1]], key=KEY, stop=["."])
