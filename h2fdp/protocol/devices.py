"""Devices of one subnet that live on one host: local training, and noise before anything leaves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from h2fdp.privacy import Moment, Pipeline
from h2fdp.privacy.mechanisms.stages import coded
from h2fdp.protocol.messages import Order
from h2fdp.schedules.device_estimates import (
    DeviceMeasurements,
    GradientProbe,
    LossProbe,
    MeasuringOrder,
    SecantMeasurements,
    SecantOrder,
    measure_devices,
    measure_secants,
)
from h2fdp.streams import Streams
from h2fdp.training import Batches, BatchSampler, DeviceRecords, Engine
from h2fdp.training.work import StepTerms, TrainingResult


@dataclass(frozen=True)
class DeviceGroup:
    """Devices of a subnet; knows itself whether its edge server may see raw updates.

    Attributes:
        pipeline: what happens to the devices' uploads under their edge server. It is their own knowledge: an order
            without noise is not obeyed where they must add it.
        first_row: the row within the subnet of the first device of `records`; below 0 where the block begins with
            devices of other subnets.
        device_name: from a row within the subnet to the device's name, the node of its noise streams.
        gradient_probe: how to measure for the controller; None in runs that never do.
        loss_probe: likewise for schedules that want secants.
    """

    streams: Streams
    pipeline: Pipeline
    first_row: int
    device_name: Callable[[int], str]
    records: DeviceRecords
    sampler: BatchSampler
    engine: Engine
    gradient_probe: GradientProbe | None = None
    loss_probe: LossProbe | None = None

    def train(self, model: Tensor, order: Order) -> TrainingResult:
        """Local steps (7)-(8) of the ordered devices from `model` (M,), and what each of them uploads: (s, M).

        Delta_i, made private by their own side of the mechanism where that is up to them.
        """
        starts = self.start(model).expand(len(order.rows), -1)
        terms, batches = self.terms(model, order), self.batches(order)
        trained = self.engine.train(starts, self.records, self.held(order), batches, order.step_size, terms)
        return released(self.stages(order), trained, self.start(model), self.moment(order))

    def start(self, model: Tensor) -> Tensor:
        """(M,) the model of what was sent: without what stages append, where they do."""
        return model[: len(model) - self.pipeline.extra] if self.pipeline.extra else model

    def terms(self, model: Tensor, order: Order) -> StepTerms:
        """The terms of an order's steps from `model` (M,)."""
        at = self.moment(order)
        own, corrections = self.pipeline.linear_terms(model, at), order.corrections
        if own is not None:
            corrections = own if corrections is None else corrections + own
        of_records = order.clip_norm if self.pipeline.counts_votes else None
        step_noise = self.pipeline.step_noise(at)
        return StepTerms(corrections=corrections, noise=step_noise, watched=order.watched, clip_norm=of_records)

    def held(self, order: Order | MeasuringOrder) -> np.ndarray:
        """(s,) the ordered devices' rows in `records`."""
        return np.asarray(order.rows - self.first_row)

    def batches(self, order: Order) -> Batches:
        """The mini-batches of an order's slots; a device that finishes fewer steps uses the first ones of its own."""
        drawn = self.sampler.draw(order.interval, order.slots, order.rows)
        return replace(drawn, steps=order.steps, expected=self.expected_batches(order))

    def expected_batches(self, order: Order) -> np.ndarray | None:
        """(s,) q_i D_i, or a stated number, where the sums of batches are divided by that; None: by what was drawn."""
        if self.pipeline.divisor == "drawn":
            return None
        if self.pipeline.divisor == "expected":
            return np.asarray((self.sampler.rates * self.sampler.sizes)[order.rows])
        return np.full(len(order.rows), self.pipeline.divisor)

    def stages(self, order: Order) -> Pipeline:
        """What happens to the uploads that an order asks for; equal for groups that `released` may take together."""
        return coded(self.pipeline, order.code)

    def moment(self, order: Order) -> Moment:
        """What these stages depend on besides the updates."""
        noisy = self.pipeline.noisy
        if noisy and len(order.noise_std) != len(order.rows):
            raise AssertionError("no device here uploads without noise")
        return Moment(
            streams=self.streams,
            nodes=list(map(self.device_name, order.rows.tolist())) if noisy else [],
            levels=order.noise_std,
            interval=order.interval,
            first_slot=order.first_slot,
            last_slot=order.last_slot,
            kind=order.kind,
            step_size=order.step_size,
            steps=np.full(len(order.rows), len(order.slots)) if order.steps is None else order.steps,
            batches=self.expected_batches(order) if self.pipeline.counts_votes else None,
            shares=order.shares,
            clip_norm=order.clip_norm,
        )

    def measure_secants(self, model: Tensor, order: SecantOrder) -> SecantMeasurements:
        """What a schedule wants to know of the devices between where they ended and `model` (M,); raw."""
        assert self.loss_probe is not None, "this run does not measure"
        held = np.asarray(order.rows - self.first_row)
        return measure_secants(self.loss_probe, self.sampler, self.records, model, order, held)

    def measure(self, model: Tensor, order: MeasuringOrder) -> DeviceMeasurements:
        """Estimates of Sec. 10 at `model` (M,); under an untrusted edge server under noise, unless the run leaks."""
        assert self.gradient_probe is not None, "this run does not measure"
        held = self.held(order)
        values, gradients = measure_devices(self.gradient_probe, self.sampler, self.records, model, order, held)
        if self.gradient_probe.leaks or not self.pipeline.noisy:
            return DeviceMeasurements(values, gradients)
        if len(order.noise_std) != len(order.rows):
            raise AssertionError("no estimate leaves a device here without noise")
        released = self.gradient_probe.clipped(values)
        for position, row in enumerate(order.rows):
            stream = self.streams.open(self.device_name(int(row)), "noise-estimate", order.interval, order.slot)
            released[position] += order.noise_std[position] * stream.standard_normal(released.shape[1])
        return DeviceMeasurements(released, None)


def released(pipeline: Pipeline, trained: TrainingResult, received: Tensor, at: Moment) -> TrainingResult:
    """What may leave devices, of one group or of many, and what they keep; it may overwrite their updates (s, M).

    Threads that release side by side wait for the interpreter at each call, so the devices of all are given at once.

    Args:
        received: (M,) what they were sent, or (s, M) what each was.
    """
    sent = pipeline.encode(trained.updates, received, replace(at, votes=trained.votes))
    return TrainingResult(sent, trained.personal) if pipeline.hides else replace(trained, updates=sent)
