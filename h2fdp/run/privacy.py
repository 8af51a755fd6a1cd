"""The accounts of a run after it, from its ledger alone; and of several runs on the same records together.

Every run is another release of the same records, so epsilons of single runs say little about an observer of more than
one. The releases of all ledgers are composed as one account composes those of one run. That needs independent noise:
runs under equal noise keys have none together.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.config import read_document
from h2fdp.errors import Problem, UserError, not_one_of
from h2fdp.experiment.sections import PrivacySection
from h2fdp.network import read as read_topology
from h2fdp.network.summary import headline
from h2fdp.privacy import OBSERVERS, Accounts, NoisePlacement, Observer, Release, noise_placement_of, observers
from h2fdp.privacy.accounting import ACCOUNTANTS, Composition
from h2fdp.privacy.accounts import DeviceClass
from h2fdp.privacy.mechanisms.noise_placement import simulated
from h2fdp.privacy.own_targets import Targets, of_targets
from h2fdp.privacy.releases import Adjacency, release_of
from h2fdp.privacy.statement import DELTA, about_delta, card, epsilons, statement
from h2fdp.records.directory import read_summary
from h2fdp.records.json_lines import check_lines, line_number, read_json_lines

_MOST_COMBINED = 4096  # combinations of distinct accounts that are looked at one by one
ANY = "the device with the record"
ANYWHERE = (
    "partition: the runs divide the records differently, so a record may be with the worst device of each run; every "
    "epsilon is about that case"
)
_NO_NOTES = "summary: it does not state under which conditions these numbers hold"


class RunPrivacy:
    """The accounts of a run, recomputed from its ledger.

    Args:
        run: a run directory, or a ledger file by itself.
        delta: None for the run's own.

    Attributes:
        accountant: what `epsilon` accounts by unless it is given another: that by which the run's target is met
            (`privacy.accountant`; `rdp` where a privacy filter meets it); the default of that key for a ledger by
            itself.
    """

    def __init__(self, run: Path, delta: float | None = None) -> None:
        if delta is not None and not 0 < delta < 1:
            raise UserError(f"expected a number above 0 and below 1, found {delta}", "--delta")
        if not run.exists():
            raise UserError("no such run directory or ledger", str(run))
        if run.suffix in (".yaml", ".yml") and run.is_file():
            text = "expected a run directory or a ledger (privacy.jsonl), found an experiment file"
            raise UserError(f"{text}; before a run: h2fdp privacy calibrate {run}", str(run))
        self._run, self._whole = run, run.is_dir()
        self._ledger = run / "privacy.jsonl" if self._whole else run
        self._summary = (read_summary(run) or {}) if self._whole else {}
        if self._summary.get("leaking"):  # as it says itself: a schedule may measure, whatever was configured
            raise UserError("devices sent raw measurements in this run; no account covers it", str(run))
        self._configuration = _configuration(run) if self._whole else {}
        self.delta = self._own_delta() if delta is None else delta
        stated = self._summary.get("accountant") or self._section("privacy").get("accountant")
        self.accountant = str(stated or PrivacySection.model_fields["accountant"].default)
        self.adjacency: Adjacency = "null-record"
        self.protects_devices = False  # rather than single records
        self._trust = "not stated, where the ledger is all there is"
        self.targets = Targets(math.inf)
        topology = run / "topology.yaml"
        if self._whole and topology.exists():
            drawn = read_topology(topology, seed=0)
            method = self._section("method")
            network = simulated(drawn, method.get("topology"), method.get("privacy")).with_rows()
            sizes = {subnet.name: subnet.size for subnet in network.subnets}
            self.accounts = Accounts(sizes, observers(network.depth), network.membership)
            self.accounts.add(self._releases(sizes))
            self.names = drawn.device_names()
            self._trust = headline(drawn)
            self.targets = Targets.in_network(float(self._section("privacy").get("epsilon", math.inf)), drawn)
        else:
            self.accounts = Accounts.of_ledger(self._releases(None))
            self.names = [f"{edge}/{row + 1}" for edge, size in self.accounts.sizes.items() for row in range(size)]

    def _section(self, name: str) -> Mapping[str, Any]:
        """A section of the configuration; empty where there is none, or where it names a user's own part."""
        section = self._configuration.get(name)
        return section if isinstance(section, dict) else {}

    def _own_delta(self) -> float:
        delta = self._section("privacy").get("delta")
        if not isinstance(delta, float) or not 0 < delta < 1:
            where = "the run's config.yaml has no privacy.delta" if self._whole else "a ledger alone states no delta"
            either = "" if self._whole else ", or name the run's directory, which states its own"
            raise UserError(f"{where}; state --delta{either}", str(self._run))
        return delta

    def _placement(self) -> NoisePlacement:
        if "privacy" not in self._section("method"):
            raise UserError("there is no method.privacy in the run's config.yaml", str(self._run))
        return noise_placement_of(self._section("method")["privacy"])

    @property
    def notes(self) -> tuple[str, ...]:
        """The conditions that accompany the accounts: those of the run's summary, or that they are not known."""
        if not self._whole:
            return ("ledger: the conditions under which these numbers hold are stated in the run, not in its ledger",)
        stated = [each for each in self._summary.get("notes", (_NO_NOTES,)) if not each.startswith(DELTA)]
        units = self._summary.get("devices" if self.protects_devices else "smallest_device", 1)
        own = about_delta(self.delta, units, self.protects_devices)
        return tuple(stated if own is None else [own, *stated])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._run)!r}, delta={self.delta:g}, accountant={self.accountant!r})"

    def _releases(self, sizes: Mapping[str, int] | None) -> Iterator[Release]:
        for release in releases_of_ledger(self._ledger, sizes):
            self.protects_devices |= release.bound == "update" and release.kind != "output"
            if release.adjacency == "replace":
                self.adjacency = "replace"
            yield release

    @property
    def guaranteed(self) -> bool:
        """Whether noise is added; a ledger by itself is taken to be of such a run."""
        return not self._whole or self._placement().private

    @property
    def data(self) -> str | None:
        """The data that the records are from; None where the ledger is all there is.

        Records that the seed draws are others under another seed.
        """
        if not self._whole:
            return None
        section = self._configuration.get("data")
        if not isinstance(section, dict):
            return str(section)
        if section.get("name") == "synthetic":
            return json.dumps([section, self._configuration.get("seed")], sort_keys=True)
        return " ".join(str(section[key]) for key in ("name", "path") if key in section)

    @property
    def records(self) -> tuple[Any, ...] | None:
        """Equal for runs in which every device, by its name, holds the same records; None where that is not known."""
        if not self._whole:
            return None
        stated = self._configuration
        return json.dumps(stated.get("data"), sort_keys=True), stated.get("seed"), tuple(self.names)

    @property
    def noise_key(self) -> str | None:
        """Equal for runs that drew their noise by the same key; None where that is not known."""
        if self._summary.get("noise_key") == "seed":
            return f"seed {self._summary.get('seed')}"
        key: str | None = self._summary.get("noise_key_id")
        return key

    def epsilon(self, observer: Observer, accountant: str | None = None, device: str | None = None) -> float | None:
        """An observer's epsilon about a device (default: the worst one); None where it received nothing private.

        Args:
            accountant: a name of `ACCOUNTANTS`; null is `accountant` of the run.
        """
        accountant = accountant or self.accountant
        asked = {"observer": (observer, self.accounts.reported), "accountant": (accountant, tuple(ACCOUNTANTS))}
        for key, (value, valid) in asked.items():
            if value not in valid:
                raise UserError(not_one_of(value, valid), key=key)
        if device is not None and device not in self.names:
            raise UserError(f'there is no device "{device}" in this run', key="device")
        compositions = [
            each.composition
            for each in self.accounts.classes(observer)
            if device is None or self.names.index(device) in each.devices
        ]
        return epsilons(accountant, compositions, self.delta)[1] if compositions else None

    def statement(self, accountants: Sequence[str] = ("rdp", "pld")) -> dict[str, Any]:
        """All observers and devices; see `privacy.statement`; and `notes` that belong to every number."""
        return {"notes": list(self.notes), **statement(self.accounts.held(), self.names, self.delta, accountants)}

    def card(self) -> dict[str, Any]:
        """The bounds on every attack of each observer, by the accountant of the run; see `privacy.statement.card`.

        Returns:
            `observers`: observer -> number -> value; the unit that is `protected`, `neighbours`, `delta`,
            `accountant`; what is `assumed`: who is trusted, and what is hidden; `notes`, with public sources;
            `targets`, see `own_targets.of_targets`.
        """
        held = self.accounts.held()
        watched = self._section("privacy").get("target_observers", OBSERVERS)
        kinds = {kind for classes in held.values() for each in classes for kind in each.composition}
        drawn = any(kind.sampling == "poisson" and kind.sampling_rate < 1 for kind in kinds)
        what = "devices take part" if self.protects_devices else "records are in a batch"
        return {
            "protected": "device" if self.protects_devices else "record",
            "neighbours": self.adjacency,
            "delta": self.delta,
            "accountant": self.accountant,
            "observers": card(held, self.delta, self.accountant),
            "targets": of_targets(held, self.targets, self.delta, self.accountant, watched),
            "assumed": {
                "trusted": f"{self._trust} (edge servers that see raw updates are outside the account)",
                "hidden": f"the noise{f', and which {what}' if drawn else ''}; observers do not collude",
            },
            "notes": list(self.notes),
        }


def releases_of_ledger(
    path: Path, sizes: Mapping[str, int] | None, begin: int = 0, end: int | None = None
) -> Iterator[Release]:
    """The rows of a ledger, or of its bytes from `begin` to `end`, checked.

    Args:
        sizes: edge server -> number of its devices; None where the ledger is all there is.
    """
    first = line_number(path, begin)
    for number, row in enumerate(read_json_lines(path, begin, end), start=first):
        yield release_of(row, f"{path}:{number}", sizes)


def _configuration(run: Path) -> dict[str, Any]:
    config = run / "config.yaml"
    check_lines(config, run / "topology.yaml")
    if not config.is_file():
        raise UserError("expected a run directory with its config.yaml, or a ledger and its delta", str(run))
    values: dict[str, Any] = read_document(config).values()
    return values


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

    @property
    def by_device(self) -> bool:
        """Whether a record is with the same device in all runs, as far as their directories say so."""
        first, *others = [run.records for run in self.runs]
        return first is not None and all(each == first for each in others)

    @property
    def equal_keys(self) -> list[tuple[Path, Path]]:
        """The pairs of runs that drew their noise by the same key."""
        runs = zip(self.paths, self.runs, strict=True)
        pairs = combinations([(path, run.noise_key) for path, run in runs if run.noise_key], 2)
        return [(one, other) for (one, key), (other, its) in pairs if key == its]

    @property
    def warnings(self) -> list[str]:
        """The reasons why these runs together are less private than apart."""
        lines = [
            f"{one} and {other} have equal noise keys: the difference of what they released has no noise, so no "
            "epsilon covers both"
            for one, other in self.equal_keys
        ]
        if unknown := [str(path) for path, run in zip(self.paths, self.runs, strict=True) if run.noise_key is None]:
            lines.append(f"the noise keys of {', '.join(unknown)} are not known; the accounts assume that they differ")
        return lines

    def _held(self) -> dict[Observer, list[DeviceClass]]:
        """The accounts of each observer of any of the runs, composed over all of them."""
        names = dict.fromkeys(observer for run in self.runs for observer in run.accounts.observers)
        return {each: list(_together([_of_each(run, each) for run in self.runs], self.by_device)) for each in names}

    def statement(self, accountants: Sequence[str] = ("rdp", "pld")) -> dict[str, Any]:
        """The statement of `RunPrivacy`, with the `runs` and the `warnings`; infinite where keys are equal."""
        names = self.runs[0].names if self.by_device else [ANY]
        stated = statement(self._held(), names, self.delta, accountants)
        if self.equal_keys:
            rows = [*stated["worst"].values(), *(of for each in stated["devices"].values() for of in each.values())]
            for numbers in rows:
                numbers.update(dict.fromkeys(accountants, math.inf))
        notes = dict.fromkeys(note for run in self.runs for note in run.notes)
        return {
            "runs": [str(path) for path in self.paths],
            "warnings": self.warnings,
            "notes": [*notes, *([] if self.by_device else [ANYWHERE])],
            **stated,
        }


def _check_alike(paths: Sequence[Path], runs: Sequence[RunPrivacy]) -> None:
    where = ", ".join(map(str, paths))
    if open_runs := [path for path, run in zip(paths, runs, strict=True) if not run.guaranteed]:
        text = "this run adds no noise, so no epsilon covers it together with any other"
        raise UserError(Problem(text, str(path)) for path in open_runs)
    if len({run.delta for run in runs}) > 1:
        values = ", ".join(f"{run.delta:g}" for run in runs)
        raise UserError(f"the runs have different deltas ({values}); add --delta", where)
    if len({run.protects_devices for run in runs}) > 1:
        raise UserError("some of these runs protect records, others whole devices; account for each kind apart", where)
    if len({run.adjacency for run in runs}) > 1:
        raise UserError("neighbours differ by a null record in some of these runs, by another one in others", where)
    data = {path: run.data for path, run in zip(paths, runs, strict=True) if run.data is not None}
    if len(set(data.values())) > 1:
        values = "; ".join(f"{path}: {each}" for path, each in data.items())
        raise UserError(f"the runs are on different data, so no record is in all of them ({values})", where)


def _together(runs: Sequence[tuple[list[Composition], np.ndarray]], by_device: bool) -> Iterator[DeviceClass]:
    """One observer's accounts of several runs as one, of what `_of_each` says of each run.

    Args:
        by_device: of each device by its name: an observer to which a run showed a device's raw updates holds no account
            about it, whatever the others hid. Else of a record that may be with any device of each run, of those of
            which the observer has any.
    """
    if by_device:
        numbers, device = np.unique([number for _, number in runs], axis=1, return_inverse=True)
        for at, chosen in enumerate(numbers.T):
            given = [parts[number] for (parts, _), number in zip(runs, chosen, strict=True) if number >= 0]
            if given and _RAW not in chosen:
                yield DeviceClass(np.flatnonzero(device.ravel() == at), _composed(given))
        return
    if any(not parts and (number == _RAW).any() for parts, number in runs):
        return
    choices = [parts or [{}] for parts, _ in runs]
    while math.prod(map(len, choices)) > _MOST_COMBINED:
        most = max(range(len(choices)), key=lambda at: len(choices[at]))
        choices[most] = [_covering(choices[most])]
    for combined in product(*choices):
        if composition := _composed(combined):
            yield DeviceClass(np.array([0]), composition)


_NOTHING, _RAW = -1, -2


def _of_each(run: RunPrivacy, observer: Observer) -> tuple[list[Composition], np.ndarray]:
    """An observer's distinct accounts in a run, and (devices,) which of them is about each device.

    Those of which it received nothing have `_NOTHING`, and `_RAW` where something of them went past it all the same.
    """
    number = np.full(len(run.names), _NOTHING)
    if observer not in run.accounts.observers:
        return [], number
    # Peers are no way for updates: without an account there is no peer, or nothing was broadcast.
    for each in run.accounts.classes("public") if observer not in ("peer", "public") else ():
        number[each.devices] = _RAW
    classes = list(run.accounts.classes(observer))
    for at, each in enumerate(classes):
        number[each.devices] = at
    return [each.composition for each in classes], number


def _composed(compositions: Sequence[Composition]) -> dict[Any, int]:
    return dict(sum(map(Counter, compositions), Counter()))


def _covering(compositions: Sequence[Composition]) -> dict[Any, int]:
    """A composition with as many releases of every type as any of these, so that it bounds each of them."""
    kinds = dict.fromkeys(kind for each in compositions for kind in each)
    return {kind: max(each.get(kind, 0) for each in compositions) for kind in kinds}
