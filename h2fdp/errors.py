"""User errors: file and line, key, the value and the expectation."""

from __future__ import annotations

import difflib
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Problem:
    """One mistake.

    Attributes:
        text: the value and what would be right, as one short sentence without a final stop.
        where: the place, as ``file.yaml:7``, ``--set`` or a path; empty when there is none.
        key: the dotted key, as ``training.intervals``; empty when there is none.
        trace: Python's traceback through the user's own code, where that failed.
    """

    text: str
    where: str = ""
    key: str = ""
    trace: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.text) if part)


class UserError(Exception):
    """A mistake of the user: shown as one line for each problem, exit code 2, never a traceback of ours.

    >>> raise UserError("expected a whole number of at least 1, found 0", where="a.yaml:3", key="training.intervals")
    Traceback (most recent call last):
        ...
    h2fdp.errors.UserError: a.yaml:3: training.intervals: expected a whole number of at least 1, found 0
    """

    def __init__(self, text: str | Iterable[Problem], where: str = "", key: str = "") -> None:
        problems = (Problem(text, where, key),) if isinstance(text, str) else tuple(text)
        assert problems, "a user error names at least one problem"
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems

    @property
    def report(self) -> str:
        """All problems; below each the traceback of a user's own code that failed."""
        return "\n".join(f"{each}\n{each.trace}" if each.trace else str(each) for each in self.problems)

    def __reduce__(self) -> tuple[type[UserError], tuple[tuple[Problem, ...]]]:
        """Survive the way from a Ray worker to the driver."""
        return type(self), (self.problems,)


def refused(reason: str, *rows: tuple[str, object, object, object]) -> Iterator[tuple[str, str]]:
    """Key and text of what a capability does not go with.

    Args:
        reason: why, of all rows.
        rows: key, whether it is wrong, what would be right, the value.

    >>> list(refused("devices move", ("method.schedule", True, "fixed", "h2fdp"), ("seed", False, 1, 2)))
    [('method.schedule', 'devices move; expected fixed, found h2fdp')]
    """
    return ((key, f"{reason}; expected {right}, found {found}") for key, wrong, right, found in rows if wrong)


Refusals = Callable[..., Iterable[tuple[str, str]]]


class RefusalRegistry:
    """Refusals of optional capabilities, each stated in the file of its capability."""

    def __init__(self) -> None:
        self._all: dict[str, Refusals] = {}

    def register(self, refusals: Refusals) -> Refusals:
        """Add a function, which yields nothing where its capability is not asked for; a decorator."""
        self._all[f"{refusals.__module__}.{refusals.__name__}"] = refusals
        return refusals

    def of(self, *asked: Any) -> Iterator[tuple[str, str]]:
        """Key and text of each refusal, by the names of modules: in whatever order they were imported."""
        for _, refusals in sorted(self._all.items()):
            yield from refusals(*asked)


EXPERIMENT_REFUSALS = RefusalRegistry()  # functions of an `ExperimentFile`
NETWORK_REFUSALS = RefusalRegistry()  # of an `ExperimentFile`, its `Topology` as drawn, and that which is simulated
# Of a run before its noise is scaled (`RunSetup`), and what makes the pasts of its subnets after all planned intervals.
PLAN_REFUSALS = RefusalRegistry()

_ADDRESSES_GB = 6.0  # a small run maps 4.9 GB, most of it libraries that it never touches


def check_addresses() -> None:
    """Refuse a limit of this process's addresses under which torch cannot be imported, or a library spins for ever.

    Raises:
        UserError: there is such a limit.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0] / 1e9
    if 0 <= limit < _ADDRESSES_GB:
        text = f"this process may have {limit:.2g} GB of addresses; expected at least {_ADDRESSES_GB:g} GB, or no limit"
        raise UserError(f"{text} (limit memory in use by a control group instead)", "ulimit -v")


def meant(found: object, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that was meant: nearest to the word, as a whole or without what is before its last point.

    >>> meant("acuracy", ["loss", "accuracy"]), meant("epsilo", ["seed", "privacy.epsilon"]), meant("x", ["seed"])
    ('accuracy', 'privacy.epsilon', None)
    """
    names = list(names)
    whole = {each.rpartition(".")[2]: each for each in reversed(names)} | {each: each for each in names}
    near = difflib.get_close_matches(found, whole, n=1, cutoff=cutoff) if isinstance(found, str) else []
    return whole[near[0]] if near and whole[near[0]] != found else None


def hint(found: object, names: Iterable[str], cutoff: float = 0.6) -> str:
    """The end of a sentence about a wrong name; empty where none is near.

    >>> hint("acuracy", ["accuracy"])
    '; did you mean `accuracy`?'
    """
    near = meant(found, names, cutoff)
    return f"; did you mean `{near}`?" if near else ""


def not_one_of(found: str, names: Sequence[str]) -> str:
    """The text of a problem with a name.

    >>> not_one_of("pdl", ["rdp", "pld"])
    'expected one of rdp, pld, found "pdl"; did you mean `pld`?'
    """
    return f'expected one of {", ".join(names)}, found "{found}"{hint(found, names)}'


def reason_of(error: Exception) -> str:
    """Why a text file cannot be read; of one in another encoding, what would be right."""
    if isinstance(error, UnicodeDecodeError):
        return f"expected text in UTF-8, found the byte 0x{error.object[error.start]:02x}; save the file as UTF-8"
    return str(getattr(error, "strerror", None) or error).strip()


def near_file(path: str | Path) -> str:
    """The end of a sentence about a file or folder that is not there: what has nearly its name in the same folder."""
    folder = Path(path).parent
    return hint(Path(path).name, os.listdir(folder) if os.path.isdir(folder) else [], 0.85)  # suffixes are alike


def no_directory(text: str, path: str | Path) -> UserError:
    """An error that says, in words, what a folder lacks, or that there is no such folder.

    >>> str(no_directory("not a run directory", "runs/nowhere"))
    'runs/nowhere: no such directory'
    """
    return UserError(text if Path(path).exists() else f"no such directory{near_file(path)}", str(path))
