"""One interval as the cloud sees it: what it knows of each subnet, its plan, and what every observer will receive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from torch import Tensor

from h2fdp.control import Decision, Measurements, Observation
from h2fdp.nodes.measuring import DEVICE_NUMBERS, EDGE_NUMBERS, SubnetMeasurements
from h2fdp.nodes.plans import SubnetPlan
from h2fdp.privacy import NoiseSource, Sampling, SubnetReleases
from h2fdp.privacy.sensitivity import ESTIMATE_BATCHES, accumulated_gradient_sensitivity, estimate_sensitivity

Weighting = Literal["uniform", "by-size"]


@dataclass(frozen=True)
class SubnetFacts:
    """What is public about a subnet: the cloud plans with it.

    Attributes:
        records: (s_c,) D_i.
        sampling_rates: (s_c,) q_i.
        sampling: how batches are drawn.
        edge_is_cloud: the edge server is the cloud's own (a star).
    """

    name: str
    noise_source: NoiseSource
    records: np.ndarray
    sampling_rates: np.ndarray
    sampling: Sampling
    edge_is_cloud: bool = False

    def weights(self, rows: np.ndarray, weighting: Weighting) -> np.ndarray:
        """rho_j of these devices: equal, or proportional to D_j; they sum to 1."""
        counts = self.records[rows] if weighting == "by-size" else np.ones(len(rows))
        return np.asarray(counts / counts.sum())


@dataclass(frozen=True)
class IntervalPlan:
    """One interval of the whole network; `subnets` and `weights` (varrho_c, summing to 1) in the order of the tree."""

    interval: int
    first_slot: int
    decision: Decision
    subnets: dict[str, SubnetPlan]
    weights: np.ndarray

    @property
    def participants(self) -> int:
        """Devices that take part."""
        return sum(len(plan.rows) for plan in self.subnets.values())

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

    An edge server's maximum over its devices moves with any of them by the whole range, so no weight shrinks it.
    """
    upload = partial(
        SubnetReleases,
        interval=plan.interval + 1,
        edge=facts.name,
        source=facts.noise_source,
        rows=subnet.rows,
        sampling_rates=facts.sampling_rates[subnet.rows],
        size=len(facts.records),
        sampling=facts.sampling,
        edge_is_cloud=facts.edge_is_cloud,
    )
    for segment, (steps, end) in enumerate(zip(subnet.segments, subnet.ends(), strict=True)):
        yield upload(
            slot=end,
            kind=subnet.kind(segment),
            steps=steps,
            sensitivity=accumulated_gradient_sensitivity(subnet.step_size, steps, clip_norm),
            weights=subnet.weights,
            noise_std=subnet.noise_std[segment],
        )
    if subnet.estimate_noise is not None and subnet.estimate_noise.size:
        count = len(subnet.rows)
        yield upload(
            slot=subnet.last_slot,
            kind="estimate",
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
    return Observation(
        plan.interval,
        plan.decision.local_steps,
        plan.decision.step_size,
        model,
        uploads,
        plan.weights,
        np.array(variances),
        None if measured is None else _measurements([measured[name] for name in plan.subnets]),
    )


def _noise_variance(source: NoiseSource, subnet: SubnetPlan) -> float:
    """Of each coordinate of the upload: its own noise and those of the interval's local aggregations."""
    shares = subnet.weights if source == "device" else 1.0
    return float(((subnet.noise_std * shares) ** 2).sum()) if source != "none" else 0.0


def _measurements(measured: Sequence[SubnetMeasurements]) -> Measurements:
    gradients = [each.gradient for each in measured if each.gradient is not None]
    return Measurements(
        np.stack([each.values for each in measured]),
        np.stack([each.noise_std for each in measured]),
        np.stack([gradient.cpu().numpy() for gradient in gradients]) if gradients else None,
    )
