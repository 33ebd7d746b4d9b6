"""GSM8K: the rules on a thousand tricky answers, and prompts, against lm-evaluation-harness."""

import json
import random

import pytest
import yaml

from sake_jax.evaluate import Problem, gsm8k
from sake_jax.evaluate.gsm8k import INVALID, flexible_extract, judge, matches, strict_match

TRAIN = [{"question": f"Q{at}?", "answer": f"It is {at}.\n#### {at}"} for at in range(10)]
TEST = [{"question": f"How many {what}?", "answer": "So 3.\n#### 3"} for what in ("cats", "dogs")]


@pytest.fixture
def files(tmp_path):
    paths = tmp_path / "test.jsonl", tmp_path / "train.jsonl"
    for path, some in zip(paths, (TEST, TRAIN), strict=True):
        path.write_text("\n".join(map(json.dumps, some)))
    return paths


def test_a_prompt_has_examples_of_its_own(files):
    test, train = files
    task = gsm8k(test, examples=train, shots=2)
    first, second = [problem.prompt.split("\n\n") for problem in task.problems]
    assert first[-1] == "Question: How many cats?\nAnswer:"
    shown = {f"Question: {r['question']}\nAnswer: {r['answer']}" for r in TRAIN}
    assert len(first) == 3
    assert set(first[:-1]) | set(second[:-1]) <= shown
    assert first[:-1] != second[:-1]


def test_the_options(files):
    test, train = files
    usual = gsm8k(test, examples=train)
    assert usual.problems[0].prompt.count("Question:") == 6
    assert [problem.name for problem in usual.problems] == ["GSM8K/0", "GSM8K/1"]
    assert gsm8k(test, examples=train, seed=1).problems != usual.problems
    assert gsm8k(test, examples=train, limit=1).problems == usual.problems[:1]
    assert gsm8k(test, shots=0).problems[1].prompt == "Question: How many dogs?\nAnswer:"
    with pytest.raises(ValueError, match="examples must be the training set"):
        gsm8k(test)
    with pytest.raises(ValueError, match="as many records as shots"):
        gsm8k(test, examples=train, shots=11)


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("#### 18", "18", "18"),
        ("#### -1,234.50. Then #### 7", "-1,234.50.", "7"),
        ("It costs $5.", INVALID, "$5."),
        ("####18 and 4", INVALID, "4"),
        ("−5", INVALID, "5"),
        ("no number", INVALID, INVALID),
        ("", INVALID, INVALID),
        ("#### 3 Question: what is 9?", "3", "3"),
    ],
)
def test_what_is_found(text, strict, flexible):
    (verdict,) = judge([(Problem("a", "", {"answer": "#### 18"}), text)])
    assert verdict.answer == {"strict-match": strict, "flexible-extract": flexible}


def test_a_verdict_by_each_rule():
    problem = Problem("a", "", {"answer": "First 2.\n#### 1,800"})
    both, one, none = judge([(problem, text) for text in ("#### 1800.", "$1,800", "#### 1800.0")])
    assert both.correct == {"strict-match": True, "flexible-extract": True}
    assert both.why == ""
    assert one.correct == {"strict-match": False, "flexible-extract": True}
    assert one.why == "the answer is 1800"
    assert none.correct == {"strict-match": False, "flexible-extract": False}


def some_number(draw: random.Random) -> str:
    """A number, or something like one, in one of many spellings."""
    value = draw.choice([draw.randrange(10), draw.randrange(1000), draw.randrange(10**7)])
    spellings = [
        f"{value}",
        f"{value:,}",
        f"${value:,}",
        f"-{value}",
        f"-${value}",
        f"$-{value}",
        f"{value}.",
        f"{value}.00",
        f"{value / 4}",
        f"{value}%",
        f"\u2212{value}",
        f"{value}/4",
        f"{value:#x}",
        f"{value:e}",
        f"{value:,}".replace(",", "."),
        f"{value:,}".replace(",", " "),
        f"{value}, ",
        f"**{value}**",
        f"\\boxed{{{value}}}",
        "".join(chr(0x660 + int(digit)) for digit in str(value)),
        "$", "...", ",", "-", ".5", "1,2,3", "half", "\u00bd", "\uff15", "--7", "$$9", "",
    ]  # fmt: skip
    return draw.choice(spellings)


def tricky(seed: int) -> tuple[str, str]:
    """A completion, and a reference that is often the same number."""
    draw = random.Random(seed)
    number, other = some_number(draw), some_number(draw)
    marks = ["####", "### ", "##### ", "#### #### ", "####  ", "####\n", "The answer is ", ""]
    marks += ["#### "] * 12
    filler = ["", "\n", "So 3 + 4 = <<3+4=7>>7. ", "word " * draw.choice([1, 2000]), "\n\n", "\t"]
    ends = ["", ".", " dollars", "\n", "\n#### " + other, " or " + other, "</s> 5", "\nQuestion: 6",
            "<|im_end|>8", ", thus", " \r\n", "!", "\u00a0", ".."]  # fmt: skip
    text = draw.choice(filler) + draw.choice(marks) + number + draw.choice(ends)
    plain = number.strip("*$%., ").lstrip("0")
    wanted = draw.choice([number, plain, plain, plain.replace(",", ""), other]) or "7"
    before = draw.choice(["", "He has 2.\n", "A #### 1 B\n"])
    return text, f"{before}#### {wanted}{draw.choice(['', '', '', '.', chr(10)])}"


def test_a_thousand_tricky_answers_are_judged_as_by_the_harness(stock_definition):
    extraction = pytest.importorskip("lm_eval.filters.extraction")
    metrics = pytest.importorskip("lm_eval.api.metrics")
    config = yaml.safe_load(stock_definition("gsm8k").read_text())
    (metric,) = config["metric_list"]
    options = {
        name: metric[name] for name in ("ignore_case", "ignore_punctuation", "regexes_to_ignore")
    }
    filters = {}
    for rule in config["filter_list"]:
        regex, first = rule["filter"]
        assert (regex.pop("function"), first) == ("regex", {"function": "take_first"})
        filters[rule["name"]] = extraction.RegexFilter(**regex)
    found = {(rule, right): 0 for rule in filters for right in (True, False)}
    for seed in range(1000):
        text, reference = tricky(seed)
        (ours,) = judge([(Problem("a", "", {"answer": reference}), text)])
        for end in config["generation_kwargs"]["until"]:
            text = text.split(end)[0]
        assert list(ours.correct) == list(filters)
        for rule, theirs in filters.items():
            ((answer,),) = theirs.apply([[text]], [{}])
            scores = metrics.exact_match_fn(predictions=[answer], references=[reference], **options)
            assert ours.answer[rule] == answer, (seed, rule, text[-80:])
            assert ours.correct[rule] == bool(scores["exact_match"]), (seed, rule, text[-80:])
            found[rule, ours.correct[rule]] += 1
    assert min(found.values()) > 100, "right and wrong by each rule"


def test_answers_are_compared_as_text():
    assert matches("$1,000.", "So it is.\n#### 1000")
    assert not matches("18.0", "18")
    assert strict_match("#### 1 #### 2") == "1"
    assert flexible_extract("1 then 2") == "2"


def read(path) -> list[dict]:
    return [json.loads(line) for line in path.open()]


@pytest.mark.slow
def test_prompts_and_stops_are_the_stock_tasks(real, stock):
    test, train = real / "gsm8k_test.jsonl", real / "gsm8k_train.jsonl"
    ours = gsm8k(test, examples=train)
    assert len(ours.problems) == 1319
    theirs = stock("gsm8k", test=read(test), train=read(train))
    assert [request.args[0] for request in theirs.instances] == [p.prompt for p in ours.problems]
    assert all(request.args[1]["until"] == list(ours.stop) for request in theirs.instances)
    assert ours.problems[:7] == gsm8k(test, examples=train, limit=7).problems


@pytest.mark.slow
def test_other_seeds_and_numbers_of_examples_are_too(real, stock):
    test, train = real / "gsm8k_test.jsonl", real / "gsm8k_train.jsonl"
    ours = gsm8k(test, examples=train, shots=2, seed=7, limit=50)
    some = {"test": read(test)[:50], "train": read(train)}
    theirs = stock("gsm8k", seed=7, options={"num_fewshot": 2}, **some)
    assert [request.args[0] for request in theirs.instances] == [p.prompt for p in ours.problems]


@pytest.mark.slow
def test_every_reference_answer_is_right_by_both_rules(real):
    task = gsm8k(real / "gsm8k_test.jsonl", examples=real / "gsm8k_train.jsonl")
    verdicts = task.judge([(problem, problem.data["answer"]) for problem in task.problems])
    assert all(all(verdict.correct.values()) for verdict in verdicts)
