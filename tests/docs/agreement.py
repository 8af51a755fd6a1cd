"""Whether an output is the one that a page shows.

Equal seeds give equal bits on one processor, not on all, so figures with a decimal point may differ by 5 % or 0.03,
whichever is more. Words and whole numbers must be equal, and spaces may be more or fewer. `...` stands for any text
within a line, and alone on a line for any number of lines.
"""

from __future__ import annotations

import re

RELATIVE, ABSOLUTE = 0.05, 0.03
_PARTS = re.compile(r"(?P<any>\.\.\.)|(?P<figure>\d+\.\d+(?:e[-+]?\d+)?)|(?P<space>\s+)|(?P<other>.)")
_FIGURE = r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)"


def agree(shown: str, found: str) -> bool:
    """Whether the lines that were found are those shown."""
    return _lines_agree(_lines(shown), _lines(found))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _lines_agree(shown: list[str], found: list[str]) -> bool:
    reached = {0}  # how many lines of `found` the lines of `shown` so far may account for
    for line in shown:
        if line == "...":
            reached = set(range(min(reached, default=len(found) + 1), len(found) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(found) and _line_agrees(line, found[at])}
    return len(found) in reached


def _line_agrees(shown: str, found: str) -> bool:
    pattern, figures = "", []
    for part in _PARTS.finditer(shown):
        if part["any"]:
            pattern += ".*?"
        elif part["figure"]:
            pattern += _FIGURE
            figures.append(float(part["figure"]))
        else:
            pattern += r"\s+" if part["space"] else re.escape(part["other"])
    match = re.fullmatch(pattern, found)
    return match is not None and all(
        abs(float(other) - figure) <= max(ABSOLUTE, RELATIVE * abs(figure))
        for figure, other in zip(figures, match.groups(), strict=True)
    )
