"""The summary of a run: how it ended, what it reached, and what it ran with."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import Any

from h2fdp.records.checked_json import read_checked_json

SUMMARY = "summary.json"
SCHEMA_VERSION = 2  # 1 had no checksums
LAST = 20  # intervals whose mean accuracy is reported beside the last one: noisy curves swing
_LIBRARIES = ("h2fdp", "numpy", "torch", "torchvision", "ray", "opacus", "scikit-learn", "scipy", "pyarrow")
PACKAGE = Path(__file__).parents[1]  # where this process has h2fdp's own files


def versions(libraries: Iterable[str] = _LIBRARIES) -> dict[str, str]:
    """Versions of Python, the machine and these libraries: by default all that a run may have met."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    return found | {library: _version(library) for library in libraries}


@cache
def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def read_summary(run: Path) -> dict[str, Any] | None:
    """The summary of a run directory; None where there is none.

    Raises:
        UserError: it is damaged, or was changed after the run wrote it.
    """
    return read_checked_json(run / SUMMARY)


def reached(metrics: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """What a run that still runs, or was killed, had come to by these columns; its summary is of when it began."""
    known = {name: [value for value in column if value is not None] for name, column in metrics.items()}
    last = {name: column[-1] for name, column in known.items() if column}
    recent = [value for value in metrics.get("accuracy", ())[-LAST:] if value is not None]
    return {
        "intervals": last.pop("interval", 0),
        **last,
        "best_accuracy": max(known.get("accuracy", ()), default=None),
        f"accuracy_mean_last_{LAST}": fmean(recent) if recent else None,
        "wall_s": sum(known.get("wall_s", ())),
    }
