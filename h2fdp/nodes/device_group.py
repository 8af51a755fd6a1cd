"""Devices of one subnet that live on one host: local training, and noise before anything leaves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from h2fdp.nodes.plans import TrainingOrder
from h2fdp.privacy import NoiseSource, add_gaussian_noise
from h2fdp.streams import Streams
from h2fdp.training import BatchSampler, DeviceRecords, Engine


@dataclass(frozen=True)
class DeviceGroup:
    """The devices `first_row ..` of a subnet; knows itself whether its edge server may see raw updates.

    Attributes:
        noise_source: who adds noise under this group's edge server. It is the devices' own knowledge: an order
            without noise is not obeyed where the devices must add it.
        first_row: the row within the subnet of the first device of `records`.
        device_name: from a row within the subnet to the device's name, the node of its noise streams.
    """

    streams: Streams
    noise_source: NoiseSource
    first_row: int
    device_name: Callable[[int], str]
    records: DeviceRecords
    sampler: BatchSampler
    engine: Engine

    def train(self, model: Tensor, order: TrainingOrder) -> Tensor:
        """Local steps (7)-(8) of the ordered devices from `model` (M,), and what each of them uploads: (s, M).

        Under an untrusted edge server that is Delta_i + n_i, (10) and (14); else Delta_i.
        """
        slots = range(order.first_slot + 1, order.last_slot + 1)
        batches = self.sampler.draw(order.interval, slots, order.rows)
        starts = model.expand(len(order.rows), -1)
        updates = self.engine.updates(starts, self.records, order.rows - self.first_row, batches, order.step_size)
        if self.noise_source == "device":
            self._add_noise(updates, order)
        return updates

    def _add_noise(self, updates: Tensor, order: TrainingOrder) -> None:
        assert len(order.noise_std) == len(order.rows), "no device under an untrusted edge server uploads without noise"
        for position, row in enumerate(order.rows):
            name = self.device_name(int(row))
            stream = self.streams.open(name, f"noise-{order.kind}", order.interval, order.last_slot)
            updates[position] = add_gaussian_noise(updates[position], float(order.noise_std[position]), stream)
