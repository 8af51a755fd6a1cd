"""The rhythm of a run: when aggregators below the cloud aggregate inside an interval (the slots T^L_{k,c}, H2FDP,
Sec. 3.1, by tier), which devices take part, and how the step size and the shares of the budget fall.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np

from h2fdp.streams import Streams


def draw_participants(streams: Streams, edge: str, interval: int, size: int, count: int) -> np.ndarray:
    """(count,) ascending rows of the devices that take part, of `size` in the subnet.

    >>> draw_participants(Streams(1), "library", interval=0, size=3, count=3)
    array([0, 1, 2])
    """
    if count >= size:
        return np.arange(size)
    return np.sort(streams.open(edge, "participation", interval).choice(size, count, replace=False))


def share_of(sizes: np.ndarray, share: float) -> np.ndarray:
    """(N,) this share of each subnet's devices s_c (N,), rounded, at least one.

    >>> share_of(np.array([10, 5, 1]), share=0.3)
    array([3, 2, 1])
    """
    return np.clip(np.rint(share * sizes), 1, sizes).astype(np.int64)


@dataclass(frozen=True)
class DeviceTurns:
    """Device i of an edge server (counted from 0) takes part in the intervals k with k mod b = i mod b.

    Where groups change, it is i + e floor(i / b) instead of i in the e-th round of turns: those that meet in one round
    do not in the next, as points of a plane on lines of another slope. Who is absent is public, so that no
    amplification is claimed for it.

    Attributes:
        every: b; 1 where all devices take part in each interval.
        intervals: K_g, those that are planned.
        regrouped: whether groups change from round to round.

    >>> turns = DeviceTurns(every=2, intervals=5)
    >>> turns.rows(0, size=3), turns.rows(1, size=3), turns.most
    (array([0, 2]), array([1]), 3)
    >>> [DeviceTurns(2, 4, regrouped=True).rows(k, size=4).tolist() for k in range(4)]
    [[0, 2], [1, 3], [0, 3], [1, 2]]
    """

    every: int
    intervals: int
    regrouped: bool = False

    def rows(self, interval: int, size: int) -> np.ndarray:
        """Ascending rows of the devices that take part, of `size` in the subnet."""
        round_, group = divmod(interval, self.every)
        rows = np.arange(size)
        return np.flatnonzero((rows + self.regrouped * round_ * (rows // self.every)) % self.every == group)

    @property
    def most(self) -> int:
        """The most intervals in which a device takes part; fewer where it fails."""
        return math.ceil(self.intervals / self.every)


StepDecay = Literal["sqrt", "linear", "cosine", "none"]


def decayed(step_size: float, decay: StepDecay, interval: int, intervals: int) -> float:
    """eta_k: `sqrt` divides by sqrt(k + 1), `linear` falls in equal parts towards 0, which the interval K_g would have,
    and `cosine` as half a wave does (Loshchilov and Hutter 2017), to 0 there, too.

    The sensitivity of a release, and the noise on it, are proportional to the step size, so that a decay changes no
    account: every release keeps its noise multiplier.

    Args:
        step_size: eta of the first interval.
        interval: k, counted from 0.
        intervals: K_g, those that are planned, also where the run ends before.

    >>> [round(decayed(0.6, "linear", k, 3), 3) for k in range(3)]
    [0.6, 0.4, 0.2]
    >>> [decayed(0.6, "sqrt", k, 4) for k in (0, 3)], [round(decayed(0.6, "cosine", k, 4), 3) for k in range(4)]
    ([0.6, 0.3], [0.6, 0.512, 0.3, 0.088])
    """
    assert 0 <= interval < intervals, "intervals are those of the plan"
    if decay == "linear":
        return step_size * (intervals - interval) / intervals
    if decay == "cosine":
        return step_size * (1 + math.cos(math.pi * interval / intervals)) / 2
    return step_size / math.sqrt(interval + 1) if decay == "sqrt" else step_size


def noise_of_share(decay: StepDecay, turn: int, turns: int) -> float:
    """The factor on the noise of a turn, so that its share a of the budget falls as step sizes do: 1 / sqrt(a).

    A release under noise of z times its sensitivity costs 1 / z^2 of mu^2 (Dong et al. 2022, Cor. 3.3), so all turns
    together cost what equal noises do. If the last model is sum_t c_t (gradient_t + noise_t), shares proportional to
    c_t leave least noise in it, whatever the correlation of noises could be (Cauchy and Schwarz). Each level is another
    distribution to an account: of more than `_MOST_LEVELS` turns, neighbours share the mean of theirs, by which the
    variance of the noise in the last model grows by less than 1 %.

    >>> factors = [noise_of_share("linear", turn, 3) for turn in range(3)]
    >>> [round(3 / factor**2, 9) / 6 for factor in factors], noise_of_share("none", 2, 3)
    ([0.75, 0.5, 0.25], 1.0)
    >>> len({noise_of_share("linear", turn, 400) for turn in range(400)})
    20
    """
    return 1.0 if decay == "none" else _noises_of_shares(decay, turns)[turn]


_MOST_LEVELS, _LEVELS = 64, 20


@lru_cache(maxsize=64)
def _noises_of_shares(decay: StepDecay, turns: int) -> list[float]:
    """(turns,) see `noise_of_share`."""
    shares = [decayed(1.0, decay, each, turns) for each in range(turns)]
    whole = sum(shares)
    if turns > _MOST_LEVELS:
        roots = np.cbrt(shares)  # levels are nearest where shares are small, of which a part weighs as much
        level = np.minimum((roots[0] - roots) / (roots[0] - roots[-1]) * _LEVELS, _LEVELS - 1).astype(np.int64)
        shares = (np.bincount(level, weights=shares) / np.maximum(np.bincount(level), 1))[level].tolist()
    return [math.sqrt(whole / (turns * share)) for share in shares]


Tiers = int | Sequence[int]  # a number for the lowest edge servers alone, or one for each height from them up


@dataclass(frozen=True)
class AggregationTimes:
    """Local aggregations every n slots, or n in each interval; neither means none.

    A number is about the lowest edge servers. A list has a number for each tier, from the lowest up: `every=[2, 4]` has
    aggregators of height 1 average every 2 slots and those of height 2 every 4; `per_interval=[4, 2]` has 4 local
    aggregations in each interval, every second of which is of height 2. Tiers without a number aggregate when the cloud
    does. Where several heights fall on one slot, the highest wins. A local aggregation never falls on the last slot of
    an interval: the global one takes its place.

    Attributes:
        every: slots; in a list each is a multiple of the one before; in a mapping those of each edge server, by name.
        per_interval: numbers of aggregations; in a list each divides the one before.

    >>> AggregationTimes(every=5).segments(20), AggregationTimes(per_interval=2).segments(20)
    ((5, 5, 5, 5), (7, 6, 7))
    >>> AggregationTimes().segments(20)
    (20,)
    >>> AggregationTimes(every=[2, 4]).segments(10), AggregationTimes(every=[2, 4]).heights(10, depth=2)
    ((2, 2, 2, 2, 2), (1, 2, 1, 2, 3))
    """

    every: Tiers | Mapping[str, int] | None = None
    per_interval: Tiers | None = None

    def of(self, edge: str) -> AggregationTimes:
        """The times of one edge server; all that follows is of the most frequent, where edge servers differ.

        >>> AggregationTimes(every={"a": 2, "b": 4}).of("b").segments(8), AggregationTimes(every=3).of("b").every
        ((4, 4), 3)
        """
        return AggregationTimes(self.every[edge]) if isinstance(self.every, Mapping) else self

    def offsets(self, local_steps: int) -> tuple[int, ...]:
        """Slots of local aggregations of any height, counted from the interval's start t_k: 1 .. tau_k - 1."""
        if self.every is not None:
            step = self._slots[0]
            return tuple(range(step, local_steps, step))
        wanted = 0 if self.per_interval is None else tiers_of(self.per_interval)[0]
        parts = min(wanted, local_steps - 1) + 1  # more than one a slot is one a slot
        spread = {round(part * local_steps / parts) for part in range(1, parts)}
        return tuple(sorted(offset for offset in spread if 0 < offset < local_steps))

    def segments(self, local_steps: int) -> tuple[int, ...]:
        """Local steps between two aggregations, the last ending with the global one; they sum to tau_k."""
        bounds = (0, *self.offsets(local_steps), local_steps)
        return tuple(stop - start for start, stop in pairwise(bounds))

    def heights(self, local_steps: int, depth: int = 1) -> tuple[int, ...]:
        """The height of the aggregation that ends each segment; that of the global one, the cloud's, is depth + 1.

        Args:
            depth: tiers of aggregators below the cloud; 1 where every edge server has devices.
        """
        local = [min(self._height(number), depth) for number in range(1, len(self.offsets(local_steps)) + 1)]
        return (*local, depth + 1)

    def upper_counts(self, local_steps: int, depth: int) -> np.ndarray:
        """(depth - 1,) local aggregations of height 2 .. depth in an interval."""
        return np.bincount(self.heights(local_steps, depth), minlength=depth + 2)[2 : depth + 1]

    def _height(self, number: int) -> int:
        """The height of the local aggregation of this number in its interval, counted from 1."""
        return max(height for height, step in enumerate(self._steps, start=1) if step and number % step == 0)

    @property
    def _slots(self) -> tuple[int, ...]:
        """Between aggregations of each height; the fewest of any edge server."""
        assert self.every is not None
        return (min(self.every.values()),) if isinstance(self.every, Mapping) else tiers_of(self.every)

    @property
    def _steps(self) -> tuple[int, ...]:
        """The step of each height among local aggregations: every first, every second, ... is of it; 0 for none."""
        if self.every is not None:
            every = self._slots
            return tuple(slots // every[0] for slots in every)
        counts = tiers_of(self.per_interval or 0)
        return tuple(counts[0] // count if count else 0 for count in counts)


def tiers_of(stated: Tiers) -> tuple[int, ...]:
    """One number for each height, from the lowest edge servers up.

    >>> tiers_of(5), tiers_of([2, 4])
    ((5,), (2, 4))
    """
    return (stated,) if isinstance(stated, int) else tuple(stated)
