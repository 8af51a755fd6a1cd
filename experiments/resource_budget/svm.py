"""The SVM of Wang et al. (2019), and the four ways in which its authors' program deals MNIST out to five nodes.

`wang.yaml` names the model and the loss of this file; `table.py` writes the archives. Even digits are class 0 (+1
in the paper), odd ones class 1 (-1).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

NODES = 5
CASES = (1, 2, 3, 4)
DECAY = 0.1  # lambda


class SmoothSVM(nn.Module):
    """w^T x without a bias, from w = 0; scores (n, 2) are ||w||^2 + w^T x and ||w||^2 - w^T x.

    A loss is computed from scores alone. Half of their difference is the margin, half of their sum is what the penalty
    needs, and the class does not depend on it.
    """

    def __init__(self, inputs: int = 784) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs))

    def forward(self, x: Tensor) -> Tensor:
        """Scores (n, 2) of records (n, ...)."""
        along, length = x.flatten(1) @ self.weight, self.weight.square().sum()
        return torch.stack([length + along, length - along], dim=1)


def smooth_hinge(scores: Tensor, labels: Tensor, decay: float = DECAY) -> Tensor:
    """(n,) lambda/2 ||w||^2 + 1/2 max(0, 1 - y w^T x)^2 of scores (n, 2) of `SmoothSVM`."""
    along, length = (scores[:, 0] - scores[:, 1]) / 2, (scores[:, 0] + scores[:, 1]) / 2
    return 0.5 * decay * length + 0.5 * (1 - (1 - 2 * labels) * along).clamp(min=0.0).square()


def holdings(case: int, digits: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Which records each node holds, as in the authors' program; at most ten digits.

    Args:
        case: 1: one record in five each; 2: by digit, two digits each; 3: everything each; 4: three nodes share the
            digits 0 to 4 as in case 1, the other two hold 5 to 9 by digit.
        digits: (n,) of all records, in their order.

    >>> [part.tolist() for part in holdings(2, np.arange(10))]
    [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]
    """
    numbers = np.arange(len(digits))
    if case == 3:
        return [numbers] * NODES
    uniform = -(-NODES // 2)
    owners = {
        1: numbers % NODES,
        2: digits % NODES,
        4: np.where(digits < 5, numbers % uniform, digits % (NODES - uniform) + uniform),
    }[case]
    return [np.flatnonzero(owners == node) for node in range(NODES)]
