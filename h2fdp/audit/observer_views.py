"""What was sent in an interval, and what each observer really received of a device (table of observers in the spec).

A transcript holds the canaries' coordinates only: it is small, whatever the model's size.

The account credits an observer with more than it receives (the cloud's with every piece of an upload, a peer's with its
subnet's part of a global model): an audit attacks with what is really there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from h2fdp.privacy.places import Holder, Observer, Place


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
        """(segments,) variance of the noise on each average; 0 where nobody's upload arrived."""
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
        """Of all uploads."""
        return sum(self.segments)


PeerOf = Callable[[int], int]


def observations(
    observer: Observer,
    transcript: IntervalTranscript,
    watched: Container[int],
    peer_of: PeerOf,
    edge_is_cloud: bool = False,
) -> Iterator[CanaryObservation]:
    """What the observer received of each watched device of which anything arrived.

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
    known = np.einsum("sp,spn->sn", subnet.weights[:, at], subnet.uploads[:, at])
    hidden = subnet.noise_variances - subnet.noise_parts[:, at].sum(axis=1)
    last = len(subnet.steps) - 1
    weights, steps = subnet.weights[:, position].tolist(), subnet.steps[:, position].tolist()
    for segment in np.flatnonzero(subnet.steps[:last, position]).tolist():
        average = subnet.received[segment] - subnet.received[segment + 1]
        yield CanaryObservation(
            device, average - known[segment], weights[segment], math.sqrt(hidden[segment]), (steps[segment],)
        )
    if not steps[last]:
        return
    local_averages = subnet.received[0] - subnet.received[last]
    others = transcript.noise_variance - subnet.share**2 * float(subnet.noise_variances.sum())
    yield CanaryObservation(
        device,
        transcript.moved - subnet.share * (local_averages + known[last]),
        subnet.share * weights[last],
        math.sqrt(subnet.share**2 * float(hidden[last]) + max(others, 0.0)),
        (steps[last],),
    )
