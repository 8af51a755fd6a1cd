"""Parts of a page that a command writes, between the markers that name it."""

from __future__ import annotations

from collections.abc import Iterable


def between_markers(text: str, command: str, lines: Iterable[str]) -> str:
    """A page with these lines where a command's part is.

    >>> print(between_markers("a <!-- begins: x writes it -->old<!-- ends: x --> b", "x", ["new"]))
    a <!-- begins: x writes it -->
    <BLANKLINE>
    new
    <BLANKLINE>
    <!-- ends: x --> b
    """
    begin, end = f"<!-- begins: {command} writes it -->", f"<!-- ends: {command} -->"
    head, rest = text.split(begin)
    return head + begin + "\n\n" + "\n".join(lines).rstrip() + "\n\n" + end + rest.split(end, 1)[1]
