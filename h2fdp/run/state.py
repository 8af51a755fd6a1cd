"""What a run has recorded so far: it outlives the loop, so that a failure loses nothing, and goes into checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from h2fdp.privacy import Observer
from h2fdp.protocol import Cloud
from h2fdp.records import Mark, MetricsRows, RunDirectory, metrics_schema
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.model_scores import score_prefixes
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.recorders import CostMeter, MetricsTable, NoiseRange, Recorder
from h2fdp.run.setup import RunSetup


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
        spent_by: the observer whose budget ended the run.
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
    spent_by: Observer | None = None

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
            table=MetricsTable(metrics_schema(*score_prefixes(setup))),
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

    def values(self, journal: Recorder) -> dict[str, Any]:
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

    def start(self, cloud: Cloud) -> Cloud:
        """The cloud as it was when the run was left."""
        if "cloud" in self.nodes:
            cloud.load(self.nodes["cloud"])
        self.nodes = {}
        self.cloud = cloud
        return cloud
