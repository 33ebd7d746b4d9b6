"""The model that lm_eval calls."""

import dataclasses
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, CacheHook
from lm_eval.api.registry import register_model
from lm_eval.utils import warning_once

import sake_jax as sj
from sake_jax.checks import require
from sake_jax.evaluate.harness import scores, texts
from sake_jax.evaluate.harness.answers import Answers
from sake_jax.evaluate.harness.cache import RequestCache, text_entry
from sake_jax.evaluate.harness.encoding import Encoding, Pair
from sake_jax.evaluate.harness.options import Options, parse_options
from sake_jax.evaluate.harness.scores import Score
from sake_jax.evaluate.harness.texts import Document
from sake_jax.generation import has_chat_template, model_identity
from sake_jax.models import LanguageModel
from sake_jax.progress import bar

logger = logging.getLogger(__name__)

NOT_GREEDY = "is_greedy is False for all: tasks that count greedy continuations will report 0."
UNNAMED = "cuda:0"
"""The device that lm_eval's command names where its user names none."""


@register_model("sake_jax")
class HarnessModel(LM):
    """A model of ours, for lm_eval's tasks."""

    def __init__(
        self,
        model: str | LanguageModel = "tinystories",
        *,
        dtype: str | None = None,
        data: int = 1,
        fsdp: int = 1,
        tensor: int = 1,
        batch_size: int | str = 32,
        max_batch_size: int | None = None,
        device: str | None = None,
        **options: Any,
    ):
        """Loads it.

        Args:
          model: what `sake_jax.load` takes, or what it returned.
          dtype: float32, bfloat16 or int8; as stored by default.
          data, fsdp, tensor: axes of a mesh of devices; see `sake_jax.mesh`.
          batch_size: rows that are run together; results do not depend on it.
          max_batch_size: must be left out: it is for automatic sizes.
          device: must be left out: JAX chooses.
          **options: see `Options` and its `Request`.
        """
        super().__init__()
        rule, remedy = "device must be left out", "choose with JAX_PLATFORMS"
        require(device in (None, UNNAMED, jax.default_backend()), rule, device, remedy)
        rule, remedy = "max_batch_size is for automatic sizes", "give --batch_size alone"
        require(max_batch_size is None, rule, max_batch_size, remedy)
        self.batch_size, self.options = _batch(batch_size), parse_options(options)
        self.language_model = _loaded(model, dtype, (data, fsdp, tensor))
        self.tokenizer = self.language_model.tokenizer
        self.encoding = Encoding(self.language_model, self.options.truncate)
        self.cache = RequestCache(self.cache_hook, {})

    @property
    def max_length(self) -> int:
        """The model's context."""
        return self.language_model.config.network.context

    @property
    def tokenizer_name(self) -> str:
        """Tells lm_eval's stored prompts of one model from another's."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def get_model_info(self) -> dict[str, Any]:
        """What lm_eval writes into its results: all options, resolved."""
        lm = self.language_model
        about = {"sake_jax": sj.__version__, "family": lm.config.family}
        about |= {"folder": None if lm.folder is None else str(lm.folder)}
        about |= {name: part for name, part in model_identity(lm).items() if name != "config"}
        return {"model_options": about | self.options.words}

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Called by lm_eval with `--use_cache`."""
        super().set_cache_hook(cache_hook)
        about = self.get_model_info()["model_options"]
        about.pop("mc_batch")  # changes no result
        self.cache = RequestCache(cache_hook, about)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The model's own, for lm_eval's records."""
        rule, remedy = "chat templates have no names here", "give the flag alone"
        require(isinstance(chat_template, bool), rule, chat_template, remedy)
        return self.tokenizer.chat_template if chat_template else None

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """A chat as text, in the model's own form."""
        rule = "--apply_chat_template needs a model with a chat template"
        family = self.language_model.config.family
        require(has_chat_template(self.language_model), rule, family, "leave it out")
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One text for each request; lm_eval lists a request as often as it repeats it."""
        first = {id(request): request for request in requests}
        counts = Counter(map(id, requests))
        documents = {at: self._document(r, counts[at]) for at, r in first.items()}
        known: dict[Document, list[str]] = {}
        waiting: dict[Document, list[tuple]] = {}
        for at, document in documents.items():
            if stored := self.cache.texts(first[at].args, document.repeats):
                known[document] = stored
            else:
                waiting.setdefault(document, []).append(first[at].args)
        with bar("writing", len(waiting), _shows_progress(disable_tqdm)) as advance:
            for part in texts.parts(waiting, self.batch_size):
                written = texts.write(self.language_model, part, self.options, self.batch_size)
                known |= dict(zip(part, written, strict=True))
                pairs = (
                    (given, known[document]) for document in part for given in waiting[document]
                )
                self.cache.keep(itertools.starmap(text_entry, pairs))
                advance(len(part))
        left = {at: iter(known[document]) for at, document in documents.items()}
        return [next(left[id(request)]) for request in requests]

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """(nats, is_greedy) of each continuation."""
        if not (self.options.greedy and scores.has_greedy(self.language_model)):
            warning_once(logger, NOT_GREEDY)
        pairs = [[self.encoding.pair(*request.args)] for request in requests]
        answer = lambda scored: tuple(scored[0])  # noqa: E731
        return self._answers(requests, pairs, self.options, answer, disable_tqdm)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Nats of each text, in windows where it exceeds the context."""
        windows = [self.encoding.windows(request.args[0]) for request in requests]
        options = dataclasses.replace(self.options, greedy=False)
        answer = lambda scored: float(sum(part.nats for part in scored))  # noqa: E731
        return self._answers(requests, windows, options, answer, disable_tqdm)

    def _document(self, request: Instance, repeats: int) -> Document:
        text, wanted = request.arguments
        self.cache.refuse(wanted, repeats)
        chosen = self.options.resolve(wanted)
        return Document(chosen, repeats, self.encoding.prompt(text, chosen.length), text)

    def _answers(
        self,
        requests: Sequence[Instance],
        wanted: Sequence[Sequence[Pair]],
        options: Options,
        answer: Callable[[list[Score]], Any],
        quiet: bool,
    ) -> list[Any]:
        """What is made of the scores of each request's pairs."""

        def score(part: Sequence[Pair]) -> list[Score]:
            return scores.score(self.language_model, part, options, self.batch_size)

        return Answers(requests, wanted, answer).all(score, self.cache, _shows_progress(quiet))


def _loaded(
    model: str | LanguageModel, dtype: str | None, mesh: tuple[int, int, int]
) -> LanguageModel:
    sharded = mesh != (1, 1, 1)
    if isinstance(model, str):
        return sj.load(model, mesh=sj.mesh(*mesh) if sharded else None, dtype=dtype)
    rule, remedy = "dtype and mesh are for loading", "leave them out with a loaded model"
    require(dtype is None and not sharded, rule, (dtype, mesh), remedy)
    return model


def _batch(size: int | str) -> int:
    """A number of rows; lm_eval's command passes it as a word."""
    remedy = "give a number: memory is not probed"
    number = str(size).isdigit() and int(size) > 0
    require(number, "batch_size must be a whole number above 0", size, remedy)
    return int(size)


def _shows_progress(quiet: bool) -> bool:
    return sys.stderr.isatty() and not quiet
