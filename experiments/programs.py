"""Parts that the studies' programs share: checks of arguments, reports of mistakes, written sections of pages."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from h2fdp.errors import UserError


def require(holds: bool, argument: str, value: object, expected: str) -> None:
    """Raise a `UserError` about `argument` unless `holds`.

    >>> require(False, "delta", 2.0, "a number between 0 and 1")
    Traceback (most recent call last):
        ...
    h2fdp.errors.UserError: delta: expected a number between 0 and 1, found 2.0
    """
    if not holds:
        raise UserError(f"expected {expected}, found {value}", key=argument)


def require_between(values: np.ndarray | float, lowest: float, highest: float, argument: str, expected: str) -> None:
    """Raise a `UserError` that names the first value outside lowest .. highest (both allowed); nan is outside.

    >>> require_between(np.array([3, 0]), 1, np.inf, "sizes", "at least one device in each subnet")
    Traceback (most recent call last):
        ...
    h2fdp.errors.UserError: sizes: expected at least one device in each subnet, found 0
    """
    array = np.asarray(values)
    if array.size and not (array.min() >= lowest and array.max() <= highest):  # nan fails both comparisons
        outside = array[~((array >= lowest) & (array <= highest))]
        require(False, argument, outside.flat[0], expected)


def require_count(value: int, lowest: int, argument: str) -> None:
    """Raise a `UserError` unless `value` is a whole number of at least `lowest`."""
    require(value >= lowest and value % 1 == 0, argument, value, f"a whole number of at least {lowest}")


def append_row(table: Path, row: Mapping[str, object]) -> None:
    """Print a row, and write it at the end of a CSV, after the names of its columns where the file is new."""
    with table.open("a", newline="") as file:
        lines = csv.DictWriter(file, list(row), lineterminator="\n")
        if not file.tell():
            lines.writeheader()
        lines.writerow(row)
    print(*row.values(), flush=True)


def told(main: Callable[[], None]) -> None:
    """Run a program: a mistake of its user is a line for each problem and exit code 2; our own keep their traceback.

    >>> def program():
    ...     raise UserError("expected a number, found x", "table.csv:3", "accuracy")
    >>> try:
    ...     told(program)
    ... except SystemExit as stopped:
    ...     print(stopped.code)
    2
    """
    try:
        main()
    except UserError as error:
        print(error.report, file=sys.stderr)
        raise SystemExit(2) from None


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
