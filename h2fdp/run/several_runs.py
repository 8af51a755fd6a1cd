"""What observers of several runs on the same records have learned from all of them together.

Every run is another release of the same records, so epsilons of single runs say little about who has seen more than
one: the searcher of hyper-parameters, or whoever is sent one model after another. The releases of all ledgers are
composed as one account composes those of one run. That needs independent noise: runs under equal noise keys have none
together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.errors import Problem, UserError
from h2fdp.privacy import Observer
from h2fdp.privacy.accounting import ReleaseType
from h2fdp.privacy.accounts import DeviceClass
from h2fdp.privacy.statement import statement
from h2fdp.run.privacy import RunPrivacy

Held = dict[ReleaseType, int]  # how often each type of release was received
_MOST_COMBINED = 4096  # combinations of distinct accounts that are looked at one by one
ANY = "whichever holds the record"
ANYWHERE = (
    "partition: the runs divide the records differently, so a record may be with the worst device of each run; every "
    "epsilon is about that case"
)


class SeveralRuns:
    """The accounts of several runs together.

    Where all runs divide the same records among the same devices, the accounts of each device are composed by its name.
    Otherwise a record may be anywhere, and the worst accounts of the runs are.

    Args:
        runs: run directories, or ledger files by themselves.
        delta: None for the one of all runs.

    Raises:
        UserError: a run is given twice, has no guarantee, or is about other data than another; their deltas differ, and
            none is given; some protect records, others whole devices; their neighbours differ.
    """

    def __init__(self, runs: Sequence[Path], delta: float | None = None) -> None:
        paths = [path.resolve() for path in runs]
        if twice := [run for at, run in enumerate(runs) if paths[at] in paths[:at]]:
            raise UserError(Problem("the run is given twice", str(run)) for run in twice)
        self.paths = tuple(runs)
        self.runs = [RunPrivacy(run, delta) for run in runs]
        _check_alike(self.paths, self.runs)
        self.delta = self.runs[0].delta

    @cached_property
    def by_device(self) -> bool:
        """Whether a record is with the same device in all runs, as far as their directories say so."""
        first, *others = [run.records for run in self.runs]
        return first is not None and all(each == first for each in others)

    @cached_property
    def equal_keys(self) -> list[tuple[Path, Path]]:
        """The pairs of runs that drew their noise by the same key."""
        known = [(path, run.noise_key) for path, run in zip(self.paths, self.runs, strict=True) if run.noise_key]
        return [(one, other) for (one, key), (other, its) in combinations(known, 2) if key == its]

    @property
    def warnings(self) -> list[str]:
        """What makes these runs together less private than apart."""
        found = [
            f"{one} and {other} have equal noise keys: the difference of what they released has no noise, so no "
            "epsilon covers both"
            for one, other in self.equal_keys
        ]
        if unknown := [str(path) for path, run in zip(self.paths, self.runs, strict=True) if run.noise_key is None]:
            found.append(f"the noise keys of {', '.join(unknown)} are not known; the accounts assume that they differ")
        return found

    def statement(self, accountants: Sequence[str] = ("rdp", "pld")) -> dict[str, Any]:
        """See `RunPrivacy.statement`; with the `runs` and the `warnings`, and infinite where keys are equal."""
        accounts = _ByDevice(self.runs) if self.by_device else _Anywhere(self.runs)
        found = statement(accounts, accounts.names, self.delta, accountants)
        if self.equal_keys:
            found = _without_noise(found, accountants)
        notes = dict.fromkeys(note for run in self.runs for note in run.notes)
        return {
            "runs": [str(path) for path in self.paths],
            "warnings": self.warnings,
            "notes": [*notes, *([] if self.by_device else [ANYWHERE])],
            **found,
        }


def _check_alike(paths: Sequence[Path], runs: Sequence[RunPrivacy]) -> None:
    where = ", ".join(map(str, paths))
    if open_runs := [path for path, run in zip(paths, runs, strict=True) if not run.guaranteed]:
        text = "this run adds no noise, so no epsilon covers it together with any other"
        raise UserError(Problem(text, str(path)) for path in open_runs)
    if len({run.delta for run in runs}) > 1:
        found = ", ".join(f"{run.delta:g}" for run in runs)
        raise UserError(f"the runs have different deltas ({found}); add --delta", where)
    if len({run.protects_devices for run in runs}) > 1:
        raise UserError("some of these runs protect records, others whole devices; account for each kind apart", where)
    if len({run.adjacency for run in runs}) > 1:
        raise UserError("neighbours differ by a null record in some of these runs, by another one in others", where)
    data = {path: run.data for path, run in zip(paths, runs, strict=True) if run.data is not None}
    if len(set(data.values())) > 1:
        found = "; ".join(f"{path}: {each}" for path, each in data.items())
        raise UserError(f"the runs are on different data, so no record is in all of them ({found})", where)


@dataclass(frozen=True)
class _ByDevice:
    """The accounts of several runs as one, device by device.

    An observer to whom a run showed a device's raw updates holds no account about it, whatever the others hid.
    """

    runs: Sequence[RunPrivacy]

    @property
    def names(self) -> list[str]:
        return list(self.runs[0].names)

    @property
    def observers(self) -> tuple[Observer, ...]:
        return _observers(self.runs)

    def classes(self, observer: Observer) -> Iterator[DeviceClass]:
        parts = [_of_each(run, observer, self.names) for run in self.runs]
        held: dict[tuple[int, ...], list[int]] = {}
        for device in range(len(self.names)):
            numbers = tuple(int(number[device]) for _, number in parts)
            held.setdefault(numbers, []).append(device)
        for numbers, devices in held.items():
            compositions = [classes[number] for (classes, _), number in zip(parts, numbers, strict=True) if number >= 0]
            if compositions and _RAW not in numbers:
                yield DeviceClass(np.array(devices), _composed(compositions))


@dataclass(frozen=True)
class _Anywhere:
    """The accounts about a record that may be with any device of each run, of those of which the observer has any."""

    runs: Sequence[RunPrivacy]

    @property
    def names(self) -> list[str]:
        return [ANY]

    @property
    def observers(self) -> tuple[Observer, ...]:
        return _observers(self.runs)

    def classes(self, observer: Observer) -> Iterator[DeviceClass]:
        parts: list[list[Held]] = []
        for run in self.runs:
            compositions, number = _of_each(run, observer, run.names)
            if not compositions and (number == _RAW).any():
                return
            parts.append(compositions or [{}])
        while math.prod(map(len, parts)) > _MOST_COMBINED:
            most = max(range(len(parts)), key=lambda at: len(parts[at]))
            parts[most] = [_covering(parts[most])]
        for chosen in product(*parts):
            if composition := _composed(chosen):
                yield DeviceClass(np.array([0]), composition)


_NOTHING, _RAW = -1, -2


def _of_each(run: RunPrivacy, observer: Observer, names: Sequence[str]) -> tuple[list[Held], np.ndarray]:
    """An observer's distinct accounts in a run, and (devices,) which of them is about each device.

    Those of which it received nothing have `_NOTHING`, and `_RAW` where something of them went past it all the same.
    """
    place = {name: at for at, name in enumerate(run.names)}
    known = observer in run.accounts.observers
    classes = list(run.accounts.classes(observer)) if known else []
    number, public = np.full(len(run.names), _NOTHING), np.zeros(len(run.names), dtype=bool)
    for each in run.accounts.classes("public"):
        public[each.devices] = True
    # Peers are no way for anybody's updates: without an account there is no peer, or nothing was broadcast.
    if known and observer not in ("peer", "public"):
        number[public] = _RAW
    for at, each in enumerate(classes):
        number[each.devices] = at
    return [each.composition for each in classes], number[[place[name] for name in names]]


def _composed(compositions: Sequence[Held]) -> Held:
    total: Counter[Any] = Counter()
    for each in compositions:
        total.update(each)
    return dict(total)


def _covering(compositions: Sequence[Held]) -> Held:
    """At least as many releases of every type as in any of these: whoever holds less has learned less."""
    kinds = dict.fromkeys(kind for each in compositions for kind in each)
    return {kind: max(each.get(kind, 0) for each in compositions) for kind in kinds}


def _observers(runs: Sequence[RunPrivacy]) -> tuple[Observer, ...]:
    return tuple(dict.fromkeys(observer for run in runs for observer in run.accounts.observers))


def _without_noise(found: dict[str, Any], accountants: Sequence[str]) -> dict[str, Any]:
    """The statement with an infinite epsilon wherever there is one."""
    endless = dict.fromkeys(accountants, math.inf)
    worst = {observer: numbers | endless for observer, numbers in found["worst"].items()}
    devices = {name: dict.fromkeys(held, endless) for name, held in found["devices"].items()}
    return found | {"worst": worst, "devices": devices}
