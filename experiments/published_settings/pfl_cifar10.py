"""The network of the pfl setting (`pfl-cifar10.yaml`)."""

from __future__ import annotations

from torch import nn


class SimpleCnn(nn.Sequential):
    """pfl-research's `simple_cnn` at 3x32x32: two 3x3 convolutions, a max-pool, 128 units; 1,626,442 parameters.

    Weights begin as Glorot and Bengio (2010) draw them. Without the two dropout layers of pfl's: their random numbers
    are of torch's own generator, so that a run could not be repeated.
    """

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 14 * 14, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        for layer in self:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
