"""Everything needed to build any node of a run on any host; it travels to each host once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from h2fdp.algorithms import Aggregation, WeightedAverage
from h2fdp.algorithms.fedavg import Plain
from h2fdp.data.federated import DeviceData
from h2fdp.data.synthetic import LARGEST_HELD
from h2fdp.network import TRUSTS, Adversaries, Lies, Topology, Trust
from h2fdp.network.mobility import Visits
from h2fdp.privacy import AdaptiveClipping, NoisePlacement, Pipeline, Place, Stage, UploadClipping
from h2fdp.privacy.correlated import CorrelatedGaussian, Summed
from h2fdp.privacy.mechanisms.stages import CutToLongest, UpdateNoise
from h2fdp.protocol import DeviceGroup, EdgeServer, InProcessNodes, NodeGroup, SubnetFacts, TierFacts, UpperAggregator
from h2fdp.runtime.lockstep import Lockstep
from h2fdp.schedules.device_estimates import GradientProbe, LossProbe
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler, EpochSampler, Sampling, padded_width, row_length
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords, Scores, device_records
from h2fdp.training.engine import Engine, EngineName, ThreadLocalEngine, build_engine, build_scores
from h2fdp.training.gradients.rule import Precision
from h2fdp.training.local_steps import LocalObjective, gain
from h2fdp.training.losses import CROSS_ENTROPY, Loss, minimised

_CPU = torch.device("cpu")
_PLAIN, _AVERAGE = Plain(), WeightedAverage()


@dataclass(frozen=True)
class EstimateSettings:
    """What nodes measure for the controller: the range of each number, and whether raw values go up."""

    ranges: tuple[float, float, float]
    leaks: bool


@dataclass(frozen=True)
class LongestSum:
    """From a step size and a number of steps to the longest update that gradients of norm G make."""

    norm: float
    momentum: float

    def __call__(self, step_size: float, steps: int) -> float:
        """eta gain(m) G."""
        return step_size * gain(self.momentum, steps) * self.norm


@dataclass(frozen=True)
class Blueprint:
    """A run's parts list.

    Attributes:
        module: builds the model's architecture; its parameters do not matter, models travel as vectors.
        engine: name of the engine, the same on every host.
        rates: (I,) q_i of all devices, in the order of the tree.
        star: the one edge server is the cloud's own.
        measuring: None where nothing is.
        device: where devices' records lie and their steps are computed.
        momentum: of the devices' steps, from each received model on.
        epochs: how often a device goes through its records in an interval; None where it draws batch by batch.
        probes: whether a schedule wants secants (see `DeviceSecants`).
        clip_norm: as the noise placement reads it; `clipping` is that of the engines, of gradients.
        gamma: of whole updates that are normalised; `clipping` has that of gradients.
        adaptive: how the clip norm moves from there; None where it does not.
        precision: of the factors of convolutions' products in devices' steps.
        aggregation: what every aggregator makes of its children's uploads.
        compression: the stages of devices' uploads after their noise; `uplink` of what edge servers send up; `downlink`
            what models pass before they are sent down.
        correlated: the law of all noise, where a node's noises are correlated.
    """

    streams: Streams
    topology: Topology
    data: DeviceData
    module: Callable[[], nn.Module]
    engine: EngineName
    objective: LocalObjective
    clipping: Clipping | None
    sampling: Sampling
    rates: np.ndarray
    noise_placement: NoisePlacement
    star: bool
    measuring: EstimateSettings | None = None
    device: torch.device = _CPU
    momentum: float = 0.0
    epochs: int | None = None
    probes: bool = False
    clip_norm: float | None = None
    loss: Loss = CROSS_ENTROPY
    gamma: float | None = None
    adaptive: AdaptiveClipping | None = None
    precision: Precision = "float32"
    aggregation: Aggregation = _AVERAGE
    compression: tuple[Stage, ...] = ()
    uplink: tuple[Stage, ...] = ()
    downlink: Pipeline = Pipeline()  # noqa: RUF009 - a frozen value
    correlated: CorrelatedGaussian | None = None

    @property
    def data_bytes(self) -> int:
        """Of the records that are held; more are drawn where they are trained on."""
        return min(self.data.values, LARGEST_HELD) * self.data.test.x.itemsize + self.data.test.x.nbytes

    @cached_property
    def first_devices(self) -> np.ndarray:
        """(N + 1,) number of the first device of each subnet."""
        return np.concatenate([[0], np.cumsum(self.topology.sizes)])

    @cached_property
    def _widths(self) -> tuple[int, int]:
        """Records of an engine's pass, uniforms of a draw: the same on every host, by all devices' expected batches."""
        batches = self.rates * self.data.sizes
        return padded_width(self.sampling, batches), row_length(self.sampling, float(batches.max()))

    @property
    def noisy(self) -> bool:
        """Whether anybody adds noise."""
        return self.noise_placement.private

    @cached_property
    def facts(self) -> tuple[SubnetFacts, ...]:
        """What the cloud knows of each subnet."""
        records = self.data.sizes
        relays = self.topology.subnets[0].relays
        relayed = () if relays is None else tuple(zip(relays.names, relays.sizes.tolist(), strict=True))
        found = tuple(
            SubnetFacts(
                subnet.name,
                self._places(subnet.name),
                records[first:stop],
                self.rates[first:stop],
                self.sampling,
                self.star,
                relayed,
                tuple(map(self.topology.height, self.topology.path(subnet.name))),
                self.topology.depth,
                self._company(subnet.name),
                self._sums(subnet.name),
                self.noise_placement.sees(self.topology.cloud_trust) == "sum",
                self.topology.devices,
                self._pipelines[subnet.trust],
                self.aggregation.at("device").visible if self._pipelines[subnet.trust].keeps_sums else "each",
                bool(self.uplink) or self.aggregation.at("edge").visible == "each",
                self.topology.lying_devices(number),
                None if (liars := self.topology.adversaries) is None else self._exposed(liars, number),
            )
            for number, (subnet, first, stop) in enumerate(
                zip(self.topology.subnets, self.first_devices[:-1], self.first_devices[1:], strict=True)
            )
        )
        return found if self.topology.visits is None else self._following(found, self.topology.visits)

    def _following(self, facts: Sequence[SubnetFacts], visits: Visits) -> tuple[SubnetFacts, ...]:
        """The same where devices move: who has an account of a device from elsewhere, and sees what all see here."""
        seen = {observer: np.zeros(len(visits.home), dtype=bool) for observer in ("edge", "peer")}
        devices = np.split(visits.device, self.first_devices[1:-1])
        watched = [
            {"edge": self.noisy and "edge" in each.levels(1), "peer": self.noisy and each.peers} for each in facts
        ]
        for here, rows in zip(watched, devices, strict=True):
            for observer in seen:
                seen[observer][rows] |= here[observer]
        return tuple(
            replace(
                each,
                follows=tuple(
                    (observer, tuple(known[rows].tolist())) for observer, known in seen.items() if not here[observer]
                ),
            )
            for each, here, rows in zip(facts, watched, devices, strict=True)
        )

    def _exposed(self, liars: Adversaries, number: int) -> int | None:
        """See `SubnetFacts.exposed`."""
        if liars.attack.omniscient and self.topology.lying_devices(number):
            return 0
        # A liar of the second tier or above it sees averages; that it sees those of the lowest one is safe to assume.
        path = enumerate(self.topology.path(self.topology.subnets[number].name))
        return min((min(at, 1) for at, name in path if name in liars.edges), default=None)

    def lies_among_edges(self) -> Lies | None:
        """What becomes of the uploads of edge servers that lie."""
        return None if (liars := self.topology.adversaries) is None else liars.among(liars.edges)

    def tiers(self) -> dict[str, TierFacts]:
        """What the cloud knows of each aggregator above edge servers."""
        return {
            each.name: TierFacts(
                name=each.name,
                children=self.topology.children(each.name),
                height=self.topology.height(each.name),
                height_above=self.topology.height(each.parent),
                guarded=self._guarded.get(each.name, frozenset()),
                ends_chain=each.name not in self._goes_on,
                lies=self.topology.adversaries is not None and each.name in self.topology.adversaries.edges,
            )
            for each in self.topology.aggregators
        }

    def aggregators(self, tiers: Mapping[str, TierFacts]) -> dict[str, UpperAggregator]:
        """The aggregators above edge servers, of which the cloud knows `tiers`. They live where the cloud does."""
        return {
            name: UpperAggregator(
                name=name,
                streams=self.streams,
                aggregation=self.aggregation.at("edge"),
                law=self._pipelines["trusted"].law,
                guarded=facts.guarded,
                ends_chain=facts.ends_chain,
                lies=self.lies_among_edges(),
                down=self.downlink,
            )
            for name, facts in tiers.items()
        }

    @cached_property
    def _trust(self) -> dict[str, Trust]:
        """In every aggregator."""
        lowest = {each.name: each.trust for each in self.topology.subnets}
        return lowest | {each.name: each.trust for each in self.topology.aggregators}

    def _places(self, subnet: str) -> tuple[Place | None, ...]:
        """Where the noise is added on what 1, 2, ... of the aggregators above a subnet's devices average."""
        chain = [self._trust[name] for name in self.topology.path(subnet)]
        return tuple(self.noise_placement.place(chain, passed) for passed in range(1, len(chain) + 1))

    @cached_property
    def _chains(self) -> dict[str, tuple[str, ...]]:
        """The aggregators above each subnet's devices that may see raw updates, of which the last one adds noise; none
        where the cloud does."""
        chains = {}
        for subnet in self.topology.subnets:
            path, place = self.topology.path(subnet.name), self._places(subnet.name)[-1]
            trusted = 0 if place is None else place.trusted
            chains[subnet.name] = tuple(path[:trusted]) if trusted <= len(path) else ()
        return chains

    def _sums(self, subnet: str) -> frozenset[int]:
        """Places among the aggregators above a subnet, from 1 on, of those that hold secure sums."""
        path, sees = self.topology.path(subnet), self.noise_placement.sees
        return frozenset(place for place, name in enumerate(path) if place and sees(self._trust[name]) == "sum")

    @cached_property
    def _links(self) -> frozenset[tuple[str, str]]:
        """Aggregators that follow each other on a trusted chain: what is raw may go up from the first to the second."""
        return frozenset(link for chain in self._chains.values() for link in pairwise(chain))

    @cached_property
    def _guarded(self) -> dict[str, frozenset[str]]:
        """The children of each aggregator whose trusted chain includes it."""
        guarded: dict[str, set[str]] = {}
        for child, parent in self._links:
            guarded.setdefault(parent, set()).add(child)
        return {name: frozenset(children) for name, children in guarded.items()}

    @cached_property
    def _goes_on(self) -> frozenset[str]:
        """Aggregators above which a node may see what is raw, too."""
        return frozenset(child for child, _ in self._links)

    def _company(self, subnet: str) -> int:
        """Devices below the highest aggregator above a subnet."""
        below = self.topology.below(self.topology.path(subnet)[-1])
        return int(self.first_devices[below.stop] - self.first_devices[below.start])

    def edge_server(self, number: int, group: DeviceGroup | None = None) -> EdgeServer:
        """The number-th edge server, with its devices as one group in the same process."""
        groups = InProcessNodes({"devices": group or self.device_group(number)})
        return self.edge_server_above(number, groups, {"devices": (0, self.topology.subnets[number].size)})

    def edge_server_above(self, number: int, groups: NodeGroup, spans: dict[str, tuple[int, int]]) -> EdgeServer:
        """The number-th edge server with groups of its devices anywhere; `spans` says which rows each group holds."""
        subnet = self.topology.subnets[number]
        return EdgeServer(
            subnet.name,
            self.streams,
            bool(self._chains[subnet.name]),
            groups,
            spans,
            self._gradient_probe(),
            self.objective,
            partial(gain, self.momentum),
            subnet.name not in self._goes_on,
            self._pipelines[subnet.trust],
            self.aggregation.at("device"),
            self._pipelines[subnet.trust].law,
            None if (liars := self.topology.adversaries) is None else liars.among(self.topology.lying_devices(number)),
            self.downlink,
        )

    def lone_device(self, number: int, row: int) -> DeviceGroup:
        """One device of the number-th subnet, as a group of its own."""
        at = int(self.first_devices[number]) + row
        return self._group(number, self._records(at, at + 1), at, self.local_engine())

    def lockstep(self, numbers: range, engine: Engine, threads: Executor | None = None, parts: int = 1) -> Lockstep:
        """Neighbouring edge servers whose devices share one block of records and one engine."""
        first, last = int(self.first_devices[numbers.start]), int(self.first_devices[numbers.stop])
        records = self._records(first, last)
        groups = {number: self._group(number, records, first, engine) for number in numbers}
        return Lockstep(
            {self.topology.subnets[number].name: self.edge_server(number, group) for number, group in groups.items()},
            threads,
            parts,
        )

    def device_group(self, number: int) -> DeviceGroup:
        """All devices of the number-th subnet."""
        first, last = self.first_devices[number : number + 2].tolist()
        return self._group(number, self._records(first, last), first, self.local_engine())

    def _records(self, first: int, last: int) -> DeviceRecords:
        """Of the devices from `first` to before `last`."""
        return device_records(self.data, *self.data.subnet(first, last - first)).to(self.device)

    def local_engine(self) -> Engine:
        """The engine of the devices' local steps."""
        return self._engine(self.clipping, self.objective, self.momentum)

    def scores(self) -> Scores:
        """A way to evaluate models, for one thread."""
        return build_scores(self.engine, self.module().to(self.device))

    def _engine(self, clipping: Clipping | None, objective: LocalObjective, momentum: float = 0.0) -> Engine:
        loss = minimised(objective, self.loss)
        work = (clipping, objective, self._widths[0], momentum, loss, self.precision)
        return ThreadLocalEngine(lambda: build_engine(self.engine, self.module(), *work))

    def _group(self, number: int, records: DeviceRecords, block_begins: int, engine: Engine) -> DeviceGroup:
        """The devices of a subnet, whose records lie in a block that begins with the device `block_begins`."""
        subnet = self.topology.subnets[number]
        devices = slice(int(self.first_devices[number]), int(self.first_devices[number + 1]))
        drawn = (
            self.streams,
            subnet.name,
            self.sampling,
            self.data.sizes[devices],
            self.rates[devices],
            self._widths[1],
        )
        sampler = BatchSampler(*drawn) if self.epochs is None else EpochSampler(*drawn, self.epochs)
        return DeviceGroup(
            streams=self.streams,
            pipeline=self._pipelines[subnet.trust],
            first_row=block_begins - devices.start,
            device_name=subnet.device_name,
            records=records,
            sampler=sampler,
            engine=engine,
            gradient_probe=self._gradient_probe(),
            loss_probe=LossProbe(self._engine(None, _PLAIN), self.module(), self.loss) if self.probes else None,
        )

    @cached_property
    def _pipelines(self) -> dict[Trust, Pipeline]:
        """What happens to the uploads of devices under an edge server of each trust."""
        return {trust: self._pipeline(trust) for trust in TRUSTS}

    def _pipeline(self, trust: Trust) -> Pipeline:
        by_record = self.clipping is not None and self.clipping.scope == "record"
        longest = self.longest()
        clipping = UploadClipping(self.clip_norm, by_record, self.gamma, self.adaptive, longest)
        pipeline = self.noise_placement.pipeline(trust, clipping)
        if self.correlated is not None:
            sums = self.noise_placement.sees(trust) == "sum"
            law = Summed(self.correlated.kind, self.correlated.bands) if sums else self.correlated
            stages = [UpdateNoise(law) if isinstance(stage, UpdateNoise) else stage for stage in pipeline.stages]
            pipeline = replace(pipeline, stages=tuple(stages), law=law)
        cut: tuple[Stage, ...] = ()
        if longest is not None and not pipeline.noisy_steps:
            cut = (CutToLongest(longest, None if self.adaptive is None else self.adaptive.initial),)
        return replace(pipeline, stages=(*cut, *pipeline.stages, *self.compression))

    def longest(self) -> LongestSum | None:
        """eta gain(m) G where what leaves a device is a sum of clipped gradients, and noise is sized for that."""
        if self.clipping is None or not (self.noise_placement.private and self.noise_placement.accumulates):
            return None
        return LongestSum(self.clipping.norm, self.momentum)

    def _gradient_probe(self) -> GradientProbe | None:
        if self.measuring is None:
            return None
        return GradientProbe(self._engine(None, _PLAIN), np.array(self.measuring.ranges), self.measuring.leaks)
