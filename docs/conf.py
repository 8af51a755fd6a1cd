"""Sphinx configuration: Markdown pages and a reference from docstrings; warnings are errors (make docs)."""

import sys
from pathlib import Path

from h2fdp import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for plain_docstrings and offline_math

project = "h2fdp"
author = "the h2fdp authors"
copyright = f"2026, {author}"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "plain_docstrings", "offline_math"]
html_math_renderer = "offline"
html_theme = "furo"
html_title = "h2fdp"
html_static_path = ["_static"]
html_css_files = ["notebooks.css"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]
nb_execution_mode = "cache"  # the notebooks are executed whenever their cells have changed
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

default_role = "code"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = dict.fromkeys(("Floats", "Integers", "Counts"), "numpy.ndarray")
autodoc_typehints_format = "short"
maximum_signature_line_length = 88
napoleon_attr_annotations = False  # the signature has them
napoleon_use_ivar = True
python_display_short_literal_types = True
python_use_unqualified_type_names = True
