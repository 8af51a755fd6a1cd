"""Sphinx configuration: Markdown pages, warnings are errors (make docs)."""

from h2fdp import __version__

project = "h2fdp"
author = "the h2fdp authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "h2fdp"
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
