"""What our pages need beyond Sphinx: formulas without a network, docstrings as we write them."""

import re

from cells import set_intervals
from docutils import nodes
from included import Commands, Excerpt, Results
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def formula(writer, node) -> None:
    """MathML, which browsers draw by themselves; a long one scrolls on a phone."""
    if isinstance(node, nodes.math_block):
        shown = f'<div class="formula">{convert(node.astext(), display="block")}</div>'
    else:
        shown = convert(node.astext())
    writer.body.append(shown)
    raise nodes.SkipNode


def without_substitutions(app, what, name, subject, options, lines: list[str]) -> None:
    """In our docstrings |x| is an absolute value."""
    for at, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[at] = re.sub(r"(?<!\|)\|(?=\S)", r"\\|", line)


ATTRIBUTES: dict[str, list[str]] = {}


def set_aside(app, what, name, subject, options, lines: list[str]) -> None:
    """Napoleon takes what stands before a colon for an attribute's type; ours are sentences."""
    if what in ("attribute", "property"):
        ATTRIBUTES[name] = list(lines)


def put_back(app, what, name, subject, options, lines: list[str]) -> None:
    """After Napoleon."""
    lines[:] = ATTRIBUTES.pop(name, lines)


def readable_signature(app, what, name, subject, options, signature, result):
    """A protocol is not called; a default without a name says nothing."""
    if not signature:
        return None
    if getattr(subject, "_is_protocol", False):
        return "", result
    return re.sub(r"<function .*?<lambda>>", "...", signature), result


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.add_directive("commands", Commands)
    app.add_directive("excerpt", Excerpt)
    app.add_directive("results", Results)
    for priority, change in ((400, set_aside), (600, put_back), (700, without_substitutions)):
        app.connect("autodoc-process-docstring", change, priority)
    app.connect("autodoc-process-signature", readable_signature)
    app.connect("doctree-read", set_intervals)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
