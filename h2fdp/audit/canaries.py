"""Canaries: records with a made-up gradient, each on a coordinate of its own that no other record touches.

They test privacy from outside (`h2fdp.audit`). A canary is a record of its device in every respect: drawn with
the device's rate, counted in the batch when it was drawn, clipped with the rest. One that is out is the null record of
the adjacency: it contributes nothing and is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from h2fdp.streams import Streams
from h2fdp.training.batches import Batches, BatchSampler
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.local_objective import LocalObjective
from h2fdp.training.loop import LoopEngine
from h2fdp.training.losses import CROSS_ENTROPY, Loss

CanaryKind = Literal["dirac", "dominating", "turning"]
_LARGE = 1e6  # a data gradient under clip_scope batch whose length does not matter any more
_OVERWHELMING = 1e14  # beside it a float32 forgets a batch of large gradients; its square is still a float32


@dataclass(frozen=True)
class CanaryDesign:
    """N canaries; canary j owns the j-th of N coordinates that are appended to the model.

    Attributes:
        kind: `dirac` canaries have a gradient of the clip norm, beside the data as they are; `dominating` ones
            outweigh every other record, and the data beside them are the worst for them: they pull the other way;
            `turning` ones do so too, and from the first draw on until the upload the data pull their way.
        owners: (N,) number over the whole network of the device that each is a record of.
        included: (N,) bool, the fair coins.
    """

    kind: CanaryKind
    owners: np.ndarray
    included: np.ndarray

    @classmethod
    def drawn(cls, streams: Streams, kind: CanaryKind, canaries: int, devices: np.ndarray) -> CanaryDesign:
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
        """For each device of the network, the coordinates from 0 of its canaries; many have none.

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
        self.coordinates = nn.ParameterList([nn.Parameter(torch.zeros(canaries))])

    def forward(self, x: Tensor) -> Tensor:
        """The model's output."""
        output: Tensor = self.model(x)
        return output


@dataclass(frozen=True)
class CanaryRecords:
    """The canaries of one subnet's devices.

    A canary's gradient is G e_j. Where canaries are to dominate, it outweighs all others, and the device's data are the
    worst that there can be beside it: each record's gradient, instead of what it would be, is a large multiple of
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
    """

    length: float
    coordinates: Sequence[np.ndarray]
    included: Sequence[np.ndarray]
    dominating: bool
    turning: bool = False


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
        """See `BatchSampler.draw`; no canary is in a batch for anything but training."""
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
    no other record weakens a canary, and none can strengthen it: data beside a dominating one are as they are. Without
    clipping, where records' gradients are bounded by themselves, the same; a canary's loss is linear and does not
    expand. Where steps are noisy, so are canaries' coordinates.
    """

    def __init__(
        self,
        module: nn.Module,
        clipping: Clipping | None,
        objective: LocalObjective,
        canaries: CanaryRecords,
        loss: Loss = CROSS_ENTROPY,
    ) -> None:
        super().__init__(module, clipping, objective, loss=loss)
        self._canaries = canaries
        self._dominating = canaries.dominating and clipping is not None and clipping.scope == "batch"
        self._turned: np.ndarray = np.zeros(0, dtype=bool)  # of the device that is training, for each of its canaries

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
