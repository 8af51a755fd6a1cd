"""One interval as the cloud sees it: what it knows of each subnet, its plan, and what every observer will receive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from torch import Tensor

from h2fdp.control import Decision, Measurements, Observation, Points
from h2fdp.nodes.measuring import DEVICE_NUMBERS, EDGE_NUMBERS, SubnetMeasurements
from h2fdp.nodes.plans import SubnetPlan
from h2fdp.privacy import NoiseSource, Sampling, SubnetReleases
from h2fdp.privacy.sensitivity import ESTIMATE_BATCHES, accumulated_gradient_sensitivity, estimate_sensitivity
from h2fdp.training.epochs import steps_per_epoch

Weighting = Literal["uniform", "by-size"]


@dataclass(frozen=True)
class SubnetFacts:
    """What is public about a subnet: the cloud plans with it.

    Attributes:
        records: (s_c,) D_i.
        sampling_rates: (s_c,) q_i.
        sampling: how batches are drawn.
        edge_is_cloud: the edge server is the cloud's own (a star).
        access_points: what its devices' messages go through: the edge server itself, unless these say otherwise.
    """

    name: str
    noise_source: NoiseSource
    records: np.ndarray
    sampling_rates: np.ndarray
    sampling: Sampling
    edge_is_cloud: bool = False
    access_points: Points = ()

    @property
    def points(self) -> Points:
        """Access points and the number of devices of each."""
        return self.access_points or ((self.name, len(self.records)),)

    @property
    def steps_per_epoch(self) -> np.ndarray:
        """(s_c,) batches in which a device goes through its records once."""
        return steps_per_epoch(self.records, self.sampling_rates)

    def weights(self, rows: np.ndarray, weighting: Weighting) -> np.ndarray:
        """rho_j of these devices: equal, or proportional to D_j; they sum to 1."""
        counts = self.records[rows] if weighting == "by-size" else np.ones(len(rows))
        return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class IntervalPlan:
    """One interval of the whole network, in the order of the tree.

    Attributes:
        subnets: those that upload anything.
        weights: their varrho_c, summing to 1.
        lost: those whose devices all dropped out before an upload; they cost energy and give nothing.
    """

    interval: int
    first_slot: int
    decision: Decision
    subnets: dict[str, SubnetPlan]
    weights: np.ndarray
    lost: dict[str, SubnetPlan] = field(default_factory=dict)

    @property
    def participants(self) -> int:
        """Devices of which anything arrives."""
        return sum(len(plan.arriving) for plan in self.subnets.values())

    @property
    def device_steps(self) -> int:
        """Local steps of all devices, done in vain or not."""
        return sum(int(plan.steps_computed.sum()) for plan in (*self.subnets.values(), *self.lost.values()))

    @property
    def last_slot(self) -> int:
        """t_{k+1}."""
        return self.first_slot + self.decision.local_steps


def numbers_released(source: NoiseSource) -> int:
    """How many estimates a device, or the edge server that adds the noise in its place, releases."""
    return DEVICE_NUMBERS if source == "device" else EDGE_NUMBERS


def subnet_releases(
    facts: SubnetFacts, plan: IntervalPlan, subnet: SubnetPlan, clip_norm: float
) -> Iterator[SubnetReleases]:
    """The uploads of a subnet in one interval: at each aggregation, and estimates for the controller after the last.

    A straggler's upload holds fewer steps, and is written down as what it is; its noise is that of the planned steps.
    An edge server's maximum over its devices moves with any of them by the whole range, so no weight shrinks it.
    """
    upload = partial(
        SubnetReleases,
        interval=plan.interval + 1,
        edge=facts.name,
        source=facts.noise_source,
        size=len(facts.records),
        sampling=facts.sampling,
        edge_is_cloud=facts.edge_is_cloud,
    )
    for segment, end in enumerate(subnet.ends()):
        part = subnet.aggregation(segment)
        planned = range(subnet.segments[segment] + 1)
        by_steps = [accumulated_gradient_sensitivity(subnet.step_size, steps, clip_norm) for steps in planned]
        yield upload(
            slot=end,
            kind=subnet.kind(segment),
            steps=part.steps,
            sensitivity=np.array(by_steps)[part.steps],
            rows=part.rows,
            sampling_rates=facts.sampling_rates[part.rows],
            weights=part.weights,
            noise_std=part.noise_std,
        )
    if subnet.estimate_noise is not None and subnet.estimate_noise.size:
        rows = subnet.aggregation(-1).rows
        count = len(rows)
        yield upload(
            slot=subnet.last_slot,
            kind="estimate",
            rows=rows,
            sampling_rates=facts.sampling_rates[rows],
            steps=ESTIMATE_BATCHES,
            sensitivity=estimate_sensitivity(numbers_released(facts.noise_source)),
            weights=np.full(count, 1 / count) if facts.noise_source == "device" else np.ones(count),
            noise_std=subnet.estimate_noise,
        )


def observation(
    plan: IntervalPlan,
    model: Tensor,
    uploads: list[Tensor],
    facts: Mapping[str, SubnetFacts],
    measured: Mapping[str, SubnetMeasurements] | None,
) -> Observation:
    """What the cloud saw of an interval that began at `model` (M,), for a schedule that learns."""
    variances = [_noise_variance(facts[name].noise_source, subnet) for name, subnet in plan.subnets.items()]
    steps = [_mean_steps(subnet) for subnet in plan.subnets.values()]
    return Observation(
        plan.interval,
        plan.decision.local_steps,
        plan.decision.step_size,
        model,
        uploads,
        plan.weights,
        np.array(variances),
        np.array(steps),
        _measurements(plan, measured) if measured else None,
    )


def _noise_variance(source: NoiseSource, subnet: SubnetPlan) -> float:
    """Of each coordinate of the upload: its own noise and those of the interval's local aggregations."""
    if source == "none":
        return 0.0
    parts = [subnet.aggregation(segment) for segment in range(len(subnet.segments))]
    return sum(float(((part.noise_std * (part.weights if source == "device" else 1.0)) ** 2).sum()) for part in parts)


def _mean_steps(subnet: SubnetPlan) -> float:
    """How many gradients the upload accumulates: of each aggregation the mean over its devices."""
    if subnet.turnout is None:
        return float(sum(subnet.segments))
    parts = [subnet.aggregation(segment) for segment in range(len(subnet.segments))]
    return sum(float(part.weights @ part.steps) for part in parts)


def _measurements(plan: IntervalPlan, measured: Mapping[str, SubnetMeasurements]) -> Measurements:
    """Those of the subnets that had devices left at the end of the interval."""
    found = [measured[name] for name in plan.subnets if name in measured]
    mass = plan.weights[[name in measured for name in plan.subnets]]
    gradients = [each.gradient for each in found if each.gradient is not None]
    return Measurements(
        np.stack([each.values for each in found]),
        np.stack([each.noise_std for each in found]),
        np.stack([gradient.cpu().numpy() for gradient in gradients]) if gradients else None,
        mass / mass.sum(),
    )
