"""Everything needed to build any node of a run on any host; it travels to each host once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from h2fdp.data import FederatedData, Records
from h2fdp.nodes import DeviceGroup, EdgeServer, LocalTeam
from h2fdp.nodes.cloud import SubnetFacts
from h2fdp.privacy import NoisePlacement
from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.training import BatchSampler, Clipping, DeviceRecords, build_engine
from h2fdp.training.batches import Sampling, padded_width, row_length
from h2fdp.training.objectives import LocalObjective


@dataclass(frozen=True)
class Blueprint:
    """A run's parts list.

    Attributes:
        module: builds the model's architecture; its parameters do not matter, models travel as vectors.
        engine: name of the engine, the same on every host.
        rates: (I,) q_i of all devices, in the order of the tree.
        star: the one edge server is the cloud's own.
    """

    streams: Streams
    topology: Topology
    data: FederatedData
    module: Callable[[], nn.Module]
    engine: str
    objective: LocalObjective
    clipping: Clipping | None
    sampling: Sampling
    rates: np.ndarray
    noise_placement: NoisePlacement
    star: bool

    @cached_property
    def first_devices(self) -> np.ndarray:
        """(N + 1,) number of the first device of each subnet."""
        return np.concatenate([[0], np.cumsum(self.topology.sizes)])

    @cached_property
    def _batches(self) -> np.ndarray:
        """(I,) expected batch sizes of all devices: what the arithmetic of each is laid out for, wherever it runs."""
        return np.asarray(self.rates * self.data.sizes)

    def facts(self) -> list[SubnetFacts]:
        """What the cloud knows of each subnet."""
        records = self.data.sizes
        return [
            SubnetFacts(
                subnet.name,
                self.noise_placement.source(subnet.trusted),
                records[first:stop],
                self.rates[first:stop],
                self.sampling,
                self.star,
            )
            for subnet, first, stop in zip(
                self.topology.subnets, self.first_devices[:-1], self.first_devices[1:], strict=True
            )
        ]

    def edge_server(self, number: int) -> EdgeServer:
        """The number-th edge server, with its devices as one group beside it."""
        subnet = self.topology.subnets[number]
        source = self.noise_placement.source(subnet.trusted)
        groups = LocalTeam({"devices": self.device_group(number)})
        return EdgeServer(subnet.name, self.streams, source, groups, {"devices": (0, subnet.size)})

    def device_group(self, number: int) -> DeviceGroup:
        """All devices of the number-th subnet."""
        subnet = self.topology.subnets[number]
        first = int(self.first_devices[number])
        devices = slice(first, first + subnet.size)
        records, offsets = self.data.subnet(first, subnet.size)
        sampler = BatchSampler(
            self.streams,
            subnet.name,
            self.sampling,
            np.diff(offsets),
            self.rates[devices],
            row_length(self.sampling, float(np.max(self._batches))),
        )
        width = padded_width(self.sampling, self._batches)
        return DeviceGroup(
            streams=self.streams,
            noise_source=self.noise_placement.source(subnet.trusted),
            first_row=0,
            device_name=subnet.device_name,
            records=device_records(self.data, records, offsets),
            sampler=sampler,
            engine=build_engine(self.engine, self.module(), self.clipping, self.objective, width),
        )


def device_records(data: FederatedData, records: Records, offsets: np.ndarray | None = None) -> DeviceRecords:
    """Records as the training engines take them; without offsets they belong to nobody in particular."""
    return DeviceRecords(
        x=torch.from_numpy(_writable(records.x)),
        y=torch.from_numpy(_writable(records.y)),
        offsets=np.array([0, len(records)]) if offsets is None else offsets,
        scale=torch.from_numpy(np.array(data.scaling.scale)),
        shift=torch.from_numpy(np.array(data.scaling.shift)),
    )


def _writable(array: np.ndarray) -> np.ndarray:
    """Arrays from an object store are read-only, which torch warns of; nothing here writes to them."""
    return array if array.flags.writeable else array.copy()
