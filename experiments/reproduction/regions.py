"""Generated regions of a page, between markers; all else in the page is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from h2fdp.records.atomic import write_text

RESULTS, VERDICTS, SETTINGS = "results", "verdicts", "settings"
ALL = (VERDICTS, SETTINGS, RESULTS)  # in the order of a page that is made anew


def begin(name: str) -> str:
    """The marker before a region."""
    return f"<!-- {name} begin: python -m experiments.reproduce --check writes them -->"


def end(name: str) -> str:
    """The marker after a region."""
    return f"<!-- {name} end -->"


def write_regions(page: Path, bodies: Mapping[str, str]) -> None:
    """Replace regions of a page. The results are appended where they have no markers; other regions are for pages that
    have theirs, and for new ones."""
    if page.is_file():
        text = page.read_text()
        if begin(RESULTS) not in text or end(RESULTS) not in text:
            text = f"{text.rstrip()}\n\n{begin(RESULTS)}\n{end(RESULTS)}\n"
    else:
        text = "# Reproduction\n" + "".join(f"\n{begin(name)}\n{end(name)}\n" for name in ALL if name in bodies)
    for name, body in bodies.items():
        if begin(name) in text and end(name) in text:
            head, rest = text.split(begin(name), 1)
            tail = rest.split(end(name), 1)[1]
            text = f"{head}{begin(name)}\n{body}\n{end(name)}{tail}"
    write_text(page, text)
