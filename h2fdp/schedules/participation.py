"""Who takes part: S_c^k, drawn uniformly without replacement, anew in each interval."""

from __future__ import annotations

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
