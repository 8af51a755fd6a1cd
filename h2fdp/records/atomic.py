"""Files that are either whole or not there: written next to their place, synced, renamed; and digests.

A checked JSON file carries its own checksum: its last value is a digest of the others.
"""

from __future__ import annotations

import ast
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from h2fdp.errors import UserError


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that takes `path`'s place when the block ends without an error.

    Args:
        private: only its owner may read it, at any time.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # one that a crash left may have other permissions
    try:
        with open(part, "wb", opener=_owners if private else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync_folder(folder: Path) -> None:
    """Wait until the folder's own entries are on disk: a rename is not, until then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a whole text file, or nothing; `private` as for `replacing`."""
    with replacing(path, private=private) as file:
        file.write(text.encode())


@contextmanager
def output_file(path: Path, option: str, suffixes: Sequence[str] = ()) -> Iterator[None]:
    """Around what writes a file that a user named by an option; missing folders are made.

    Raises:
        UserError: a folder, another suffix, or it cannot be written.
    """
    if path.is_dir():
        raise UserError("is a folder; expected a file in it", str(path), option)
    if suffixes and path.suffix not in suffixes:
        raise UserError(f"expected a file that ends in {', '.join(suffixes)}, found {path.name}", option)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", str(path), option) from None


def json_values(values: Any) -> Any:
    """The values with null for every number that is not finite.

    >>> json_values({"loss": float("nan"), "noise": [1.0, float("inf")]})
    {'loss': None, 'noise': [1.0, None]}
    """
    if isinstance(values, Mapping):
        return {key: json_values(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [json_values(value) for value in values]
    return None if isinstance(values, float) and not math.isfinite(values) else values


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


_SMALL = 1e-300


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
    lines = (text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).splitlines()
    for node in ast.walk(tree):  # within a run 5e-324 is read as 0: so small a number counts as it is written
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex) and abs(node.value) < _SMALL:
            node.value = repr(lines[node.lineno - 1][node.col_offset : node.end_col_offset])
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
