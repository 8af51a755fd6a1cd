"""What a check found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from h2fdp.errors import Problem, UserError


@dataclass
class Findings:
    """What a check of one directory found.

    Attributes:
        state: how the run stands, or `sweep`, or `search`.
        confirmed: what is as it should be, a phrase each.
        problems: what is not, each with its file, and its line where that is known.
        unknown: what could not be checked, and why.
        runs: of a sweep or a search, what was found of each of its runs, by name.
        waiting: of a sweep or a search, what has not begun.
    """

    directory: Path
    state: str = "unknown"
    confirmed: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    runs: dict[str, Findings] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Whether there is a problem, here or in one of the runs."""
        return bool(self.problems) or any(run.damaged for run in self.runs.values())

    @property
    def whole(self) -> bool:
        """Whether there is no problem, and nothing that has not begun."""
        return not self.damaged and not self.waiting

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A step of the check, which ends with the first damage."""
        try:
            yield
        except UserError as error:
            self.problems += [each for each in error.problems if each not in self.problems]

    def expect(self, holds: bool, text: str, where: Path | str) -> bool:
        """Note a problem unless `holds`."""
        if not holds:
            self.problems.append(Problem(text, str(where)))
        return holds

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        found: dict[str, Any] = {
            "directory": str(self.directory),
            "state": self.state,
            "whole": self.whole,
            "confirmed": self.confirmed,
            "problems": [{"where": each.where, "text": each.text} for each in self.problems],
            "unknown": self.unknown,
            "waiting": self.waiting,
        }
        return found | ({"runs": {name: run.as_json() for name, run in self.runs.items()}} if self.runs else {})
