"""A run with canaries in it; what passes between its nodes, and what each observer really received of a device.

A transcript holds the canaries' coordinates only: it is small, whatever the model's size. The account credits an
observer with more than it receives (the cloud's with every piece of an upload, a peer's with its subnet's part of a
global model): an audit attacks with what is really there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from h2fdp.algorithms.registry import audited
from h2fdp.audit.canaries import CanaryDesign, CanaryEngine, CanaryModule, CanaryRecords, CanarySampler
from h2fdp.privacy import GradientSumMechanism
from h2fdp.privacy.mechanisms.device_unit import ClippedUploads
from h2fdp.privacy.places import Holder, Observer, Place
from h2fdp.protocol import Cloud, InProcessNodes, IntervalPlan, NodeGroup, Plan, Upload
from h2fdp.run.setup import RunSetup
from h2fdp.training.local_steps import TrainingResult
from h2fdp.training.losses import minimised


@dataclass(frozen=True)
class SubnetTranscript:
    """One interval of one subnet.

    Attributes:
        place: where noise was added, which says what the edge server saw.
        first_device: number over the whole network of row 0.
        rows: (s,) rows of the devices that took part.
        weights: (segments, s) rho_j in each aggregation, the last one global; 0 for whose upload did not arrive.
        share: varrho_c, the subnet's weight at the cloud.
        steps: (segments, s) local steps that each upload accumulates; 0 where there is none.
        noise_std: (segments, s) from devices or (segments, 1) from the edge server, as planned.
        received: (segments, N) the models that the segments started from, as broadcast.
        uploads: (segments, s, N) what the devices sent; 0 where nothing.
        upload: (N,) what the edge server sent to the cloud.
    """

    place: Place
    first_device: int
    rows: np.ndarray
    weights: np.ndarray
    share: float
    steps: np.ndarray
    noise_std: np.ndarray
    received: np.ndarray
    uploads: np.ndarray
    upload: np.ndarray

    @cached_property
    def noise_parts(self) -> np.ndarray:
        """(segments, s) variance that each device's own noise adds to the average; 0 where the edge server adds it."""
        if self.place.by_node:
            return np.zeros(self.steps.shape)
        return np.asarray(self.place.parts(self.noise_std, self.weights) ** 2)

    @cached_property
    def noise_variances(self) -> np.ndarray:
        """(segments,) variance of the noise on each average; 0 where no upload arrived."""
        variances = (self.place.parts(self.noise_std, self.weights) ** 2).sum(axis=1)
        return np.asarray(np.where(self.steps.any(axis=1), variances, 0.0))


@dataclass(frozen=True)
class IntervalTranscript:
    """One interval of the whole network.

    Attributes:
        step_size: eta_k.
        subnets: those that took part.
        moved: (N,) w(t_k) - w(t_{k+1}), which everybody sees.
    """

    step_size: float
    subnets: tuple[SubnetTranscript, ...]
    moved: np.ndarray

    @cached_property
    def noise_variance(self) -> float:
        """Variance of all noise on the global model's move."""
        return sum(subnet.share**2 * float(subnet.noise_variances.sum()) for subnet in self.subnets)


@dataclass(frozen=True)
class CanaryObservation:
    """One vector that holds something of one device.

    Attributes:
        device: its number over the whole network.
        values: (N,) on the canaries' coordinates; those of the device's own canaries are of interest.
        weight: the share of the device's update in it, the mean over its steps.
        noise_std: of the noise that the observer cannot subtract, as planned.
        segments: local steps of the device that it accumulates, upload by upload.
    """

    device: int
    values: np.ndarray
    weight: float
    noise_std: float
    segments: tuple[int, ...]

    @property
    def steps(self) -> int:
        """The steps of all uploads."""
        return sum(self.segments)


def observations(
    observer: Observer,
    transcript: IntervalTranscript,
    watched: Container[int],
    peer_of: Callable[[int], int],
    edge_is_cloud: bool = False,
) -> Iterator[CanaryObservation]:
    """The vectors that the observer received of each watched device of which anything arrived.

    Args:
        watched: the devices of interest; for `edge`, none under a trusted edge server.
        peer_of: device -> the one other device of its subnet that spies on it, fixed in advance; only for `peer`.
        edge_is_cloud: the edge server is the cloud's own (a star), so the cloud sees single uploads.
    """
    for subnet in transcript.subnets:
        for position, row in enumerate(subnet.rows.tolist()):
            device = subnet.first_device + row
            if device not in watched or not subnet.steps[:, position].any():
                continue
            if observer == "edge" or (observer == "cloud" and edge_is_cloud):
                yield from _by_edge(subnet, device, position)
            elif observer == "peer":
                yield from _by_peer(transcript, subnet, device, position, peer_of(device) - subnet.first_device)
            elif observer == "cloud":
                noise = math.sqrt(float(subnet.noise_variances.sum()))
                weight, segments = _whole(subnet, position)
                yield CanaryObservation(device, subnet.upload, weight, noise, segments)
            else:
                weight, segments = _whole(subnet, position)
                noise = math.sqrt(transcript.noise_variance)
                yield CanaryObservation(device, transcript.moved, subnet.share * weight, noise, segments)


def _whole(subnet: SubnetTranscript, position: int) -> tuple[float, tuple[int, ...]]:
    """Mean weight of a device's steps over the interval, and how many there are in each upload."""
    steps = subnet.steps[:, position]
    return float(subnet.weights[:, position] @ steps / steps.sum()), tuple(steps[steps > 0].tolist())


def _by_edge(subnet: SubnetTranscript, device: int, position: int) -> Iterator[CanaryObservation]:
    """Each upload of the device, under its own noise; each average, where the edge server sees no more than that."""
    assert not subnet.place.by_node, "a trusted edge server sees raw updates: outside of the threat model"
    single = subnet.place.holder is not Holder.SHARE
    for segment, steps in enumerate(subnet.steps[:, position].tolist()):
        if steps and single:
            noise = float(subnet.noise_std[segment, position])
            yield CanaryObservation(device, subnet.uploads[segment, position], 1.0, noise, (steps,))
        elif steps:
            average = subnet.weights[segment] @ subnet.uploads[segment]
            noise = math.sqrt(float(subnet.noise_variances[segment]))
            yield CanaryObservation(device, average, float(subnet.weights[segment, position]), noise, (steps,))


def _by_peer(
    transcript: IntervalTranscript, subnet: SubnetTranscript, device: int, position: int, spy: int
) -> Iterator[CanaryObservation]:
    """Each local average of the subnet, and what the global model adds to them, less what the spy itself sent."""
    at = np.flatnonzero(subnet.rows == spy)  # empty where the spy did not take part: then it knows nothing
    own_noise = np.einsum("sp,spn->sn", subnet.weights[:, at], subnet.uploads[:, at])
    hidden = subnet.noise_variances - subnet.noise_parts[:, at].sum(axis=1)
    last = len(subnet.steps) - 1
    weights, steps = subnet.weights[:, position].tolist(), subnet.steps[:, position].tolist()
    for segment in np.flatnonzero(subnet.steps[:last, position]).tolist():
        average = subnet.received[segment] - subnet.received[segment + 1]
        yield CanaryObservation(
            device, average - own_noise[segment], weights[segment], math.sqrt(hidden[segment]), (steps[segment],)
        )
    if not steps[last]:
        return
    local_averages = subnet.received[0] - subnet.received[last]
    others = transcript.noise_variance - subnet.share**2 * float(subnet.noise_variances.sum())
    yield CanaryObservation(
        device,
        transcript.moved - subnet.share * (local_averages + own_noise[last]),
        subnet.share * weights[last],
        math.sqrt(subnet.share**2 * float(hidden[last]) + max(others, 0.0)),
        (steps[last],),
    )


class RecordingNodes:
    """A nodes that keeps what passes through its calls.

    Attributes:
        heard: in this interval, for each call the model that went down, what each node was asked, and what it sent up.
    """

    def __init__(self, nodes: NodeGroup, first: int) -> None:
        self._nodes = nodes
        self._first = first
        self.heard: list[tuple[np.ndarray, Mapping[str, Any], dict[str, np.ndarray]]] = []

    def call(self, method: str, shared: Any, each: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[str, TrainingResult | Upload] = self._nodes.call(method, shared, each)
        sent = {
            name: up.update if isinstance(up, Upload) else up.updates for name, up in answers.items()
        }  # (M,), (s, M)
        self.heard.append((self._canaries(shared), each, {name: self._canaries(up) for name, up in sent.items()}))
        return answers

    def _canaries(self, vectors: Tensor) -> np.ndarray:
        return np.asarray(vectors[..., self._first :].numpy(), dtype=np.float64)


class InstrumentedRun:
    """The nodes of a run in this process, over M + N coordinates, with canaries in their devices' local steps.

    Args:
        noise_scale: what is really added, as a multiple of what is planned. 1, except to show that an audit notices.
    """

    def __init__(self, run: RunSetup, design: CanaryDesign, noise_scale: float = 1.0) -> None:
        first, devices = run.initial.numel(), run.topology.devices
        module, method = run.blueprint.module, run.config.method
        method = method.model_copy(update={"server": audited(method.server)})
        self.run = replace(
            run,
            config=run.config.model_copy(update={"method": method}),
            initial=torch.cat([run.initial, run.initial.new_zeros(design.size)]),
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
            own_coordinates = coordinates[int(run.blueprint.first_devices[number]) :][: subnet.size]
            canaries = CanaryRecords(
                self._length,
                [first + each for each in own_coordinates],
                [design.included[each] for each in own_coordinates],
                dominating=design.kind != "dirac",
                turning=design.kind == "turning",
                whole=design.kind == "device",
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
        if not canaries.whole:
            sampler = CanarySampler(**vars(group.sampler), canaries=canaries, device_name=group.device_name)
            group = replace(group, sampler=sampler)
        loss = minimised(blueprint.descent.objective, blueprint.loss)
        engine = CanaryEngine(blueprint.module(), blueprint.clipping, blueprint.descent, canaries, loss)
        return InProcessNodes({"devices": replace(group, engine=engine)})

    def run_interval(self, plan: IntervalPlan) -> IntervalTranscript:
        """Run one interval and say what was sent."""
        for nodes in (self._edges, *self._subnets.values()):
            nodes.heard = []
        before = self.cloud.model
        scaled = {
            name: replace(part, noise_std=part.noise_std * self._noise_scale) for name, part in plan.subnets.items()
        }
        self.cloud.run_interval(replace(plan, subnets=scaled))
        moved = (before - self.cloud.model)[self._first :].numpy().astype(np.float64)
        return IntervalTranscript(plan.decision.step_size, tuple(self._transcripts(plan)), moved)

    def _transcripts(self, plan: IntervalPlan) -> list[SubnetTranscript]:
        if not plan.subnets:
            return []
        ((start, _, uploads_to_cloud),) = self._edges.heard
        first_devices = dict(zip(self._subnets, self.run.blueprint.first_devices.tolist(), strict=False))
        places = {facts.name: facts.place for facts in self.run.blueprint.facts if facts.place is not None}
        transcripts = []
        for (name, part), share in zip(plan.subnets.items(), plan.weights.tolist(), strict=True):
            attendance = part.tasks.steps
            received, uploads = self._rounds(name, part, start - uploads_to_cloud[name])
            transcripts.append(
                SubnetTranscript(
                    place=places[name],
                    first_device=first_devices[name],
                    rows=part.rows,
                    weights=part.weights,
                    share=share,
                    steps=attendance,
                    noise_std=self._of_uploads(name, part, plan.decision.step_size),
                    received=received,
                    uploads=uploads,
                    upload=uploads_to_cloud[name],
                )
            )
        return transcripts

    def _of_uploads(self, name: str, part: Plan, step_size: float) -> np.ndarray:
        """Standard deviations of the noise on uploads, or averages; that on the sum of each step adds up in them."""
        if name not in self._noisy_steps:
            return part.noise_std
        devices = self._noisy_steps[name][part.rows]
        batches = self.run.blueprint.rates[devices] * self.run.data.sizes[devices]
        return np.asarray(part.noise_std * step_size * np.sqrt(part.tasks.steps) / batches)

    def _rounds(self, name: str, part: Plan, final: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(segments, N) models and (segments, s, N) uploads of a subnet; the model stays where none arrived.

        Args:
            final: (N,) the subnet's model at the end.
        """
        heard, steps = iter(self._subnets[name].heard), part.tasks.steps
        uploads = np.zeros((*steps.shape, final.size))
        received = np.empty((len(steps), final.size))
        for segment, stepping in enumerate(steps > 0):
            if stepping.any():
                received[segment], asked, sent = next(heard)
                uploads[segment, np.searchsorted(part.rows, asked["devices"].rows)] = sent["devices"]
        following = final
        for segment in reversed(range(len(steps))):
            if steps[segment].any():
                following = received[segment]
            received[segment] = following
        return received, uploads


def canary_gradient(run: RunSetup) -> tuple[str, float]:
    """The bound on a record's gradient, by its name and its length G: of clipping, or of the loss without.

    Where devices are protected, the length of an upload of the first interval, if the device takes part.
    """
    if isinstance(run.noise, ClippedUploads):
        return "update", run.noise.longest.clip_norm / run.noise.rate
    clipping = run.blueprint.clipping
    if clipping is not None:
        return clipping.scope, clipping.norm
    assert isinstance(run.noise, GradientSumMechanism), "a guarantee comes with bounded gradients"
    return "record", run.noise.bound.unit(1.0, 1)
