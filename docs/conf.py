"""How the documentation is built: `sphinx-build -W docs build/site`."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for extension.py

project = "sake_jax"
author = "The sake_jax authors"
project_copyright = "The sake_jax authors, Apache-2.0"
release = metadata.version("sake-jax")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "extension"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"
suppress_warnings = ["myst.header"]  # included results have heading levels of their own

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# Shapes are told in words: a signature with all of jaxtyping's would be hard to read.
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
default_role = "py:obj"  # in docstrings, `masked` is a link where there is something to link to
add_module_names = False
smartquotes = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "sake_jax"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#9c2f3f", "color-brand-content": "#9c2f3f"},
    "dark_css_variables": {"color-brand-primary": "#f0909c", "color-brand-content": "#f0909c"},
    "footer_icons": [],
}
pygments_style, pygments_dark_style = "friendly", "github-dark"
