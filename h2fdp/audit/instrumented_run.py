"""A run with canaries in it, and what passes between its nodes, on the canaries' coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.audit.canaries import CanaryDesign, CanaryEngine, CanaryModule, CanaryRecords, CanarySampler
from h2fdp.audit.observer_views import IntervalTranscript, SubnetTranscript
from h2fdp.privacy import GradientSumMechanism
from h2fdp.protocol import Cloud, InProcessNodes, IntervalPlan, NodeGroup, Plan, Upload
from h2fdp.run.setup import RunSetup
from h2fdp.training.clipping import ClipScope
from h2fdp.training.descent import TrainingResult


class RecordingNodes:
    """A nodes that keeps what passes through its calls.

    Attributes:
        heard: since the last `forget`, for each call the model that went down, and what each node sent up.
    """

    def __init__(self, nodes: NodeGroup, first: int) -> None:
        self._nodes = nodes
        self._first = first
        self.heard: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        answers = self._nodes.call(method, shared, each)
        self.heard.append((self._canaries(shared), {name: self._canaries(_sent(up)) for name, up in answers.items()}))
        return answers

    def _canaries(self, vectors: Tensor) -> np.ndarray:
        return np.asarray(vectors[..., self._first :].numpy(), dtype=np.float64)

    def forget(self) -> None:
        """Start the next interval."""
        self.heard = []


def _sent(answer: TrainingResult | Upload) -> Tensor:
    """The updates of devices (s, M), or that of a subnet (M,)."""
    return answer.update if isinstance(answer, Upload) else answer.updates


class InstrumentedRun:
    """The nodes of a run in this process, over M + N coordinates, with canaries in their devices' local steps.

    Args:
        noise_scale: what is really added, as a multiple of what is planned. 1, except to show that an audit notices.
    """

    def __init__(self, run: RunSetup, design: CanaryDesign, noise_scale: float = 1.0) -> None:
        first, devices = run.initial.numel(), run.topology.devices
        module = run.blueprint.module
        self.run = replace(
            run,
            initial=torch.cat([run.initial, torch.zeros(design.size)]),
            blueprint=replace(
                run.blueprint, module=lambda: CanaryModule(module(), design.size), device=torch.device("cpu")
            ),
        )
        self._noise_scale = noise_scale
        self._first = first
        self._length = canary_gradient(run)[1]
        coordinates = design.coordinates(devices)
        self._subnets: dict[str, RecordingNodes] = {}
        self._noisy_steps: dict[str, np.ndarray] = {}  # subnet whose devices add noise at each step -> their numbers
        servers = {}
        for number, subnet in enumerate(run.topology.subnets):
            held = coordinates[int(run.blueprint.first_devices[number]) :][: subnet.size]
            canaries = CanaryRecords(
                self._length,
                [first + each for each in held],
                [design.included[each] for each in held],
                dominating=design.kind != "dirac",
                turning=design.kind == "turning",
            )
            groups = self._subnets[subnet.name] = RecordingNodes(self._group(number, canaries), first)
            if self.run.blueprint.device_group(number).pipeline.noisy_steps:
                self._noisy_steps[subnet.name] = np.arange(subnet.size) + int(run.blueprint.first_devices[number])
            servers[subnet.name] = replace(self.run.blueprint.edge_server(number), groups=groups)
        self._edges = RecordingNodes(InProcessNodes(servers), first)
        self.cloud: Cloud = self.run.cloud(self._edges)

    def _group(self, number: int, canaries: CanaryRecords) -> NodeGroup:
        """The devices of a subnet with canaries among their records."""
        blueprint = self.run.blueprint
        group = blueprint.device_group(number)
        sampler = CanarySampler(**vars(group.sampler), canaries=canaries, device_name=group.device_name)
        engine = CanaryEngine(blueprint.module(), blueprint.clipping, blueprint.objective, canaries, blueprint.loss)
        return InProcessNodes({"devices": replace(group, sampler=sampler, engine=engine)})

    def run_interval(self, plan: IntervalPlan) -> IntervalTranscript:
        """Run one interval and say what was sent."""
        for nodes in (self._edges, *self._subnets.values()):
            nodes.forget()
        before = self.cloud.model
        self.cloud.run_interval(self._with_scaled_noise(plan))
        moved = (before - self.cloud.model)[self._first :].numpy().astype(np.float64)
        return IntervalTranscript(plan.decision.step_size, tuple(self._transcripts(plan)), moved)

    def _with_scaled_noise(self, plan: IntervalPlan) -> IntervalPlan:
        scaled = {
            name: replace(part, noise_std=part.noise_std * self._noise_scale) for name, part in plan.subnets.items()
        }
        return replace(plan, subnets=scaled)

    def _transcripts(self, plan: IntervalPlan) -> list[SubnetTranscript]:
        if not plan.subnets:
            return []
        ((start, uploads_to_cloud),) = self._edges.heard
        first_devices = dict(zip(self._subnets, self.run.blueprint.first_devices.tolist(), strict=False))
        places = {facts.name: facts.place for facts in self.run.blueprint.facts if facts.place is not None}
        found = []
        for (name, part), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True):
            attendance = part.steps
            received, uploads = self._rounds(name, attendance, start - uploads_to_cloud[name])
            found.append(
                SubnetTranscript(
                    place=places[name],
                    first_device=first_devices[name],
                    rows=part.rows,
                    weights=part.all_weights,
                    share=share,
                    steps=attendance,
                    noise_std=self._of_uploads(name, part, plan.decision.step_size),
                    received=received,
                    uploads=uploads,
                    upload=uploads_to_cloud[name],
                )
            )
        return found

    def _of_uploads(self, name: str, part: Plan, step_size: float) -> np.ndarray:
        """Standard deviations of the noise on uploads, or averages; that on the sum of each step adds up in them."""
        if name not in self._noisy_steps:
            return part.noise_std
        devices = self._noisy_steps[name][part.rows]
        batches = self.run.blueprint.rates[devices] * self.run.data.sizes[devices]
        return np.asarray(part.noise_std * step_size * np.sqrt(part.steps) / batches)

    def _rounds(self, name: str, steps: np.ndarray, final: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(segments, N) models and (segments, s, N) uploads of a subnet; the model stays where nobody's arrived.

        Args:
            steps: (segments, s) behind each upload.
            final: (N,) the subnet's model at the end.
        """
        heard = iter(self._subnets[name].heard)
        uploads = np.zeros((*steps.shape, final.size))
        received = np.empty((len(steps), final.size))
        for segment, there in enumerate(steps > 0):
            if there.any():
                received[segment], sent = next(heard)
                uploads[segment, there] = sent["devices"]
        following = final
        for segment in reversed(range(len(steps))):
            if steps[segment].any():
                following = received[segment]
            received[segment] = following
        return received, uploads


def canary_gradient(run: RunSetup) -> tuple[ClipScope, float]:
    """What bounds a record's gradient, and its length G: clipping, or what is known of the loss without."""
    clipping = run.blueprint.clipping
    if clipping is not None:
        return clipping.scope, clipping.norm
    assert isinstance(run.noise, GradientSumMechanism), "a guarantee comes with bounded gradients"
    return "record", run.noise.bound.unit(1.0, 1)
