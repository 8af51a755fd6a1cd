"""The small convolutional network of the frontier."""

from __future__ import annotations

from torch import nn


def small_cnn() -> nn.Sequential:
    """16 filters of 7x7 at every third pixel of a 28x28 image, a group norm, ReLU, and a linear layer: M = 11,082.

    Small enough for some hundred noisy steps: noise grows with the square root of M. The group norm acts on each record
    alone. A plain chain, whose gradients the `stacked` engine writes out.
    """
    filters = [nn.Conv2d(1, 16, 7, stride=3), nn.GroupNorm(4, 16), nn.ReLU()]
    return nn.Sequential(*filters, nn.Flatten(), nn.Linear(16 * 8 * 8, 10))
