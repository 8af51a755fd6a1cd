"""What one noisy vector is distributed like with a record and without it, for lower bounds; and its loss on a grid.

Upper bounds round privacy losses up. Here whatever is done loses information: the real line is cut into cells, cells
are split by coins and joined, losses are rounded down. Each of these is post-processing, or less, so that every epsilon
of the result is one that an observer really attains.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from h2fdp.privacy.accounting.loss_distribution import normal_masses
from h2fdp.privacy.accounting.tilted_losses import LossDistribution

COARSE_POINTS = 2048


class OutputPair(NamedTuple):
    """Two mixtures of Gaussians of standard deviation 1 at the same centres.

    Attributes:
        centres: (n,) ascending.
        present: (n,) probability of each centre where the record is there; `absent` where it is not.
    """

    centres: tuple[float, ...]
    present: tuple[float, ...]
    absent: tuple[float, ...]


@lru_cache(maxsize=512)
def dominated_losses(pair: OutputPair, interval: float, reach: float) -> tuple[LossDistribution, LossDistribution]:
    """Losses of `present` against `absent`, and of `absent` against `present`, on a grid.

    Guarantee: every epsilon of sums of them is one that the pairs have. Where the loss is monotone and smooth on the
    scale of the grid, what is lost is of second order in the interval.

    Args:
        reach: standard deviations beyond the outermost centres; what is beyond is left out.
    """
    points, losses = _coarsely(pair, reach)
    grid = np.arange(np.ceil(losses[0] / interval), np.floor(losses[-1] / interval) + 1) * interval
    ends = points[[0, -1]]
    points = np.union1d(ends, np.interp(grid, losses, points))
    losses = np.maximum.accumulate(_loss(pair, points))
    points = np.union1d(ends, np.interp(grid, losses, points))
    present, absent, change = _cells(pair, points)
    kept = (present > 0) & (absent > 0)
    present, absent, change = present[kept], absent[kept], change[kept]
    return _rounded_down(present, absent, change, interval), _rounded_down(absent, present, -change, interval)


@lru_cache(maxsize=4096)
def pair_moments(pair: OutputPair) -> tuple[float, float]:
    """Standard deviation of the loss where the record is there, and its whole range, both in nats."""
    points = _coarse_points(pair, 9.5)
    losses = _loss(pair, points)
    present = _cells(pair, points)[0]
    centres = (losses[1:] + losses[:-1]) / 2
    mean = float(present @ centres)
    return float(np.sqrt(present @ (centres - mean) ** 2)), float(np.ptp(losses))


@lru_cache(maxsize=64)
def _coarsely(pair: OutputPair, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) points on the real line, and the losses there: where each grid begins."""
    points = _coarse_points(pair, reach)
    return points, np.maximum.accumulate(_loss(pair, points))


def _coarse_points(pair: OutputPair, reach: float) -> np.ndarray:
    return np.linspace(pair.centres[0] - reach, pair.centres[-1] + reach, COARSE_POINTS)


def _loss(pair: OutputPair, points: np.ndarray) -> np.ndarray:
    """(n,) log density of `present` / that of `absent`, precise near 0."""
    centres = np.asarray(pair.centres)
    exponents = np.multiply.outer(points, centres) - centres**2 / 2
    present, absent = np.asarray(pair.present), np.asarray(pair.absent)
    far = _log_sum(exponents, present) - _log_sum(exponents, absent)
    scale = exponents[:, absent > 0].max(axis=1, keepdims=True)
    weights = np.exp(np.minimum(exponents - scale, 30.0))
    ratio = weights @ (present - absent) / (weights @ absent)
    return np.asarray(np.where(np.abs(ratio) < 0.5, np.log1p(np.clip(ratio, -0.5, 0.5)), far))


def _log_sum(exponents: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """(n,) log of sum_j chance_j exp(exponent_j)."""
    own = exponents[:, chances > 0]
    top = own.max(axis=1)
    return np.asarray(top + np.log(np.exp(own - top[:, None]) @ chances[chances > 0]))


def _cells(pair: OutputPair, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(n-1,) masses between the edges under `present`, under `absent`, and the first less the second."""
    present, absent, change = (np.zeros(edges.size - 1) for _ in range(3))
    for centre, there, not_there in zip(*pair, strict=True):
        masses = normal_masses(edges, centre)[1:-1]
        present += there * masses
        absent += not_there * masses
        change += (there - not_there) * masses
    return present, absent, change


def _rounded_down(masses: np.ndarray, others: np.ndarray, change: np.ndarray, interval: float) -> LossDistribution:
    """Cells joined by their losses, and put on the grid.

    A cell between grid points j and j+1 is split by a coin: one part goes down to j, the other up to j+1, where it is
    joined with the part of the next cell that goes down. The coins are such that the joint cell's loss is at least
    that of its grid point: with r_j the shortfall of cell j below j+1 over the surplus of cell j+1 there, a part of
    r / (1 + r), with the larger of r_(j-1) and r_j, goes down.

    Args:
        masses: (n,) under the law that the loss is drawn from; `others` under the other; `change` their difference.
    """
    places = np.floor(_log_ratio(masses, others, change) / interval).astype(np.int64)
    lowest = int(places.min())
    size = int(places.max()) - lowest + 1
    mass, other, difference = (np.bincount(places - lowest, part, minlength=size) for part in (masses, others, change))
    filled = mass > 0
    position = lowest + np.arange(size)
    fraction = np.zeros(size)  # of an interval, of each cell's loss above its grid point
    fraction[filled] = np.clip(
        _log_ratio(mass[filled], other[filled], difference[filled]) / interval - position[filled], 0.0, 1.0
    )
    shortfall = mass * np.expm1((1 - fraction) * interval)
    surplus = mass * -np.expm1(-fraction * interval)
    above = np.append(surplus[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(above > 0, shortfall / above, np.inf)
        larger = np.maximum(ratio, np.insert(ratio[:-1], 0, 0.0))
        down = np.where(np.isinf(larger), 1.0, larger / (1 + larger))
    total = np.append(down * mass, 0.0)
    total[1:] += (1 - down) * mass
    return LossDistribution(lowest, total, 0.0)


def _log_ratio(masses: np.ndarray, others: np.ndarray, change: np.ndarray) -> np.ndarray:
    """log(masses / others), precise near 0."""
    ratio = change / others
    near = np.abs(ratio) < 0.5
    return np.asarray(np.where(near, np.log1p(np.clip(ratio, -0.5, 0.5)), np.log(masses) - np.log(others)))
