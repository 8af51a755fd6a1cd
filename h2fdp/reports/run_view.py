"""A run directory as a report shows it, and as columns that figures draw; nothing is run, and nothing is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from h2fdp.config import read_document
from h2fdp.errors import Problem, UserError, no_directory
from h2fdp.network import Topology
from h2fdp.network import read as read_topology
from h2fdp.network.network import TRUSTS
from h2fdp.privacy import Accounts, observers_beside
from h2fdp.privacy.mechanisms.noise_placement import simulated
from h2fdp.privacy.places import ADDED_BY, OBSERVERS, ReleaseKind, observers
from h2fdp.privacy.releases import release_of, rows_in
from h2fdp.records.directory import RunDirectory, read_summary, state_of
from h2fdp.records.json_lines import check_lines, read_json_lines
from h2fdp.records.tables import read_table
from h2fdp.reports.decisions import decision_columns
from h2fdp.reports.figures import Column, Series, places

ADDERS = {adder: words for adder, words in ADDED_BY.items() if adder != "none"}
KINDS: tuple[ReleaseKind, ...] = get_args(ReleaseKind)


def noise_columns(rows: Iterable[dict[str, Any]], intervals: Sequence[int]) -> dict[str, Column]:
    """Columns `noise_<kind>_<adder>` with `_low` and `_high`: a value for each interval, None where no node adds noise.

    A device's own noise is what its edge server sees (the noise on the sum, where that is all it sees); an edge
    server's noise is what the cloud sees of a subnet whose devices show their edge server none; of the cloud's, the
    public sees the first. The mean is over devices, or over edge servers.

    Args:
        rows: of the ledger, in its order.
    """
    by_kind: dict[tuple[int, str, str], list[tuple[int, float]]] = {}  # how many have each noise
    by_devices: set[str] = set()
    for row in rows:
        if row["observer"] == "edge":
            by_devices.add(row["edge"])
            adder, weight = "device", sum(part.stop - part.start for part in rows_in(row["devices"]))
        elif row["observer"] == "cloud" and row["edge"] not in by_devices:
            adder, weight = "edge", 1
        elif row["observer"] == "public" and row["kind"] == "central":
            adder, weight = "cloud", 1
        else:
            continue
        by_kind.setdefault((row["interval"], row["kind"], adder), []).append((weight, row["noise_std"]))
    columns: dict[str, Column] = {}
    for kind in KINDS:
        for adder in ADDERS:
            cells = [by_kind.get((interval, kind, adder)) for interval in intervals]
            if any(cells):
                name = f"noise_{kind}_{adder}"
                columns[name] = [cell and sum(n * std for n, std in cell) / sum(n for n, _ in cell) for cell in cells]
                for end, of in (("low", min), ("high", max)):
                    columns[f"{name}_{end}"] = [cell and of(std for _, std in cell) for cell in cells]
    return columns


WITHHELD = (
    "Seed, accuracy of single devices and results on a validation split of their records are hidden, because epsilon "
    "does not cover them; h2fdp report --with-private shows them."
)


@dataclass(frozen=True)
class RunView:
    """The parts of a run that a report reads.

    Attributes:
        name: the directory's name, with its parents' where two runs have the same.
        summary: as `summary.json` has it, with the state as it is now.
        configuration: the resolved one; `configuration_text` as it is written.
        metrics: the columns of the metrics; empty before the first are written.
        devices: the columns of `devices.parquet`; empty where there is none.
        decisions: rows of `control.jsonl`.
        withheld: whether numbers that no epsilon covers were left out (see `publication`).
    """

    path: Path
    name: str
    summary: dict[str, Any]
    configuration: dict[str, Any]
    configuration_text: str
    metrics: dict[str, Column]
    devices: dict[str, Column]
    decisions: list[dict[str, Any]]
    withheld: bool = False

    @classmethod
    def read(cls, path: Path, name: str) -> RunView:
        """Read all but the ledger and the network, which are read when they are asked for.

        Raises:
            UserError: `path` is no run directory, or a file of it is damaged.
        """
        directory = RunDirectory(path)
        summary = read_summary(path)
        if summary is None or not directory.config.is_file():
            raise no_directory("not a run directory (expected config.yaml and summary.json)", path)
        check_lines(directory.config, directory.topology)
        configuration = read_document(directory.config).values()
        if not isinstance(configuration, dict):
            raise UserError("expected a configuration", str(directory.config))
        return cls(
            path=path,
            name=name,
            summary=summary | {"state": state_of(path, summary)},
            configuration=configuration,
            configuration_text=directory.config.read_text(),
            metrics=table_of(directory.metrics),
            devices=table_of(directory.devices),
            decisions=list(read_json_lines(directory.decisions)) if directory.decisions.is_file() else [],
        )

    def setting(self, *keys: str) -> Any:
        """A value of the configuration; None where there is none."""
        value: Any = self.configuration
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def private(self) -> bool:
        """Whether its privacy is reported."""
        return any(value is not None for value in self.metrics.get("epsilon_claimed", [])) or bool(
            (self.summary.get("privacy") or {}).get("worst")
        )

    @property
    def target(self) -> float | None:
        """The epsilon that the account was calibrated to; None where a formula was."""
        return self.setting("privacy", "epsilon") if self.setting("privacy", "calibration") == "accounted" else None

    @property
    def accountant(self) -> str:
        """The accountant of its account: that by which a target is met."""
        return str(self.summary.get("accountant") or "pld")

    @cached_property
    def topology(self) -> Topology:
        """The network as the run used it."""
        drawn = read_topology(RunDirectory(self.path).topology, seed=0)
        return drawn.as_star() if self.setting("method", "topology") == "star" else drawn

    @cached_property
    def accounts(self) -> Accounts:
        """The accounts of each observer by the ledger as it is now."""
        ledger = RunDirectory(self.path).ledger
        method = self.setting("method", "topology"), self.setting("method", "privacy")
        network = simulated(self.topology, *method).with_rows()
        sizes = {subnet.name: subnet.size for subnet in network.subnets}
        accounts = Accounts(sizes, observers(network.depth), network.membership)
        rows = read_json_lines(ledger) if ledger.is_file() else ()
        accounts.add(release_of(row, f"{ledger}:{number}", sizes) for number, row in enumerate(rows, start=1))
        return accounts


def read_runs(paths: Sequence[Path]) -> list[RunView]:
    """Several runs, each under a name of its own.

    Raises:
        UserError: with every directory that cannot be read.
    """
    views: list[RunView] = []
    problems: list[Problem] = []
    for path, name in zip(paths, names_of(paths), strict=True):
        try:
            views.append(RunView.read(path, name))
        except UserError as error:
            problems += error.problems
    if problems:
        raise UserError(dict.fromkeys(problems))
    return views


def names_of(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as it takes to make them differ.

    Raises:
        UserError: a directory is given twice.

    >>> names_of([Path("runs/a"), Path("runs/b")]), names_of([Path("x/run"), Path("y/run")])
    (['a', 'b'], ['x/run', 'y/run'])
    """
    parts = [path.resolve().parts for path in paths]
    if twice := [path for number, path in enumerate(paths) if parts[number] in parts[:number]]:
        raise UserError(Problem("the directory is given twice", str(path)) for path in twice)
    length = 1
    while len({each[-length:] for each in parts}) < len(parts):
        length += 1
    return ["/".join(each[-length:]) for each in parts]


def table_of(path: Path) -> dict[str, Column]:
    """The columns of a Parquet file; none where there is no file.

    Raises:
        UserError: the file is no table.
    """
    if not path.is_file():
        return {}
    columns: dict[str, Column] = read_table(path).to_pydict()
    return columns


MOST_POINTS = 2000  # of a curve: more are closer together than pixels
_QUANTILES = 200


def series_of(run: RunView) -> Series:
    """The metrics of a run, its noises, its decisions, and how accuracy is spread over its devices.

    Columns of intervals are thinned out evenly to `MOST_POINTS`.
    """
    intervals = run.metrics.get("interval", [])
    ledger = RunDirectory(run.path).ledger
    columns: dict[str, Column] = dict(run.metrics)
    if run.target is not None:  # then nothing is claimed
        columns["epsilon_claimed"] = [None] * len(intervals)
        if tuple(run.setting("privacy", "target_observers")) == OBSERVERS:
            columns["epsilon_target"] = [run.target] * len(intervals)
    if intervals and ledger.is_file():
        columns |= noise_columns(read_json_lines(ledger), intervals)
    columns |= decision_columns(run.decisions, intervals)
    columns["epsilon_most"] = largest_epsilon(columns)
    kept = places(len(intervals), MOST_POINTS)
    thinned = {name: [values[place] for place in kept] for name, values in columns.items()}
    return Series(run.name, thinned | spread_of_accuracy(run.devices))


def largest_epsilon(columns: Mapping[str, Column]) -> Column:
    """The largest of the observers' epsilons in each interval; None where no observer has received anything private.

    >>> largest_epsilon({"epsilon_edge": [None, 1.0], "epsilon_cloud": [None, 2.0], "epsilon_target": [3, 3]})
    [None, 2.0]
    """
    named = [f"epsilon_{each}" for each in observers_beside(name.removeprefix("epsilon_") for name in columns)]
    rows = zip(*(columns[name] for name in named if name in columns), strict=True)
    return [max((value for value in row if value is not None), default=None) for row in rows]


def spread_of_accuracy(devices: dict[str, Column]) -> dict[str, Column]:
    """Quantiles of the devices' accuracy under edge servers of each level of trust.

    Returns:
        `share` (of the devices, from 0 to 1), and `accuracy_trusted`, `accuracy_secure-sum`, `accuracy_untrusted`: that
        share of the devices has at most this accuracy.
    """
    columns: dict[str, Column] = {}
    rows = list(zip(devices.get("accuracy", []), devices.get("trust", []), strict="accuracy" in devices))
    for level in TRUSTS:
        values = sorted(value for value, trust in rows if trust == level and value is not None and value == value)
        if values:
            columns["share"] = [place / _QUANTILES for place in range(_QUANTILES + 1)]
            columns[f"accuracy_{level}"] = [values[_at(place, len(values))] for place in range(_QUANTILES + 1)]
    return columns


def _at(place: int, count: int) -> int:
    """The first of `count` sorted values that as large a share of them does not exceed."""
    return max(0, -(-place * count // _QUANTILES) - 1)
