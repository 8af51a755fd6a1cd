"""The privacy loss distribution of one mixture, put on a grid so that it dominates the true one.

dp-accounting inverts the privacy loss by bisection in Python: seconds for one release, half a minute where noise is
small. Here the real line is cut where the loss crosses the grid, approximately, and whatever falls between two losses
is split over both so that the mass under P and under Q stays what it was (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi
2022, "Connect the dots"): exact in mass, of second order in the interval, milliseconds.

Delta is a tail of the loss. A Fourier transform loses all masses below 1e-16 of the largest one, so it is taken of the
tilted distribution, mass times exp(tilt * position), whose bulk lies where the tail begins: there masses keep some 13
digits however small delta is (the change of measure of large deviations; Esscher 1932, Cramer 1938).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial

import numpy as np
from scipy.special import ndtr, ndtri

from h2fdp.privacy.accounting.mixtures import AnyMixture, LawPair, privacy_loss


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """A law of the privacy loss in one direction, on multiples of an interval.

    Attributes:
        lowest: the grid position of the first mass.
        masses: (n,) probability of the losses lowest, lowest + 1, ... times the interval.
        infinite: probability of an infinite loss.
    """

    lowest: int
    masses: np.ndarray
    infinite: float
    _log_moments: dict[float, float] = field(default_factory=dict, repr=False)
    _variances: dict[float, float] = field(default_factory=dict, repr=False)

    @property
    def highest(self) -> int:
        """The grid position of the last mass."""
        return self.lowest + self.masses.size - 1

    def log_moment(self, tilt: float) -> float:
        """log E exp(tilt * position), finite losses only; -inf where there are none. Kept."""
        if tilt not in self._log_moments:
            exponents = self._exponents(tilt)
            top = float(exponents.max())
            total = float(np.exp(exponents - top).sum()) if top > -math.inf else 1.0
            self._log_moments[tilt] = top + math.log(total) + tilt * self.lowest
        return self._log_moments[tilt]

    def tilted(self, tilt: float) -> np.ndarray:
        """(n,) masses proportional to mass * exp(tilt * position), summing to 1."""
        weights = np.exp(self._exponents(tilt) + (tilt * self.lowest - self.log_moment(tilt)))
        return np.asarray(weights / weights.sum())

    def tilted_variance(self, tilt: float) -> float:
        """The variance of the position under the tilt; kept."""
        if tilt not in self._variances:
            weights, positions = self.tilted(tilt), np.arange(self.masses.size)
            self._variances[tilt] = float(weights @ (positions - float(weights @ positions)) ** 2)
        return self._variances[tilt]

    @cached_property
    def _log_masses(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            logs: np.ndarray = np.log(self.masses)
        return logs

    def _exponents(self, tilt: float) -> np.ndarray:
        return np.asarray(self._log_masses + tilt * np.arange(self.masses.size))


@lru_cache(maxsize=512)
def spectrum(losses: LossDistribution, tilt: float, length: int) -> np.ndarray:
    """(length // 2 + 1,) Fourier transform of the tilted masses, wrapped around `length`."""
    masses = losses.tilted(tilt)
    if masses.size > length:
        padded = np.zeros(-(-masses.size // length) * length)
        padded[: masses.size] = masses
        masses = padded.reshape(-1, length).sum(axis=0)
    transform: np.ndarray = np.fft.rfft(masses, length)
    transform.flags.writeable = False
    return transform


COARSE_POINTS = 2048
FAINT = 1e-290  # masses below it, which doubles hold with fewer digits, count as an infinite loss
LEAST_REACH, MOST_REACH = 9.5, 37.0
_BEYOND_REACH = 1e-7  # of delta: what may lie beyond the reach, of all releases together


def reach_of(delta: float, releases: int) -> float:
    """Standard deviations beyond its outermost shifts to which a release is followed; what is beyond is counted as an
    infinite loss, which must be negligible against `delta`."""
    exact = -float(ndtri(max(_BEYOND_REACH * delta / releases, 1e-290)))
    return min(max(LEAST_REACH, math.ceil(2 * exact) / 2), MOST_REACH)  # in halves, so that runs share what is cached


@dataclass(frozen=True, eq=False)
class LossShape:
    """The loss of one mixture at some thousand points: what a grid has to resolve.

    Attributes:
        points: (n,) in standard deviations of the noise.
        losses: (n,) there, increasing, in nats.
        masses: (n-1,) between the points, under P.
        deviation: standard deviation of the loss under P, in nats.
    """

    points: np.ndarray
    losses: np.ndarray
    masses: np.ndarray
    deviation: float
    _added: dict[float, float] = field(default_factory=dict, repr=False)

    @property
    def range(self) -> float:
        """The distance from the smallest loss to the largest, in nats."""
        return float(self.losses[-1] - self.losses[0])

    def added_variance(self, interval: float) -> float:
        """The variance that a grid adds, which has each loss on the two grid points around it; kept."""
        if interval not in self._added:
            position = (self.losses[1:] + self.losses[:-1]) / (2 * interval)
            position -= np.floor(position)
            self._added[interval] = float(self.masses @ (position * (1 - position))) * interval**2
        return self._added[interval]

    def edges(self, losses_at: Callable[[np.ndarray], np.ndarray], interval: float) -> tuple[np.ndarray, np.ndarray]:
        """The points at which the loss is nearly a multiple of the interval, interpolated twice, and both ends; the
        losses there."""
        points, losses = self.points, self.losses
        grid = np.arange(np.ceil(losses[0] / interval), np.floor(losses[-1] / interval) + 1) * interval
        for _ in range(2):
            points = np.union1d(self.points[[0, -1]], np.interp(grid, losses, points))
            exact = losses_at(points)
            losses = np.maximum.accumulate(exact)
        return points, exact


def _moved_masses(mixture: AnyMixture, noise_multiplier: float, edges: np.ndarray, sign: int = 1) -> np.ndarray:
    """(n + 1,) under P: below, between and above the edges; with a sign of -1 under its mirror image."""
    moved = np.zeros(edges.size + 1)
    for shift, chance in zip(mixture.shifts, mixture.probabilities, strict=True):
        moved += chance * normal_masses(edges, sign * shift / noise_multiplier)
    return moved


@lru_cache(maxsize=1024)
def loss_shape(mixture: AnyMixture | LawPair, noise_multiplier: float, reach: float) -> LossShape:
    """The loss of a mixture up to `reach` deviations beyond its outermost shifts; of another law, all of it."""
    if isinstance(mixture, LawPair):
        points = np.linspace(*mixture.ends(noise_multiplier), COARSE_POINTS)
        masses = mixture.masses(noise_multiplier, points)[0]
        if mixture.gaussian:
            return _shaped(points, mixture.loss(noise_multiplier, points), masses[1:-1])
        points = np.pad(points, 1, mode="edge")  # what lies beyond has the loss of the end
        return _shaped(points, mixture.loss(noise_multiplier, points), masses)
    last = max(mixture.shifts) / noise_multiplier + reach
    points = np.linspace(-last if mixture.mirrored else -reach, last, COARSE_POINTS)
    losses = np.maximum.accumulate(privacy_loss(mixture, noise_multiplier, points))
    return _shaped(points, losses, _moved_masses(mixture, noise_multiplier, points)[1:-1])


def _shaped(points: np.ndarray, losses: np.ndarray, masses: np.ndarray) -> LossShape:
    centres = (losses[1:] + losses[:-1]) / 2
    deviation = math.sqrt(float(masses @ (centres - float(masses @ centres)) ** 2))
    return LossShape(points, losses, masses, deviation)


@lru_cache(maxsize=512)
def loss_distributions(
    mixture: AnyMixture | LawPair, noise_multiplier: float, interval: float, reach: float = LEAST_REACH
) -> tuple[LossDistribution, LossDistribution]:
    """Losses of P against Q under P, and of Q against P under Q; P the mixture, Q the noise alone or its mirror image.

    Guarantee: each dominates the true one, so that every epsilon from them is an upper bound. One release adds less
    than interval^2 / 4 to the variance of the loss.

    Args:
        interval: the grid's, in nats.
        reach: see `reach_of`.
    """
    shape = loss_shape(mixture, noise_multiplier, reach)
    if isinstance(mixture, LawPair):
        return _of_law(mixture, noise_multiplier, shape, interval)
    losses_at = partial(privacy_loss, mixture, noise_multiplier)
    edges, losses = shape.edges(losses_at, interval)
    unmoved = _moved_masses(mixture, noise_multiplier, edges, -1) if mixture.mirrored else normal_masses(edges, 0.0)
    moved = _moved_masses(mixture, noise_multiplier, edges)
    return _both(losses, moved, unmoved, interval)


def _of_law(
    pair: LawPair, noise_multiplier: float, shape: LossShape, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """The laws of a loss that is constant beyond the ends: masses there are cells of no width, none is infinite."""
    edges, losses = shape.edges(partial(pair.loss, noise_multiplier), interval)
    if pair.gaussian:
        return _both(losses, *pair.masses(noise_multiplier, edges), interval)
    moved, unmoved = (np.pad(masses, 1) for masses in pair.masses(noise_multiplier, edges))
    return _both(np.pad(losses, 1, mode="edge"), moved, unmoved, interval)


def _both(
    losses: np.ndarray, moved: np.ndarray, unmoved: np.ndarray, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """The distributions of losses (n,), with masses (n + 1,) below, between and above them under P and under Q."""
    removed = _on_grid(losses, moved[1:-1], unmoved[1:-1], below=moved[0], above=moved[-1], interval=interval)
    reverse = slice(None, None, -1)
    added = _on_grid(
        -losses[reverse],
        unmoved[1:-1][reverse],
        moved[1:-1][reverse],
        below=unmoved[-1],
        above=unmoved[0],
        interval=interval,
    )
    return removed, added


def normal_masses(edges: np.ndarray, centre: float) -> np.ndarray:
    """(len(edges) + 1,) mass of N(centre, 1) below, between and above the edges, precise in both tails.

    Args:
        edges: ascending.
    """
    middle = int(np.searchsorted(edges, centre, side="right"))  # where each tail is the smaller one
    below, above = ndtr(edges[: middle + 1] - centre), ndtr(centre - edges[middle:])
    return np.concatenate([below[:1], np.diff(below), above[:-1] - above[1:], ndtr(centre - edges[-1:])])


def _on_grid(
    losses: np.ndarray, masses: np.ndarray, others: np.ndarray, below: float, above: float, interval: float
) -> LossDistribution:
    """Split the mass of each cell over its two end losses, then each of these over the two grid points around it.

    Args:
        losses: (n,) at the ends of the cells, increasing.
        masses: (n-1,) of the cells under the law that the loss is drawn from.
        others: (n-1,) under the other one: what exp(-loss) has to average to.
        below: mass below the first cell, which gets the first loss; `above` gets an infinite one.
    """
    losses = np.maximum.accumulate(losses)
    width = np.diff(losses)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        upper = -np.expm1(losses[:-1] + np.log(others) - np.log(masses)) / -np.expm1(-width)
    upper = np.clip(np.nan_to_num(upper, nan=1.0, posinf=1.0, neginf=0.0), 0.0, 1.0) * masses
    weights = np.zeros_like(losses)
    weights[1:] += upper
    weights[:-1] += masses - upper
    weights[0] += below
    position = losses / interval
    lower = np.floor(position).astype(np.int64)
    share = np.expm1((lower - position) * interval) / np.expm1(-interval)
    lowest = int(lower[0])
    total = np.bincount(lower - lowest, weights * (1 - share), minlength=int(lower[-1]) - lowest + 2)
    total += np.bincount(lower - lowest + 1, weights * share, minlength=total.size)
    faint = total < FAINT
    return LossDistribution(lowest, np.where(faint, 0.0, total), float(above + total[faint].sum()))
