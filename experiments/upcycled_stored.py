"""Upcycled-FL's comparisons from a stored table: which are still open, and whether the runs are still the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

Cell = tuple[str, str]  # data set, method
Runs = dict[tuple[str, str, int], float]  # (data set, method with its prefix, seed) -> accuracy in per cent
UPCYCLED = "upcycled-"  # before the name of a method
_ROUNDED = 1e-4  # points: a table has six digits


def read_runs(file: Path) -> tuple[Runs, list[str]]:
    """The runs of a table, and its comments: what made them.

    Raises:
        SystemExit: it is no such table, or a seed has only one run of two: with upcycling and without.
    """
    try:
        table = pd.read_csv(file, comment="#", dtype={"data_set": str})
        table = table.astype({"seed": int, "accuracy": float})[["data_set", "method", "seed", "accuracy"]]
    except (ValueError, KeyError) as error:
        raise SystemExit(f"{file}: expected a table of data_set, method, seed and accuracy ({error})") from None
    made = [line[1:].strip() for line in file.read_text().splitlines() if line.startswith("#")]
    keys = zip(table["data_set"], table["method"], table["seed"].astype(int), strict=True)
    runs: Runs = dict(zip(keys, 100 * table["accuracy"], strict=True))
    for name, method, seed in runs:
        other = method.removeprefix(UPCYCLED) if method.startswith(UPCYCLED) else UPCYCLED + method
        if (name, other, seed) not in runs:
            raise SystemExit(f"{file}: {name},{method},{seed} has no partner; expected {name},{other},{seed} too")
    return runs, made


def cells_named(words: Iterable[str], known: Iterable[Cell]) -> list[Cell]:
    """`iid:scaffold` -> the comparison.

    Raises:
        SystemExit: there is none of that name.

    >>> cells_named(["iid:scaffold"], [("iid", "scaffold")])
    [('iid', 'scaffold')]
    """
    by_name = {f"{name}:{method}": (name, method) for name, method in known}
    unknown = [word for word in words if word not in by_name]
    if unknown:
        raise SystemExit(f"--cells: expected some of {', '.join(by_name)}, found {', '.join(unknown)}")
    return [by_name[word] for word in words]


def require_same(made: Mapping[tuple[str, str, int], float], stored: Runs) -> None:
    """Refuse to add seeds to runs that this code, or another choice of the grids, makes differently.

    Raises:
        SystemExit: which run differs.
    """
    for key, accuracy in made.items():
        if key in stored and not math.isclose(accuracy, stored[key], abs_tol=_ROUNDED):
            raise SystemExit(f"{key} is {accuracy:.4f} % now and {stored[key]:.4f} % in the table: make all runs again")
