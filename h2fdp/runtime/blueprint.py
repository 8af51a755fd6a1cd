"""Everything needed to build any node of a run on any host; it travels to each host once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from h2fdp.algorithms import Aggregation
from h2fdp.algorithms.fedavg import Plain
from h2fdp.data.augmentation import Augment
from h2fdp.data.federated import DeviceData
from h2fdp.data.synthetic import LARGEST_HELD
from h2fdp.models.construct import ParameterLayout
from h2fdp.models.finetuning import kept_once
from h2fdp.network import TRUSTS, Subnet, Topology, Trust
from h2fdp.network.devices import Membership
from h2fdp.network.parts import Replacement, Replacing
from h2fdp.privacy import NoisePlacement, Pipeline, Place, Stage, UploadClipping
from h2fdp.privacy.mechanisms.pipeline import MessageStages
from h2fdp.privacy.mechanisms.secret_draws import SecretDraw
from h2fdp.privacy.mechanisms.stages import CutToLongest, UpdateNoise
from h2fdp.privacy.vectors import NoiseLaw
from h2fdp.protocol import DeviceGroup, EdgeServer, InProcessNodes, NodeGroup, SubnetFacts, TierFacts, UpperAggregator
from h2fdp.protocol.arrivals import Points
from h2fdp.schedules.measuring import Measure, Probe
from h2fdp.streams import Streams
from h2fdp.training.batches import BatchSampler, EpochSampler, Sampling, padded_width, row_length
from h2fdp.training.clipping import Clipping, LongestSum, of_records
from h2fdp.training.device_records import DeviceRecords, Scores, device_records
from h2fdp.training.engine import Engine, EngineName, Engines, ThreadLocalEngine, build_engine, build_scores
from h2fdp.training.gradients.rule import Precision
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import Loss, minimised

_PLAIN = Descent(Plain())


@dataclass(frozen=True)
class Blueprint:
    """A run's parts list.

    Attributes:
        module: builds the model's architecture; its parameters do not matter, models travel as vectors.
        engine: name of the engine, the same on every host.
        rates: (I,) q_i of all devices, in the order of the tree.
        star: the one edge server is the cloud's own.
        measures: what devices measure for a schedule of a user's own; None for nothing.
        device: where devices' records lie and their steps are computed.
        descent: the devices' steps, from each received model on.
        epochs: how often a device goes through its records in an interval; None where it draws batch by batch.
        clip_norm: as the noise placement reads it; `clipping` is that of the engines, of gradients.
        step_size: the largest that there will be.
        gamma: of whole updates that are normalised; `clipping` has that of gradients.
        precision: of the factors of convolutions' products in devices' steps.
        aggregation: the rule by which every aggregator combines its children's uploads.
        messages: the stages of messages on their way.
        law: of all noise, where a file states it for a node's noises together; None: as the placement has it.
        draw: by which devices take part, where that is secret.
        eases: (I,) see `SubnetFacts.eases`.
        augment: how devices change records in each step.
    """

    streams: Streams
    topology: Topology
    data: DeviceData
    module: Callable[[], nn.Module]
    engine: EngineName
    descent: Descent
    clipping: Clipping | None
    sampling: Sampling
    rates: np.ndarray
    noise_placement: NoisePlacement
    star: bool
    measures: Measure | None
    device: torch.device
    epochs: int | None
    clip_norm: float | None
    step_size: float
    loss: Loss
    gamma: float | None
    precision: Precision
    aggregation: Aggregation
    messages: MessageStages
    law: NoiseLaw | None
    draw: SecretDraw | None = None
    eases: np.ndarray | None = None
    augment: Augment | None = None

    @property
    def data_bytes(self) -> int:
        """The bytes of the records that are in memory; more are drawn where they are trained on."""
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

    @cached_property
    def facts(self) -> tuple[SubnetFacts, ...]:
        """The facts of each subnet that the cloud knows."""
        relays, membership = self.topology.subnets[0].relays, self.topology.membership
        points = () if relays is None else tuple(zip(relays.names, relays.sizes, strict=True))
        found = tuple(self._facts_of(number, subnet, points) for number, subnet in enumerate(self.topology.subnets))
        return found if membership is None else self._following(found, membership)

    def _facts_of(self, number: int, subnet: Subnet, points: Points) -> SubnetFacts:
        topology, sees, firsts = self.topology, self.noise_placement.sees, self.first_devices
        path, replacing = topology.path(subnet.name), topology.replacing
        rows = slice(*firsts[number : number + 2].tolist())
        places, pipeline, under = self._places(path), self._pipelines[subnet.trust], topology.below(path[-1])
        return SubnetFacts(
            name=subnet.name,
            places=places,
            records=self.data.sizes[rows],
            sampling_rates=self.rates[rows],
            sampling=self.sampling,
            in_epochs=self.epochs is not None,
            edge_is_cloud=self.star,
            access_points=points,
            heights=tuple(map(topology.height, path)),
            depth=topology.depth,
            company=int(firsts[under.stop] - firsts[under.start]),
            sums=frozenset(place for place, name in enumerate(path) if place and sees(self._trust[name]) == "sum"),
            cloud_sums=sees(topology.cloud_trust) == "sum",
            network=topology.devices,
            pipeline=pipeline,
            visible=self.aggregation.at("device").visible if pipeline.keeps_sums else "each",
            sealed=bool(self.messages.edges.stages) or self.aggregation.at("edge").visible == "each",
            unaccounted=topology.replacing_devices(number),
            exposed=None if replacing is None else self._exposed(replacing, path, number),
            eases=None if self.eases is None else self.eases[rows],
        )

    def _following(self, facts: Sequence[SubnetFacts], membership: Membership) -> tuple[SubnetFacts, ...]:
        """The facts where devices move: who has an account of a device from elsewhere, and sees what all see here."""
        seen = {observer: np.zeros(len(membership.home), dtype=bool) for observer in ("edge", "peer")}
        devices = np.split(membership.device, self.first_devices[1:-1])
        private = self.noise_placement.private
        watched = [
            {"edge": private and "edge" in each.vectors_seen(1), "peer": private and each.peers} for each in facts
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

    def _exposed(self, replacing: Replacing, path: Sequence[str], number: int) -> int | None:
        """The lowest level at which who sends something else sees the subnet's vectors; see `SubnetFacts.exposed`."""
        if replacing.informed and self.topology.replacing_devices(number):
            return 0
        # One of the second tier or above it sees averages; that it sees those of the lowest one is safe to assume.
        return min((min(at, 1) for at, name in enumerate(path) if name in replacing.edges), default=None)

    def among_edges(self) -> Replacement | None:
        """The replacement of edge servers' uploads; None where all send theirs."""
        return None if (replacing := self.topology.replacing) is None else replacing.among(replacing.edges)

    @cached_property
    def tiers(self) -> dict[str, TierFacts]:
        """The facts of each aggregator above edge servers that the cloud knows."""
        return {
            each.name: TierFacts(
                name=each.name,
                children=self.topology.children(each.name),
                height=self.topology.height(each.name),
                height_above=self.topology.height(each.parent),
                guarded=self._guarded.get(each.name, frozenset()),
                ends_chain=each.name not in self._goes_on,
                replaced=self.topology.replacing is not None and each.name in self.topology.replacing.edges,
            )
            for each in self.topology.aggregators
        }

    def aggregators(self) -> dict[str, UpperAggregator]:
        """The aggregators above edge servers, which live where the cloud does."""
        return {
            name: UpperAggregator(
                name=name,
                streams=self.streams,
                aggregation=self.aggregation.at("edge"),
                law=self._pipelines["trusted"].law,
                guarded=facts.guarded,
                ends_chain=facts.ends_chain,
                replacement=self.among_edges(),
                down=self.messages.models,
            )
            for name, facts in self.tiers.items()
        }

    @cached_property
    def _trust(self) -> dict[str, Trust]:
        """The trust in every aggregator, by name."""
        lowest = {each.name: each.trust for each in self.topology.subnets}
        return lowest | {each.name: each.trust for each in self.topology.aggregators}

    def _places(self, path: Sequence[str]) -> tuple[Place | None, ...]:
        """The places where noise is added on what 1, 2, ... of the aggregators of this path average."""
        chain = [self._trust[name] for name in path]
        return tuple(self.noise_placement.place(chain, passed) for passed in range(1, len(chain) + 1))

    @cached_property
    def _chains(self) -> dict[str, tuple[str, ...]]:
        """The aggregators above each subnet's devices that may see raw updates, of which the last one adds noise; none
        where the cloud does."""
        chains = {}
        for subnet in self.topology.subnets:
            path = self.topology.path(subnet.name)
            place = self._places(path)[-1]
            trusted = 0 if place is None else place.trusted
            chains[subnet.name] = tuple(path[:trusted]) if trusted <= len(path) else ()
        return chains

    @cached_property
    def _guarded(self) -> dict[str, frozenset[str]]:
        """The children of each aggregator whose trusted chain includes it."""
        guarded: dict[str, set[str]] = {}
        for chain in self._chains.values():
            for child, parent in pairwise(chain):
                guarded.setdefault(parent, set()).add(child)
        return {name: frozenset(children) for name, children in guarded.items()}

    @cached_property
    def _goes_on(self) -> frozenset[str]:
        """Aggregators above which a node may see what is raw, too."""
        return frozenset(child for children in self._guarded.values() for child in children)

    def edge_server(self, number: int, group: DeviceGroup | None = None) -> EdgeServer:
        """The number-th edge server, with its devices as one group in the same process."""
        groups = InProcessNodes({"devices": group or self.device_group(number)})
        return self.edge_server_above(number, groups, {"devices": (0, self.topology.subnets[number].size)})

    def edge_server_above(self, number: int, groups: NodeGroup, spans: dict[str, tuple[int, int]]) -> EdgeServer:
        """The number-th edge server with groups of its devices anywhere; `spans` says which rows each group holds."""
        subnet, replacing = self.topology.subnets[number], self.topology.replacing
        return EdgeServer(
            name=subnet.name,
            streams=self.streams,
            trusted=bool(self._chains[subnet.name]),
            groups=groups,
            spans=spans,
            descent=self.descent,
            ends_chain=subnet.name not in self._goes_on,
            pipeline=self._pipelines[subnet.trust],
            aggregation=self.aggregation.at("device"),
            law=self._pipelines[subnet.trust].law,
            replacement=None if replacing is None else replacing.among(self.topology.replacing_devices(number)),
            down=self.messages.models,
        )

    def devices(self, number: int, rows: range) -> DeviceGroup:
        """These devices of the number-th subnet, as a group of their own."""
        first = int(self.first_devices[number])
        records = self.records(first + rows.start, first + rows.stop)
        return self.group(number, records, first + rows.start, self.local_engine())

    def device_group(self, number: int) -> DeviceGroup:
        """All devices of the number-th subnet."""
        return self.devices(number, range(self.topology.subnets[number].size))

    def records(self, first: int, last: int) -> DeviceRecords:
        """The records of the devices from `first` to before `last`."""
        return device_records(self.data, *self.data.subnet(first, last - first)).to(self.device)

    def local_engine(self, threads: int = 1) -> Engine:
        """The engine of the devices' local steps, for so many threads."""
        return self._engine(self.clipping, self.descent, threads)

    @property
    def remembers(self) -> int:
        """The number of numbers that each device keeps from one interval to the next."""
        moments = self.descent.keeps_moments
        if not (moments or self.descent.objective.memory is not None or self.messages.devices.remembers):
            return 0
        size = ParameterLayout(self.module()).size
        return 2 * size + 1 if moments else size

    def scores(self) -> Scores:
        """A way to evaluate models, for one thread."""
        return build_scores(self.engine, self._placed())

    def _placed(self) -> nn.Module:
        return kept_once(self.module(), self.device)

    def _engine(self, clipping: Clipping | None, descent: Descent, threads: int = 1) -> Engine:
        work = (clipping, descent, self._widths[0], minimised(descent.objective, self.loss), self.precision)
        return ThreadLocalEngine(Engines(lambda: build_engine(self.engine, self._placed(), *work), threads))

    def group(self, number: int, records: DeviceRecords, block_begins: int, engine: Engine) -> DeviceGroup:
        """The devices of a subnet, whose records lie in a block that begins with the device `block_begins`."""
        subnet, probe = self.topology.subnets[number], None
        if self.measures is not None:
            probe = Probe(self.measures, self._engine(None, _PLAIN), self._placed(), self.loss)
        devices = slice(*self.first_devices[number : number + 2].tolist())
        sizes, rates = self.data.sizes[devices], self.rates[devices]
        drawn = (self.streams, subnet.name, self.sampling, sizes, rates, self._widths[1])
        sampler = BatchSampler(*drawn) if self.epochs is None else EpochSampler(*drawn, self.epochs)
        return DeviceGroup(
            streams=self.streams,
            pipeline=self._pipelines[subnet.trust],
            first_row=block_begins - devices.start,
            device_name=subnet.device_name,
            records=records,
            sampler=sampler,
            engine=engine,
            probe=probe,
            augment=self.augment,
            keeps_moments=self.descent.keeps_moments,
        )

    @cached_property
    def _pipelines(self) -> dict[Trust, Pipeline]:
        """The pipeline of devices' uploads under an edge server of each trust."""
        return {trust: self._pipeline(trust) for trust in TRUSTS}

    def _pipeline(self, trust: Trust) -> Pipeline:
        by_record = of_records(self.clipping) is not None
        longest: LongestSum | None = None
        if self.clipping is not None and self.noise_placement.private and self.noise_placement.accumulates:
            longest = LongestSum(self.clipping.norm, self.descent.momentum)  # noise is sized for that
        clipping = UploadClipping(self.clip_norm, self.step_size, by_record, self.gamma, longest, self.draw)
        pipeline = self.noise_placement.pipeline(trust, clipping)
        if self.law is not None:
            law = self.law.of_sums if self.noise_placement.sees(trust) == "sum" else self.law
            stages = [UpdateNoise(law) if isinstance(stage, UpdateNoise) else stage for stage in pipeline.stages]
            pipeline = replace(pipeline, stages=tuple(stages), law=law)
        cut: tuple[Stage, ...] = ()
        if longest is not None and not pipeline.noisy_steps:
            cut = (CutToLongest(longest),)
        return replace(pipeline, stages=(*cut, *pipeline.stages, *self.messages.devices.stages))
