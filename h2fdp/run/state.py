"""What a run has recorded so far, and when it is written to a checkpoint.

The state outlives the loop, so that a failure loses nothing.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from h2fdp.privacy import Observer
from h2fdp.protocol import Cloud, IntervalPlan
from h2fdp.records import Mark, MetricsRows, RunDirectory, about
from h2fdp.records.checkpoint import save_checkpoint
from h2fdp.run import steps
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.recorders import CostMeter, Journal, MetricsTable, NoiseRange, Recorder, Row
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import RuntimeSection

_log = logging.getLogger(__name__)


@dataclass
class RunState:
    """A run so far.

    Attributes:
        accounts: the privacy accounts.
        noise: the noises that were used.
        costs: energy, delay, simulated time.
        table: of metrics, a row for each interval that is done.
        nodes: what nodes had learned when the run was left, by their names; empty at the start.
        ledger: the ledger's rows of the intervals that are done; None where the whole file counts.
        decisions: likewise the controller's decisions; None where there are none.
        attempt: see `Streams`.
        fresh: the intervals, from 1, at which a run continued with fresh draws.
        wall_s: seconds that earlier parts of the run took.
        cloud: None until the hosts are up.
        journal: which writes the ledger; None until then, too.
        spent_by: the observer whose budget ended the run.
        called_off: by an exception of whoever watches the run.
    """

    accounts: LiveAccounts
    noise: NoiseRange
    costs: CostMeter
    table: MetricsTable
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

    @classmethod
    def begun(cls, setup: RunSetup) -> RunState:
        """Nothing is done yet.

        Raises:
            UserError: a privacy budget that the first interval would exceed.
        """
        return cls(
            accounts=LiveAccounts(setup),
            noise=NoiseRange(setup),
            costs=CostMeter(setup),
            table=MetricsTable(setup),
        )

    @classmethod
    def restored(cls, setup: RunSetup, values: Mapping[str, Any], directory: RunDirectory) -> RunState:
        """As it was when `values` were stored; the accounts come from the ledger itself."""
        state = cls.begun(setup)
        for name, recorder in state._recorders.items():
            recorder.load(values[name])
        state.nodes = dict(values["nodes"])
        state.ledger = Mark(**values["ledger"])
        state.decisions = Mark(**values["decisions"])
        state.attempt, state.fresh, state.wall_s = values["attempt"], values["fresh"], values["wall_s"]
        state.accounts.enter(releases_of_ledger(directory.ledger, setup.sizes, end=state.ledger.bytes))
        return state

    @property
    def _recorders(self) -> dict[str, Recorder]:
        """Those whose state goes into checkpoints, by their keys there."""
        return {"watch": self.accounts, "noise": self.noise, "costs": self.costs, "rows": self.table}

    @property
    def rows(self) -> MetricsRows:
        """The rows of the metrics so far."""
        return self.table.rows

    def values(self, journal: Journal) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors, nodes' state by their names."""
        assert self.cloud is not None, "a run is stored between two intervals"
        return {
            "intervals": len(self.rows),
            "nodes": {"cloud": self.cloud.state()},
            "attempt": self.attempt,
            "fresh": self.fresh,
            "wall_s": self.wall_s,
            **journal.state(),
            **{name: recorder.state() for name, recorder in self._recorders.items()},
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
            cloud.load(self.nodes["cloud"])
        self.nodes = {}
        self.cloud = cloud
        return cloud


_SECONDS = 60.0  # from one checkpoint to the next at most: what a lost run repeats


class HostsDiffer(Exception):
    """Intervals cannot be repeated on these hosts: they would not come out the same."""


class Checkpoints(Recorder):
    """Writes checkpoints every `checkpoint_every` intervals or 60 seconds, whichever comes first.

    Args:
        digest: of the environment (`run_digest`); a run that continues in an equal one repeats bits, in others it draws
            afresh.
        journal: whose marks go into a checkpoint.
        hosts_alike: whether the run's hosts compute as this machine does. Where they do not, nobody knows who computes
            what after a resume, so no later environment counts as equal.
        seconds: a clock.

    Raises:
        HostsDiffer: the run is to repeat intervals with the same draws, and its hosts differ.
    """

    def __init__(
        self,
        directory: RunDirectory,
        section: RuntimeSection,
        digest: dict[str, str],
        state: RunState,
        journal: Journal,
        *,
        hosts_alike: bool = True,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._section = section
        self._digest = digest if hosts_alike else digest | {"hardware": secrets.token_hex(16)}
        self._state = state
        self._journal = journal
        self._seconds = seconds
        self._last = self._started = seconds()
        self._saved: int | None = None
        if not hosts_alike and state.ledger is not None:
            raise HostsDiffer

    def begin(self) -> None:
        """Before the first interval of a run, or of its continuation with fresh draws: what it draws from here on is
        on disk before it is used, and nothing can continue from what was before."""
        self._write(alone=True)

    def after(self, plan: IntervalPlan, row: Row) -> None:
        """See `Recorder`; writes a checkpoint if one is due."""
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
        steps.reached("checkpoint", done)
        path = save_checkpoint(self._directory.checkpoints, done, values, alone=alone)
        self._last, self._saved = now, done
        _log.info("checkpoint", extra=about(interval=done, file=path.name, bytes=path.stat().st_size))
