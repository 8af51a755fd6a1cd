"""How far a reader must walk through the code to follow `h2fdp run FILE` up to the end of the first interval.

    python benchmarks/walk.py [--list]

A small private run is traced, in all its threads. Every function of the package is noted when it is called for the
first time (a reader reads it once); lambdas, comprehensions, properties and other one-line functions are read where
they are called. What the lower rooms (`GROUND`) do among themselves is not followed: the reader enters a file of theirs
and comes back.

- stay: functions of one file, read without leaving it;
- return: a stay in a file that was left before;
- climb: a call that leads from a room to one on a higher floor, or back into a file of a higher floor that was left
  before, to read a function there that was not read yet.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import h2fdp

PACKAGE = Path(h2fdp.__file__).parent
# Rooms by floor (docs/architecture.md), of older checkouts too.
FLOORS = {
    **dict.fromkeys(("errors", "streams", "arithmetic", "wording", "config"), 0),
    **dict.fromkeys(("network", "data", "models"), 1),
    **dict.fromkeys(("training", "privacy", "costs", "records"), 2),
    **dict.fromkeys(("algorithms", "schedules", "reports"), 3),
    "protocol": 4,
    "runtime": 5,
    **dict.fromkeys(("methods", "experiment"), 6),
    "run": 7,
    "audit": 8,
    "cli": 11,
}
GROUND = 5  # floors below this one are entered, and not followed further
FILE = """
topology: {edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}
data: digits
model: softmax
method: h2fdp
training: {intervals: 2, local_steps: 4, aggregate_every: 2, batch_size: 32, step_size: 0.1, step_decay: sqrt,
           clip_norm: 1, clip_scope: batch, weights: uniform}
tracking: {tensorboard: false}
"""


class Walk:
    """The functions of the package in the order in which they are first called, by any thread.

    What another thread calls is read where the main thread waits for it; of several threads that do the same, once.
    """

    def __init__(self) -> None:
        self._called: dict[int, dict[CodeType, tuple[str, str]]] = {}  # thread -> function -> its file, its caller's
        self._begins: dict[int, int] = {}  # thread -> functions of the main thread before its first one
        self._main = threading.get_ident()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call":
            return
        thread = threading.get_ident()
        if thread not in self._called:
            self._called[thread] = {}
            self._begins[thread] = len(self._called[self._main]) if thread != self._main else 0
        if code in self._called[thread]:
            return
        file, caller = _file(code), _caller(frame)
        read = file is not None and _is_read(code) and caller is not None and _followed(file, caller)
        self._called[thread][code] = (file, caller) if read else ("", "")

    @property
    def _read(self) -> list[tuple[str, str, str]]:
        """File, function, caller's file."""
        order = list(self._called[self._main].items())
        others = [thread for thread in self._called if thread != self._main]
        for thread in sorted(others, key=self._begins.__getitem__, reverse=True):
            order[self._begins[thread] : self._begins[thread]] = self._called[thread].items()
        first = dict(reversed(order))  # where a function is called by several, the place of the first call
        once = dict.fromkeys(code for code, _ in order)
        return [(first[code][0], code.co_qualname, first[code][1]) for code in once if first[code][0]]

    @property
    def calls(self) -> list[tuple[str, str]]:
        """File, function."""
        return [(file, function) for file, function, _ in self._read]

    @property
    def up(self) -> list[tuple[str, str]]:
        """Calls from a room to one on a higher floor: caller's file, function."""
        return [(caller, name) for file, name, caller in self._read if caller and floor_of(file) > floor_of(caller)]


def _file(code: CodeType) -> str | None:
    path = Path(code.co_filename)
    return str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else None


def _is_read(code: CodeType) -> bool:
    """Not what is read where it is called."""
    dunder = code.co_name.startswith(("<", "__")) and code.co_name not in ("__init__", "__call__")
    lines = {line for *_, line in code.co_lines() if line}
    return not dunder and len(lines) > 2


def _caller(frame: FrameType) -> str | None:
    outer = frame.f_back
    while outer is not None and _file(outer.f_code) is None:
        outer = outer.f_back
    return "" if outer is None else _file(outer.f_code)


def _followed(file: str, caller: str) -> bool:
    return caller == "" or floor_of(caller) >= GROUND or floor_of(file) >= GROUND


def floor_of(file: str) -> int:
    """The floor of a file's room."""
    return FLOORS.get(file.split("/")[0].removesuffix(".py"), 0)


def stays_of(calls: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Consecutive functions of one file together."""
    stays: list[tuple[str, list[str]]] = []
    for file, function in calls:
        if stays and stays[-1][0] == file:
            stays[-1][1].append(function)
        else:
            stays.append((file, [function]))
    return stays


def numbers_of(stays: list[tuple[str, list[str]]]) -> dict[str, int]:
    """Stays, files, returns and climbs."""
    files = [file for file, _ in stays]
    higher = [floor_of(after) > floor_of(before) for before, after in itertools.pairwise(files)]
    return {
        "stays": len(files),
        "files": len(set(files)),
        "returns": len(files) - len(set(files)),
        "climbs": sum(higher),
        "functions": sum(len(functions) for _, functions in stays),
    }


class _FirstIntervalDone(Exception):
    pass


def traced() -> Walk:
    """The calls of `h2fdp run FILE` up to the end of its first interval."""
    from h2fdp.cli import terminal
    from h2fdp.cli.main import app

    walk = Walk()
    said = terminal.say

    def say(text: str) -> None:
        said(text)
        sys.setprofile(None)
        threading.setprofile(None)
        raise _FirstIntervalDone

    terminal.say = say  # the line of an interval
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(FILE)
        warm(app, file, Path(folder))
        sys.setprofile(walk)
        threading.setprofile(walk)  # of threads that begin from now on
        with contextlib.suppress(_FirstIntervalDone):
            app(["run", str(file), "--out", f"{folder}/run", "--verbose"], standalone_mode=False)
    return walk


def warm(app: Any, file: Path, folder: Path) -> None:
    """Import everything first: what happens at import is not part of the walk."""
    with contextlib.suppress(_FirstIntervalDone):
        app(["run", str(file), "--out", str(folder / "warm"), "--verbose"], standalone_mode=False)


def main() -> None:
    """Print the walk's numbers; with --list, its stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print each stay")
    wanted = parser.parse_args()
    walk = traced()
    stays = stays_of(walk.calls)
    if wanted.list:
        for number, (file, functions) in enumerate(stays, start=1):
            print(f"{number:4} {'  ' * (11 - floor_of(file))}{file}: {', '.join(functions)}")
    print(numbers_of(stays) | {"calls up": len(walk.up)})


if __name__ == "__main__":
    main()
