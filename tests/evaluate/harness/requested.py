"""Requests as lm_eval makes them, and runs of its evaluator."""

import lm_eval.evaluator
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from sake_jax.evaluate.harness import HarnessModel

DOCUMENTS = [  # of one length in bytes: fewer programs
    {"question": "the dog felt", "answer": "good"},
    {"question": "lily went to", "answer": "play"},
    {"question": "the cat went", "answer": "down"},
    {"question": "tom looks at", "answer": "them"},
]
SMALL = {"steps": 4, "mc_samples": 4, "mc_batch": 16}
SAMPLED = {"until": ["."], "do_sample": True, "temperature": 0.9, "max_gen_toks": 8}


def metric(name, aggregation, higher):
    return {"metric": name, "aggregation": aggregation, "higher_is_better": higher}


def evaluate(tasks, name, lm, options=None, **others):
    """lm_eval's results, and the answers by document."""
    model = HarnessModel(lm, batch_size=4, **options or {})
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    found = lm_eval.evaluator.simple_evaluate(
        model, tasks=[name], task_manager=manager, bootstrap_iters=0, **others
    )
    assert found is not None
    return found["results"][name], [sample["resps"] for sample in found["samples"][name]]


def asking(kind, *arguments, repeats=1):
    """One request, as often as lm_eval would list it."""
    return [Instance(kind, {}, arguments, 0, ("task", 0, repeats))] * repeats


def writing(model, prompts, repeats=1, **changes):
    lists = [asking("generate_until", p, SAMPLED | changes, repeats=repeats) for p in prompts]
    return model.generate_until([request for part in lists for request in part], disable_tqdm=True)
