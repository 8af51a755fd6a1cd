"""Models without convolutions: softmax regression, logistic regression, a perceptron with one hidden layer."""

from __future__ import annotations

import math

from torch import nn


def softmax(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression without a bias: M = 7,840 on 28x28 images of 10 classes (H2FDP, Sec. 6.1)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes, bias=False))


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Multinomial logistic regression: softmax regression with a bias (Upcycled-FL's model of synthetic data)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


def mlp(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """A perceptron with one hidden layer of rectified units (Upcycled-FL's model of FEMNIST)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))
