"""What may reach the terminal: texts of models and files, never commands to the terminal.

A terminal obeys escape sequences: some clear it, others change its title or fill the clipboard.
Texts that a model wrote, names in a checkpoint and messages about them may hold such sequences, so
everything that is printed goes through `printable`. Nor may they be read as rich's markup, in which
`[eval]` is an unknown style and vanishes.
"""

import re

from rich.console import Console
from rich.text import Text

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for the tabulator and the newline
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # other lines, and other directions of writing
    "\ud800-\udfff\ufeff\ufff9-\ufffb]"  # halves of characters, and marks without a shape
)


def printable(text: str) -> str:
    r"""The text with all that a terminal would obey, or hide, written out.

    >>> printable("a\x1b[2Jb\tc")
    'a\\x1b[2Jb\tc'
    """
    return UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def plain_text(text: str, style: str = "") -> Text:
    """For rich: a printable text, not read as markup."""
    return Text(printable(text), style)


def print_line(text: str, *, error: bool = False) -> None:
    """Prints a message as it is, on standard output or on the standard error stream."""
    Console(stderr=error).print(plain_text(text), soft_wrap=True, highlight=False)
