"""An edge server: local aggregations of its subnet inside an interval, and the upload that ends it (9)-(14)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from h2fdp.estimation.device_estimates import EDGE_NUMBERS, Gauge, MeasuringOrder, SubnetMeasurements, relayed
from h2fdp.estimation.loss_probes import SecantMeasurements, SecantOrder
from h2fdp.privacy import AggregationKind, NoiseSource, add_gaussian_noise
from h2fdp.protocol.diary import Diary
from h2fdp.protocol.plans import Aggregation, SecantPlan, SubnetPlan, TrainingOrder
from h2fdp.protocol.team import Team
from h2fdp.protocol.uploads import SubnetUpload
from h2fdp.streams import Streams
from h2fdp.training.objectives import LocalObjective, Plain
from h2fdp.training.work import Trained

_PLAIN = Plain()


@dataclass(frozen=True)
class Round:
    """One segment of an interval: the broadcast model (M,), and an order for each group of devices."""

    model: Tensor
    orders: dict[str, TrainingOrder]


@dataclass(frozen=True)
class EdgeServer:
    """Aggregates what its devices upload; adds one noise vector to each average when it is trusted.

    Attributes:
        noise_source: who adds noise in this subnet.
        groups: the device groups below, by name; `spans` says which rows of the subnet each holds.
        spans: name -> (first row, row after the last).
        gauge: how to measure for the controller; None in runs that never do.
        objective: what the devices minimise; it says what they remember.
        worth: from a number of local steps to how many gradients an upload of so many is worth.
    """

    name: str
    streams: Streams
    noise_source: NoiseSource
    groups: Team
    spans: dict[str, tuple[int, int]]
    gauge: Gauge | None = None
    objective: LocalObjective = _PLAIN
    worth: Callable[[int], float] = float

    def run_interval(self, broadcast: Tensor, plan: SubnetPlan) -> SubnetUpload:
        """One interval from what the cloud sent: (M,) the model w(t_k), or (2, M): and a control variate."""
        steps = self.rounds(broadcast, plan)
        current = next(steps)
        while True:
            try:
                current = steps.send(self.groups.call("train", current.model, current.orders))
            except StopIteration as end:
                upload: SubnetUpload = end.value
                return upload

    def rounds(self, broadcast: Tensor, plan: SubnetPlan) -> Generator[Round, Mapping[str, Trained], SubnetUpload]:
        """One interval, round by round: yields what devices are to do, is sent their uploads, returns its own upload.

        Whoever drives it decides how the devices train: by a call to their hosts, or many subnets' at once.

        1. The devices train over a segment and upload what they accumulated since the last broadcast.
        2. At a local aggregation the edge server subtracts their average from its model, (9)-(12), adds its noise
           if it is trusted, and broadcasts the result (13).
        3. At the end it uploads w(t_k) - (its last model - the last average), with the global noise: everything the
           subnet accumulated over the interval, its local noises included.

        An aggregation averages those whose uploads arrive. One that nobody's does adds nothing, no noise either: an
        average of nothing is no release.
        """
        model, variate = (broadcast[0], broadcast[1]) if broadcast.ndim == 2 else (broadcast, None)
        subnet_model = model
        diary = Diary.begun(self.objective, self.worth, plan, model, variate)
        start = plan.first_slot
        for segment, end in enumerate(plan.ends()):
            part = plan.aggregation(segment)
            if part.rows.size:
                orders = self._orders(plan, part, plan.kind(segment), start, end, diary.corrections(part.rows))
                uploads = yield Round(subnet_model, orders)
                trained = Trained.joined([uploads[name] for name in orders])
                diary.note(part, subnet_model, trained)
                average = weighted_sum(list(trained.updates), part.weights)
                if self.noise_source == "edge":
                    stream = self.streams.lent(self.name, f"noise-{plan.kind(segment)}", plan.interval, end)
                    average = add_gaussian_noise(average, float(part.noise_std[0]), stream)
                subnet_model = subnet_model - average
            start = end
        return diary.upload(model - subnet_model)

    def _orders(
        self,
        plan: SubnetPlan,
        part: Aggregation,
        kind: AggregationKind,
        start: int,
        end: int,
        corrections: Tensor | None,
    ) -> dict[str, TrainingOrder]:
        """For the groups with active devices, in the order of their rows."""
        orders = {}
        all_done = bool((part.steps == end - start).all())
        for name, held in self._held(part.rows):
            noise = part.noise_std[held] if self.noise_source == "device" else np.empty(0)
            steps = None if all_done else part.steps[held]
            own = None if corrections is None else corrections[torch.from_numpy(held)]
            orders[name] = TrainingOrder(
                plan.interval, start, end, kind, plan.step_size, part.rows[held], noise, steps, own, plan.watched
            )
        return orders

    def _held(self, rows: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """The groups with devices among these rows, and which of them each holds."""
        for name, (first, stop) in self.spans.items():
            held = (rows >= first) & (rows < stop)
            if held.any():
                yield name, held

    def measure_secants(self, model: Tensor, asked: SecantPlan) -> SecantMeasurements:
        """Raw measurements at w(t_{k+1}) (M,), of the devices of the interval's last aggregation."""
        rows = asked.plan.aggregation(-1).rows
        orders = {}
        for name, held in self._held(rows):
            own = torch.from_numpy(held)
            orders[name] = SecantOrder(
                asked.plan.interval, asked.plan.last_slot, rows[held], asked.ends[own], asked.last_steps[own]
            )
        measured = self.groups.call("measure_secants", model, orders)
        return SecantMeasurements.joined([measured[name] for name in orders])

    def measure(self, model: Tensor, plan: SubnetPlan) -> SubnetMeasurements:
        """Estimates of Sec. 10 at w(t_{k+1}) (M,), by the devices that took part in the interval's last aggregation.

        A trusted edge server sees single devices and releases their maxima under one noise; an untrusted one relays the
        mean of what devices released, and knows no dispersion. Deviation is that of one device drawn at random where
        values are raw.
        """
        noise, last = plan.estimate_noise, plan.aggregation(-1)
        assert self.gauge is not None, "this run does not measure"
        assert noise is not None, "this interval is not measured"
        by_devices = self.noise_source == "device" and not self.gauge.leaks
        orders = {
            name: MeasuringOrder(
                plan.interval,
                plan.last_slot,
                plan.step_size,
                last.rows[held],
                noise[held] if by_devices else np.empty(0),
            )
            for name, held in self._held(last.rows)
        }
        measured = self.groups.call("measure", model, orders)
        values = np.concatenate([measured[name].values for name in orders])
        if by_devices:
            return relayed(self.gauge, values, noise)
        gradients = torch.cat([measured[name].gradients for name in orders])
        chosen = self.streams.open(self.name, "estimate-device", plan.interval, plan.last_slot).integers(len(values))
        center = weighted_sum(list(gradients), last.weights)
        dispersion = float((gradients - center).norm(dim=1).max())
        raw = np.array([values[:, 0].max(), values[chosen, 1], dispersion])
        told = np.array([1.0, 1.0, 1.0 if len(values) > 1 else np.nan])  # one device is at no distance from itself
        if self.gauge.leaks:
            return SubnetMeasurements(raw * told, np.zeros(EDGE_NUMBERS), center.cpu())
        stream = self.streams.open(self.name, "noise-estimate", plan.interval, plan.last_slot)
        noise_std = float(noise[0])
        released = self.gauge.clipped(raw) + noise_std * stream.standard_normal(EDGE_NUMBERS)
        return SubnetMeasurements(released * self.gauge.ranges * told, noise_std * self.gauge.ranges, None)


def weighted_sum(vectors: list[Tensor], weights: np.ndarray) -> Tensor:
    """sum_j weights_j vectors_j, added in order: element by element, so that no layout changes a bit."""
    total = vectors[0] * float(weights[0])
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total.add_(vector, alpha=float(weight))
    return total
