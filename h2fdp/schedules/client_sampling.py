"""Client sampling: the devices S_c^k of each subnet that take part, drawn in each interval."""

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


def share_of(sizes: np.ndarray, share: float) -> np.ndarray:
    """(N,) this share of each subnet's devices s_c (N,), rounded, at least one.

    >>> share_of(np.array([10, 5, 1]), share=0.3)
    array([3, 2, 1])
    """
    return np.clip(np.rint(share * sizes), 1, sizes).astype(np.int64)
