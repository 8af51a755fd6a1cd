"""Which subnets live on which host."""

from __future__ import annotations

import numpy as np


def packed(sizes: np.ndarray, hosts: int) -> list[list[int]]:
    """Whole subnets together, neighbours on one host, hosts with about equally many devices.

    Args:
        sizes: (N,) devices of each subnet.
        hosts: at most that many are used; none is left empty.

    >>> packed(np.array([5, 5, 5, 5]), hosts=2)
    [[0, 1], [2, 3]]
    """
    middle = np.cumsum(sizes) - sizes / 2
    owner = np.minimum((middle * hosts / sizes.sum()).astype(int), hosts - 1)
    return [np.flatnonzero(owner == host).tolist() for host in np.unique(owner)]
