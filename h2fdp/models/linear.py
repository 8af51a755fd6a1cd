"""Models without convolutions: softmax regression, logistic regression, a perceptron with one hidden layer."""

from __future__ import annotations

import math

from torch import nn


def softmax(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Softmax regression without a bias: M = 7,840 on 28x28 images of 10 classes (H2FDP, Sec. 6.1)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes, bias=False))


def logistic(shape: tuple[int, ...], classes: int, double_softmax: bool) -> nn.Module:
    """Multinomial logistic regression: softmax regression with a bias (Upcycled-FL's model of synthetic data).

    With `double_softmax` its outputs are probabilities, which the cross-entropy takes for scores once more: that is how
    the program of Upcycled-FL's authors trains.
    """
    layers = [nn.Flatten(), nn.Linear(math.prod(shape), classes)]
    return nn.Sequential(*layers, *([nn.Softmax(dim=1)] if double_softmax else []))


def mlp(shape: tuple[int, ...], classes: int, hidden: int) -> nn.Module:
    """A perceptron with one hidden layer of rectified units (Upcycled-FL's model of FEMNIST)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, classes))
