"""One interval of the whole network as the cloud plans it, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from h2fdp.costs.batteries import Charge
from h2fdp.costs.interval_cost import IntervalCost, interval_cost, with_waiting
from h2fdp.costs.kinds import counted_in
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import ExchangeSizes, Tasks
from h2fdp.network import CLOUD, Topology
from h2fdp.network.devices import Floats
from h2fdp.privacy import AggregationKind, Mechanism, Merged
from h2fdp.privacy.mechanisms.secret_draws import SecretDraw
from h2fdp.privacy.places import NoiseSource, ReleaseKind
from h2fdp.privacy.views import Past
from h2fdp.protocol.averaging import Branch
from h2fdp.protocol.messages import Plan
from h2fdp.protocol.subnet_facts import SubnetFacts
from h2fdp.protocol.tiers import Part, noises
from h2fdp.schedules import AggregationTimes, Decision
from h2fdp.streams import Streams


@dataclass(frozen=True)
class IntervalPlan:
    """One interval of the whole network, in the order of the tree.

    Attributes:
        subnets: those that upload anything.
        shares: their varrho_c, by the devices of which anything arrives, summing to 1.
        weights: of their own averages in the global one.
        branches: the cloud's children of which anything arrives; None in a network of one tier, where these are the
            subnets.
        vectors: subnet -> segment -> the vectors above its average, in a network of more tiers or where the
            cloud sees a secure sum; empty elsewhere.
        heights: (segments,) of the aggregation that ends each segment, the cloud's being the largest.
        lost: those whose devices all dropped out before an upload; they cost energy and give nothing.
        noise_std: of the cloud's own noise on the average of the uploads; 0 for none.
        past: of subnets before the interval, by edge server, where the law of the noise has any.
        began_s: the moment of the simulated clock at which it begins.
        charge: of batteries after it; None where devices have none.
        charged: what the interval's rows in the ledger are about instead of its own uploads, see `Arrivals`; None: its
            own.
    """

    interval: int
    first_slot: int
    decision: Decision
    subnets: dict[str, Plan]
    shares: np.ndarray
    weights: np.ndarray
    lost: dict[str, Plan] = field(default_factory=dict)
    noise_std: float = 0.0
    branches: Mapping[str, Branch] | None = None
    vectors: Mapping[str, Mapping[int, tuple[Merged, ...]]] = field(default_factory=dict)
    heights: tuple[int, ...] = ()
    charged: tuple[IntervalPlan, ...] | None = None
    past: Mapping[str, Past] = field(default_factory=dict)
    began_s: float = 0.0
    charge: Charge | None = None

    @cached_property
    def classes(self) -> list[int]:
        """(N,) the class of each subnet: those that look alike, and meet no faults, are one, with one `Plan`."""
        numbers: dict[int, int] = {}
        return [numbers.setdefault(id(plan), len(numbers)) for plan in self.subnets.values()]

    @property
    def parts(self) -> Mapping[str, Part]:
        """The plan of each of the cloud's children."""
        if self.branches is None:
            return self.subnets
        return {name: each.part for name, each in self.branches.items()}

    @property
    def branch_weights(self) -> np.ndarray:
        """(n,) of the cloud's children in its average."""
        return self.weights if self.branches is None else np.array([each.weight for each in self.branches.values()])

    @property
    def upper_noises(self) -> Iterator[tuple[str, AggregationKind, float]]:
        """Aggregator, kind of aggregation and level of every noise that is added above edge servers."""
        for name, part in self.parts.items():
            yield from noises(name, part)

    def noises(
        self, noise: Mechanism, subnets: Iterable[SubnetFacts]
    ) -> Iterator[tuple[str, NoiseSource, ReleaseKind, Floats]]:
        """The noises: for each, whose average it is on, who adds it, the kind of release, (n,) all its levels above 0
        (a level is 0 where a node further up adds it)."""
        sources = {facts.name: facts.adds_noise for facts in subnets}
        for name, part in self.subnets.items():
            for phase in part.aggregations():
                yield name, sources[name], noise.kind(phase.segment.kind), phase.levels[phase.levels > 0]
        for name, kind, level in self.upper_noises:
            yield name, "edge", noise.kind(kind), np.array([level])
        if self.noise_std:
            yield CLOUD, "cloud", noise.kind("global"), np.array([self.noise_std])

    @property
    def participants(self) -> int:
        """Devices of which anything arrives."""
        return sum(len(plan.tasks.arriving) for plan in self.subnets.values())

    @property
    def device_steps(self) -> int:
        """Local steps of all devices, done in vain or not."""
        return sum(int(plan.tasks.computed.sum()) for plan in (*self.subnets.values(), *self.lost.values()))

    @property
    def last_slot(self) -> int:
        """t_{k+1}."""
        return self.first_slot + self.decision.local_steps


@dataclass(frozen=True, eq=False)
class PlanCosts:
    """The costs of planned intervals, each under the fading that it draws (H2FDP, Sec. 11).

    Attributes:
        network: that is simulated.
        costs: of messages on its links.
        times: of local aggregations.
        exchanges: of devices under edge servers that hold secure sums; None without such sums.
        summing: the aggregators above edge servers that hold secure sums; None stands for the cloud.
        draw: by which devices take part, where that is secret, by these `streams`.
    """

    network: Topology
    costs: NetworkCosts
    times: AggregationTimes
    exchanges: ExchangeSizes | None
    summing: Sequence[str | None]
    draw: SecretDraw | None = None
    streams: Streams | None = None

    def columns(self, plan: IntervalPlan, cost: IntervalCost | None = None) -> dict[str, float]:
        """The costs by columns of the metrics; the clock (seconds) also advances by the interval's slots when no
        device takes part.

        Args:
            cost: `of` the plan, where the caller has it.
        """
        cost = self.of(plan) if cost is None else cost
        slots = plan.decision.local_steps * float(np.min(self.costs.step.seconds))
        clock_s = plan.decision.clock_s if plan.decision.clock_s is not None else max(cost.clock_s, slots)
        at = self.network, plan.began_s
        found = {each.column: each.of_interval(cost, *at) for each in counted_in(self.network)} | {"clock_s": clock_s}
        more = self._of_moves(plan.interval)
        return {column: value + more.get(column, 0.0) for column, value in found.items()}

    def _of_moves(self, interval: int) -> dict[str, float]:
        """The costs of edge servers before an interval for devices that leave them, see `Membership.costs`."""
        membership = self.network.membership
        return (
            {} if membership is None else membership.costs(interval, self.network.table.home, self.costs.message_bits)
        )

    def of(self, plan: IntervalPlan) -> IntervalCost:
        """All but those of moves, by device and subnet."""
        costs = self.costs.drawn(plan.interval)
        arrivals = plan.decision.arrivals
        cost = interval_cost(
            costs,
            self.network,
            {self._numbers[name]: tasks for name, tasks in self._tasks(plan).items()},
            plan.heights or None,
            self.exchanges,
            self.summing,
            plan.began_s + self._of_moves(plan.interval).get("clock_s", 0.0),
            None if arrivals is None else arrivals.ways_s,
        )
        if arrivals is None or not arrivals.waiting:
            return cost
        uploads, steps = np.zeros(self.network.devices), np.zeros(self.network.devices)
        for number, rows in arrivals.waiting.items():
            at = int(self.network.firsts[number]) + np.array(list(rows))
            name = self.network.subnets[number].name
            uploads[at] = list(rows.values())
            steps[at] = uploads[at] * self.times.of(name).segments(plan.decision.local_steps)[0]
        return with_waiting(cost, costs, self.network, uploads, steps)

    def _tasks(self, plan: IntervalPlan) -> dict[str, Tasks]:
        """The tasks of each subnet's devices: by the plan, or of those who came."""
        planned, draw, streams = {**plan.subnets, **plan.lost}, self.draw, self.streams
        if draw is None or streams is None:
            return {name: each.tasks for name, each in planned.items()}
        came = {name: draw.came(streams, name, plan.interval, each.rows) for name, each in planned.items()}
        return {name: each.tasks.drawn(came[name], draw.cover) for name, each in planned.items()}

    def participants(self, plan: IntervalPlan) -> int:
        """Devices that compute anything that arrives."""
        tasks = self._tasks(plan).values()
        return sum(int((each.uploads.any(axis=0) & (each.computed > 0)).sum()) for each in tasks)

    def powers(self, plan: IntervalPlan) -> dict[str, float] | None:
        """The powers in dBm at which the devices of an interval send: lowest, mean and highest.

        None where no device chooses, or none takes part.
        """
        parts = plan.subnets | plan.lost
        if not self.costs.chooses_power or not any(len(subnet.rows) for subnet in parts.values()):
            return None
        rows = [self.network.firsts[self._numbers[name]] + subnet.rows for name, subnet in parts.items()]
        return range_of(self.costs.drawn(plan.interval).power_dbm[np.concatenate(rows)])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {subnet.name: number for number, subnet in enumerate(self.network.subnets)}


def range_of(power_dbm: Floats) -> dict[str, float]:
    """The ends of (n,) powers: the least, their mean (of decibels) and the most."""
    return {"least": float(power_dbm.min()), "mean": float(power_dbm.mean()), "most": float(power_dbm.max())}
