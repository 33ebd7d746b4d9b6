"""Training on prompts with answers: what is masked and learned, what is drawn, and going on."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.evaluate.countdown import SPLITS, Countdown, split_of
from sake_jax.training import Trainer, pairs, read
from sake_jax.training.objective import corrupt, loss
from sake_jax.training.recipe import PairsData, Training, recipes

RECIPE = """
[data]
problems = "countdown"
options = {numbers = 3, largest = 9, largest_result = 99}
[model]
layers = 1
width = 32
heads = 2
mlp = 48
context = 16
[training]
steps = 6
batch = 4
warmup = 2
every = 2
evaluate = 3
save = 2
"""
SMALL = PairsData("countdown", {"largest": 9, "largest_result": 99})


class Copies:
    """A user's own problems: the answer is the prompt, but for what is made wrong on purpose."""

    words = ("a", "b", "c")

    def __init__(self, ragged: bool = False, word: str | None = None):
        self.ragged, self.word = ragged, word

    def pairs(self, split, count, seed):
        random = np.random.default_rng(seed)
        texts = [" ".join(random.choice(self.words, 2)) for _ in range(count)]
        if self.ragged:
            return [(text + " a" * (at % 2), text) for at, text in enumerate(texts)]
        return [(text, f"a {self.word}" if self.word else text) for text in texts]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "small.toml"
    path.write_text(RECIPE)
    return read(path)


@pytest.fixture(scope="module")
def straight(recipe, tmp_path_factory):
    """A run without interruption."""
    trainer = Trainer(recipe, tmp_path_factory.mktemp("straight"))
    trainer.train()
    return trainer


def log(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line.get("validation")) for line in lines]


def test_prompts_are_read_but_neither_masked_nor_learned(straight):
    config, params = straight.config, straight.state.params
    tokens, key, start = jnp.asarray(straight.examples.batch(0)), jax.random.key(3), 6
    assert straight.examples.answer_start == start
    noisy, time = corrupt(config, "exact", tokens[:, start:], key)
    page = jnp.concatenate([tokens[:, :start], noisy], axis=1)
    logits = sj.LanguageModel(config, params).logits(page)[:, start:]
    terms = sj.losses.masked_terms(logits, tokens[:, start:], noisy, time, config.mask_id)
    by_hand = float(jnp.mean(terms))
    np.testing.assert_allclose(
        loss(config, "exact", params, tokens, key, start), by_hand, rtol=1e-5
    )
    other = tokens.at[:, 0].set(tokens[:, 0] % 9 + 5)
    assert abs(float(loss(config, "exact", params, other, key, start)) - by_hand) > 1e-5


def test_examples_depend_on_the_seed_and_the_step_alone(straight):
    def fresh(seed):
        return pairs.PairsExamples(SMALL, Training(batch=4, seed=seed), straight.tokenizer)

    first, again = fresh(0), fresh(0)
    late = again.batch(pairs.AHEAD + 3)
    for step in range(pairs.AHEAD + 3):
        first.batch(step)
    np.testing.assert_array_equal(first.batch(pairs.AHEAD + 3), late)
    np.testing.assert_array_equal(first.batch(1), again.batch(1))
    assert (first.batch(1) != first.batch(2)).any()
    assert (first.batch(1) != fresh(1).batch(1)).any()


def test_validation_has_problems_of_its_own(straight):
    held_out = straight.examples.held_out()
    game, decode = Countdown(largest=9, largest_result=99), straight.tokenizer.decode
    asked = [game.read_prompt(decode(row[:6].tolist())) for row in held_out]
    numbers, targets = np.asarray([n for n, _ in asked]), np.asarray([t for _, t in asked])
    assert set(split_of(numbers, targets)) == {SPLITS.index("development")}
    answers = [decode(row[6:].tolist()) for row in held_out]
    assert not any(game.fault(*q, a) for q, a in zip(asked, answers, strict=True))


def test_a_stopped_run_goes_on_with_the_same_losses(recipe, straight, tmp_path):
    def stop(step, loss):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(recipe, tmp_path).train(stop)
    Trainer(recipe, tmp_path).train()
    assert log(tmp_path) == log(straight.folder)
    assert all(np.isfinite(held) for _, _, held in log(tmp_path) if held is not None)


def test_the_model_loads_and_answers_in_words(straight):
    lm = sj.load(straight.publish("float32"))
    prompt = "3 4 5 = 17 :"
    assert lm.tokenizer.decode(lm.tokenizer(prompt)["input_ids"]) == prompt
    out = sj.generate(lm, sj.masked(lm, length=8), [prompt], samples=2, key=jax.random.key(0))
    words = Countdown(largest=9, largest_result=99).words
    assert all(len(text.split()) <= 8 for text in out.texts[0])
    assert {word for text in out.texts[0] for word in text.split()} <= set(words)


def test_problems_of_your_own(tmp_path):
    data = PairsData(f"{__name__}:Copies")
    tokenizer = pairs.word_tokenizer(data)
    assert tokenizer.get_vocab() == {"<|endoftext|>": 0, "a": 1, "b": 2, "c": 3, "<|mask|>": 4}
    rows = pairs.PairsExamples(data, Training(batch=2), tokenizer).batch(0)
    assert rows.shape == (2, 4)
    np.testing.assert_array_equal(rows[:, :2], rows[:, 2:])


@pytest.mark.parametrize(
    ("problems", "options", "message"),
    [
        ("sudoku", {}, "must be one of countdown, products, or 'package.module:Class'"),
        ("no.such:Thing", {}, "No module named"),
        ("sake_jax.evaluate.countdown:Chess", {}, "has no attribute"),
        ("countdown", {"digits": 3}, "unexpected keyword argument"),
        ("countdown", {"numbers": 1}, "numbers must be at least 2"),
        (f"{__name__}:Copies", {"ragged": True}, "prompts must have 2 words and answers 2"),
        (f"{__name__}:Copies", {"word": "d"}, "problems must be made of `words`"),
    ],
)
def test_bad_problems(problems, options, message):
    data = PairsData(problems, options)
    with pytest.raises(ValueError, match=message):
        pairs.PairsExamples(data, Training(), pairs.word_tokenizer(data)).batch(0)


def test_a_context_that_is_too_short_is_refused(recipe, tmp_path):
    path = tmp_path / "short.toml"
    path.write_text(RECIPE.replace("context = 16", "context = 8"))
    with pytest.raises(ValueError, match=r"model.context must be at least data.length = 14"):
        Trainer(read(path), tmp_path / "run")


@pytest.mark.parametrize("name", ["countdown-3", "countdown-4", "products"])
def test_recipes_in_the_box_make_models_of_one_to_three_million_parameters(name):
    recipe = read(recipes()[name])
    words = pairs.make_source(recipe.data).words
    leaves = jax.tree.leaves(sj.models.abstract(recipe.config(len(words) + 2).network))
    assert 1e6 < sum(leaf.size for leaf in leaves) < 3e6
