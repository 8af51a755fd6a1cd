"""What a test may do, by its file: `make quick` leaves out all that start a run, Ray or a process, or compute for long.

A file of mixed tests marks single ones (`@pytest.mark.run`). A test that does what its marks do not say fails.
"""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from h2fdp.records import RunDirectory

ROOT = Path(__file__).parents[1]
MARKS = {
    "tests/cli/test_command_line.py": "process",
    "tests/cli/test_sweep_command.py": "run",
    "tests/experiments/test_schedules_in_runs.py": "run",
    "tests/experiments/test_association.py": "run",
    "tests/experiments/test_utility.py": "run",
    "tests/test_integrity.py": "run",
    "tests/docs/test_commands.py": "process",
    "tests/docs/test_extending.py": "process",
    "tests/docs/test_tutorial.py": "process",
    "tests/protocol/test_any_tree.py": "slow",
    "tests/protocol/test_measured_noise.py": "slow",
    "tests/protocol/test_modular_sums.py": "slow",
    "tests/protocol/test_secure_sums.py": "slow",
    "tests/reports/test_browser.py": "process",
    "tests/reproduction/test_reproducing.py": "process",
    "tests/reproduction/test_settings_command.py": "process",
    "tests/reproduction/test_tables.py": "run",
    "tests/run": "run",
    "tests/runtime/test_bits_at_depth.py": "run",
    "tests/runtime/test_cluster.py": "ray",
    "tests/runtime/test_equal_bits.py": "ray",
    "tests/sweeps/test_from_python.py": "run",
    "tests/sweeps/test_running.py": "run",
    "tests/sweeps/test_side_by_side.py": "process",
    "tests/training/test_compiled_engine.py": "slow",
    "tests/theory/test_convergence_on_runs.py": "slow",
}
TIERS = {"run", "ray", "process", "slow"}
IMPLIED = {"ray": ("run", "process"), "process": ("run",)}
MARKS_OF_FIXTURES = {  # what a fixture does that a test asks for
    "data_root": "process",
    "cifar_root": "process",
    "killed": "process",
    "runs": "run",
    "spoilt": "run",
}


LOOKS_AROUND = {"ldconfig", "gcc", "ld", "uname", "lscpu", "fc-list"}  # what libraries call when they are imported
WAYS_AROUND_POPEN = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")  # of `os`; its others use one of these
LONGEST_S = 20.0  # of a test's own thread, in no tier: ten times what `slow` says, as machines and first imports differ


class Tiers:
    """Marks tests by their files, and holds them to their marks."""

    def __init__(self) -> None:
        self._item: pytest.Item | None = None
        self._guard(RunDirectory, "write_summary", "run", "makes a run")
        self._guard(subprocess.Popen, "__init__", "process", "starts a process")
        self._guard(BaseProcess, "start", "process", "starts a process")
        for name in WAYS_AROUND_POPEN:
            self._guard(os, name, "process", "starts a process")

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """What is left out as a whole is not imported either (`make quick`)."""
        left_out = config.option.markexpr.split(" and ")
        return True if any(f"not {mark}" in left_out for mark in _marks_of(collection_path)) else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in _marks_of(item.path):
                item.add_marker(mark)
            for fixture in set(getattr(item, "fixturenames", ())) & set(MARKS_OF_FIXTURES):
                item.add_marker(MARKS_OF_FIXTURES[fixture])
        items.sort(key=_how_soon)

    def pytest_collection_finish(self) -> None:
        gc.freeze()  # libraries and tests stay: no collection need look through them again

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._item = item
        try:
            return (yield)
        finally:
            self._item = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from _not_for_long(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from _not_for_long(item))

    def _guard(self, owner: type | ModuleType, name: str, mark: str, does: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def guarded(*arguments: Any, **options: Any) -> Any:
            if self._item is not None and not self._may(mark) and not _is_of_an_import(*arguments[1:2]):
                pytest.fail(f"{self._item.nodeid} {does}, but is not marked {mark} (tests/tiers.py)")
            return original(*arguments, **options)

        setattr(owner, name, guarded)

    def _may(self, mark: str) -> bool:
        assert self._item is not None
        own = {each.name for each in self._item.iter_markers()}
        return mark in own or any(mark in IMPLIED.get(each, ()) for each in own)


def _not_for_long(item: pytest.Item) -> Iterator[None]:
    """Around a step of a test: fails a test of no tier that computes for long."""
    began = time.thread_time()
    result = yield
    took = time.thread_time() - began
    if took > LONGEST_S and not any(mark.name in TIERS for mark in item.iter_markers()):
        pytest.fail(f"{item.nodeid} computes for {took:.0f} s, but is not marked slow (tests/tiers.py)")
    return result


@cache
def _marks_of(path: Path) -> set[str]:
    """Of a file, or of a folder."""
    return {mark for place, mark in MARKS.items() if path.is_relative_to(ROOT / place)}


def _how_soon(item: pytest.Item) -> int:
    """Files that wait for much begin first, so that no worker is left with them at the end."""
    marks = _marks_of(item.path)
    return next((at for at, mark in enumerate(("ray", "process", "run", "slow")) if mark in marks), 4)


def _is_of_an_import(command: object = ()) -> bool:
    first = command[0] if isinstance(command, list) and command else command
    return Path(str(first)).name in LOOKS_AROUND
