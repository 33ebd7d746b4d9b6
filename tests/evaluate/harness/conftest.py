"""Models and tasks for lm-evaluation-harness, small enough to run here, without the network."""

import json
import os

os.environ |= {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}  # read when lm_eval is imported

import lm_eval.evaluator
import pytest
import yaml
from requested import DOCUMENTS, SAMPLED, SMALL, metric, writing

import sake_jax as sj
from bytewise import byte_llada
from sake_jax.evaluate.harness import HarnessModel


@pytest.fixture(scope="module", autouse=True)
def no_report():
    """What lm_eval tells of the machine takes it seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
        patch.setattr(lm_eval.evaluator, "get_git_commit_hash", lambda: None)
        yield


@pytest.fixture(scope="module")
def stories():
    return sj.load("tinystories")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return byte_llada(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A folder with one task of each kind."""
    folder = tmp_path_factory.mktemp("tasks")
    lines = "\n".join(json.dumps(document) for document in DOCUMENTS)
    (folder / "documents.jsonl").write_text(lines)
    files = {"data_files": {"test": str(folder / "documents.jsonl")}, "cache_dir": str(folder)}
    common = {"dataset_path": "json", "dataset_kwargs": files, "test_split": "test"}
    common |= {"doc_to_text": "{{question}}", "doc_to_target": "{{answer}}"}
    word = [{"function": "regex", "regex_pattern": r"(\w+)"}, {"function": "take_first"}]
    own = {
        "writing": {
            "output_type": "generate_until",
            "generation_kwargs": SAMPLED,
            "repeats": 2,
            "filter_list": [{"name": "first-word", "filter": word}],
            "metric_list": [metric("exact_match", "mean", True)],
        },
        "choosing": {
            "output_type": "multiple_choice",
            "doc_to_choice": [document["answer"] for document in DOCUMENTS],
            "metric_list": [metric("acc", "mean", True)],
        },
        "reading": {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{question}} {{answer}}",
            "metric_list": [metric("word_perplexity", "weighted_perplexity", False)],
        },
    }
    for name, entries in own.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(common | {"task": name} | entries))
    return folder


@pytest.fixture(scope="module")
def alone(tiny):
    """texts[prompt][repeat], prompt by prompt."""
    model = HarnessModel(tiny, batch_size=4, **SMALL)
    pairs = ["first prompt", "second one"], ["the third one", "the fourth"]
    found = {}
    for prompts in pairs:
        written = writing(model, prompts, repeats=2)
        found |= {prompts[0]: written[:2], prompts[1]: written[2:]}
    return found
