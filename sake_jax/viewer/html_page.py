"""One HTML file that needs nothing else: markup, style, program and payload."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from sake_jax.files import write_atomically
from sake_jax.viewer.payload import payload
from sake_jax.viewer.recording import Recording

SCRIPTS = ("recorded", "rows", "canvas", "inspector", "charts", "similarity", "theme", "page")
"""In this order they are one program."""
HEIGHT = 760
"""Pixels of the page in a notebook."""


class HtmlPage(str):
    """An HTML document; notebooks show it, apart from their own page."""

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe title="denoising" style="{style}" srcdoc="{html.escape(self)}"></iframe>'

    def save(self, path: str | Path) -> Path:
        """Writes the document to a file, and gives its path."""
        return write_atomically(path, str(self))


def render_page(
    runs: Sequence[Recording],
    tokenizer: Any = None,
    title: str = "a generation",
    *,
    opens: int = 0,
    note: str = "",
) -> HtmlPage:
    """The page of one recording, or of two side by side.

    Args:
      runs: one, or two of the same prompts.
      tokenizer: of the model; tokens are shown as ids without one.
      title: what stands above.
      opens: the sample that the page opens with.
      note: what stands below the title.
    """
    parts = {
        "title": html.escape(title),
        "style": viewer_file("page.css"),
        "payload": json_for_script(payload(runs, tokenizer, opens, note)),
        "script": "\n".join(viewer_file(f"{name}.js") for name in SCRIPTS),
    }
    return HtmlPage(fill_places(viewer_file("page.html"), parts))


def fill_places(template: str, parts: Mapping[str, str]) -> str:
    """The template with its parts, in one pass: nothing inside a part is taken for a place.

    >>> fill_places("<p>{{text}}</p>", {"text": "{{text}}"})
    '<p>{{text}}</p>'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def json_for_script(tree: Any) -> str:
    """JSON that may stand inside a script element: it has no "<", so nothing ends it early."""
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def viewer_file(name: str) -> str:
    """A part of the page: style, markup or program."""
    return (resources.files("sake_jax.viewer") / "web" / name).read_text(encoding="utf-8")
