"""Devices of one subnet that live on one host: local training, and noise before anything leaves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from h2fdp.nodes.measuring import DeviceMeasurements, Gauge, measure_devices
from h2fdp.nodes.plans import MeasuringOrder, TrainingOrder
from h2fdp.nodes.secants import Prober, SecantMeasurements, SecantOrder, measure_secants
from h2fdp.privacy import NoiseSource, add_gaussian_noise
from h2fdp.streams import Streams
from h2fdp.training import Batches, BatchSampler, DeviceRecords, Engine
from h2fdp.training.work import Terms, Trained


@dataclass(frozen=True)
class DeviceGroup:
    """Devices of a subnet; knows itself whether its edge server may see raw updates.

    Attributes:
        noise_source: who adds noise under this group's edge server. It is the devices' own knowledge: an order
            without noise is not obeyed where the devices must add it.
        first_row: the row within the subnet of the first device of `records`; below 0 where the block begins with
            devices of other subnets.
        device_name: from a row within the subnet to the device's name, the node of its noise streams.
        gauge: how to measure for the controller; None in runs that never do.
        prober: likewise for schedules that want secants.
    """

    streams: Streams
    noise_source: NoiseSource
    first_row: int
    device_name: Callable[[int], str]
    records: DeviceRecords
    sampler: BatchSampler
    engine: Engine
    gauge: Gauge | None = None
    prober: Prober | None = None

    def train(self, model: Tensor, order: TrainingOrder) -> Trained:
        """Local steps (7)-(8) of the ordered devices from `model` (M,), and what each of them uploads: (s, M).

        Under an untrusted edge server that is Delta_i + n_i, (10) and (14); else Delta_i.
        """
        starts = model.expand(len(order.rows), -1)
        terms, batches = self.terms(order), self.batches(order)
        trained = self.engine.train(starts, self.records, self.held(order), batches, order.step_size, terms)
        return self.released(trained, order)

    def terms(self, order: TrainingOrder) -> Terms:
        """The terms of an order's steps."""
        return Terms(corrections=order.corrections, watched=order.watched)

    def held(self, order: TrainingOrder | MeasuringOrder) -> np.ndarray:
        """(s,) the ordered devices' rows in `records`."""
        return np.asarray(order.rows - self.first_row)

    def batches(self, order: TrainingOrder) -> Batches:
        """The mini-batches of an order's slots; a device that finishes fewer steps uses the first ones of its own."""
        drawn = self.sampler.draw(order.interval, order.slots, order.rows)
        return drawn if order.steps is None else replace(drawn, steps=order.steps)

    def released(self, trained: Trained, order: TrainingOrder) -> Trained:
        """What may leave the devices, whose updates (s, M) it may overwrite."""
        if self.noise_source != "device":
            return trained
        if len(order.noise_std) != len(order.rows):
            raise AssertionError("no device under an untrusted edge server uploads without noise")
        updates = trained.updates
        for position, row in enumerate(order.rows):
            name = self.device_name(int(row))
            stream = self.streams.lent(name, f"noise-{order.kind}", order.interval, order.last_slot)
            add_gaussian_noise(updates[position], float(order.noise_std[position]), stream, out=updates[position])
        return Trained(updates)

    def measure_secants(self, model: Tensor, order: SecantOrder) -> SecantMeasurements:
        """What a schedule wants to know of the devices between where they ended and `model` (M,); raw."""
        assert self.prober is not None, "this run does not measure"
        held = np.asarray(order.rows - self.first_row)
        return measure_secants(self.prober, self.sampler, self.records, model, order, held)

    def measure(self, model: Tensor, order: MeasuringOrder) -> DeviceMeasurements:
        """Estimates of Sec. 10 at `model` (M,); under an untrusted edge server under noise, unless the run leaks."""
        assert self.gauge is not None, "this run does not measure"
        held = self.held(order)
        values, gradients = measure_devices(self.gauge, self.sampler, self.records, model, order, held)
        if self.gauge.leaks or self.noise_source != "device":
            return DeviceMeasurements(values, gradients)
        if len(order.noise_std) != len(order.rows):
            raise AssertionError("no estimate leaves a device here without noise")
        released = self.gauge.clipped(values)
        for position, row in enumerate(order.rows):
            stream = self.streams.open(self.device_name(int(row)), "noise-estimate", order.interval, order.slot)
            released[position] += order.noise_std[position] * stream.standard_normal(released.shape[1])
        return DeviceMeasurements(released, None)
