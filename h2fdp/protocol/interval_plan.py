"""One interval as the cloud sees it: what it knows of each subnet, its plan, and what every observer will receive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import Tensor

from h2fdp.estimation import Measurements, Observation
from h2fdp.estimation.device_estimates import DEVICE_NUMBERS, EDGE_NUMBERS, SubnetMeasurements
from h2fdp.privacy import Mechanism, NoiseSource, Sampling, Upload
from h2fdp.protocol.messages import Arrivals, Plan
from h2fdp.schedules import Decision
from h2fdp.training.epochs import steps_per_epoch
from h2fdp.world import Points

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
        noise_std: of the cloud's own noise on the average of the uploads; 0 for none.
    """

    interval: int
    first_slot: int
    decision: Decision
    subnets: dict[str, Plan]
    weights: np.ndarray
    lost: dict[str, Plan] = field(default_factory=dict)
    noise_std: float = 0.0

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


def uploads_of(facts: SubnetFacts, plan: IntervalPlan, subnet: Plan, share: float) -> Iterator[Upload]:
    """The uploads of a subnet in one interval: at each aggregation, and estimates for the controller after the last.

    Args:
        share: varrho_c of the subnet.
    """
    of_subnet = partial(
        Upload,
        interval=plan.interval + 1,
        edge=facts.name,
        source=facts.noise_source,
        step_size=subnet.step_size,
        share=share,
        cloud_noise_std=plan.noise_std,
        size=len(facts.records),
        sampling=facts.sampling,
        edge_is_cloud=facts.edge_is_cloud,
    )

    def of(part: Arrivals) -> dict[str, Any]:
        public = {"sampling_rates": facts.sampling_rates[part.rows], "records": facts.records[part.rows]}
        return {"rows": part.rows, "steps": part.steps, "weights": part.weights, **public}

    start = subnet.first_slot
    for segment, end in enumerate(subnet.ends()):
        part = subnet.aggregation(segment)
        kind = subnet.kind(segment)
        yield of_subnet(first_slot=start, slot=end, kind=kind, noise_std=part.noise_std, **of(part))
        start = end
    if subnet.estimate_noise is not None and subnet.estimate_noise.size:
        last = subnet.last_slot
        yield of_subnet(
            first_slot=last,
            slot=last,
            kind="estimate",
            noise_std=subnet.estimate_noise,
            numbers=numbers_released(facts.noise_source),
            **of(subnet.aggregation(-1)),
        )


def observation(
    plan: IntervalPlan,
    model: Tensor,
    uploads: list[Tensor],
    facts: Mapping[str, SubnetFacts],
    measured: Mapping[str, SubnetMeasurements] | None,
    noise: Mechanism | None,
) -> Observation:
    """What the cloud saw of an interval that began at `model` (M,), for a schedule that learns."""
    variances = [_noise_variance(noise, facts[name], plan, name) for name in plan.subnets]
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


def _noise_variance(noise: Mechanism | None, facts: SubnetFacts, plan: IntervalPlan, edge: str) -> float:
    """Of each coordinate of the subnet's own average: its own noise and those of the interval's local aggregations."""
    if noise is None:
        return 0.0
    uploads = uploads_of(facts, plan, plan.subnets[edge], share=1.0)
    return sum(noise.upload_variance(upload) for upload in uploads if upload.kind != "estimate")


def _mean_steps(subnet: Plan) -> float:
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
