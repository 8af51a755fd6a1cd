"""The summary of a run: how it ended, what it reached, and what it ran with: versions, and digests of code.

Such a JSON file carries its own checksum: its last value is a digest of the others.
"""

from __future__ import annotations

import ast
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import Any

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_text
from h2fdp.records.json_lines import json_values

_CHECKSUM = "checksum"
VERSION = "schema_version"
_WITH_CHECKSUMS = 2  # files of version 1 have none


def write_checked_json(path: Path, values: Mapping[str, Any], indent: int | None) -> None:
    """Replace a file by these values and their checksum."""
    plain = json_values(values)
    write_text(path, json.dumps(plain | {_CHECKSUM: _digest(json.loads(json.dumps(plain)))}, indent=indent) + "\n")


def read_checked_json(path: Path) -> dict[str, Any] | None:
    """The values of such a file; None where there is no file.

    Raises:
        UserError: it is damaged, or was changed after it was written.
    """
    try:
        values = json.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", str(path)) from None
    except json.JSONDecodeError as error:
        raise UserError(f"damaged: not valid JSON ({error.msg})", f"{path}:{error.lineno}") from None
    except (ValueError, RecursionError):
        raise UserError("damaged: not valid JSON in UTF-8", str(path)) from None
    if not isinstance(values, dict):
        raise UserError("damaged: expected an object", f"{path}:1")
    stated = values.pop(_CHECKSUM, None)
    if stated != _digest(values) and (stated is not None or values.get(VERSION) == _WITH_CHECKSUMS):
        text = "damaged: it was changed after it was written, for its checksum, the last value, is of other values"
        raise UserError(text, str(path))
    return values


def _digest(values: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def hash_of(texts: Iterable[str]) -> str:
    """A digest of texts, in which each keeps to itself: other texts of the same letters have another."""
    digest = blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(data)}|".encode() + data)
    return digest.hexdigest()


@lru_cache(maxsize=1024)  # many experiments are made with parts of the same files
def digest_of_code(text: str | bytes) -> str:
    """A digest of the syntax of a Python file, which comments, docstrings and the layout do not change.

    Raises:
        SyntaxError, ValueError: it is not Python.

    >>> one = digest_of_code("def f(x):\\n    '''Twice x.'''\\n    return 2 * x")
    >>> [one == digest_of_code(f"def f(x): return {number}*x  # a product") for number in (2, 3)]
    [True, False]
    """
    tree = ast.parse(text)
    _drop_docstrings(tree)
    return hash_of([ast.dump(tree)])


def _drop_docstrings(node: ast.AST) -> None:
    """Drop all statements that are a value and nothing else; only statements hold others, which spares a walk."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        node.body = [
            each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        ]
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            _drop_docstrings(child)


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
