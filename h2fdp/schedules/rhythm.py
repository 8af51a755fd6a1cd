"""When subnets aggregate inside an interval: the slots T^L_{k,c} (H2FDP, Sec. 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Rhythm:
    """Local aggregations every so many slots, or so many in each interval; neither means none.

    A local aggregation never falls on the last slot of an interval: the global one takes its place.

    >>> Rhythm(every=5).segments(20), Rhythm(per_interval=2).segments(20), Rhythm().segments(20)
    ((5, 5, 5, 5), (7, 6, 7), (20,))
    """

    every: int | None = None
    per_interval: int | None = None

    def offsets(self, local_steps: int) -> tuple[int, ...]:
        """Slots of local aggregations, counted from the interval's start t_k: 1 .. tau_k - 1."""
        if self.every is not None:
            return tuple(range(self.every, local_steps, self.every))
        parts = min(self.per_interval or 0, local_steps - 1) + 1  # more than one a slot is one a slot
        spread = {round(part * local_steps / parts) for part in range(1, parts)}
        return tuple(sorted(offset for offset in spread if 0 < offset < local_steps))

    def segments(self, local_steps: int) -> tuple[int, ...]:
        """Local steps between two aggregations, the last ending with the global one; they sum to tau_k."""
        bounds = (0, *self.offsets(local_steps), local_steps)
        return tuple(stop - start for start, stop in pairwise(bounds))
