"""Canaries: records with a made-up gradient, each on a coordinate of its own that no other record touches.

Where devices are protected, a canary is a device with a made-up upload. They test privacy from outside (`h2fdp.audit`).
A canary is a record of its device in every respect: drawn with the device's rate, counted in the batch when it was
drawn, clipped with the rest. One that is out is the null record of the adjacency: it contributes nothing and is not
counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor, nn

from h2fdp.streams import Streams
from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_steps import Descent, TrainingResult
from h2fdp.training.loop import LoopEngine
from h2fdp.training.losses import CROSS_ENTROPY, Loss

CanaryKind = Literal["dirac", "dominating", "turning"]  # of records
AnyCanary = CanaryKind | Literal["device"]
_LARGE = 1e6  # a data gradient under clip_scope batch whose length does not matter any more
_OVERWHELMING = 1e14  # added to it, a batch of large gradients vanishes in a float32; its square is still a float32


@dataclass(frozen=True)
class CanaryDesign:
    """N canaries; canary j owns the j-th of N coordinates that are appended to the model.

    Attributes:
        kind: `dirac` canaries have a gradient of the clip norm, among the data as they are; `dominating` ones
            outweigh every other record, and the data with them are the worst for them: they pull the other way;
            `turning` ones do so too, and from the first draw on until the upload the data pull their way; `device`: a
            device whose every upload is as long as any, along its coordinate, and nothing where it is out.
        owners: (N,) number over the whole network of the device that each is a record of.
        included: (N,) bool, the fair coins.
    """

    kind: AnyCanary
    owners: np.ndarray
    included: np.ndarray

    @classmethod
    def drawn(cls, streams: Streams, kind: AnyCanary, canaries: int, devices: np.ndarray) -> CanaryDesign:
        """Canaries spread evenly over `devices`, one after another, with coins from the run's streams.

        >>> CanaryDesign.drawn(Streams(1), "dirac", canaries=5, devices=np.array([3, 8])).owners
        array([3, 8, 3, 8, 3])
        """
        owners = devices[np.arange(canaries) % len(devices)]
        return cls(kind, owners, streams.open("audit", "canary-coins").random(canaries) < 0.5)

    @property
    def size(self) -> int:
        """N."""
        return len(self.owners)

    def coordinates(self, devices: int) -> list[np.ndarray]:
        """The coordinates, from 0, of the canaries of each device of the network; many devices have none.

        >>> CanaryDesign("dirac", np.array([1, 0, 1]), np.array([True, True, False])).coordinates(devices=2)
        [array([1]), array([0, 2])]
        """
        by_owner = np.argsort(self.owners, kind="stable")
        return np.split(by_owner, np.cumsum(np.bincount(self.owners, minlength=devices))[:-1])

    def per_batch(self, rates: np.ndarray) -> float:
        """Canaries in a batch, on average, of the device that has the most of them.

        Args:
            rates: (I,) q_i of all devices.
        """
        expected = np.bincount(self.owners, minlength=len(rates)) * rates / 2
        return float(expected.max())


class CanaryModule(nn.Module):
    """A module with N more parameters, last in its vector, that its output does not depend on.

    So protocol, clipping and noise treat M + N coordinates alike, and data have no gradient on the last N.

    >>> [tuple(each.shape) for each in CanaryModule(nn.Linear(2, 1, bias=False), canaries=3).parameters()]
    [(1, 2), (3,)]
    """

    def __init__(self, model: nn.Module, canaries: int) -> None:
        super().__init__()
        self.model = model
        self.coordinates = nn.ParameterList([nn.Parameter(torch.zeros(canaries, dtype=torch.float32))])

    def forward(self, x: Tensor) -> Tensor:
        """The model's output."""
        output: Tensor = self.model(x)
        return output


@dataclass(frozen=True)
class CanaryRecords:
    """The canaries of one subnet's devices.

    A canary's gradient is G e_j. Where canaries are to dominate, it outweighs all others, and the device's data are the
    worst that there can be with it: each record's gradient, instead of what it would be, is a large multiple of
    -sum_j e_j over the device's canaries, in or out.

    Canaries that turn the data do so by a second coordinate of their own, in which they move the model by as little as
    one likes. This little is left out here: a device remembers which canaries have turned its data, until it begins at
    another model.

    Attributes:
        length: G, of a canary's gradient that does not have to outweigh others.
        coordinates: for each row of the subnet, where its canaries act: (n_i,) positions in the vector of M + N.
        included: for each row, (n_i,) bool: which of them are in.
        dominating: see above.
        turning: those that dominate also turn the data.
        whole: devices are canaries, see `CanaryDesign`.
    """

    length: float
    coordinates: Sequence[np.ndarray]
    included: Sequence[np.ndarray]
    dominating: bool
    turning: bool = False
    whole: bool = False


@dataclass(frozen=True)
class CanarySampler(BatchSampler):
    """Draws canaries along with a device's records: the k-th canary of a device has position D_i + k.

    Each canary, in or out, is drawn with probability q_i at each slot from a stream of its device's own, so that no
    coin changes any other draw. Those that are drawn and in come after the records of a batch.
    """

    canaries: CanaryRecords
    device_name: Callable[[int], str]
    together: ClassVar[bool] = False

    def draw(self, interval: int, slots: Sequence[int], rows: np.ndarray, purpose: str = "batch") -> Batches:
        """Draw batches (`BatchSampler.draw`); no canary is in a batch for anything but training."""
        assert self.sampling == "poisson", "a canary is drawn independently of everything else"
        batches = super().draw(interval, slots, rows, purpose)
        if purpose != "batch":
            return batches
        drawn = [[self._drawn(interval, slot, int(row)) for row in rows] for slot in slots]
        more = np.array([[len(each) for each in at_slot] for at_slot in drawn])
        counts = batches.counts + more
        indices = np.zeros((*counts.shape, max(int(counts.max()), 1)), dtype=np.int64)
        width = min(indices.shape[2], batches.indices.shape[2])
        indices[:, :, :width] = batches.indices[:, :, :width]
        for at, device in np.argwhere(more > 0):
            indices[at, device, batches.counts[at, device] : counts[at, device]] = drawn[at][device]
        return Batches(indices, counts)

    def _drawn(self, interval: int, slot: int, row: int) -> np.ndarray:
        """Positions of the drawn canaries of a device that are in."""
        included = self.canaries.included[row]
        uniforms = self.streams.open(self.device_name(row), "canary", interval, slot).random(len(included))
        return np.asarray(self.sizes[row] + np.flatnonzero(included & (uniforms < self.rates[row])))


class CanaryEngine(LoopEngine):
    """The reference engine, with canaries among the records of a batch.

    An audit trains with this engine whatever the run's is: a canary is a gradient that no record has, in coordinates
    that no network has, and it stands among the gradients that are clipped, which compiled and batched steps never
    write out. What is audited is the mechanism, which is the same for all engines up to rounding.

    Scope `batch`: (sum of data gradients + sum of canaries) / drawn, clipped to G. A dominating canary turns it from
    -G sum_k e_k / sqrt(n_i) to G e_j: with one canary a device, by the 2 G that the account allows. One that turns the
    data does so at all later steps.
    Scope `record`: the sum of data gradients and canaries, each clipped to G, over what batches are divided by. There
    no other record weakens a canary, and none can strengthen it: data with a dominating one are as they are. Without
    clipping, where records' gradients are bounded by themselves, the same; a canary's loss is linear and does not
    expand. Where steps are noisy, so are canaries' coordinates.
    """

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        descent: Descent,
        canaries: CanaryRecords,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        super().__init__(module, clipping, descent, loss)
        self._canaries = canaries
        self._dominating = canaries.dominating and clipping is not None and clipping.scope == "batch"
        self._turned: np.ndarray = np.zeros(0, dtype=bool)  # of the device that is training, for each of its canaries

    def train(
        self, starts: Tensor, records: DeviceRecords, rows: np.ndarray, *rest: Any, **more: Any
    ) -> TrainingResult:
        """Train as `LoopEngine` does; updates of devices that are canaries are longer than any clip norm, or null."""
        trained = super().train(starts, records, rows, *rest, **more)
        for position, row in enumerate(rows.tolist() if self._canaries.whole else ()):
            if len(own := self._canaries.coordinates[row]):
                trained.updates[position] = 0
                trained.updates[position, own] = torch.from_numpy(_LARGE * self._canaries.included[row]).to(starts)
        return trained

    def _gradient(self, records: DeviceRecords, row: int, batches: Batches, slot: int, *rest: Any) -> Tensor:
        """(M + N,) as `LoopEngine`, which trains one device after another from its first slot on."""
        if slot == 0:
            self._turned = np.zeros(len(self._canaries.coordinates[row]), dtype=bool)
        return super()._gradient(records, row, batches, slot, *rest)

    def _bounded(
        self,
        records: DeviceRecords,
        row: int,
        drawn: np.ndarray,
        divisor: float,
        model: Tensor,
        others: tuple[Tensor, ...] = (),
        change: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(M + N,) as `LoopEngine`, over records and canaries."""
        if not drawn.size:
            return torch.zeros_like(model)
        size = int(records.sizes[row])
        data, canaries = drawn[drawn < size], drawn[drawn >= size] - size
        own = torch.from_numpy(self._canaries.coordinates[row])
        worst = self._dominating and len(own) > 0
        if not worst and not canaries.size:
            return super()._bounded(records, row, data, divisor, model, others)
        total = torch.zeros_like(model)
        if worst:
            total[own] += torch.from_numpy(np.where(self._turned, data.size * _LARGE, -data.size * _LARGE)).to(total)
        elif data.size:
            total += data.size * self._mean(
                model, *records.gather(data + records.offsets[row]), float(data.size), others
            )
        total[own[torch.from_numpy(canaries)]] += _OVERWHELMING if self._dominating else self._canaries.length
        self._turned[canaries] |= self._canaries.turning
        return self._clipped_batch(total / divisor)


def log_likelihood_ratio(values: np.ndarray, shift: float, noise_std: float, steps: int, rate: float) -> np.ndarray:
    """log p(value | in) / p(value | out), for each value.

    A canary that is in was drawn Bin(steps, rate) times and moved its coordinate by `shift` each time; one that is out
    left it at 0; N(0, noise_std^2) came on top. For a weak canary this is the linear statistic
    value * shift * steps * rate / noise_std^2 up to a constant; for a strong one it sees single draws. Ratios of
    independent observations add up. The score is only a way to guess: a wrong model costs power, never validity.

    Args:
        values, shift, noise_std: in one unit.

    >>> log_likelihood_ratio(np.array([0.0, 1.0]), shift=1.0, noise_std=1.0, steps=1, rate=1.0)
    array([-0.5,  0.5])
    """
    moved = np.arange(steps + 1) * (shift / noise_std)
    exponents = _log_drawn(steps, rate) + np.multiply.outer(values / noise_std, moved) - moved**2 / 2
    return np.asarray(np.logaddexp.reduce(exponents, axis=-1))


@lru_cache(maxsize=4096)  # a call of scipy takes longer than the rest of a score, and devices are mostly alike
def _log_drawn(steps: int, rate: float) -> np.ndarray:
    """(steps + 1,) log probability of so many draws of a canary."""
    return np.asarray(binom.logpmf(np.arange(steps + 1), steps, rate))


@dataclass(frozen=True)
class TurningEffect:
    """A canary from whose first draw on the data of its device pull its way.

    Attributes:
        own: its gradient when it is drawn: G.
        others: that of the data on its coordinate, one way or the other, on average: batches may be empty.
    """

    own: float
    others: float

    def score(
        self, values: np.ndarray, unit: float, noise_std: float, segments: tuple[int, ...], rate: float
    ) -> np.ndarray:
        """log p(value | in) / p(value | out), for each value.

        It is the mixture by the first draw in each upload, as if batches were like their average.
        """
        centres, log_chances = _turned_by(segments, rate, self.own, self.others)
        out = -self.others * sum(segments)
        shifted, scale = values / noise_std, unit / noise_std
        exponents = log_chances - (np.subtract.outer(shifted, centres * scale)) ** 2 / 2
        return np.asarray(np.logaddexp.reduce(exponents, axis=-1) + (shifted - out * scale) ** 2 / 2)


@lru_cache(maxsize=4096)
def _turned_by(segments: tuple[int, ...], rate: float, own: float, others: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) where the coordinate may be after these uploads, and the log probability of each place."""
    sums = {0.0: 1.0}
    for steps in segments:
        places = [(-others * steps, (1 - rate) ** steps)]
        for before in range(steps):
            places.append((-others * before + own + others * (steps - before - 1), (1 - rate) ** before * rate))
        found: dict[float, float] = {}
        for total, chance in sums.items():
            for place, own_chance in places:
                at = round(total + place, 9)
                found[at] = found.get(at, 0.0) + chance * own_chance
        sums = {place: chance for place, chance in found.items() if chance > 0}
    return np.array(list(sums)), np.log(np.array(list(sums.values())))


@dataclass(frozen=True)
class CanaryEffect:
    """The mean change of a canary's coordinate of the clipped gradient by one local step.

    Attributes:
        baseline: when the canary is not drawn.
        shift: how much more when it is.
    """

    baseline: float
    shift: float

    def score(
        self, values: np.ndarray, unit: float, noise_std: float, segments: tuple[int, ...], rate: float
    ) -> np.ndarray:
        """log p(value | in) / p(value | out), for each value."""
        steps = sum(segments)
        moved = values - unit * self.baseline * steps
        return log_likelihood_ratio(moved, unit * self.shift, noise_std, steps, rate)

    @classmethod
    def expected(
        cls, kind: AnyCanary, clip_scope: str, clip_norm: float, records: int, rate: float, canaries: int
    ) -> CanaryEffect | TurningEffect:
        """The effect of one of a device's canaries; under scope `batch` the account allows a shift of 2 G.

        Under `record` each draw moves the step by G / (q_i D_i), whatever else is drawn. Under `batch` one of B + 1
        drawn records, B ~ Bin(D_i, q_i), has the share h = E[1 / (B + 1)] = (1 - (1-q)^(D+1)) / ((D+1) q).
        `dirac`: G h. `dominating`: from -G / sqrt(n) - unless nothing was drawn, or another of the n canaries - to G.

        All uploads of a `device` move by its whole length.

        Args:
            records, rate, canaries: D_i, q_i and n_i of the device.

        >>> CanaryEffect.expected("dominating", "batch", 2.0, records=1, rate=1.0, canaries=1)
        CanaryEffect(baseline=-2.0, shift=4.0)
        >>> CanaryEffect.expected("dirac", "batch", 2.0, records=1, rate=1.0, canaries=1)
        CanaryEffect(baseline=0.0, shift=1.0)
        """
        if kind == "device":
            return cls(0.0, clip_norm)
        if clip_scope == "record":
            return cls(0.0, clip_norm / (rate * records))
        share = (1 - (1 - rate) ** (records + 1)) / ((records + 1) * rate)
        if kind == "dirac":
            return cls(0.0, clip_norm * share)
        against = clip_norm / math.sqrt(canaries)
        baseline = -against * (1 - (1 - rate) ** records) * (1 - rate / 2) ** (canaries - 1)
        return TurningEffect(clip_norm, -baseline) if kind == "turning" else cls(baseline, clip_norm - baseline)
