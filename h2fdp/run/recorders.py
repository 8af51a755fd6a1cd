"""The recorders of a run, interval by interval: each sees a plan before it is run, and the interval's row after.

What they have recorded so far goes into checkpoints, and outlives the loop, so that a failure loses nothing.

Steps in between are announced to `listener`, so that a test can interrupt a run exactly at one.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor

from h2fdp.costs.kinds import counted_in
from h2fdp.privacy import Observer, Release
from h2fdp.protocol import Cloud, IntervalPlan
from h2fdp.records.checkpoint import save_checkpoint
from h2fdp.records.directory import RunDirectory
from h2fdp.records.json_lines import JsonLines, Mark
from h2fdp.records.log import about
from h2fdp.records.tables import MetricsRows, metrics_schema
from h2fdp.run.identity import Digest
from h2fdp.run.live_accounts import LiveAccounts, Row
from h2fdp.run.model_scores import columns_of_spread
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import RuntimeSection

Step = Literal[
    "prelude",  # rows of a statistic are in the ledger, and nothing was released of it
    "hosts up",  # nothing of this run is on disk but its inputs
    "released",  # the releases of the interval are on disk; the interval has not begun
    "ran",  # the interval has run; nothing is recorded of it but its releases
    "checkpoint",  # the metrics are written; their checkpoint is not
    "results",  # all intervals are done and the model is written; the devices' scores and the summary are not
]


listener: Callable[[Step, int], None] = lambda step, interval: None  # noqa: E731


def signal_step(step: Step, interval: int) -> None:
    """Announce a step; `interval` counts from 0 (for `checkpoint` and `results`: how many are done)."""
    listener(step, interval)


OnInterval = Callable[[Row], None]
_log = logging.getLogger(__name__)


class Recorder:
    """Follows a run. The methods do nothing by default."""

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        """Called when an interval is planned and has not begun.

        Raises:
            BudgetSpent: the interval must not begin.
        """

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """Called when the interval has run; `row` is its row of the metrics, to be completed or written."""

    def state(self) -> Any:
        """The state from which it continues, for a checkpoint: plain values and arrays."""

    def load(self, state: Any) -> None:
        """Continue from a `state`."""


@dataclass(frozen=True)
class Journal(Recorder):
    """The ledger of releases, and the controller's decisions: on disk, synced, before an interval begins."""

    ledger: JsonLines
    decisions: JsonLines
    powers: Callable[[IntervalPlan], Any]

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        self.ledger.append(release.as_row() for release in releases)
        if plan.decision.reasons is not None:
            powers = self.powers(plan)
            chosen = {} if powers is None else {"power_dbm": powers}
            self.decisions.append([dict(plan.decision.reasons) | chosen])

    def state(self) -> dict[str, Any]:
        """The marks to which both files reach."""
        return {"ledger": vars(self.ledger.mark()), "decisions": vars(self.decisions.mark())}


class Metrics(Recorder):
    """The rows of `metrics.parquet`, one for each interval that is done, with what all intervals so far cost, also each
    device (joules, (I,)); and the smallest and the largest standard deviation of each noise that was used."""

    def __init__(self, setup: RunSetup) -> None:
        measured = ["validation_"] if setup.data.validation is not None else []
        measured += [] if setup.drawn.replacing is None else filter(None, [setup.drawn.replacing.scored])
        measured += ["personal_"] if setup.personal else []
        others = columns_of_spread(setup.data.target.of_devices) if setup.config.training.evaluate_devices else ()
        others = (*others, *(each.column for each in counted_in(setup.topology)))
        by = None if setup.noise is None else setup.accountant
        schema = partial(metrics_schema, *measured, observers=setup.observers, others=others, accountant=by)
        self.rows = MetricsRows(schema(scores=setup.data.target.measured))
        self._setup = setup
        self.device_energy_j = np.zeros(setup.topology.devices)
        self._noises: dict[tuple[str, str], tuple[float, float]] = {}
        self._spent: dict[str, float] = {}

    def add_prelude(self, part: RunSetup, plan: IntervalPlan) -> None:
        """Add the costs of a statistic, which the first row has too."""
        self._spent = self._added(part, plan, self._spent)

    def _added(self, setup: RunSetup, plan: IntervalPlan, before: Mapping[str, float]) -> dict[str, float]:
        """The sums of costs after a plan; each device's are added up, too."""
        cost = setup.bill.of(plan)
        self.device_energy_j += cost.device_energy_j
        return {name: before.get(name, 0.0) + more for name, more in setup.bill.columns(plan, cost).items()}

    def before(self, plan: IntervalPlan, releases: Sequence[Release]) -> None:
        """Widen the ranges of noises; see `Recorder`."""
        if self._setup.noise is None:
            return
        for _, source, kind, levels in plan.noises(self._setup.noise, self._setup.blueprint.facts):
            if levels.size:
                low, high = self._noises.get((kind, source), (float("inf"), 0.0))
                self._noises[kind, source] = (min(low, float(levels.min())), max(high, float(levels.max())))

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """Add the sums of costs to the row, which is whole then; see `Recorder`."""
        row.update(self._added(self._setup, plan, self.rows[-1] if len(self.rows) else self._spent))
        self.rows.append(row)
        _log.debug("interval", extra=about(**row))

    @property
    def noises(self) -> list[dict[str, Any]]:
        """A row for each kind of noise and who adds it."""
        return [
            {"kind": kind, "added_by": source, "smallest": low, "largest": high}
            for (kind, source), (low, high) in sorted(self._noises.items())
        ]

    def state(self) -> dict[str, Any]:
        return {
            "rows": self.rows.state(),
            "noises": list(self._noises.items()),
            "device_energy_j": self.device_energy_j.copy(),
            "spent": self._spent,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.rows.load(state["rows"])
        self._noises = dict(state["noises"])
        self.device_energy_j[:] = np.asarray(state["device_energy_j"])
        self._spent = dict(state["spent"])


def never() -> bool:
    """Never stop."""
    return False


def nothing() -> None:
    """Do nothing."""
    return


def _no_row(row: Row) -> None:
    return


@dataclass(frozen=True)
class RunCallbacks(Recorder):
    """Functions from outside that a run calls, and that may stop it.

    Attributes:
        on_start: called when the hosts are up.
        on_interval: called with each row of the metrics.
        stop: asked before each interval; true ends the run cleanly.
    """

    on_start: Callable[[], None] = nothing
    on_interval: OnInterval = _no_row
    stop: Callable[[], bool] = never

    def after(self, plan: IntervalPlan, row: Row) -> None:
        self.on_interval(row)


@dataclass
class RunState:
    """A run so far.

    Attributes:
        accounts: the privacy accounts.
        metrics: a row for each interval that is done, and the noises that were used.
        nodes: what nodes had learned when the run was left, by their names; empty at the start.
        ledger: the ledger's rows of the intervals that are done; None where the whole file counts.
        decisions: likewise the controller's decisions; None where there are none.
        attempt: see `Streams`.
        fresh: the intervals, from 1, at which a run continued with fresh draws.
        wall_s: seconds that earlier parts of the run took.
        cloud: None until the hosts are up.
        journal: which writes the ledger; None until then, too.
        spent_by: the observer whose budget ended the run.
        called_off: by an exception of a callback.
        averages: (p,) of each statistic of the prelude that is released.
    """

    accounts: LiveAccounts
    metrics: Metrics
    nodes: dict[str, Any] = field(default_factory=dict)
    ledger: Mark | None = None
    decisions: Mark | None = None
    attempt: str = ""
    fresh: list[int] = field(default_factory=list)
    wall_s: float = 0.0
    cloud: Cloud | None = None
    journal: Journal | None = None
    spent_by: Observer | None = None
    called_off: bool = False
    averages: list[Tensor] = field(default_factory=list)

    @classmethod
    def begun(cls, setup: RunSetup) -> RunState:
        """The state before anything is done.

        Raises:
            UserError: a privacy budget that the first interval would exceed.
        """
        return cls(LiveAccounts(setup), Metrics(setup))

    @classmethod
    def restored(cls, setup: RunSetup, values: Mapping[str, Any], directory: RunDirectory) -> RunState:
        """The state when `values` were stored; the accounts come from the ledger itself."""
        state = cls.begun(setup)
        state.accounts.load(values["accounts"])
        state.metrics.load(values["metrics"])
        state.nodes = dict(values["nodes"])
        state.ledger = Mark(**values["ledger"])
        state.decisions = Mark(**values["decisions"])
        state.attempt, state.fresh, state.wall_s = values["attempt"], values["fresh"], values["wall_s"]
        state.averages = list(values["averages"])
        state.accounts.enter(releases_of_ledger(directory.ledger, setup.sizes, end=state.ledger.bytes))
        return state

    @property
    def rows(self) -> MetricsRows:
        """The rows of the metrics so far."""
        return self.metrics.rows

    def values(self, journal: Journal) -> dict[str, Any]:
        """The values for a checkpoint: plain values and tensors, nodes' state by their names."""
        assert self.cloud is not None, "a run is stored between two intervals"
        return {
            "intervals": len(self.rows),
            "metrics": self.metrics.state(),
            "accounts": self.accounts.state(),
            "attempt": self.attempt,
            "fresh": self.fresh,
            "wall_s": self.wall_s,
            "averages": self.averages,
            **journal.state(),
            "nodes": {"cloud": self.cloud.state()},
        }

    def enter_rest(self, setup: RunSetup, directory: RunDirectory) -> None:
        """Enter what the ledger holds beyond the intervals that are done. They were lost, yet their releases were made:
        a run that stops before it has repeated them states these too."""
        if self.journal is not None:
            begin = self.journal.ledger.mark().bytes
        elif self.ledger is not None:
            begin = self.ledger.bytes
        else:
            return  # nothing was released, or all of it is entered already
        self.accounts.enter_lost(releases_of_ledger(directory.ledger, setup.sizes, begin))

    def start(self, cloud: Cloud) -> Cloud:
        """The cloud as it was when the run was left."""
        if "cloud" in self.nodes:
            cloud.load(self.nodes["cloud"], afresh=self.ledger is None)
        self.nodes = {}
        self.cloud = cloud
        return cloud


_SECONDS = 60.0  # from one checkpoint to the next at most: what a lost run repeats


class Unrepeatable(Exception):
    """Intervals cannot be repeated: they would not come out the same, or did not. The message says why."""


class Checkpoints(Recorder):
    """Writes checkpoints every `checkpoint_every` intervals or 60 seconds, whichever comes first.

    Args:
        digest: of the environment (`run_digest`); a run that continues in an equal one repeats bits, in others it draws
            afresh.
        journal: whose marks go into a checkpoint.
        hosts_alike: whether the run's hosts compute as this machine does. Where they do not, it is unknown who computes
            what after a resume, so no later environment counts as equal.
        seconds: a clock.

    Raises:
        Unrepeatable: the run is to repeat intervals with the same draws, and its hosts differ.
    """

    def __init__(
        self,
        directory: RunDirectory,
        section: RuntimeSection,
        digest: Digest,
        state: RunState,
        journal: Journal,
        *,
        hosts_alike: bool = True,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._section = section
        self._digest = digest
        if not hosts_alike:
            digest["hardware"]["hosts"] = secrets.token_hex(16)
        self._state = state
        self._journal = journal
        self._seconds = seconds
        self._last = self._started = seconds()
        self._saved: int | None = None
        if not hosts_alike and state.ledger is not None:
            raise Unrepeatable("its hosts do not all compute like this process")

    def begin(self) -> None:
        """Write a checkpoint before the first interval of a run, or of its continuation with fresh draws: the names of
        its draws are on disk before they are used, and nothing can continue from earlier checkpoints."""
        self._write(alone=True)

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """Write a checkpoint if one is due; see `Recorder`."""
        late = self._seconds() - self._last >= _SECONDS
        if late or len(self._state.rows) % self._section.checkpoint_every == 0:
            self.save()

    def save(self) -> None:
        """Write one now, unless it is there."""
        if self._saved != len(self._state.rows):
            self._write(alone=False)

    def _write(self, *, alone: bool) -> None:
        now, done = self._seconds(), len(self._state.rows)
        values = self._state.values(self._journal) | {"digest": self._digest}
        values["wall_s"] += now - self._started
        self._state.rows.write(self._directory.metrics)
        signal_step("checkpoint", done)
        path = save_checkpoint(self._directory.checkpoints, done, values, alone=alone)
        self._last, self._saved = now, done
        _log.info("checkpoint", extra=about(interval=done, file=path.name, bytes=path.stat().st_size))
