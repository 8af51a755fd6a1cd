"""Arrays of the driver, where a host's records lie."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def placed(array: np.ndarray, device: torch.device) -> Tensor:
    """The array on a device, the same memory on a CPU. Nobody waits for a GPU: it copies when its turn comes.

    >>> placed(np.array([2, 0]), torch.device("cpu"))
    tensor([2, 0])
    """
    held = torch.from_numpy(array)
    return held.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else held.to(device)
