"""Which devices of a subnet take part: drawn at random, or the cheapest by channel, with a floor of fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from h2fdp.schedules.problem import Counts, Floats

DeviceRule = Literal["random", "channel"]


@dataclass(frozen=True)
class Turns:
    """How often devices took part so far.

    Attributes:
        taken: (I,) intervals in which each device took part.
        asked: (N,) devices of each subnet that were asked for, over all intervals.
    """

    taken: Counts
    asked: Counts

    @classmethod
    def begun(cls, sizes: Counts) -> Turns:
        """Nobody did."""
        return cls(np.zeros(int(sizes.sum()), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64))

    def after(self, sizes: Counts, rows: list[np.ndarray]) -> Turns:
        """With one more interval, in which these rows of each subnet took part."""
        taken, starts = self.taken.copy(), np.cumsum(sizes) - sizes
        for start, each in zip(starts.tolist(), rows, strict=True):
            taken[start + each] += 1
        return Turns(taken, self.asked + np.array([len(each) for each in rows]))

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"taken": self.taken.tolist(), "asked": self.asked.tolist()}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Turns:
        """As it was stored."""
        return cls(np.array(state["taken"], dtype=np.int64), np.array(state["asked"], dtype=np.int64))


def cheapest_first(sizes: Counts, price: Floats, turns: Turns, floor: float) -> Counts:
    """(I,) the devices of each subnet, subnet after subnet, in the order in which they are taken.

    A device that took part in less than `floor` of its equal share of the turns is due, and comes first, those furthest
    behind before others; the rest come by price. So no device, and no label that only it has, is left out for long.

    Args:
        price: (I,) of a device in this interval.
        floor: from 0 (the cheapest ones alone) to 1 (nearly equal turns).

    >>> turns = Turns(np.array([3, 0, 1]), np.array([4]))
    >>> cheapest_first(np.array([3]), np.array([1.0, 9.0, 2.0]), turns, floor=0.5).tolist()
    [1, 0, 2]
    >>> cheapest_first(np.array([3]), np.array([1.0, 9.0, 2.0]), turns, floor=0.0).tolist()
    [0, 2, 1]
    """
    behind = np.maximum(floor * np.repeat(turns.asked / sizes, sizes) - turns.taken, 0.0)
    subnet = np.repeat(np.arange(len(sizes)), sizes)
    return np.lexsort((price, -behind, subnet))
