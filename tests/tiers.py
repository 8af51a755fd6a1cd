"""What a test may do, by its file: `make quick` leaves out all that start a run, Ray or a process, or compute for long.

A file of mixed tests marks single ones (`@pytest.mark.run`). A test that does what its marks do not say fails.
`tests/seconds.json` stores what tests took: those that take long are slow, and the files that take long begin first.
Random cases, the cases of slow tests, and tests that take long turn: H2FDP_TURN says which third is tried.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest
from _pytest.doctest import DoctestModule

from benchmarks.planted_faults import FAULTS

ROOT = Path(__file__).parents[1]
MARKS = {
    "tests/cli/test_command_line.py": "process",
    "tests/cli/test_sweep_command.py": "run",
    "tests/experiments/test_combinations.py": "run",
    "tests/experiments/test_schedules_in_runs.py": "run",
    "tests/experiments/test_association.py": "run",
    "tests/experiments/test_utility.py": "run",
    "tests/experiments/test_inversion.py": "slow",
    "tests/test_compiled_streams.py": "slow",
    "tests/test_integrity.py": "run",
    "tests/docs/test_commands.py": "process",
    "tests/docs/test_extending.py": "process",
    "tests/docs/test_tutorial.py": "process",
    "tests/protocol/test_any_tree.py": "slow",
    "tests/protocol/test_measured_noise.py": "slow",
    "tests/protocol/test_own_epsilons.py": "slow",
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
    "tests/runtime/test_split_subnets.py": "ray",
    "tests/sweeps/test_from_python.py": "run",
    "tests/sweeps/test_choice.py": "run",
    "tests/sweeps/test_one_curve.py": "run",
    "tests/sweeps/test_running.py": "run",
    "tests/sweeps/test_side_by_side.py": "process",
    "tests/training/test_compiled_engine.py": "slow",
    "tests/theory/test_convergence_on_runs.py": "slow",
}
_PLACES = {str(ROOT / place): mark for place, mark in MARKS.items()}
TIERS = {"run", "ray", "process", "slow"}
IMPLIED = {"ray": ("run", "process"), "process": ("run",)}
MARKS_OF_FIXTURES = {  # what a fixture does that a test asks for
    "data_root": "process",
    "cifar_root": "process",
    "killed": "process",
    "runs": "run",
    "spoilt": "run",
}


# Files of random cases, and what numbers these. `make test` and `make quick` try a third, and `make nightly` all.
DRAWN = {
    "tests/privacy/accounting/test_adversaries.py": {"seed"},
    "tests/privacy/accounting/test_loss_composition.py": {"seed"},
    "tests/protocol/test_any_tree.py": {"run"},
    "tests/protocol/test_buffered_rounds.py": {"run"},
    "tests/protocol/test_liars.py": {"number"},
    "tests/protocol/test_measured_noise.py": {"network"},
    "tests/protocol/test_own_epsilons.py": {"run"},
    "tests/protocol/test_relays.py": {"run"},
    "tests/protocol/test_secure_sums.py": {"run", "number"},
    "tests/protocol/test_visits.py": {"run"},
    "tests/run/test_audit.py": {"seed"},
    "tests/run/test_prelude_of_neighbours.py": {"number"},
}
TURN = os.environ.get("H2FDP_TURN", "all")  # 0, 1, 2 or all
SECONDS = ROOT / "tests" / "seconds.json"  # that files took, and single tests: `make test OPTIONS=--store-seconds`
SLOW_S = 0.5  # of a test, in that file
LONG_S = 1.0  # of a test that turns as a whole
# Files whose tests share what takes longest: they turn together.
TOGETHER = {
    "tests/reports/test_browser.py",
    "tests/reproduction/test_reproducing.py",
    "tests/runtime/test_cluster.py",
}
GUARDS = {test for fault in FAULTS.values() for test in fault.tests}  # whose tests never turn as a whole

LOOKS_AROUND = {"ldconfig", "gcc", "ld", "uname", "lscpu", "fc-list"}  # what libraries call when they are imported
WAYS_AROUND_POPEN = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system")  # of `os`; its others use one of these
LONGEST_S = 20.0  # of a test's own thread, in no tier: far above what `slow` says, as machines and first imports differ


class Tiers:
    """Marks tests by their files, and holds them to their marks."""

    def __init__(self) -> None:
        self._item: pytest.Item | None = None
        self._took: dict[str, float] = {}

    def pytest_collection(self) -> None:
        """Nothing that is imported is garbage: looking for some takes a fifth of the time."""
        gc.disable()

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """What is left out as a whole is not imported either (`make quick`)."""
        left_out = config.option.markexpr.split(" and ")
        return True if any(f"not {mark}" in left_out for mark in _marks_of(collection_path)) else None

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Iterator[None]:
        """Modules without examples need not be imported to be searched for some."""
        found = yield
        return [each for each in found if not isinstance(each, DoctestModule) or ">>> " in file_path.read_text()]

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in _marks_of(item.path):
                item.add_marker(mark)
            if item.nodeid in _stored()["tests"]:
                item.add_marker("slow")
            for fixture in set(getattr(item, "fixturenames", ())) & set(MARKS_OF_FIXTURES):
                item.add_marker(MARKS_OF_FIXTURES[fixture])
        levels = _levels(items)
        turning = _turning(items, levels)
        tried = [item for item in items if _is_tried(item, levels, turning)]
        left_out = set(items) - set(tried)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = sorted(tried, key=_how_soon)

    def pytest_collection_finish(self) -> None:
        """Where tests are run. The process that hands them out to workers collects none, and needs no package."""
        from h2fdp.records.directory import RunDirectory

        self._guard(RunDirectory, "write_summary", "run", "makes a run")
        self._guard(subprocess.Popen, "__init__", "process", "starts a process")
        self._guard(BaseProcess, "start", "process", "starts a process")
        for name in WAYS_AROUND_POPEN:
            self._guard(os, name, "process", "starts a process")
        gc.freeze()  # libraries and tests stay: no collection need look through them again
        gc.enable()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Where tests are handed out to workers, or where there are none."""
        if session.config.option.store_seconds and not hasattr(session.config, "workerinput"):
            SECONDS.write_text(json.dumps(merged(_stored(), self._took), indent=0) + "\n")

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
    name = str(path)
    return {mark for place, mark in _PLACES.items() if name == place or name.startswith(place + os.sep)}


@cache
def _stored() -> dict[str, dict[str, float]]:
    return json.loads(SECONDS.read_text())


def merged(stored: dict[str, dict[str, float]], took: dict[str, float]) -> dict[str, dict[str, float]]:
    """What is stored, with new seconds of all tests of these files: of each file, slow test, and slow function.

    A function is all cases of a test. In a turn, what is stored of the others and of all cases is kept.
    """
    files, functions = Counter[str](), Counter[str]()
    for test, seconds in took.items():
        files[_file(test)] += seconds
        functions[_function(test)] += seconds

    def is_kept(test: str) -> bool:
        if _file(test) not in files:
            return True
        name = _function(test).rpartition("::")[2]
        return TURN != "all" and test not in took and f"def {name}(" in (ROOT / _file(test)).read_text()

    kept = {test: seconds for test, seconds in stored["tests"].items() if is_kept(test)}
    whole = {test: seconds for test, seconds in stored["functions"].items() if is_kept(test)}
    whole = {
        test: round(seconds, 2) for test, seconds in functions.items() if seconds > SLOW_S and test not in took
    } | whole
    slow = kept | {test: round(seconds, 2) for test, seconds in took.items() if seconds > SLOW_S}
    known = stored["files"] | {file: round(seconds, 1) for file, seconds in files.items()}
    return {
        "files": {file: known[file] for file in sorted(known) if (ROOT / file).exists()},
        "functions": {test: whole[test] for test in sorted(whole) if (ROOT / _file(test)).exists()},
        "tests": {test: slow[test] for test in sorted(slow) if (ROOT / _file(test)).exists()},
    }


def _file(test: str) -> str:
    return test.partition("::")[0]


def _function(test: str) -> str:
    return test.partition("[")[0]


def _how_soon(item: pytest.Item) -> float:
    """Files that take long begin first, so that no worker is left with them at the end; new files before all."""
    return -_stored()["files"].get(item.path.relative_to(ROOT).as_posix(), 1e9)


Levels = dict[str, dict[str, int]]


def _levels(items: Sequence[pytest.Item]) -> Levels:
    """Case -> parameter -> number of its value, in the order in which the cases of a test have them.

    Parameters that have their values together are one, under all of their names.
    """
    values, levels = defaultdict[tuple[str, str], dict[Any, int]](dict), Levels()
    for item in items:
        if hasattr(item, "callspec"):
            marks = [mark.args[0] for mark in item.iter_markers("parametrize")]
            lists = [mark.split(",") if isinstance(mark, str) else list(mark) for mark in marks]
            alone = [[name] for name in item.callspec.params if not any(name in names for names in lists)]
            levels[item.nodeid] = numbers = {}
            for names in (*lists, *alone):
                known = values[_function(item.nodeid), ",".join(names)]
                value = tuple(id(item.callspec.params[name.strip()]) for name in names)
                numbers[",".join(names)] = known.setdefault(value, len(known))
    return levels


def _turning(items: Sequence[pytest.Item], levels: Levels) -> set[str]:
    """Tests that take long and have cases for each turn; all of the others' cases are tried."""
    thirds = defaultdict[str, set[int]](set)
    for item in items:
        if item.nodeid in levels:
            thirds[_function(item.nodeid)].add(_third(item, levels))
    return {test for test in _stored()["functions"] if len(thirds[test]) == 3}


def _third(item: pytest.Item, levels: Levels) -> int:
    """Of cases that are a product, each level of a parameter is in each third where another has three or more.

    Each test begins with another turn, so that turns take about as long.
    """
    return (crc32(_function(item.nodeid).encode()) + sum(levels[item.nodeid].values())) % 3


@cache
def _turns() -> dict[str, int]:
    """Turn of each test that takes long by itself, and of each file whose tests take long together.

    The longest first, each goes into the turn that has least. Guards of planted faults have all.
    """
    stored = _stored()
    long = {
        test: seconds for test, seconds in stored["tests"].items() if seconds > LONG_S and _file(test) not in TOGETHER
    }
    long |= {file: stored["files"].get(file, 0.0) for file in TOGETHER}
    turns, sums = dict[str, int](), [0.0, 0.0, 0.0]
    for each in sorted(long, key=lambda each: (-long[each], each)):
        if not any(_file(each).startswith(guard) for guard in GUARDS):
            turns[each] = sums.index(min(sums))
            sums[turns[each]] += long[each]
    return turns


def _is_tried(item: pytest.Item, levels: Levels, turning: AbstractSet[str]) -> bool:
    """All but two thirds of random cases, by their numbers, of the cases of slow tests, and of tests that take long."""
    if TURN == "all":
        return True
    turns, file, numbers = _turns(), item.path.relative_to(ROOT).as_posix(), levels.get(item.nodeid, {})
    if drawn := DRAWN.get(file, set()) & set(numbers):
        return all(numbers[name] % 3 == int(TURN) for name in drawn)
    if file not in TOGETHER and _function(item.nodeid) in turning:
        return _third(item, levels) == int(TURN)
    return int(TURN) == turns.get(file, turns.get(item.nodeid, int(TURN)))


def _is_of_an_import(command: object = ()) -> bool:
    first = command[0] if isinstance(command, list) and command else command
    return Path(str(first)).name in LOOKS_AROUND
