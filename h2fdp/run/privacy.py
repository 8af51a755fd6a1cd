"""The accounts of a run after it, from its ledger alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from h2fdp.config import read_document
from h2fdp.data.source import DEVICES_TEST, PUBLIC_RECORDS
from h2fdp.errors import UserError
from h2fdp.experiment.sections import PrivacySection
from h2fdp.experiment.training_section import UNTIL
from h2fdp.models.registry import FROM, WARM_STARTED
from h2fdp.privacy import (
    Accounts,
    NoisePlacement,
    Observer,
    Release,
    noise_placement_of,
    observers,
)
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.releases import ADJACENCY_NOTES, Adjacency, release_of
from h2fdp.privacy.statement import epsilons, statement
from h2fdp.privacy.vectors import MOVES
from h2fdp.records import check_lines, line_number, read_json_lines, read_summary
from h2fdp.run.inputs import FILTERED
from h2fdp.run.noise_key import BY_SEED
from h2fdp.topology import read as read_topology


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
        if not run.exists():
            raise UserError("no such run directory or ledger", str(run))
        self._run, self._whole = run, run.is_dir()
        self._ledger = run / "privacy.jsonl" if self._whole else run
        self._summary = (read_summary(run) or {}) if self._whole else {}
        if self._summary.get("leaking"):  # as it says itself: a schedule may measure, whatever was configured
            raise UserError("this run leaks (control.estimates: oracle); no account covers it", str(run))
        self._configuration = _configuration(run) if self._whole else {}
        self.delta = self._own_delta() if delta is None else delta
        stated = self._summary.get("accountant") or self._section("privacy").get("accountant")
        self.accountant = str(stated or PrivacySection.model_fields["accountant"].default)
        self.notes = self._own_notes()
        self.adjacency: Adjacency = "null-record"
        self.protects_devices = False  # rather than single records
        topology = run / "topology.yaml"
        if self._whole and topology.exists():
            drawn = read_topology(topology, seed=0)
            network = drawn.as_star() if self._section("method").get("topology") == "star" else drawn
            sizes = {subnet.name: subnet.size for subnet in network.subnets}
            self.accounts = Accounts(sizes, observers(network.depth))
            self.accounts.add(self._releases(sizes))
            self.names = [name for subnet in network.subnets for name in subnet.device_names()]
        else:
            self.accounts = Accounts.of_ledger(self._releases(None))
            self.names = [f"{edge}/{row + 1}" for edge, size in self.accounts.sizes.items() for row in range(size)]

    def _section(self, name: str) -> Mapping[str, Any]:
        """Of the configuration; empty where it is none, or that of a user's own part."""
        found = self._configuration.get(name)
        return found if isinstance(found, dict) else {}

    def _own_delta(self) -> float:
        delta = self._section("privacy").get("delta")
        if not isinstance(delta, float) or not 0 < delta < 1:
            where = "the run's config.yaml has no privacy.delta" if self._whole else "the ledger alone has no delta"
            raise UserError(f"{where}; add --delta", str(self._run))
        return delta

    def _placement(self) -> NoisePlacement:
        if "privacy" not in self._section("method"):
            raise UserError("there is no method.privacy in the run's config.yaml", str(self._run))
        return noise_placement_of(self._section("method")["privacy"])

    def _own_notes(self) -> tuple[str, ...]:
        """What must be said with the accounts; of a ledger by itself, that how it came about is not known."""
        if not self._whole:
            return ("ledger: the conditions under which these numbers hold are stated in the run, not in its ledger",)
        placement, privacy, training = self._placement(), self._section("privacy"), self._section("training")
        about = ADJACENCY_NOTES.get(str(privacy.get("adjacency")))
        conditions = {
            BY_SEED: privacy.get("noise_key") == "seed",
            DEVICES_TEST: self._summary.get("tested_on_devices"),
            FILTERED: self._summary.get("adaptive"),
            PUBLIC_RECORDS: self._section("data").get("public"),
            WARM_STARTED: self._section("model").get(FROM) is not None,
            UNTIL: training.get("until"),
            MOVES: isinstance(training.get("clip_norm"), dict),
            str(about): about is not None,
        }
        return (*placement.notes, *(note for note, holds in conditions.items() if placement.private and holds))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._run)!r}, delta={self.delta:g}, accountant={self.accountant!r})"

    def _releases(self, sizes: Mapping[str, int] | None) -> Iterator[Release]:
        for release in releases_of_ledger(self._ledger, sizes):
            self.protects_devices |= release.kind == "central"
            if release.adjacency == "replace":
                self.adjacency = "replace"
            yield release

    @property
    def guaranteed(self) -> bool:
        """Whether noise is added; a ledger by itself is taken to be of such a run."""
        return not self._whole or self._placement().private

    @property
    def data(self) -> str | None:
        """What data the records are from; None where the ledger is all there is.

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
        found: str | None = self._summary.get("noise_key_id")
        return found

    def epsilon(self, observer: Observer, accountant: str | None = None, device: str | None = None) -> float | None:
        """What an observer holds about a device (default: the worst one); None where it received nothing private.

        Args:
            accountant: a name of `ACCOUNTANTS`; null is `accountant` of the run.
        """
        accountant = accountant or self.accountant
        asked = {"observer": (observer, self.accounts.observers), "accountant": (accountant, tuple(ACCOUNTANTS))}
        for key, (value, known) in asked.items():
            if value not in known:
                raise UserError(f'expected one of {", ".join(known)}, found "{value}"', key=key)
        if device is not None and device not in self.names:
            raise UserError(f'there is no device "{device}" in this run', key="device")
        held = [
            each.composition
            for each in self.accounts.classes(observer)
            if device is None or self.names.index(device) in each.devices
        ]
        return epsilons(accountant, held, self.delta)[1] if held else None

    def statement(self, accountants: Sequence[str] = ("rdp", "pld")) -> dict[str, Any]:
        """All observers and devices; see `privacy.statement`; and `notes` that belong to every number."""
        return {"notes": list(self.notes), **statement(self.accounts, self.names, self.delta, accountants)}


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
