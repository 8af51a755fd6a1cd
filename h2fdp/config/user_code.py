"""A user's own code when it fails: the place in one line, and Python's traceback from their first line on."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

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
    """What Python prints of an error, of the calls those in the user's own files; empty where there are none.

    The calls that led from us to them are no news, and neither are those of a library below: `failure` has its words.
    """
    told = traceback.TracebackException.from_exception(error)
    return "".join(told.format()).rstrip() if _keep_own_calls(told) else ""


def _keep_own_calls(told: traceback.TracebackException) -> bool:
    """Drop all other calls, also of the errors that led to this one; whether any is left."""
    calls = [call for call in told.stack if _is_code_of_others(call.filename) and not is_installed(call.filename)]
    told.stack = traceback.StackSummary.from_list(calls)
    for name in ("__cause__", "__context__"):
        earlier = getattr(told, name)
        if earlier is not None and not _keep_own_calls(earlier):
            setattr(told, name, None)
    return bool(calls or told.__cause__ or told.__context__)


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
    below another one), and folders of `pip install --target`, where the records of libraries lie beside them.
    """
    path = Path(file)
    resolved = path.resolve()
    if {"site-packages", "dist-packages"} & set(resolved.parts):
        return True
    homes = [each for each in (path.parent, path.parent.parent) if str(each) in sys.path]
    return any(resolved.is_relative_to(folder) for folder in _installation()) or any(map(_holds_libraries, homes))


@cache
def _holds_libraries(folder: Path) -> bool:
    return any(folder.glob("*.dist-info"))


@cache
def _installation() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_path(kind)).resolve() for kind in kinds)
