"""Mini-batches xi_i (H2FDP, Sec. 2.3): Poisson or fixed size, drawn for a whole subnet from one stream a slot.

A device's draw is a row of a fixed number of uniforms in the stream of (edge server, interval, slot). Philox can
jump, so a host that holds some devices of a subnet reads just their rows, and the draw is the same on any placement.
Or epochs: a device goes through all its records in random order, batch by batch, several times in an interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from h2fdp.streams import PER_STEP, Streams, uniform_rows

Sampling = Literal["poisson", "fixed", "allocated"]
_WHOLE_VECTORS = 4  # a width is a multiple of these, which processors compute with at once
_WIDEST = 256  # records in one pass: it bounds the memory of a device that draws everything it holds
_ROUNDING = 1e-6  # of a number of batches; an epoch of a million has more
_COST_OF_A_PASS = 8  # what a pass costs by itself, in records


@dataclass(frozen=True)
class Batches:
    """The batches of some devices over some slots.

    Attributes:
        indices: (slots, devices, width) positions within the device, 0 .. D_i - 1, in the first `counts` of a row.
        counts: (slots, devices) records really drawn; 0 is an empty Poisson batch.
        steps: (devices,) local steps that each device really does, in the first slots; None: in all of them.
        expected: (devices,) q_i D_i, or a stated number, where the sum of a batch's gradients is divided by that; None:
            by the records really drawn.
    """

    indices: np.ndarray
    counts: np.ndarray
    steps: np.ndarray | None = None
    expected: np.ndarray | None = None

    @property
    def divisors(self) -> np.ndarray:
        """(slots, devices) what the sum of a batch's gradients is divided by."""
        if self.expected is None:
            return np.asarray(np.maximum(self.counts, 1))
        return np.broadcast_to(self.expected, self.counts.shape)

    @property
    def steps_done(self) -> np.ndarray:
        """(devices,) `steps`, or the number of slots for each."""
        slots, devices = self.counts.shape
        return np.full(devices, slots) if self.steps is None else np.asarray(self.steps)

    def part(self, devices: np.ndarray) -> Batches:
        """The batches of some of the devices."""
        steps = None if self.steps is None else self.steps[devices]
        expected = None if self.expected is None else self.expected[devices]
        return Batches(self.indices[:, devices], self.counts[:, devices], steps, expected)

    def of(self, slot: int, device: int) -> np.ndarray:
        """Positions drawn at the slot-th slot by the device-th device."""
        return np.asarray(self.indices[slot, device, : self.counts[slot, device]])


def joined(parts: Sequence[Batches]) -> Batches:
    """The batches of several groups of devices over equally many slots, device after device."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([part.counts for part in parts], axis=1)
    indices = np.zeros((*counts.shape, max(part.indices.shape[2] for part in parts)), dtype=np.int64)
    first = 0
    for part in parts:
        _, devices, width = part.indices.shape
        indices[:, first : first + devices, :width] = part.indices
        first += devices
    steps = None if all(part.steps is None for part in parts) else np.concatenate([each.steps_done for each in parts])
    expected = [part.expected for part in parts if part.expected is not None]
    assert len(expected) in (0, len(parts)), "batches are divided alike in the whole network"
    return Batches(indices, counts, steps, np.concatenate(expected) if expected else None)


@dataclass(frozen=True)
class BatchSampler:
    """Draws the batches of one subnet's devices.

    Attributes:
        streams: the run's streams.
        edge: name of the subnet's edge server, the node of its streams.
        sampling: `poisson` draws each record with probability q_i; `fixed` draws round(q_i D_i) records, at least
            one, without replacement.
        sizes: (s_c,) D_i of every device of the subnet.
        rates: (s_c,) q_i.
        row_length: uniforms for each device and slot, one number for the whole network.
    """

    streams: Streams
    edge: str
    sampling: Sampling
    sizes: np.ndarray
    rates: np.ndarray
    row_length: int
    together: ClassVar[bool] = True  # its draws may be made with those of others, by `draw_together`

    def draw(self, interval: int, slots: Sequence[int], rows: np.ndarray, purpose: str = "batch") -> Batches:
        """Batches of the devices `rows` (ascending rows within the subnet) at each of `slots`.

        Batches of another purpose than training are independent of those of training.
        """
        return draw_together([(self, rows)], interval, slots, purpose)

    def fixed_sizes(self) -> np.ndarray:
        """(s_c,) batch sizes under `fixed` sampling."""
        return np.asarray(np.clip(np.rint(self.rates * self.sizes), 1, self.sizes).astype(np.int64))


def steps_per_epoch(rates: np.ndarray) -> np.ndarray:
    """(s,) batches that an epoch takes: all of the share q_i but the last, which holds what is left.

    >>> steps_per_epoch(np.array([0.32, 0.5, 1 / 49])).tolist()
    [4, 2, 49]
    """
    return np.asarray(np.ceil(1 / rates - _ROUNDING).astype(np.int64))


@dataclass(frozen=True)
class EpochSampler(BatchSampler):
    """Batches of consecutive epochs; what is not training is drawn as by `fixed` or Poisson sampling.

    A device's records are ranked by uniforms from the stream of (edge server, row, epoch), so that an epoch is the same
    on any placement. Its batches are of one size, or what falls into equal parts of [0, 1) (`allocated`). Slots count
    from the interval's first: all of an interval are drawn at once. After its last epoch a device draws nothing.
    """

    epochs: int
    together: ClassVar[bool] = False

    def draw(self, interval: int, slots: Sequence[int], rows: np.ndarray, purpose: str = "batch") -> Batches:
        if purpose != "batch":
            return super().draw(interval, slots, rows, purpose)
        steps, epochs = steps_per_epoch(self.rates[rows]), range(self.epochs)
        drawn = [[self._epoch(interval, epoch, *each) for epoch in epochs] for each in zip(rows, steps, strict=True)]
        counts = np.zeros((len(slots), len(rows)), dtype=np.int64)
        for position, of_device in enumerate(drawn):
            held = np.concatenate([each for _, each in of_device])
            counts[: held.size, position] = held
        indices = np.zeros((*counts.shape, int(counts.max())), dtype=np.int64)
        for position, of_device in enumerate(drawn):
            own = counts[:, position, None]
            indices[:, position][np.arange(indices.shape[2]) < own] = np.concatenate([each for each, _ in of_device])
        return Batches(indices, counts)

    def _epoch(self, interval: int, epoch: int, row: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """(D_i,) positions in their order, and (steps,) how many of them are in each batch."""
        size = int(self.sizes[row])
        uniforms = self.streams.borrowed(f"{self.edge}/{row + 1}", "epoch", interval, epoch).random(size)
        if self.sampling == "allocated":
            counts = np.bincount((uniforms * steps).astype(np.int64), minlength=steps)
        else:
            ends = np.minimum(np.arange(1, steps + 1) * self.fixed_sizes()[row], size)
            counts = np.diff(ends, prepend=0)
        return np.argsort(uniforms, kind="stable"), counts


def draw_together(
    parts: Sequence[tuple[BatchSampler, np.ndarray]], interval: int, slots: Sequence[int], purpose: str = "batch"
) -> Batches:
    """The draws of each sampler for its rows, device after device, at little more than the cost of one draw.

    Args:
        parts: samplers of one network with the rows that each is asked for.
    """
    firsts = np.cumsum([0] + [len(rows) for _, rows in parts]).tolist()
    uniforms = uniforms_together(parts, interval, slots, purpose)
    sizes = np.concatenate([sampler.sizes[rows] for sampler, rows in parts])
    if parts[0][0].sampling == "fixed":
        wanted = np.concatenate([sampler.fixed_sizes()[rows] for sampler, rows in parts])
        return _without_replacement(uniforms, sizes, wanted)
    rates = np.concatenate([sampler.rates[rows] for sampler, rows in parts])[:, None]

    def more(number: int, slot: int, late: np.ndarray) -> np.ndarray:
        """(len(late), row_length) further uniforms, for a few of the devices."""
        ends = np.searchsorted(late, firsts).tolist()
        own = [
            (sampler, rows[late[begin:end] - first])
            for (sampler, rows), first, begin, end in zip(parts, firsts[:-1], ends[:-1], ends[1:], strict=True)
        ]
        return np.asarray(uniforms_together(own, interval, [slot], f"{purpose}-more-{number}")[0])

    return _poisson(uniforms, rates, sizes, slots, more)


def uniforms_together(
    parts: Sequence[tuple[BatchSampler, np.ndarray]], interval: int, slots: Sequence[int], purpose: str
) -> np.ndarray:
    """(slots, devices, row_length) in [0, 1), for each sampler's rows one after another."""
    length = parts[0][0].row_length
    keys = [[each.streams.key(each.edge, purpose, interval, slot) for each, _ in parts] for slot in slots]
    owners = np.repeat(np.arange(len(parts)), [len(rows) for _, rows in parts])
    steps = np.concatenate([rows for _, rows in parts]).astype(np.int64) * (length // PER_STEP)
    return uniform_rows(keys, owners, steps, length)


def _poisson(
    uniforms: np.ndarray,
    rates: np.ndarray,
    sizes: np.ndarray,
    slots: Sequence[int],
    more: Callable[[int, int, np.ndarray], np.ndarray],
) -> Batches:
    """Gaps between drawn records are geometric: P[gap >= g] = (1 - q)^g."""
    positions = _positions(uniforms, rates)
    number = 1
    while (unfinished := positions[:, :, -1] < sizes).any():  # never cut a large draw: cutting voids the account
        extra = np.full(uniforms.shape, np.iinfo(np.int64).max)
        for at, slot in enumerate(slots):
            late = np.flatnonzero(unfinished[at])
            if late.size:
                draws = more(number, slot, late)
                extra[at, late] = _positions(draws[None], rates[late])[0] + positions[at, late, -1:] + 1
        positions = np.concatenate([positions, extra], axis=2)
        number += 1
    counts = (positions < sizes[:, None]).sum(axis=2)
    return Batches(positions[:, :, : max(int(counts.max()), 1)], counts)


def _positions(uniforms: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Positions of successes in a row of Bernoulli(q) trials, from uniforms in [0, 1), along the last axis."""
    gaps = np.log(1.0 - uniforms)
    with np.errstate(divide="ignore"):  # at q = 1 the logarithm is -inf and every gap 0, as it must be
        gaps /= np.log1p(-rates)
    steps = np.minimum(gaps, 2.0**40, out=gaps).astype(np.int64)
    steps += 1
    positions = np.cumsum(steps, axis=-1, out=steps)
    positions -= 1
    return positions


def _without_replacement(uniforms: np.ndarray, sizes: np.ndarray, wanted: np.ndarray) -> Batches:
    """Floyd's algorithm, one column at a time for all slots and devices: every subset is equally likely.

    Column c of a device with b wanted of D considers j = D - b + c: it takes floor(u (j + 1)), or j itself when that
    one is taken already.
    """
    slots, devices, _ = uniforms.shape
    width = int(wanted.max())
    # Columns come first in memory: to look for a position among those drawn before it is then to compare whole rows.
    columns = np.ascontiguousarray(uniforms[:, :, :width].transpose(2, 0, 1))
    chosen = np.full((width, slots, devices), -1, dtype=np.int64)
    for column in range(width):
        candidates = sizes - wanted + column
        drawn = np.minimum(columns[column] * (candidates + 1), candidates).astype(np.int64)
        taken = (chosen[:column] == drawn).any(axis=0)
        chosen[column] = np.where(column < wanted, np.where(taken, candidates, drawn), -1)
    indices = np.ascontiguousarray(np.maximum(chosen, 0).transpose(1, 2, 0))
    return Batches(indices, np.broadcast_to(wanted, (slots, devices)))


def padded_width(sampling: Sampling, batches: np.ndarray) -> int:
    """Records of a device that a stacked engine computes in one pass, one number for the whole network.

    Where all batches are alike, a Poisson batch of mean b fits into b + 2 sqrt(b) 39 times in 40; where they differ,
    the width is the one that costs the network least, when each device takes as many passes as it needs.

    Args:
        batches: (I,) q_i D_i of all devices.

    >>> padded_width("fixed", np.full(50, 32.0)), padded_width("poisson", np.full(50, 32.0))
    (32, 44)
    >>> padded_width("fixed", np.array([4.0] * 99 + [400.0]))
    4
    """
    needed = batches if sampling == "fixed" else batches + 2 * np.sqrt(batches)
    needed = _WHOLE_VECTORS * np.ceil(np.maximum(needed, 1) / _WHOLE_VECTORS)
    widths = np.unique(np.minimum(needed, _WIDEST))
    costs = [(np.ceil(needed / width) * (width + _COST_OF_A_PASS)).sum() for width in widths]
    return int(widths[np.argmin(costs)])


def row_length(sampling: Sampling, largest_batch: float) -> int:
    """Uniforms for each device and slot that suffice for nearly every draw of mean `largest_batch` = max_i q_i D_i.

    A Poisson batch of mean b exceeds b + 6 sqrt(b) + 8 about once in 10^8 draws; the sampler then takes a second pass.
    """
    needed = largest_batch if sampling == "fixed" else largest_batch + 6 * math.sqrt(largest_batch) + 8
    return PER_STEP * math.ceil((math.ceil(needed) + 1) / PER_STEP)
