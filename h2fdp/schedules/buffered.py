"""`buffered`: aggregators average what has arrived, after K uploads or at a deadline, instead of waiting for all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from h2fdp.config.fields import Count, Expect, Positive, Section
from h2fdp.config.named_options import name_method
from h2fdp.errors import EXPERIMENT_REFUSALS, NETWORK_REFUSALS, UserError, refused
from h2fdp.network import Topology
from h2fdp.network.devices import Floats
from h2fdp.schedules.aggregation_times import decayed
from h2fdp.schedules.event_queue import Buffer, Durations, EventQueue
from h2fdp.schedules.fixed import FixedSchedule
from h2fdp.schedules.schedule import Arrivals, Backlog, Decision, Schedule
from h2fdp.schedules.traits import SCHEDULES, ScheduleContext, ScheduleOptions

_MOST_AHEAD = 100_000  # rounds of the cloud that are played before they are due
Deadline = float | Literal["median"]
Power = Annotated[float, Field(ge=0, le=10), Expect("a number from 0 to 10")]


class BufferedSchedule(Schedule):
    """Round k has what arrives for the k-th average of the cloud; who arrives when follows from public speeds.

    So a checkpoint has no state of it: the events up to a round are played again where it is asked for.
    """

    def __init__(self, context: ScheduleContext, options: BufferedOptions) -> None:
        self._context, self._options = context, options
        self._begin()

    def _begin(self) -> None:
        self._rounds, self._round, self._began_s = _Rounds(self._context, self._options), 0, 0.0
        self._found = self._rounds.next()

    def _arrivals(self, interval: int) -> Arrivals:
        if interval < self._round:
            self._begin()
        while self._round < interval:
            self._round, self._began_s = self._round + 1, self._found.at_s
            self._found = self._rounds.next()
        return self._found

    def decide(self, interval: int, slot: int) -> Decision:
        """The decision for an interval: which devices arrive, and which releases are accounted for."""
        context, arrivals = self._context, self._arrivals(interval)
        counts = np.zeros(len(context.sizes), dtype=np.int64)
        for number, each in arrivals.backlogs.items():
            counts[number] = len(each.rows)
        return Decision(
            context.local_steps,
            _step_size(context, interval),
            counts,
            arrivals=arrivals,
            clock_s=arrivals.at_s - self._began_s,
        )


class _Rounds:
    """The rounds of a run, one after another, with the backlogs that each accounts for.

    What a device has sent to its edge server is seen there, whether or not the cloud ever averages it. So a backlog is
    accounted for when it begins, and the next one, too, where it will have uploads of devices that began before:
    they may be with the edge server already.
    """

    def __init__(self, context: ScheduleContext, options: BufferedOptions) -> None:
        self._context, self._power = context, options.staleness_power
        self._queue, self._pulled = _queue(context, options), 0
        self._waiting: deque[Arrivals] = deque()  # rounds to come
        self._coming: list[deque[Backlog]] = [deque() for _ in context.sizes]  # of each subnet, from the current one on
        self._accounted = [0] * len(self._coming)  # how many of these are
        self._begun = list(range(len(self._coming)))  # subnets that begin a backlog with the next round

    def next(self) -> Arrivals:
        """The next round."""
        charged: tuple[dict[int, Backlog], dict[int, Backlog]] = ({}, {})
        for number in self._begun:
            wanted = 2 if self._backlog(number, 0).kept else 1
            for at in range(self._accounted[number], wanted):
                charged[at][number] = self._backlog(number, at)
            self._accounted[number] = max(wanted, self._accounted[number])
        if not self._waiting:
            self._pull()
        arrivals = self._waiting.popleft()
        self._begun = list(arrivals.backlogs)
        for number in self._begun:
            self._coming[number].popleft()
            self._accounted[number] -= 1
        return replace(arrivals, charged=tuple(each for each in charged if each))

    def _backlog(self, number: int, at: int) -> Backlog:
        while len(self._coming[number]) <= at:
            self._pull()
        return self._coming[number][at]

    def _pull(self) -> None:
        arrivals, power = next(self._queue), self._power
        if len(self._waiting) >= _MOST_AHEAD:
            text = f"an edge server uploads less than once in {_MOST_AHEAD:,} averages of the cloud"
            raise UserError(f"{text}; expected a larger buffer, or null", key="method.schedule.buffer.cloud")
        weighed = {
            number: replace(
                each,
                weights=(1.0 + each.staleness) ** -power,
                weight=float((1 + self._pulled - each.version) ** -power),
                step_size=_step_size(self._context, each.version),
            )
            for number, each in arrivals.backlogs.items()
        }
        for number, each in weighed.items():
            self._coming[number].append(each)
        self._waiting.append(replace(arrivals, backlogs=weighed))
        self._pulled += 1


def _step_size(context: ScheduleContext, version: int) -> float:
    """The size of local steps from the cloud's model of this number; beyond the last round that of the last."""
    return decayed(context.step_size, context.step_decay, min(version, context.intervals - 1), context.intervals)


@dataclass
class _Speeds:
    """The durations of what begins while the cloud has one model, under the fading of that round.

    Attributes:
        steps: (I,) of an upload.
        sharing: (I,) devices of each one's access point.
    """

    context: ScheduleContext
    steps: np.ndarray
    sharing: np.ndarray
    version: int = -1
    known: Durations | None = None

    def __call__(self, version: int) -> Durations:
        if self.known is None or version != self.version:
            self.version, self.known = version, self.of(version, self.context.costs.links.steady)
        return self.known

    def of(self, version: int, links: Floats) -> Durations:
        """The durations under (P,) these seconds over the link of each access point."""
        costs, network = self.context.costs.drawn(version), self.context.topology
        in_star = network.subnets[0].relays is not None
        relay = links[network.table.point] if in_star else costs.relay_seconds
        return Durations(
            task=costs.down_seconds + relay + self.steps * costs.step.seconds,
            upload=network.radio.part_seconds(costs.seconds, costs.snr, self.sharing),
            relay=relay,
            link=costs.link_seconds if in_star else links,
        )


def _queue(context: ScheduleContext, options: BufferedOptions) -> EventQueue:
    """The events of a run."""
    network, steps = context.topology, context.local_steps
    segments = [context.aggregation_times.of(each.name).segments(steps) for each in network.subnets]
    for subnet, each in zip(network.subnets, segments, strict=True):
        if len(set(each)) > 1:
            text = f"the uploads of {subnet.name} would have {', '.join(map(str, each))} local steps"
            raise UserError(f"{text}; expected aggregations that divide local_steps equally", key="training")
    points = network.access_points[1]
    speeds = _Speeds(context, np.repeat([each[0] for each in segments], context.sizes), np.repeat(points, points))
    links, in_star = context.costs.links, network.subnets[0].relays is not None
    devices = options.buffer.cloud if in_star else options.buffer.edge
    averages = np.array([len(each) for each in segments])
    at_edges, at_cloud = _deadlines(options.deadline_s, speeds.of(0, links.seconds), context.sizes, averages)
    edges = [_buffer(devices, *each) for each in zip(at_edges, context.sizes.tolist(), strict=True)]
    cloud = Buffer(1) if in_star else _buffer(options.buffer.cloud, at_cloud, network.edges)
    return EventQueue(
        sizes=context.sizes,
        points=np.asarray(network.table.point),
        averages=averages.tolist(),
        edges=edges,
        cloud=cloud,
        queues=network.radio.queues,
        durations=speeds,
        **({"relay" if in_star else "link": links.more} if links.wait else {}),
    )


def _deadlines(
    stated: Deadline | None, first: Durations, sizes: np.ndarray, averages: np.ndarray
) -> tuple[list[float | None], float | None]:
    """The deadlines of each edge server, and of the cloud.

    Args:
        first: of the first round.
        averages: (N,) of an edge server before it uploads.
    """
    if stated != "median":
        return [stated] * len(sizes), stated
    of_devices = np.split(first.task + first.upload + first.relay, np.cumsum(sizes)[:-1])
    at_edges = np.array([np.median(each) for each in of_devices])
    return at_edges.tolist(), float(np.median(averages * at_edges + 2 * first.link))


def _buffer(uploads: int | None, deadline_s: float | None, children: int) -> Buffer:
    return Buffer(children if uploads is None else min(uploads, children), deadline_s)


class Buffers(Section):
    """K, the uploads that an aggregator averages at once; null waits for all that are below it.

    Attributes:
        edge: uploads of devices, at an edge server.
        cloud: uploads of edge servers at the cloud, or of devices in a star.
    """

    edge: Count | None = None
    cloud: Count | None = None


@SCHEDULES.register
class BufferedOptions(ScheduleOptions):
    """Aggregators average the uploads that have arrived, and go on.

    An edge server makes as many averages as a synchronous one, then uploads to the cloud; `training.intervals` counts
    averages of the cloud. The average of the cloud times a number, FedAsync's mixing, is `server: {name: momentum,
    beta1: 0, server_step: 0.6}`.

    Attributes:
        buffer: how many uploads are averaged.
        deadline_s: seconds after its last average at which an aggregator averages at the latest, if an upload has
            arrived. `median`: when half of its children could have uploaded, by their speeds in the first round.
        staleness_power: a: an upload from a model that is tau averages old has the weight (1 + tau)^-a.
    """

    name: Literal["buffered"] = "buffered"
    buffer: Buffers = Buffers()
    deadline_s: Annotated[Positive | Literal["median"], Expect("seconds above 0, or median")] | None = None
    staleness_power: Power = 0.5
    foreseen: ClassVar[bool] = True
    reads_releases: ClassVar[bool] = False

    @property
    def buffers(self) -> bool:
        """Whether any aggregator goes on without some of its children."""
        return self.deadline_s is not None or self.buffer != Buffers()

    @property
    def variant(self) -> str:
        """The uploads that each aggregator waits for, and its deadline, in words."""
        waits = [f"{node} {uploads}" for node, uploads in vars(self.buffer).items() if uploads is not None]
        if (deadline := self.deadline_s) is not None:
            waits.append("deadline median" if deadline == "median" else f"deadline {deadline:g} s")
        return ", ".join(waits)

    def build(self, context: ScheduleContext) -> Schedule:
        """The events of the run; rounds of all where each aggregator waits for all."""
        return BufferedSchedule(context, self) if self.buffers else FixedSchedule.of(context)


@EXPERIMENT_REFUSALS.register
def refusals(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that wait for all, or count rounds of all, where aggregators do not wait."""
    method, placement, control = experiment.method, experiment.method.privacy, experiment.control
    if not method.traits.buffers:
        return
    name, own, part = method.schedule.name, method.schedule, experiment.training.participation
    edge = own.buffer.edge if method.topology == "star" and isinstance(own, BufferedOptions) else None
    memory, compared = method.local_objective.memory, method.combination.visible == "each"
    private, noise = placement.private, "hierarchical or local with noise: uploads"
    accounted, by_formula = placement.accounted, experiment.calibration == "paper" and not placement.noise_is_given
    failing, fixed = experiment.faults.faults().possible, "or schedule fixed"
    yield from refused(
        f"under {name} aggregators average what has arrived, and devices have clocks of their own",
        ("training.participation", part != 1, "1, as the devices that have uploaded take part", f"{part:g}"),
        ("method.schedule.buffer.edge", edge is not None, "null in a star, with buffer.cloud stated", edge),
        ("faults", failing, f"none, slow processors or links, {fixed}", "some that are drawn for rounds"),
        ("method.objective", memory is not None, f"one that remembers no model that others left, {fixed}", memory),
        ("method.aggregation", compared, f"average, {fixed}", "a rule without weights, which age reduces"),
        ("control.least_ghz", control.least_ghz is not None, f"null, {fixed}", control.least_ghz),
        ("method.privacy", private and not accounted, f"hierarchical or local, {fixed}", placement.name),
        ("privacy.calibration", private and accounted and by_formula, "accounted", "paper, which counts rounds of all"),
        ("method.privacy", private and placement.all_steps_noisy, f"{noise}, {fixed}", placement.name),
    )


@NETWORK_REFUSALS.register
def refusals_of_network(experiment: Any, topology: Topology, network: Topology) -> Iterator[tuple[str, str]]:
    """Refusals of edge servers above edge servers, and of secure sums, where aggregators do not wait."""
    method, sees, tail = experiment.method, experiment.method.privacy.sees, "schedule fixed, or another network"
    if not method.traits.buffers:
        return
    deep, trusts = topology.depth > 1 and method.topology != "star", (each.trust for each in topology.subnets)
    summing = next((trust for trust in (topology.cloud_trust, *trusts) if sees(trust) == "sum"), None)
    yield from refused(
        "the event clock has one tier of edge servers, and no sums of all devices that take part in a round",
        ("method.schedule", deep, tail, f"{topology.depth} tiers"),
        ("method.schedule", summing is not None, tail, summing),
    )


_MIXED = {"name": "momentum", "beta1": 0, "server_step": 0.6}  # the mixing of Xie et al. 2019: alpha = 0.6
_NONE_WAITS = {"name": "buffered", "buffer": {"cloud": 1}}

name_method(
    "fedbuff",
    "all devices under the cloud, which averages ten uploads at a time (Nguyen et al. 2022)",
    schedule={"name": "buffered", "buffer": {"cloud": 10}},
    topology="star",
)
name_method(
    "fedasync",
    "all devices under the cloud, which waits for none of them (Xie et al. 2019)",
    schedule=_NONE_WAITS,
    server=_MIXED,
    topology="star",
)
name_method(
    "hfl-async",
    "edge servers wait for their devices, the cloud for no edge server (as the tiers of FedAT, Chai et al. 2021)",
    schedule=_NONE_WAITS,
    server=_MIXED,
)
name_method(
    "semi-sync",
    "every round ends when half could have arrived; the others count in the next one, less by their age",
    schedule={"name": "buffered", "deadline_s": "median"},
)
