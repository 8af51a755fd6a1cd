"""Machine code is compiled by one process of a machine, whoever else asks for it at the same time."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba")

_SOURCE = """
from filelock import FileLock, Timeout
from numba.extending import overload

held, locks = [], []


def witness():
    raise AssertionError("compiled")


@overload(witness)
def _while_compiling():
    try:
        with FileLock(locks[-1], timeout=0):
            held.append(False)
    except Timeout:
        held.append(True)
    return lambda: 1.0


def twice(values):
    return 2.0 * values.sum() * witness()
"""
_VALUES = np.arange(4.0)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with a function to compile, which notes whether the lock is held while it is compiled."""
    (tmp_path / "own_kernel.py").write_text(_SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "own_kernel", None)
    del sys.modules["own_kernel"]
    return importlib.import_module("own_kernel")


def test_it_is_compiled_under_a_lock_and_by_the_first_only(own: ModuleType) -> None:
    from h2fdp.training.compiled.jit import CompiledOnce

    first, second = CompiledOnce(own.twice), CompiledOnce(own.twice)
    own.locks.append(first.lock)
    assert first(_VALUES) == second(_VALUES) == first(_VALUES) == 12.0
    assert own.held == [True]
    hits = [sum(each.dispatcher.stats.cache_hits.values()) for each in (first, second)]
    assert hits == [0, 1], "the second took from disk what the first had compiled"


def test_without_a_lock_each_compiles(own: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    from h2fdp.training.compiled import jit

    def refuses(*_: object, **__: object) -> None:
        raise OSError("no locks on this file system")

    monkeypatch.setattr(jit, "FileLock", refuses)
    alone = jit.CompiledOnce(own.twice)
    own.locks.append(alone.lock)
    assert alone(_VALUES) == 12.0
    assert own.held == [False]
