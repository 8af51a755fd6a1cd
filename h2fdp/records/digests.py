"""Digests: of texts, and of what Python files compute."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b


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
