"""The boundary between us and a user's own part: what it raises and what it answers wrongly is told by its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from h2fdp.config.user_code import FAILURES, failure, trace
from h2fdp.errors import Problem, UserError

Answer = TypeVar("Answer")
_LONGEST = 60


@dataclass(frozen=True)
class Origin:
    """Where an own part was named, for messages.

    Attributes:
        name: of the part, as `module:Name`.
        where: `file.yaml:7`, or the Python call that it was handed to.
        key: the dotted key.
    """

    name: str
    where: str = ""
    key: str = ""

    def call(self, method: str, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """What a function of the part answers; empty as `method` where the part itself is the function.

        Raises:
            UserError: the user's code fails; it has their traceback.
        """
        try:
            return function(*arguments)
        except UserError:
            raise
        except FAILURES as error:
            raise self.failed(method, error) from error

    def failed(self, method: str, error: BaseException, doing: str = "fails") -> UserError:
        """The user's code raised this."""
        text = f"{self._called(method)} {doing}: {failure(error)}"
        return UserError([Problem(text, self.where, self.key, trace(error))])

    def wrong(self, method: str, expected: str, found: Any) -> UserError:
        """The part answered something else than was expected; `found` in words, or as it is."""
        words = found if isinstance(found, Words) else shown(found)
        return UserError(f"expected {expected} from {self._called(method)}, found {words}", self.where, self.key)

    def located(self, error: UserError) -> UserError:
        """A mistake that was found in what the part gave, with its name and place."""
        return UserError(
            replace(
                each,
                text=each.text if each.text.startswith(self.name) else f"{self.name}: {each.text}",
                where=each.where or self.where,
                key=each.key or self.key,
            )
            for each in error.problems
        )

    def problem(self, text: str) -> UserError:
        """Another mistake of the part."""
        return UserError(f"{self.name}: {text}", self.where, self.key)

    def _called(self, method: str) -> str:
        return f"{self.name}.{method}" if method else self.name


class Words(str):
    """Words about what a part answered, to be shown as they are."""


def shown(value: Any) -> str:
    """What a part answered, in few words."""
    if _is_array(value):
        history = " that requires gradients" if getattr(value, "requires_grad", False) else ""
        return f"{type(value).__name__} of shape {tuple(value.shape)} and type {value.dtype}{history}"
    if value is None or isinstance(value, (bool, int, float, str)):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return typed(value)


def typed(value: Any) -> str:
    """A value by its type: an int.

    >>> typed(3), typed([])
    ('an int', 'a list')
    """
    word = type(value).__name__
    return f"{'an' if word[0].lower() in 'aeiou' else 'a'} {word}"


def is_true_or_false(value: Any) -> bool:
    """Whether a value is a bool, Python's or NumPy's; what only counts as true is not."""
    return type(value).__name__ in ("bool", "bool_")


def is_number(value: Any) -> bool:
    """Whether a value is a finite real number and no bool; NumPy's count."""
    if is_true_or_false(value) or isinstance(value, (str, bytes)) or getattr(value, "shape", ()) != ():
        return False
    try:
        return math.isfinite(float(value)) and not isinstance(value, complex)
    except (TypeError, ValueError, OverflowError):
        return False


def is_whole(value: Any) -> bool:
    """Whether a value is an integer and no bool; NumPy's count."""
    return is_number(value) and hasattr(value, "__index__")


def unstorable(value: Any, path: str = "state") -> str:
    """The first place in a value that a checkpoint cannot hold, with what is there; empty where there is none.

    >>> unstorable({"rounds": 3, "seen": [1.0, {4}]})
    "a set at state['seen'][1]"
    """
    if value is None or isinstance(value, (bool, int, float, str)) or _is_array(value):
        return ""
    places: Iterable[tuple[str, Any]]
    if type(value) is dict and all(isinstance(key, (str, int)) for key in value):
        places = ((f"{path}[{key!r}]", held) for key, held in value.items())
    elif type(value) in (list, tuple):
        places = ((f"{path}[{number}]", held) for number, held in enumerate(value))
    else:
        return f"{shown(value)} at {path}"
    return next(filter(None, (unstorable(held, place) for place, held in places)), "")


def _is_array(value: Any) -> bool:
    """Whether a value is a tensor, an array, or a number of NumPy's."""
    return hasattr(value, "shape") and hasattr(value, "dtype")
