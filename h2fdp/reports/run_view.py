"""A run directory as a report shows it; nothing is run, and nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from h2fdp.config import read_document
from h2fdp.errors import Problem, UserError
from h2fdp.privacy import Accounts, observers
from h2fdp.privacy.ledger_rows import release_of
from h2fdp.records import RunDirectory, check_lines, read_json_lines, read_summary, state_of
from h2fdp.records.tables import read_table
from h2fdp.reports.figures import Column
from h2fdp.topology import Topology
from h2fdp.topology import read as read_topology

WITHHELD = (
    "Seed, accuracy on each device's own records and results on a validation split of them are hidden, because epsilon "
    "does not cover them; h2fdp report --with-private shows them."
)


@dataclass(frozen=True)
class RunView:
    """What a report reads of a run.

    Attributes:
        name: the directory's name, with its parents' where two runs have the same.
        summary: as `summary.json` has it, with the state as it is now.
        configuration: the resolved one; `configuration_text` as it is written.
        metrics: the columns of the metrics; empty before the first are written.
        devices: the columns of `devices.parquet`; empty where there is none.
        decisions: rows of `control.jsonl`.
        withheld: what no epsilon covers was left out of it (see `publication`).
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
            raise UserError("not a run directory (expected config.yaml and summary.json)", str(path))
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
        """By which its account is: that by which a target is met."""
        return str(self.summary.get("accountant") or "pld")

    @cached_property
    def topology(self) -> Topology:
        """The network as the run used it."""
        drawn = read_topology(RunDirectory(self.path).topology, seed=0)
        return drawn.as_star() if self.setting("method", "topology") == "star" else drawn

    @cached_property
    def accounts(self) -> Accounts:
        """What each observer holds by the ledger as it is now."""
        ledger = RunDirectory(self.path).ledger
        sizes = {subnet.name: subnet.size for subnet in self.topology.subnets}
        found = Accounts(sizes, observers(self.topology.depth))
        rows = read_json_lines(ledger) if ledger.is_file() else ()
        found.add(release_of(row, f"{ledger}:{number}", sizes) for number, row in enumerate(rows, start=1))
        return found


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
    """The last parts of the paths, as many as it takes to tell them apart.

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
