"""What a run has recorded so far: it outlives the loop, so that a failure loses nothing, and goes into checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from h2fdp.privacy import Mechanism, NoiseSource, Observer, ReleaseKind
from h2fdp.protocol import Cloud, IntervalPlan
from h2fdp.records import Mark, MetricsRows, RunDirectory, metrics_schema
from h2fdp.run.costs import CostMeter
from h2fdp.run.live_accounts import PrivacyWatch
from h2fdp.run.model_scores import score_prefixes
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.run.setup import RunSetup


@dataclass
class Progress:
    """A run so far.

    Attributes:
        watch: the privacy accounts.
        costs: energy, delay, simulated time.
        rows: of the metrics table, one for each interval that is done.
        noise: (kind, who adds it) -> smallest and largest standard deviation used.
        nodes: what nodes had learned when the run was left, by their names; empty at the start.
        ledger: the ledger's rows of the intervals that are done; None where the whole file counts.
        decisions: likewise the controller's decisions; None where there are none.
        attempt: see `Streams`.
        fresh: the intervals, from 1, at which a run went on with fresh draws.
        wall_s: seconds that earlier parts of the run took.
        cloud: None until the hosts are up.
        spent_by: the observer whose budget ended the run.
    """

    watch: PrivacyWatch
    costs: CostMeter
    rows: MetricsRows
    noise: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    nodes: dict[str, Any] = field(default_factory=dict)
    ledger: Mark | None = None
    decisions: Mark | None = None
    attempt: str = ""
    fresh: list[int] = field(default_factory=list)
    wall_s: float = 0.0
    cloud: Cloud | None = None
    spent_by: Observer | None = None
    directory_made: bool = False

    @classmethod
    def begun(cls, run: RunSetup) -> Progress:
        """Nothing is done yet."""
        rows = MetricsRows(metrics_schema(*score_prefixes(run)))
        return cls(PrivacyWatch(run), CostMeter(run.topology, run.costs), rows)

    @classmethod
    def restored(cls, run: RunSetup, values: Mapping[str, Any], directory: RunDirectory) -> Progress:
        """As it was when `values` were stored; the accounts come from the ledger itself."""
        progress = cls.begun(run)
        progress.rows.load(values["rows"])
        progress.noise = {(kind, source): (low, high) for kind, source, low, high in values["noise"]}
        progress.nodes = dict(values["nodes"])
        progress.ledger = Mark(**values["ledger"])
        progress.decisions = Mark(**values["decisions"])
        progress.attempt, progress.fresh, progress.wall_s = values["attempt"], values["fresh"], values["wall_s"]
        progress.costs.load(values["costs"])
        before = releases_of_ledger(directory.ledger, run.sizes, end=progress.ledger.bytes)
        progress.watch.load(values["watch"], before)
        return progress

    def values(self, ledger: Mark, decisions: Mark) -> dict[str, Any]:
        """For a checkpoint: plain values and tensors, nodes' state by their names."""
        assert self.cloud is not None, "a run is stored between two intervals"
        return {
            "intervals": len(self.rows),
            "rows": self.rows.state(),
            "noise": [(kind, source, low, high) for (kind, source), (low, high) in self.noise.items()],
            "nodes": {"cloud": self.cloud.state()},
            "ledger": vars(ledger),
            "decisions": vars(decisions),
            "attempt": self.attempt,
            "fresh": self.fresh,
            "wall_s": self.wall_s,
            "costs": self.costs.columns(),
            "watch": self.watch.state(),
        }

    def start(self, cloud: Cloud) -> Cloud:
        """The cloud as it was when the run was left."""
        if "cloud" in self.nodes:
            cloud.load(self.nodes["cloud"])
        self.nodes = {}
        self.cloud = cloud
        return cloud

    def note_noise(self, mechanism: Mechanism, sources: Mapping[str, NoiseSource], plan: IntervalPlan) -> None:
        """Keep the smallest and the largest of each noise."""
        for name, subnet in plan.subnets.items():
            for segment in range(len(subnet.segments)):
                self._note(mechanism.kind(subnet.kind(segment)), sources[name], subnet.aggregation(segment).noise_std)
        if plan.noise_std:
            self._note(mechanism.kind("global"), "cloud", np.array([plan.noise_std]))

    def _note(self, kind: ReleaseKind, source: NoiseSource, levels: np.ndarray) -> None:
        if levels.size:
            low, high = self.noise.get((kind, source), (float("inf"), 0.0))
            self.noise[kind, source] = (min(low, float(levels.min())), max(high, float(levels.max())))
