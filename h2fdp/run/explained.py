"""`h2fdp.explain`: an experiment's privacy before it runs, as text and as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from h2fdp.run.api import Experiment
from h2fdp.run.explanation import explanation


@dataclass(frozen=True, repr=False)
class Explanation:
    """Who learns what, in a few lines; printed, they are these lines.

    Attributes:
        facts: all numbers behind them, see `h2fdp.run.explanation.explanation`.
    """

    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.facts["lines"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f'<pre style="white-space: pre-wrap">{escape(str(self))}</pre>'


def explain(experiment: Experiment | str | Path, *, data_root: str | Path | None = None) -> Explanation:
    """What each observer would learn, by which bound and under which noise, and what would buy most.

    Args:
        experiment: or its file.

    Raises:
        UserError: a mistake in the file; a method that adds no noise.
    """
    known = experiment if isinstance(experiment, Experiment) else Experiment.from_file(experiment)
    return Explanation(explanation(known.prepare(data_root)))
