"""Programs whose users' mistakes are told as `h2fdp` tells them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from h2fdp.errors import UserError


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
