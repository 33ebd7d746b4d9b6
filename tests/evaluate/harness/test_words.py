"""lm_eval's words and texts: model_args, generation_kwargs, prompts that fit, parts of a run."""

import dataclasses
import zlib

import pytest
from lm_eval.api.instance import Instance
from replay import model
from requested import SAMPLED
from tokenizers import processors

from sake_jax.evaluate.harness import HarnessModel, Options, texts
from sake_jax.evaluate.harness.encoding import Encoding, Pair
from sake_jax.evaluate.harness.options import LENGTH, TextOptions, parse_options
from sake_jax.samplers import Request


@pytest.mark.parametrize(
    ("options", "wanted", "asked"),
    [
        ({}, {}, TextOptions((), LENGTH, 0.0, 1.0)),
        ({}, SAMPLED | {"top_p": 0.9}, TextOptions((".",), 8, 0.9, 0.9)),
        ({}, {"do_sample": True}, TextOptions((), LENGTH, 1.0, 1.0)),
        ({}, {"temperature": 0.3, "num_beams": 1}, TextOptions((), LENGTH, 0.3, 1.0)),
        (
            {},
            {"do_sample": False, "temperature": 0.3, "top_p": 0.9},
            TextOptions((), LENGTH, 0.0, 1.0),
        ),
        ({}, {"until": "Q:", "max_new_tokens": 7}, TextOptions(("Q:",), 7, 0.0, 1.0)),
        ({}, {"until": ["a", "", "b", "a"]}, TextOptions(("a", "b"), LENGTH, 0.0, 1.0)),
        ({"length": 5, "temperature": 0.5, "top_p": 0.8}, {}, TextOptions((), 5, 0.5, 0.8)),
    ],
)
def test_what_a_request_asks_for(options, wanted, asked, caplog):
    assert Options(**options).resolve(wanted) == asked
    assert "model_args and the task" not in caplog.text


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [("length", 9, 8), ("temperature", 0.25, 0.9), ("top_p", 0.75, 0.5)],
)
def test_model_args_hold_and_a_difference_is_told(name, given, told, caplog):
    asked = Options(**{name: given}).resolve(SAMPLED | {"top_p": 0.5})
    assert getattr(asked, name) == given
    assert f"agree on {name}, got {given} and {told}; {given} holds" in caplog.text


def test_options_make_the_request_of_the_command_line():
    given = {"guidance": "sake+cfg", "strength": 2.0, "steps": 6, "block": 3}
    given |= {"sampler": "masked", "cache": "dual", "bandwidth": 3.0}
    options = parse_options(given | {"length": 5, "seed": 2})
    request = options.request_for(TextOptions((), 12, 0.5, 0.9))
    assert request == Request(**given, length=12, temperature=0.5, top_p=0.9)
    assert parse_options(options.words) == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": "auto"}, "batch_size must be a whole number above 0, got 'auto'"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"max_batch_size": 8}, "max_batch_size is for automatic sizes"),
        ({"device": "mps"}, "device must be left out, got 'mps'"),
        ({"pretrained": "x"}, r"model_args must be of model, .*, got \['pretrained'\]"),
        ({"dtype": "float32"}, "dtype and mesh are for loading"),
        ({"fsdp": 2}, "dtype and mesh are for loading"),
        ({"guidance": "sakee"}, "guidance must be one of"),
        ({"greedy": 1}, "greedy must be true or false"),
        ({"truncate": "yes"}, "truncate must be true or false"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"mc_samples": 0}, "mc_samples must be at least 1"),
        ({"mc_batch": 0}, "mc_batch must be at least 1"),
        ({"cfg": -1.0}, "cfg must be at least 0"),
        ({"length": 0}, "length must be at least 1"),
    ],
)
def test_bad_model_args(options, message, tiny):
    with pytest.raises(ValueError, match=message):
        HarnessModel(tiny, **options)


@pytest.mark.parametrize("wanted", [{"top_k": 5}, {"num_beams": 4}])
def test_bad_generation_kwargs(wanted):
    with pytest.raises(ValueError, match=r"generation_kwargs must be of until, .*, got \{"):
        Options().resolve(SAMPLED | wanted)


def test_words_as_lm_eval_passes_them(tiny):
    words = f"model={tiny.folder},guidance=none,cache=none,dtype=bfloat16,strength=1"
    others = {"batch_size": "4", "max_batch_size": None, "device": "cuda:0"}
    model = HarnessModel.create_from_arg_string(words, others)
    about = model.get_model_info()["model_options"]
    assert (model.batch_size, about["guidance"], about["cache"]) == (4, "none", "none")
    assert about["dtype"] == "bfloat16"
    assert model.max_length == 128
    assert HarnessModel(tiny, device="cpu").options == Options()


def test_texts_that_exceed_the_context(tiny):
    strict, loose = Encoding(tiny, truncate=False), Encoding(tiny, truncate=True)
    assert len(strict.prompt("x" * 119, 8)) == 120
    with pytest.raises(ValueError, match=r"a prompt and 8 columns .* context of 128, got 121;"):
        strict.prompt("x" * 120, 8)
    assert loose.prompt("y" + "x" * 120, 8) == strict.ids("x" * 120)[1:]
    with pytest.raises(ValueError, match="a prompt and 128 columns"):
        loose.prompt("x", 128)
    with pytest.raises(ValueError, match="a prompt and 28 columns"):
        strict.pair("x" * 100, "y" * 28)
    assert loose.pair("x" * 100, "y" * 28).context == strict.ids("x" * 100)[1:]
    with pytest.raises(ValueError, match="a continuation must have tokens"):
        strict.pair("x", "")
    sliding = dataclasses.replace(tiny, config=model("bd3lm").config)
    assert len(Encoding(sliding, truncate=False).prompt("x" * 500, 8)) == 501


def test_windows_hold_each_token_once(tiny):
    encoding = Encoding(tiny, truncate=False)
    text = "".join(chr(97 + at % 26) for at in range(300))
    windows = encoding.windows(text)
    assert [token for pair in windows for token in pair.answer] == list(encoding.ids(text)[1:])
    assert windows[0].context == (257,)
    assert [len(pair.context) + len(pair.answer) for pair in windows] == [128] * 3
    assert encoding.windows("") == []
    nothing = Instance("loglikelihood_rolling", {}, ("",), 0, ("task", 0, 1))
    assert HarnessModel(tiny).loglikelihood_rolling([nothing]) == [0.0]


def test_causal_models_without_special_tokens_begin_with_the_end(tiny):
    def bare(**changes):
        network = dataclasses.replace(tiny.config.network, causal=True)
        config = dataclasses.replace(tiny.config, network=network, **changes)
        lm = dataclasses.replace(tiny, config=config)
        lm.tokenizer.backend_tokenizer.post_processor = processors.Sequence([])
        return lm

    encoding = Encoding(bare(), truncate=False)
    assert encoding.pair("", "ab") == Pair((256,), encoding.ids("ab"))
    assert encoding.windows("ab") == [Pair((256,), encoding.ids("ab"))]
    assert Encoding(bare(bos_id=1), truncate=False).start == (1,)
    with pytest.raises(ValueError, match="must have a beginning-of-text or an end-of-text token"):
        Encoding(bare(bos_id=None, eos_id=None), truncate=False)


def test_two_prompts_with_one_name_are_written_apart():
    prompts = ["plumless", "buckeroo"]
    assert zlib.crc32(prompts[0].encode()) == zlib.crc32(prompts[1].encode())
    documents = [texts.Document(TextOptions((), 8, 0.0, 1.0), 1, (1, 2), text) for text in prompts]
    assert [len(part) for part in texts.parts(documents, batch=4)] == [1, 1]


def test_parts_are_whole_batches_and_a_run_that_goes_on_has_the_same():
    asked = TextOptions((), 8, 0.0, 1.0)
    documents = [texts.Document(asked, 2, (1,) * 5, f"{at:02d}") for at in range(9)]
    documents += [texts.Document(asked, 2, (1,) * 20, "long")]
    cut = list(texts.parts(documents, batch=4))
    assert [len(part) for part in cut] == [1, 2, 2, 2, 3], "the last fills two batches"
    assert cut[0][0].text == "long"
    left = [document for part in cut[2:] for document in part]
    assert list(texts.parts(reversed(left), batch=4)) == cut[2:]
    assert [len(part) for part in texts.parts(documents[:2], batch=1)] == [1, 1]
