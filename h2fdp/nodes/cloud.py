"""The cloud: plans an interval, has the subnets run it, averages what comes up (14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from h2fdp.control import Decision, Rhythm, Schedule, draw_participants
from h2fdp.nodes.edge_server import weighted_sum
from h2fdp.nodes.plans import SubnetPlan
from h2fdp.nodes.team import Team
from h2fdp.privacy import NoiseLevels, NoiseSource, Release, Sampling, SubnetReleases, releases_of
from h2fdp.streams import Streams

Weighting = Literal["uniform", "by-size"]


@dataclass(frozen=True)
class SubnetFacts:
    """What is public about a subnet: the cloud plans with it.

    Attributes:
        records: (s_c,) D_i.
        sampling_rates: (s_c,) q_i.
        sampling: how batches are drawn.
        edge_is_cloud: the edge server is the cloud's own (a star).
    """

    name: str
    noise_source: NoiseSource
    records: np.ndarray
    sampling_rates: np.ndarray
    sampling: Sampling
    edge_is_cloud: bool = False

    def weights(self, rows: np.ndarray, weighting: Weighting) -> np.ndarray:
        """rho_j of these devices: equal, or proportional to D_j; they sum to 1."""
        counts = self.records[rows] if weighting == "by-size" else np.ones(len(rows))
        return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class IntervalPlan:
    """One interval of the whole network; `subnets` and `weights` (varrho_c, summing to 1) in the order of the tree."""

    interval: int
    first_slot: int
    decision: Decision
    subnets: dict[str, SubnetPlan]
    weights: np.ndarray

    @property
    def participants(self) -> int:
        """Devices that take part."""
        return sum(len(plan.rows) for plan in self.subnets.values())

    @property
    def last_slot(self) -> int:
        """t_{k+1}."""
        return self.first_slot + self.decision.local_steps


class Cloud:
    """Holds the global model w and the clock t_k.

    One interval, in order:
    1. `plan`: the schedule decides tau_k, eta_k and s_c^k; participants are drawn; noises follow from the plan.
    2. `releases`: what every observer will receive, for the ledger, before anything is sent.
    3. `run_interval`: w(t_k) goes down to the subnets with active devices, their uploads come back.
    4. w(t_{k+1}) = w(t_k) - sum_c varrho_c upload_c.
    """

    def __init__(
        self,
        model: Tensor,
        streams: Streams,
        facts: list[SubnetFacts],
        edges: Team,
        schedule: Schedule,
        rhythm: Rhythm,
        noise: NoiseLevels | None,
        weighting: Weighting,
    ) -> None:
        self.model = model
        self.next_slot = 0
        self._streams = streams
        self._facts = {subnet.name: subnet for subnet in facts}
        self._edges = edges
        self._schedule = schedule
        self._rhythm = rhythm
        self._noise = noise
        self._weighting: Weighting = weighting

    def plan(self, interval: int) -> IntervalPlan:
        """The plan of interval k, counted from 0."""
        decision = self._schedule.decide(interval)
        segments = self._rhythm.segments(decision.local_steps)
        subnets, mass = {}, []
        for facts, count in zip(self._facts.values(), decision.participation.tolist(), strict=True):
            if count == 0:  # a subnet without active devices contributes nothing; the others' weights renormalise
                continue
            rows = draw_participants(self._streams, facts.name, interval, len(facts.records), count)
            subnets[facts.name] = self._subnet_plan(facts, interval, segments, decision.step_size, rows)
            mass.append(float(facts.records[rows].sum()) if self._weighting == "by-size" else 1.0)
        return IntervalPlan(interval, self.next_slot, decision, subnets, np.array(mass) / (sum(mass) or 1.0))

    def _subnet_plan(
        self, facts: SubnetFacts, interval: int, segments: tuple[int, ...], step_size: float, rows: np.ndarray
    ) -> SubnetPlan:
        weights = facts.weights(rows, self._weighting)
        noise_std = np.empty((len(segments), 0))
        if self._noise is not None:
            noise_std = self._noise.of_subnet(
                facts.noise_source, segments, step_size, weights, facts.sampling_rates[rows]
            )
        return SubnetPlan(interval, self.next_slot, segments, step_size, rows, weights, noise_std)

    def releases(self, plan: IntervalPlan) -> Iterator[Release]:
        """Every release of the interval, as each observer sees it: the ledger's rows."""
        if self._noise is None:
            return
        for name, subnet in plan.subnets.items():
            facts = self._facts[name]
            for segment, (steps, end) in enumerate(zip(subnet.segments, subnet.ends(), strict=True)):
                yield from releases_of(
                    SubnetReleases(
                        interval=plan.interval + 1,
                        slot=end,
                        kind=subnet.kind(segment),
                        edge=name,
                        source=facts.noise_source,
                        steps=steps,
                        step_size=subnet.step_size,
                        clip_norm=self._noise.clip_norm,
                        rows=subnet.rows,
                        weights=subnet.weights,
                        sampling_rates=facts.sampling_rates[subnet.rows],
                        noise_std=subnet.noise_std[segment],
                        size=len(facts.records),
                        sampling=facts.sampling,
                        edge_is_cloud=facts.edge_is_cloud,
                    )
                )

    def skip(self, plan: IntervalPlan) -> None:
        """Let the interval pass without running it, to plan the ones after it."""
        self.next_slot = plan.last_slot

    def run_interval(self, plan: IntervalPlan) -> None:
        """Run a plan: the model goes down, uploads come up, the model moves."""
        if plan.subnets:
            uploads = self._edges.call("run_interval", self.model, plan.subnets)
            self.model = self.model - weighted_sum([uploads[name] for name in plan.subnets], plan.weights)
        self.next_slot = plan.last_slot
