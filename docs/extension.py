"""What our pages need beyond Sphinx: formulas without a network, docstrings as we write them."""

import re

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


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.add_directive("commands", Commands)
    app.add_directive("excerpt", Excerpt)
    app.add_directive("results", Results)
    app.connect("autodoc-process-docstring", without_substitutions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
