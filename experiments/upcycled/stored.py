"""Upcycled-FL's comparisons from a stored table: which are still open, and whether the runs are still the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.reproduction.results import makers_of, table_runs
from h2fdp.errors import UserError, not_one_of

Cell = tuple[str, str]  # data set, method
Runs = dict[tuple[str, str, int], float]  # (data set, method with its prefix, seed) -> accuracy in per cent
UPCYCLED = "upcycled-"  # before the name of a method
_ROUNDED = 1e-4  # points: a table has six digits


def read_runs(file: Path, methods: Iterable[str]) -> tuple[Runs, list[str]]:
    """The runs of a table, and its comments: what made them.

    Raises:
        UserError: a line that is none of such a table; a method of none of these; a seed with only one run of two, with
            upcycling and without.
    """
    known = [prefix + method for method in methods for prefix in ("", UPCYCLED)]
    runs: Runs = {}
    where: dict[tuple[str, str, int], str] = {}
    for run in table_runs(file, ["method"]):
        key = run.data_set, str(run.point["method"]), run.point["seed"]
        if key[1] not in known:
            raise UserError(not_one_of(key[1], known), run.where, "method")
        runs[key], where[key] = 100 * run.accuracy, run.where
    for name, method, seed in runs:
        other = method.removeprefix(UPCYCLED) if method.startswith(UPCYCLED) else UPCYCLED + method
        if (name, other, seed) not in runs:
            raise UserError(f"expected a run of {name},{other},{seed} too, found none", where[name, method, seed])
    return runs, makers_of(file)


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
