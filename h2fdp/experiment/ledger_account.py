"""Everything about privacy that a run directory says again from its ledger alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from h2fdp.config import read_document
from h2fdp.errors import UserError
from h2fdp.privacy import Accounts, Observer, Release
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.releases import RELEASE_KEYS
from h2fdp.privacy.statement import statement
from h2fdp.records import read_ledger
from h2fdp.topology import read as read_topology


class RunPrivacy:
    """The accounts of a run, recomputed from its ledger.

    Args:
        run: a run directory, or a ledger file by itself.
        delta: None for the run's own.
    """

    def __init__(self, run: Path, delta: float | None = None) -> None:
        self._ledger = run / "privacy.jsonl" if run.is_dir() else run
        self.delta = delta if delta is not None else _delta_of(run)
        releases = [_release(row, self._ledger) for row in read_ledger(self._ledger)]
        topology = run / "topology.yaml"
        if run.is_dir() and topology.exists():
            drawn = read_topology(topology, seed=0)
            network = drawn.as_star() if _configuration(run)["method"]["topology"] == "star" else drawn
            self.accounts = Accounts({subnet.name: subnet.size for subnet in network.subnets})
            self.accounts.add(releases)
            self.names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
        else:
            self.accounts = Accounts.of_ledger(releases)
            self.names = [f"{edge}/{row + 1}" for edge, size in self.accounts.sizes.items() for row in range(size)]

    def epsilon(self, observer: Observer, accountant: str = "rdp", device: str | None = None) -> float | None:
        """What an observer holds about a device (default: the worst one); None where it received nothing private."""
        if accountant not in ACCOUNTANTS:
            raise UserError(f'expected one of {", ".join(ACCOUNTANTS)}, found "{accountant}"', key="accountant")
        if device is not None and device not in self.names:
            raise UserError(f'there is no device "{device}" in this run', key="device")
        found = [
            ACCOUNTANTS[accountant].epsilon(each.composition, self.delta)
            for each in self.accounts.classes(observer)
            if device is None or self.names.index(device) in each.devices
        ]
        return max(found, default=None)

    def statement(self, accountants: Sequence[str] = ("rdp", "pld")) -> dict[str, Any]:
        """All observers and devices; see `privacy.statement`."""
        return statement(self.accounts, self.names, self.delta, accountants)


def _configuration(run: Path) -> dict[str, Any]:
    config = run / "config.yaml"
    if not config.is_file():
        raise UserError("expected a run directory with its config.yaml, or a ledger and its delta", str(run))
    values: dict[str, Any] = read_document(config).values()
    return values


def _delta_of(run: Path) -> float:
    if not run.is_dir():
        raise UserError("a ledger by itself does not say its delta; add --delta", str(run))
    return float(_configuration(run)["privacy"]["delta"])


def _release(row: dict[str, Any], ledger: Path) -> Release:
    if not isinstance(row, dict) or set(row) != set(RELEASE_KEYS):
        raise UserError(f"a row is no release; expected the keys {', '.join(RELEASE_KEYS)}", str(ledger))
    return Release(**row)
