"""A model, and what a page may ask of it."""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence

import sake_jax as sj
from sake_jax.play.draft import Draft
from sake_jax.play.live import LiveRun, with_and_without
from sake_jax.viewer import HtmlPage

Settings = Mapping[str, str]
"""By the names of options, as an address has them."""
Watch = Callable[[sj.Canvas], None]


@dataclasses.dataclass(frozen=True)
class Studio:
    """A model, and how settings become texts: the command line gives its own ways to read them."""

    lm: sj.LanguageModel
    name: str
    """Of the model, for people."""
    usual: tuple[Draft, sj.Request]
    """What a page begins with."""
    parse: Callable[[Settings], tuple[Draft, sj.Request]]
    """Raises ValueError with the command line's own words."""
    prepare: Callable[[str], str | Sequence[int]]
    """From a beginning to what the model reads; for chats, token ids."""
    record: Callable[[sj.Request, Draft, Watch], sj.Generation]
    """A generation with all that its page shows."""
    special_tokens: bool = False
    # Tokenizers change while they encode, so one thread at a time uses one: those of live runs,
    # piece by piece, the model's; those of pages, which take seconds, that of `record`.
    tokenizing: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    saving: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def live(self, settings: Settings) -> LiveRun:
        """The run that settings ask for, before its first step."""
        return self.run(*self.parse(settings))

    def run(self, draft: Draft, request: sj.Request) -> LiveRun:
        """A run before its first step, or ValueError."""
        with self.tokenizing:
            prompt = self.prepare(draft.prompt)
            made = LiveRun(self.lm, prompt, draft, request, self.special_tokens)
        made.tokenizing = self.tokenizing
        return made

    def page(self, settings: Settings, watch: Watch) -> HtmlPage:
        """The same run as one page that needs no server.

        Args:
          settings: of the run.
          watch: is called after each step, and may raise to end it.
        """
        draft, request = self.parse(settings)
        wanted = with_and_without(request)
        with self.saving:
            runs = [self.record(each, draft, watch) for each in wanted]
        return runs[0].to_html(*runs[1:], names=[each.name for each in wanted])

    def settings(self) -> dict[str, str | int | float | None]:
        """What a page begins with, by the names of options."""
        draft, request = self.usual
        return dataclasses.asdict(draft) | dataclasses.asdict(request)
