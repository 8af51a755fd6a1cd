"""nn.Softmax over the classes at the end of a chain, for a stack of devices."""

from __future__ import annotations

import torch
from torch import Tensor


class Probabilities:
    """p = softmax of (n, W, classes), and its way back in closed form, p (g - sum_c g_c p_c), without autograd.

    Outputs lie in memory as those of `StackedLinear`.
    """

    def __call__(self, x: Tensor) -> Tensor:
        """(n, W, classes) probabilities."""
        return torch.softmax(x.transpose(1, 2), dim=1).transpose(1, 2)

    def back(self, output: Tensor, delta: Tensor) -> Tensor:
        """(n, W, classes) the gradient in the input, from that in the output."""
        across = delta.transpose(1, 2), output.transpose(1, 2)
        found: Tensor = torch.ops.aten._softmax_backward_data(*across, 1, output.dtype)
        return found.transpose(1, 2)
