"""Tables of results: intervals stand below means, short cells do not break, texts have room."""

import re

from docutils import nodes
from sphinx.application import Sphinx

INTERVAL = re.compile(r"([-+]?[\d.,]+) (\([-+]?[\d.,]+ to [-+]?[\d.,]+\))")
SHORT = 24
"""Letters of a cell that stays on one line, in tables with intervals."""
LONG = 60
"""Letters of a cell that is a text: it has some width, and its table scrolls, on a phone too."""


def set_intervals(app: Sphinx, doctree: nodes.document) -> None:
    """Gives the style sheet something to hold on to; the words stay as they are."""
    for table in doctree.findall(nodes.table):
        entries = list(table.findall(nodes.entry))
        found = [entry for entry in entries if INTERVAL.fullmatch(entry.astext())]
        for entry in found:
            _split(entry)
        for entry in entries:
            if len(entry.astext()) > LONG:
                entry["classes"].append("long")
        if found:
            short = (entry for entry in entries if len(entry.astext()) <= SHORT)
            for entry in short:
                entry["classes"].append("short")


def _split(entry: nodes.Element) -> None:
    mean, interval = INTERVAL.fullmatch(entry.astext()).groups()
    below = nodes.inline("", interval, classes=["interval"])
    entry.children = []
    entry += nodes.paragraph("", "", nodes.Text(f"{mean} "), below)
