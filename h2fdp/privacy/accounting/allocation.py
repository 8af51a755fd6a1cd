"""Random allocation: a record is in one of t batches, drawn evenly and by itself, and each batch's sum gets noise.

The pair of laws of all t outputs is dominated by Q = N(0, z^2 I) and P = the mean of N(e_i, z^2 I) over the t batches
(Feldman and Shenfeld 2025; "balls and bins" of Chua et al. 2024), adaptive steps included. Its likelihood ratio is the
mean M of t independent log-normal numbers exp(g / z - 1 / (2 z^2)), so that the law of M under Q says all: dP = M dQ.

That law is computed on a grid of log M. A number between two grid points is split over both so that its mean stays
what it was. The ratio that comes out is a mean-preserving spread of the true one, which is to say that its pair
dominates the true pair, in both directions at once (Blackwell 1953). Sums of spreads are spreads of sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import gammaln

from h2fdp.privacy.accounting.loss_composition import discounted
from h2fdp.privacy.accounting.loss_distribution import normal_masses
from h2fdp.privacy.accounting.mixtures import PLAIN_GAUSSIAN, AnyMixture, LawPair, ReleaseType

_STEPS = 100  # of the grid, in the standard deviation 1 / z of the logarithm
_REACH = 16.5  # standard deviations: what is beyond has a chance of 1e-60, and is taken for an infinite loss
_FAINT = 1e-62  # part of the mean, and of the mass, at either end of a law that is cut off
_FEW = 1600  # points of a law, below which the next one has a finer grid
_BITS = 6  # of t, which is rounded down to so many digits: fewer batches hide less


@dataclass(frozen=True, eq=False)
class _Law:
    """The distribution of a sum of ratios under Q, on a grid.

    Attributes:
        interval: of the grid, in nats.
        lowest: the position of the first mass: exp(lowest * interval).
        masses: (n,).
        zero: mass of a sum of 0.
        infinite: part of the mean that lies beyond all masses.
    """

    interval: float
    lowest: int
    masses: np.ndarray
    zero: float
    infinite: float

    @property
    def logs(self) -> np.ndarray:
        """(n,) logarithms of the sums."""
        return np.asarray((self.lowest + np.arange(self.masses.size)) * self.interval)

    def trimmed(self) -> _Law:
        """The law without faint ends: the upper mass goes to 0 and infinity, the lower to 0 and the next point."""
        means = self.masses * np.exp(self.logs)
        least = _FAINT * (float(means.sum()) + self.infinite)
        last = means.size - int(np.searchsorted(np.cumsum(means[::-1]), least, side="right"))
        first = int(np.searchsorted(np.cumsum(self.masses), _FAINT, side="right"))
        kept = self.masses[first:last].copy()
        moved = float(means[:first].sum()) / math.exp((self.lowest + first) * self.interval)
        kept[0] += moved
        zero = self.zero + float(self.masses[:first].sum()) - moved + float(self.masses[last:].sum())
        return _Law(self.interval, self.lowest + first, kept, zero, self.infinite + float(means[last:].sum()))

    def plus(self, other: _Law, finer: int = 1) -> _Law:
        """The distribution of the sum with an independent one on the same grid, on a grid `finer` times as fine."""
        assert self.interval == other.interval, "one grid"
        interval = self.interval / finer
        low = min(self.lowest, other.lowest)
        size = max(each.lowest + each.masses.size for each in (self, other)) - low
        mine, others = (
            np.pad(each.masses, (each.lowest - low, low + size - each.lowest - each.masses.size))
            for each in (self, other)
        )
        out = np.zeros(finer * size + math.ceil(math.log(2) / interval) + 2)
        grown = math.expm1(interval)
        near = min(size, math.ceil(-math.log(grown) / self.interval) + 1)  # beyond, a sum is within one step
        for gap in range(near):
            place = math.log1p(math.exp(-gap * self.interval)) / interval
            lower = math.floor(place)
            share = math.expm1((place - lower) * interval) / grown
            pairs = mine[gap:] * others[: size - gap]
            if gap:
                pairs += others[gap:] * mine[: size - gap]
            begins = finer * gap + lower
            ends = begins + finer * pairs.size
            out[begins:ends:finer] += (1 - share) * pairs
            out[begins + 1 : ends + 1 : finer] += share * pairs
        for larger, smaller, zero in ((mine, others, other.zero), (others, mine, self.zero)):
            mass, mean = _below(smaller, near, self.interval)
            upper = mean / grown
            out[0 : finer * size : finer] += larger * (mass + zero - upper)
            out[1 : finer * size + 1 : finer] += larger * upper
        both = self.zero * other.zero
        return _Law(interval, finer * low, out, both, self.infinite + other.infinite).trimmed()


def _below(masses: np.ndarray, gap: int, interval: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) for each point, the mass at points lower by `gap` and more, and its mean in units of the point's value."""
    mass, mean = np.zeros(masses.size), np.zeros(masses.size)
    if gap < masses.size:
        mass[gap:] = np.cumsum(masses)[: masses.size - gap]
        mean[gap:] = math.exp(-gap * interval) * discounted(masses[: masses.size - gap], interval)
    return mass, mean


def _of_one(noise_multiplier: float) -> _Law:
    """The law of one batch's ratio: exp(x / z - 1 / (2 z^2)), x standard normal under Q, of mean 1 / z under P."""
    shift = 1 / noise_multiplier
    interval = shift / _STEPS
    lowest, highest = (round((sign * _REACH * shift + sign * shift**2 / 2) / interval) for sign in (-1, 1))
    logs = np.arange(lowest, highest + 1) * interval
    points = logs / shift + shift / 2
    unmoved, moved = normal_masses(points, 0.0), normal_masses(points, shift)
    values = np.exp(logs)
    upper = np.clip((moved[1:-1] - unmoved[1:-1] * values[:-1]) / np.diff(values), 0.0, unmoved[1:-1])
    masses = np.zeros(values.size)
    masses[1:] += upper
    masses[:-1] += unmoved[1:-1] - upper
    masses[0] += moved[0] / values[0]
    zero = float(unmoved[0] - moved[0] / values[0] + unmoved[-1])
    return _Law(interval, lowest, masses, zero, float(moved[-1]))


class _Mean(NamedTuple):
    """M: its logarithms (n,), their masses (n,) under P and under Q; the mass of infinity under P, of 0 under Q."""

    logs: np.ndarray
    moved: np.ndarray
    unmoved: np.ndarray
    infinite: float
    zero: float


@lru_cache(256)
def _of_mean(batches: int, noise_multiplier: float) -> _Mean:
    spare = max(batches.bit_length() - _BITS, 0)
    one = _of_one(noise_multiplier).trimmed()
    law = one
    for digit in bin(batches >> spare)[3:]:
        law = law.plus(law)
        if digit == "1":
            law = law.plus(one)
    for _ in range(spare):
        law = law.plus(law, 2 if law.masses.size < _FEW else 1)
    count = batches >> spare << spare
    logs = law.logs - math.log(count)
    return _Mean(logs, law.masses * np.exp(logs), law.masses, law.infinite / count, law.zero)


@dataclass(frozen=True)
class Allocation(LawPair):
    """The pair of one record in one of so many batches, in the place of t outputs.

    Attributes:
        batches: t.
    """

    batches: int

    gaussian: ClassVar[bool] = True

    def ends(self, noise_multiplier: float) -> tuple[float, float]:
        logs = _of_mean(self.batches, noise_multiplier).logs
        return float(logs[0]), float(logs[-1])

    def loss(self, noise_multiplier: float, points: np.ndarray) -> np.ndarray:
        """The points: the line is that of log M."""
        return points

    def masses(self, noise_multiplier: float, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = _of_mean(self.batches, noise_multiplier)
        cells = np.searchsorted(edges, mean.logs)
        moved, unmoved = (np.bincount(cells, each, edges.size + 1) for each in (mean.moved, mean.unmoved))
        moved[-1] += mean.infinite
        unmoved[0] += mean.zero
        return moved, unmoved

    def divergence(self, noise_multiplier: float, orders: np.ndarray) -> np.ndarray:
        """The larger divergence of two: of P from Q, by the moments of M^a (multinomial theorem); of Q from P, at most
        that of the geometric mean of the t ratios, which M is not below; both at most that of a plain Gaussian."""
        square, powers = 1 / noise_multiplier**2, np.arange(int(orders[-1]) + 1)
        one = powers * (powers - 1) * square / 2 - gammaln(powers + 1)  # log E Y^k / k!
        moments = _power(one, self.batches)[orders] + gammaln(orders + 1) - orders * math.log(self.batches)
        added = square / 2 * (1 + (orders - 1) / self.batches)
        return np.asarray(np.minimum(np.maximum(moments / (orders - 1), added), orders * square / 2))

    def concentrated(self, noise_multiplier: float) -> float:
        """The rho of a plain Gaussian, which bounds this one (`LawPair.concentrated`)."""
        return 1 / (2 * noise_multiplier**2)


_LEAST_NOISE = 0.05  # below it ratios overflow, and hardly anything is hidden


def pair_of_epoch(release: ReleaseType) -> AnyMixture | LawPair:
    """The pair of laws of all steps of an epoch, whose batches are chosen with this rate."""
    batches = round(1 / release.sampling_rate)
    assert math.isclose(batches * release.sampling_rate, 1), "an epoch is whole batches"
    return PLAIN_GAUSSIAN if release.noise_multiplier < _LEAST_NOISE else Allocation(batches)


def _power(logs: np.ndarray, exponent: int) -> np.ndarray:
    """(n,) logarithms of the coefficients of a power series to a power, from those of the series."""
    found = logs
    for digit in bin(exponent)[3:]:
        found = _product(found, found)
        if digit == "1":
            found = _product(found, logs)
    return found


def _product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.array([np.logaddexp.reduce(first[: k + 1] + second[k::-1]) for k in range(first.size)])
