"""A Sphinx extension: docstrings are plain text in Google's form, and signatures say what a caller needs.

Docstrings are written to be read in the source: `||w_i - w*||`, and not what reStructuredText would want instead.
"""

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

from h2fdp.config import Section

_CODE_OR_MARKUP = re.compile(r"(``.*?``|`[^`]*`)|([*|]|(?<=\w)_(?!\w))")
_LETTER = re.compile(r"(: [A-Za-z])\.$")  # `clip_norm: G.` would begin a list
_SEVERAL = re.compile(r"^( +)(\w+(?:, \w+)+):(.*(?:\n\1 +.*)*)$", re.MULTILINE)  # `alpha1, alpha2: weights`
_DEFAULT = re.compile(r"<factory>|<class '(\w+)'>")  # Sphinx understands neither
_COLON = (
    "\ue000"  # napoleon takes what stands before a colon for a type, in a property's first line and what is returned
)


def _escaped(lines: list[str]) -> Iterator[str]:
    """What looks like markup, escaped; code and examples as they are."""
    example = False
    for line in lines:
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        plain = _CODE_OR_MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", line)
        yield line if example else _LETTER.sub(r"\1\\.", plain)


def _one_by_one(several: re.Match[str]) -> str:
    """Attributes with one description, each with its own copy; napoleon does so for arguments alone."""
    indent, names, text = several.groups()
    return "\n".join(f"{indent}{name}:{text}" for name in names.split(", "))


def _before_napoleon(_app: Sphinx, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = _SEVERAL.sub(_one_by_one, "\n".join(_escaped(lines))).split("\n")
    for before, line in enumerate(lines[1:]):
        if lines[before] == "Returns:":
            lines[before + 1] = line.replace(":", _COLON)
    if what == "property":
        lines[0] = lines[0].replace(":", _COLON)


def _after_napoleon(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def _signature(
    _app: Sphinx, what: str, _name: str, thing: Any, _options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    if signature == "(*args, **kwargs)" or (what == "class" and issubclass(thing, Section)):
        return "", None  # a protocol, which nobody makes; and sections are made from mappings
    return signature and _DEFAULT.sub(lambda found: found[1] or "...", signature), returned


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _before_napoleon, priority=100)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=900)
    app.connect("autodoc-process-signature", _signature)
