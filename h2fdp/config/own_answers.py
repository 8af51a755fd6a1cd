"""The boundary between us and a user's own part: what it raises or answers wrongly is reported with its place.

An error in a user's code has its place in one line, and Python's traceback of the calls in the user's own files.
"""

from __future__ import annotations

import math
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, ClassVar, TypeVar

from h2fdp.errors import Problem, UserError

_PACKAGE = Path(__file__).parents[1]

# What a user's code may raise where it is called: `sys.exit` there must not end a run as if all had been well.
FAILURES = (Exception, SystemExit)


def failure(error: BaseException) -> str:
    """An error in a user's code, in one line: its place, its type, its words."""
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_code_of_others(frame.filename)]
    frames = [frame for frame in frames if not is_installed(Path(frame.filename))] or frames
    return f"{frames[-1].filename}:{frames[-1].lineno}: {words}" if frames else words


def trace(error: BaseException) -> str:
    """Python's traceback of an error, with the calls in the user's own files alone; empty where there are none.

    The calls that led from us to them are no news, and neither are those of a library below: `failure` has its words.
    """
    report = traceback.TracebackException.from_exception(error)
    return "".join(report.format()).rstrip() if _keep_own_calls(report) else ""


def _keep_own_calls(report: traceback.TracebackException) -> bool:
    """Drop all other calls, also of the errors that led to this one; whether any is left."""
    calls = [call for call in report.stack if _is_code_of_others(call.filename) and not is_installed(call.filename)]
    report.stack = traceback.StackSummary.from_list(calls)
    for name in ("__cause__", "__context__"):
        earlier = getattr(report, name)
        if earlier is not None and not _keep_own_calls(earlier):
            setattr(report, name, None)
    return bool(calls or report.__cause__ or report.__context__)


def _is_code_of_others(file: str) -> bool:
    generated = file.startswith("<") or "importlib" in file
    return not generated and not Path(file).is_relative_to(_PACKAGE)


def is_own(module: ModuleType) -> bool:
    """Whether a module is the user's: neither installed nor ours."""
    file = getattr(module, "__file__", None)
    return bool(file) and module.__name__.partition(".")[0] != "h2fdp" and not is_installed(str(file))


@cache  # every module that is imported is asked about, at each own part
def is_installed(file: Path | str) -> bool:
    """Whether a file is in one of the folders of Python's own and of installed libraries.

    These are the interpreter's, every `site-packages` and `dist-packages` (a user's, Debian's, those of an environment
    below another one), and folders of `pip install --target`, where the records of libraries lie next to them.
    """
    path = Path(file)
    resolved = path.resolve()
    if {"site-packages", "dist-packages"} & set(resolved.parts):
        return True
    homes = [each for each in path.parents if str(each) in sys.path]
    return any(resolved.is_relative_to(folder) for folder in _installation()) or any(map(_holds_libraries, homes))


@cache
def _holds_libraries(folder: Path) -> bool:
    return any(folder.glob("*.dist-info"))


@cache
def _installation() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_path(kind)).resolve() for kind in kinds)


# Of each file of a user's code: the files and folders that it read, by itself or by libraries, as it named them.
opened: dict[str, set[str]] = {}
_NO_INPUT = re.compile(r"/(proc|sys|dev)/|.*__pycache__|.*\.pyc?$")
_READING = ("open", "os.listdir", "os.scandir")
_OURS = f"{_PACKAGE}{os.sep}"


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    """Note what the user's code opens to read it. What h2fdp opens is none of it, nor are modules that are imported."""
    if event not in _READING or not isinstance(arguments[0], str | bytes | os.PathLike):
        return
    name = os.fsdecode(arguments[0])
    if _NO_INPUT.match(name) or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_TRUNC)):
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(("<frozen importlib", _OURS)):
            return
        if not file.startswith("<") and not is_installed(file):
            opened.setdefault(os.path.realpath(file), set()).add(name)
            return
        frame = frame.f_back


sys.addaudithook(_note_opened)

Answer = TypeVar("Answer")
_LONGEST = 60


@dataclass(frozen=True)
class Origin:
    """The place where an own part was named, for messages.

    Attributes:
        name: of the part, as `module:Name`.
        where: `file.yaml:7`, or the Python call that it was handed to.
        key: the dotted key.
    """

    name: str
    where: str = ""
    key: str = ""

    def call(self, method: str, function: Callable[..., Answer], *arguments: Any) -> Answer:
        """The answer of a function of the part; `method` is empty where the part itself is the function.

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

    def wrong(self, method: str, expected: str, value: Any) -> UserError:
        """The error for an answer other than the expected one; the value stands in words, or as it is."""
        words = value if isinstance(value, Words) else shown(value)
        return UserError(f"expected {expected} from {self._called(method)}, found {words}", self.where, self.key)

    def located(self, error: UserError) -> UserError:
        """A mistake in the part's answer, with the part's name and place."""
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
        """An error of the part with this text."""
        return UserError(f"{self.name}: {text}", self.where, self.key)

    def _called(self, method: str) -> str:
        return f"{self.name}.{method}" if method else self.name


class Words(str):
    """Words about what a part answered, to be shown as they are."""


def shown(value: Any) -> str:
    """The answer of a part, in few words."""
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


def storable(value: Any) -> bool:
    """Whether a checkpoint can hold a value: plain values, arrays and tensors, in dicts, lists and tuples of them.

    >>> storable({"rounds": 3, "seen": [1.0, (None, "a")]}), storable({"seen": {4}})
    (True, False)
    """
    if type(value) is dict:
        return all(isinstance(key, (str, int)) for key in value) and all(map(storable, value.values()))
    if type(value) in (list, tuple):
        return all(map(storable, value))
    return value is None or isinstance(value, (bool, int, float, str)) or _is_array(value)


def _is_array(value: Any) -> bool:
    """Whether a value is a tensor, an array, or a number of NumPy's."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


Rule = Callable[..., str]  # of an answer and of what the part was given: what was expected; empty where it is right


class Checked:
    """A user's object with its mistakes named: what it raises has its place, what it answers is what a rule says.

    Raises:
        UserError: on each call and attribute; attributes that the user's object has not are none here either.
    """

    rules: ClassVar[Mapping[str, Rule]] = {}

    def __init__(self, own: Any, origin: Origin) -> None:
        self._own, self._origin = own, origin

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not (hasattr(type(self._own), name) or name in getattr(self._own, "__dict__", ())):
            raise AttributeError(name)
        value = self._origin.call(name, getattr, self._own, name)
        return partial(self._ask, name, value) if callable(value) else self._right(name, value)

    def _ask(self, name: str, function: Callable[..., Any], *given: Any) -> Any:
        return self._right(name, self._origin.call(name, function, *given), *given)

    def _right(self, name: str, answer: Any, *given: Any) -> Any:
        rule = self.rules.get(name)
        if rule is not None and (expected := rule(answer, *given)):
            raise self._origin.wrong(name, expected, answer)
        return answer


def flag_rule(answer: Any, *given: Any) -> str:
    """True or False, Python's or NumPy's."""
    return "" if is_true_or_false(answer) else "True or False"


def count_rule(answer: Any, *given: Any) -> str:
    """A whole number of at least 1."""
    return "" if is_whole(answer) and answer >= 1 else "a whole number of at least 1"


def state_rule(answer: Any) -> str:
    """The rule for a state: a checkpoint can store it."""
    return "" if isinstance(answer, dict) and storable(answer) else "a dict of plain values, arrays and tensors"


def tensor_rule(answer: Any, like: Any, *given: Any) -> str:
    """A tensor of the shape and type of another one, without a history of gradients."""
    alike = isinstance(answer, type(like)) and answer.shape == like.shape and answer.dtype == like.dtype
    if alike and not answer.requires_grad:
        return ""
    return f"a tensor of shape {tuple(like.shape)} and type {like.dtype}, detached,"
