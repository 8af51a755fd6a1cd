"""Devices of one subnet that live on one host: local training, and noise before anything leaves them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from h2fdp.privacy import AdaptiveClipping, DeviceNoise, LocalRandomizer
from h2fdp.privacy.clipping import ROUNDING, clip_rows
from h2fdp.protocol.messages import Order
from h2fdp.schedules.device_estimates import DeviceMeasurements, GradientProbe, MeasuringOrder, measure_devices
from h2fdp.schedules.loss_probes import LossProbe, SecantMeasurements, SecantOrder, measure_secants
from h2fdp.streams import Streams
from h2fdp.training import Batches, BatchSampler, DeviceRecords, Engine
from h2fdp.training.work import StepTerms, TrainingResult


@dataclass(frozen=True)
class DeviceGroup:
    """Devices of a subnet; knows itself whether its edge server may see raw updates.

    Attributes:
        mechanism: the devices' part in what makes the run private under their edge server. It is their own knowledge:
            an order without noise is not obeyed where they must add it.
        first_row: the row within the subnet of the first device of `records`; below 0 where the block begins with
            devices of other subnets.
        device_name: from a row within the subnet to the device's name, the node of its noise streams.
        gradient_probe: how to measure for the controller; None in runs that never do.
        loss_probe: likewise for schedules that want secants.
        longest: from the step size and the number of steps to the longest update that clipped gradients make. Between
            large models an update is longer by rounding, and noise is sized for this length. None without clipping.
        adaptive: how the clip norm moves; None where it does not. Then orders state it, and the models that devices
            receive and the updates that they send end in a coordinate for votes about it.
    """

    streams: Streams
    mechanism: LocalRandomizer
    first_row: int
    device_name: Callable[[int], str]
    records: DeviceRecords
    sampler: BatchSampler
    engine: Engine
    gradient_probe: GradientProbe | None = None
    loss_probe: LossProbe | None = None
    longest: Callable[[float, int], float] | None = None
    adaptive: AdaptiveClipping | None = None

    def train(self, model: Tensor, order: Order) -> TrainingResult:
        """Local steps (7)-(8) of the ordered devices from `model` (M,), and what each of them uploads: (s, M).

        Delta_i, made private by their own side of the mechanism where that is up to them.
        """
        starts = self.start(model).expand(len(order.rows), -1)
        terms, batches = self.terms(model, order), self.batches(order)
        trained = self.engine.train(starts, self.records, self.held(order), batches, order.step_size, terms)
        return self.released(trained, model, order)

    def start(self, model: Tensor) -> Tensor:
        """(M,) the model of what was sent: without the votes so far, where there are any."""
        return model if self.adaptive is None else model[:-1]

    def terms(self, model: Tensor, order: Order) -> StepTerms:
        """The terms of an order's steps from `model` (M,)."""
        noise = self._noise(order)
        own, corrections = self.mechanism.linear_terms(model, noise), order.corrections
        if own is not None:
            corrections = own if corrections is None else corrections + own
        of_records = order.clip_norm if self._records_vote else None
        step_noise = self.mechanism.step_noise(noise)
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
        if self.mechanism.divisor is not None:
            return np.full(len(order.rows), self.mechanism.divisor)
        if not self.mechanism.by_expected_batch:
            return None
        return np.asarray((self.sampler.rates * self.sampler.sizes)[order.rows])

    def released(self, trained: TrainingResult, model: Tensor, order: Order) -> TrainingResult:
        """What may leave the devices, whose updates (s, M) since `model` it may overwrite; and what they keep."""
        if (longest := self._longest(order)) is not None:
            clip_rows(trained.updates, longest, ROUNDING)
        if self.adaptive is not None:
            trained = TrainingResult(torch.cat([trained.updates, self._votes(trained, order)[:, None]], dim=1))
        if order.code is not None and order.shares is not None:
            noise = self._noise(order)
            residues = self.mechanism.residues(trained.updates, noise, order.kind, order.code, order.shares)
            return TrainingResult(residues, trained.personal)
        return _uploaded(self.mechanism, trained, model, self._noise(order), order.kind)

    def company(self, order: Order) -> Hashable:
        """Equal for groups and orders of the same slots that `released_together` may take; None: for no others."""
        if self.adaptive is not None or order.code is not None:
            return None
        return self.mechanism, self._longest(order), order.kind, order.clip_norm

    def _longest(self, order: Order) -> float | None:
        """What an update is shortened to; None where lengths are not bounded."""
        if self.longest is None:
            return None
        longest = self.longest(order.step_size, len(order.slots))
        if self.adaptive is not None and order.clip_norm is not None:
            longest *= order.clip_norm / self.adaptive.initial
        return longest

    @property
    def _records_vote(self) -> bool:
        """Whether votes are about records' gradients, not about whole updates."""
        return not self.mechanism.clips_updates

    def _votes(self, trained: TrainingResult, order: Order) -> Tensor:
        """(s,) the last coordinate of updates (s, M), in their unit: votes go the way that gradients go."""
        assert self.adaptive is not None, "votes are about a clip norm that moves"
        assert order.clip_norm is not None, "an order says what devices vote about"
        vote = self.adaptive.vote(order.clip_norm)
        if not self._records_vote:
            within = torch.linalg.vector_norm(trained.updates, dim=1, dtype=torch.float64) <= order.clip_norm
            return torch.where(within, vote, -vote).to(trained.updates)
        assert trained.votes is not None, "engines count them"
        batches = self.expected_batches(order)
        assert batches is not None, "sums are divided by public numbers"
        steps = np.full(len(order.rows), len(order.slots)) if order.steps is None else order.steps
        means = 2 * trained.votes.double().cpu().numpy() / batches
        if not self.mechanism.noisy_steps:
            means = means.clip(-1, 1)  # as the mean of the gradients is clipped: a batch may be larger than expected
        noise = self.mechanism.noise_on_votes(self._noise(order), steps) / batches
        return torch.from_numpy(order.step_size * (vote * means + noise)).to(trained.updates)

    def _noise(self, order: Order) -> DeviceNoise:
        if self.mechanism.noisy and len(order.noise_std) != len(order.rows):
            raise AssertionError("no device here uploads without noise")
        when = (order.interval, order.first_slot, order.last_slot)
        nodes = list(map(self.device_name, order.rows.tolist())) if self.mechanism.noisy else []
        return DeviceNoise(self.streams, nodes, order.noise_std, *when, order.clip_norm)

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
        if self.gradient_probe.leaks or not self.mechanism.noisy:
            return DeviceMeasurements(values, gradients)
        if len(order.noise_std) != len(order.rows):
            raise AssertionError("no estimate leaves a device here without noise")
        released = self.gradient_probe.clipped(values)
        for position, row in enumerate(order.rows):
            stream = self.streams.open(self.device_name(int(row)), "noise-estimate", order.interval, order.slot)
            released[position] += order.noise_std[position] * stream.standard_normal(released.shape[1])
        return DeviceMeasurements(released, None)


def released_together(
    groups: Sequence[DeviceGroup], trained: TrainingResult, models: Tensor, orders: Sequence[Order]
) -> TrainingResult:
    """To the bit what each group releases, device after device, by the calls of one: for groups of equal `company`.

    Threads that release side by side wait for the interpreter at each call.

    Args:
        trained: of all their devices.
        models: (s, M) what each device was sent.
    """
    first, order = groups[0], orders[0]
    if (longest := first._longest(order)) is not None:
        clip_rows(trained.updates, longest, ROUNDING)
    noise = DeviceNoise.joined([group._noise(own) for group, own in zip(groups, orders, strict=True)])
    return _uploaded(first.mechanism, trained, models, noise, order.kind)


def _uploaded(
    mechanism: LocalRandomizer, trained: TrainingResult, model: Tensor, noise: DeviceNoise, purpose: str
) -> TrainingResult:
    whole = mechanism.upload(trained.updates, model, noise, purpose)
    return trained if whole else TrainingResult(trained.updates, trained.personal)
