"""Fading: how the power |u|^2 of a channel changes from interval to interval; `radio.fading` of a topology file.

The mean cost of a message is E[1/R], R = W log2(1 + SNR |u|^2): quadrature, not sampling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from h2fdp.config.fields import Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind
from h2fdp.network.devices import Floats

_AT_ONCE = 1 << 15  # devices whose arrays stay in the processor's cache
_FARTHEST = 45.0  # an exponential is above it with probability 3e-20, and costs less there than anywhere below
_LONGEST_PANEL = 4.5  # in ln x
_POINTS = 24  # in each panel
_HALVINGS = 40  # of the panels towards both ends of a quantile's range
_POINTS_OF_QUANTILE = 8  # in each of these panels


class Fading(ABC):
    """The distribution of |u|^2, whose mean is 1; a subclass defines `quantile`, and the rest follows from it.

    Powers below `floor` (`radio.fading_floor_db`) are raised to it: without a floor the mean of 1/R may be infinite.
    """

    @abstractmethod
    def quantile(self, probability: Floats) -> Floats:
        """(n,) the powers that a draw stays below with these probabilities, each in [0, 1)."""

    def least(self, floor: float) -> float:
        """The least power that is drawn."""
        return max(floor, float(self.quantile(np.zeros(1))[0]))

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) powers of one interval; the first ones are the same for every size."""
        return np.maximum(self.quantile(stream.random(size)), floor)

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """(I,) the mean of bits / R over draws, from (I,) signal-to-noise ratios where |u|^2 = 1."""
        points, weights = self.quadrature(floor)
        mean: Floats = bits * np.log(2.0) / bandwidth_hz * _mean(snr, points, weights)
        return mean

    def quadrature(self, floor: float) -> tuple[list[float], list[float]]:
        """Points x and weights of the mean of f(max(|u|^2, floor)), with panels that grow from both ends of the
        quantile."""
        floored = self._share_below(floor)
        growing = 0.5 ** np.arange(_HALVINGS, 0, -1)
        ends = np.concatenate([[0.0], growing, 1 - growing[-2::-1], [1.0]])
        nodes, node_weights = np.polynomial.legendre.leggauss(_POINTS_OF_QUANTILE)
        half = np.diff(ends)[:, None] / 2
        share = (ends[:-1, None] + half * (1 + nodes)).ravel()
        weights = (half * node_weights).ravel() * (1 - floored)
        points = np.maximum(self.quantile(floored + (1 - floored) * share), floor)
        return [floor, *points.tolist()], [floored, *weights.tolist()]

    def _share_below(self, floor: float) -> float:
        """P[|u|^2 < floor], by bisection."""
        low, high = 0.0, 1.0
        for _ in range(52):
            middle = (low + high) / 2
            below = float(self.quantile(np.array([middle]))[0]) < floor
            low, high = (middle, high) if below else (low, middle)
        return low


FADINGS: Choices[Options] = Choices(OwnKind("a fading, derived from `h2fdp.network.Fading`", ("draw", "mean_seconds")))


@FADINGS.register
class Rayleigh(Fading, Options):
    """u ~ CN(0, 1): |u|^2 is exponential with mean 1. The mean of 1/R would be infinite without a floor."""

    name: Literal["rayleigh"] = "rayleigh"

    def quantile(self, probability: Floats) -> Floats:
        """(n,) - ln(1 - probability)."""
        return np.asarray(-np.log1p(-probability))

    def least(self, floor: float) -> float:
        """The floor."""
        return floor

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) powers."""
        return np.maximum(stream.standard_exponential(size), floor)

    def quadrature(self, floor: float) -> tuple[list[float], list[float]]:
        """Points x and weights of E[f(max(X, floor))] = P[X < floor] f(floor) + the integral of f(x) e^-x beyond.

        With y = ln x the integrand of E[1 / ln(1 + SNR max(X, floor))], e^y exp(-e^y) / ln(1 + SNR e^y), is smooth at
        every SNR (its nearest singularities lie pi off the real axis, and exp(-e^y) falls fast beyond y = 0), so a few
        Gauss-Legendre points for each stretch of y give a relative accuracy of 1e-11 or better.
        """
        points, weights = [floor], [-float(np.expm1(-floor))]
        if floor < _FARTHEST:
            span = float(np.log(_FARTHEST / floor))
            panels = int(np.ceil(span / _LONGEST_PANEL))
            nodes, node_weights = np.polynomial.legendre.leggauss(_POINTS)
            half = span / panels / 2
            for panel in range(panels):
                x = floor * np.exp(half * (2 * panel + 1 + nodes))
                points += x.tolist()
                weights += (half * node_weights * x * np.exp(-x)).tolist()
        return points, weights


@FADINGS.register
class NoFading(Fading, Options):
    """|u|^2 = 1 always."""

    name: Literal["none"] = "none"

    def quantile(self, probability: Floats) -> Floats:
        """(n,) ones."""
        return np.ones(len(probability))

    def least(self, floor: float) -> float:
        """1, whatever the floor."""
        return 1.0

    def draw(self, stream: np.random.Generator, size: int, floor: float) -> Floats:
        """(size,) ones."""
        return np.ones(size)

    def quadrature(self, floor: float) -> tuple[list[float], list[float]]:
        """One point."""
        return [1.0], [1.0]

    def mean_seconds(self, bits: int, bandwidth_hz: float, snr: Floats, floor: float) -> Floats:
        """(I,) bits / R."""
        mean: Floats = bits / (bandwidth_hz * np.log1p(snr) / np.log(2.0))
        return mean


def _mean(snr: Floats, points: list[float], weights: list[float]) -> Floats:
    """(I,) the weighted sum of 1 / ln(1 + SNR x) over points x."""
    mean = np.empty_like(snr)
    for start in range(0, len(snr), _AT_ONCE):
        chunk = snr[start : start + _AT_ONCE]
        total = np.zeros_like(chunk)
        for point, weight in zip(points, weights, strict=True):
            total += weight / np.log1p(chunk * point)
        mean[start : start + _AT_ONCE] = total
    return mean
