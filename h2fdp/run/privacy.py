"""Everything about privacy that a run directory says again from its ledger alone."""

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
    ReleaseKind,
    adjacency,
    noise_placement_of,
    observers,
)
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.adaptive_clipping import MOVES
from h2fdp.privacy.adjacency import Adjacency, Replaced
from h2fdp.privacy.ledger_rows import release_of
from h2fdp.privacy.statement import epsilons, statement
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
        accountant: what `epsilon` accounts by unless told otherwise: that by which the run's target is met
            (`privacy.accountant`; `rdp` where a privacy filter meets it); the default of that key for a ledger by
            itself.
    """

    def __init__(self, run: Path, delta: float | None = None) -> None:
        if not run.exists():
            raise UserError("no such run directory or ledger", str(run))
        self._ledger = run / "privacy.jsonl" if run.is_dir() else run
        if run.is_dir() and _leaks(run):
            raise UserError("this run leaks (control.estimates: oracle); no account covers it", str(run))
        if run.is_dir():
            check_lines(run / "config.yaml", run / "topology.yaml")
        self._run = run
        self._kinds: set[ReleaseKind] = set()
        self.adjacency: Adjacency = "null-record"
        self.delta = delta if delta is not None else _delta_of(run)
        self.accountant = _accountant_of(run)
        self.notes = _notes_of(run)
        topology = run / "topology.yaml"
        if run.is_dir() and topology.exists():
            drawn = read_topology(topology, seed=0)
            network = drawn.as_star() if _is_star(run) else drawn
            sizes = {subnet.name: subnet.size for subnet in network.subnets}
            self.accounts = Accounts(sizes, observers(network.depth))
            self.accounts.add(self._releases(sizes))
            self.names = [subnet.device_name(row) for subnet in network.subnets for row in range(subnet.size)]
        else:
            self.accounts = Accounts.of_ledger(self._releases(None))
            self.names = [f"{edge}/{row + 1}" for edge, size in self.accounts.sizes.items() for row in range(size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._run)!r}, delta={self.delta:g}, accountant={self.accountant!r})"

    def _releases(self, sizes: Mapping[str, int] | None) -> Iterator[Release]:
        for release in releases_of_ledger(self._ledger, sizes):
            self._kinds.add(release.kind)
            if isinstance(release, Replaced):
                self.adjacency = "replace"
            yield release

    @property
    def guaranteed(self) -> bool:
        """Whether anybody adds noise; a ledger by itself is taken to be of such a run."""
        return not self._run.is_dir() or _placement(self._run).private

    @property
    def protects_devices(self) -> bool:
        """Whether the accounts are about whole devices, not about single records."""
        return "central" in self._kinds

    @property
    def data(self) -> str | None:
        """What data the records are from; None where the ledger is all there is.

        Records that the seed draws are others under another seed.
        """
        if not self._run.is_dir():
            return None
        configuration = _configuration(self._run)
        section = configuration.get("data")
        if not isinstance(section, dict):
            return str(section)
        name = str(section.get("name"))
        if name == "synthetic":
            return json.dumps([section, configuration.get("seed")], sort_keys=True)
        return f"{name} {section['path']}" if "path" in section else name

    @property
    def records(self) -> tuple[Any, ...] | None:
        """Equal for runs in which every device, by its name, holds the same records; None where that is not known."""
        if not self._run.is_dir():
            return None
        configuration = _configuration(self._run)
        return json.dumps(configuration.get("data"), sort_keys=True), configuration.get("seed"), tuple(self.names)

    @property
    def noise_key(self) -> str | None:
        """Equal for runs that drew their noise by the same key; None where that is not known."""
        summary = (read_summary(self._run) or {}) if self._run.is_dir() else {}
        if summary.get("noise_key") == "seed":
            return f"seed {summary.get('seed')}"
        found: str | None = summary.get("noise_key_id")
        return found

    def epsilon(self, observer: Observer, accountant: str | None = None, device: str | None = None) -> float | None:
        """What an observer holds about a device (default: the worst one); None where it received nothing private.

        Args:
            accountant: a name of `ACCOUNTANTS`; null is `accountant` of the run.
        """
        accountant = accountant or self.accountant
        known = self.accounts.observers
        if observer not in known:
            raise UserError(f'expected one of {", ".join(known)}, found "{observer}"', key="observer")
        if accountant not in ACCOUNTANTS:
            raise UserError(f'expected one of {", ".join(ACCOUNTANTS)}, found "{accountant}"', key="accountant")
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
    if not config.is_file():
        raise UserError("expected a run directory with its config.yaml, or a ledger and its delta", str(run))
    values: dict[str, Any] = read_document(config).values()
    return values


def _leaks(run: Path) -> bool:
    """As the run says itself: a schedule may have had devices measure, whatever its configuration asked for."""
    summary = read_summary(run)
    return summary is not None and bool(summary.get("leaking"))


def _is_star(run: Path) -> bool:
    method = _configuration(run).get("method")
    return isinstance(method, dict) and method.get("topology") == "star"


def _notes_of(run: Path) -> tuple[str, ...]:
    """What must be said beside the accounts; of a ledger by itself, that how it came about is not known."""
    if not run.is_dir():
        return ("ledger: the conditions under which these numbers hold are stated in the run, not in its ledger",)
    placement, section = _placement(run), _configuration(run).get("privacy")
    by_seed = placement.private and isinstance(section, dict) and section.get("noise_key") == "seed"
    stated = section.get("adjacency") if placement.private and isinstance(section, dict) else None
    about = adjacency.NOTES.get(str(stated))
    model = _configuration(run).get("model")
    warm = placement.private and isinstance(model, dict) and model.get(FROM) is not None
    training = _configuration(run).get("training")
    data = _configuration(run).get("data")
    public = placement.private and isinstance(data, dict) and bool(data.get("public"))
    training = training if isinstance(training, dict) else {}
    early = placement.private and bool(training.get("until"))
    moves = placement.private and isinstance(training.get("clip_norm"), dict)
    summary = read_summary(run) or {}
    conditions = {
        BY_SEED: by_seed,
        DEVICES_TEST: placement.private and bool(summary.get("tested_on_devices")),
        FILTERED: placement.private and bool(summary.get("adaptive")),
        PUBLIC_RECORDS: public,
        WARM_STARTED: warm,
        UNTIL: early,
        MOVES: moves,
        str(about): about is not None,
    }
    return (*placement.notes, *(note for note, holds in conditions.items() if holds))


def _placement(run: Path) -> NoisePlacement:
    method = _configuration(run).get("method")
    if not isinstance(method, dict) or "privacy" not in method:
        raise UserError("there is no method.privacy in the run's config.yaml", str(run))
    return noise_placement_of(method["privacy"])


def _accountant_of(run: Path) -> str:
    summary = read_summary(run) if run.is_dir() else None
    if summary is not None and summary.get("accountant"):
        return str(summary["accountant"])
    section = _configuration(run).get("privacy") if run.is_dir() else None
    stated = section.get("accountant") if isinstance(section, dict) else None
    return str(stated or PrivacySection.model_fields["accountant"].default)


def _delta_of(run: Path) -> float:
    if not run.is_dir():
        raise UserError("the ledger alone does not state delta; add --delta", str(run))
    section = _configuration(run).get("privacy")
    delta = section.get("delta") if isinstance(section, dict) else None
    if not isinstance(delta, float) or not 0 < delta < 1:
        raise UserError("there is no privacy.delta in the run's config.yaml; add --delta", str(run))
    return delta
