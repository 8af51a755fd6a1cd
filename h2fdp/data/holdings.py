"""Who holds which labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.federated import DeviceData

_AT_ONCE = 1_000


def label_counts(data: DeviceData) -> NDArray[np.int64]:
    """(devices, classes) how many records of each label each device holds.

    >>> from h2fdp.data import load
    >>> from h2fdp.data.digits import Digits
    >>> from h2fdp.streams import Streams
    >>> counts = label_counts(load(Digits(), devices=10, streams=Streams(1)))
    >>> counts.shape, (counts > 0).sum(axis=1).tolist()
    ((10, 10), [3, 3, 3, 3, 3, 3, 3, 3, 3, 3])
    """
    devices, classes = len(data.sizes), data.classes
    counts = np.zeros((devices, classes), dtype=np.int64)
    for first in range(0, devices, _AT_ONCE):
        held = min(_AT_ONCE, devices - first)
        records, offsets = data.subnet(first, held)
        owner = np.repeat(np.arange(held), np.diff(offsets))
        found = np.bincount(owner * classes + records.y, minlength=held * classes)
        counts[first : first + held] = found.reshape(held, classes)
    return counts
