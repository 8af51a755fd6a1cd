"""What a section of a file and its keys mean: its docstring, the one place where that is said."""

from __future__ import annotations

import inspect
import re

_HEADING = re.compile(r"^(Attributes|Args|Raises|Returns):$", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> ", re.MULTILINE)
_ENTRY = re.compile(r"^    (?P<keys>\w[\w-]*(?:, \w[\w-]*)*): (?P<text>.*)$")


def description_of(section: type) -> str:
    """The docstring's own sentences, without what follows under headings, and without examples."""
    text = inspect.cleandoc(section.__doc__ or "")
    ends = [found.start() for found in (_HEADING.search(text), _EXAMPLE.search(text)) if found]
    return text[: min(ends, default=len(text))].strip()


def descriptions_of_keys(section: type) -> dict[str, str]:
    """Key -> what it means, also of the keys that a section inherits; lines for several keys are each of theirs.

    >>> class Steps:
    ...     '''Steps of SGD.
    ...
    ...     Attributes:
    ...         count: how many,
    ...             at most.
    ...         low, high: ends of the range.
    ...     '''
    >>> descriptions_of_keys(Steps)
    {'count': 'how many, at most.', 'low': 'ends of the range.', 'high': 'ends of the range.'}
    """
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        found |= _stated(base.__dict__.get("__doc__") or "")
    return found


def _stated(docstring: str) -> dict[str, str]:
    text = inspect.cleandoc(docstring)
    _, _, listed = text.partition("\nAttributes:\n")
    found: dict[str, str] = {}
    keys: list[str] = []
    for line in listed.splitlines():
        if line and not line.startswith(" "):
            break
        entry = _ENTRY.match(line)
        if entry is not None:
            keys = entry["keys"].split(", ")
            found |= dict.fromkeys(keys, entry["text"])
        elif line.strip():
            found |= {key: f"{found[key]} {line.strip()}" for key in keys}
    return found
