"""The privacy loss distribution of one mixture, put on a grid so that it dominates the true one.

dp-accounting inverts the privacy loss by bisection in Python: seconds for one release, half a minute where noise is
small. Here the real line is cut where the loss crosses the grid, approximately, and whatever falls between two losses
is split over both so that the mass under P and under Q stays what it was (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi
2022, "Connect the dots"): exact in mass, of second order in the interval, milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from h2fdp.privacy.accounting.mixtures import Mixture, privacy_loss

REACH = 9.5  # standard deviations beyond the outermost shift; 1e-21 of the mass counts as an infinite loss
COARSE_POINTS = 2048
FAINT = 1e-290  # masses below it, which doubles hold with fewer digits, count as an infinite loss


@dataclass(frozen=True)
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


@lru_cache(maxsize=64)
def loss_distributions(
    mixture: Mixture, noise_multiplier: float, interval: float
) -> tuple[LossDistribution, LossDistribution]:
    """Losses of P against Q under P, and of Q against P under Q; P the mixture, Q the noise alone.

    Guarantee: each dominates the true one, so that every epsilon from them is an upper bound. One release adds less
    than interval^2 / 4 to the variance of the loss.

    Args:
        interval: the grid's, in nats.
    """
    edges = _edges(mixture, noise_multiplier, interval)
    losses = privacy_loss(mixture, noise_multiplier, edges)
    unmoved = _normal_masses(edges, 0.0)
    moved = np.zeros_like(unmoved)
    for shift, chance in zip(*mixture, strict=True):
        moved += chance * _normal_masses(edges, shift / noise_multiplier)
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


def loss_moments(mixture: Mixture, noise_multiplier: float) -> tuple[float, float]:
    """Standard deviation of the loss under P, and its whole range, both in nats: what a grid has to resolve."""
    edges = _coarse_points(mixture, noise_multiplier)
    losses = privacy_loss(mixture, noise_multiplier, edges)
    masses = np.zeros(edges.size + 1)
    for shift, chance in zip(*mixture, strict=True):
        masses += chance * _normal_masses(edges, shift / noise_multiplier)
    centres, weights = (losses[1:] + losses[:-1]) / 2, masses[1:-1]
    mean = float(weights @ centres)
    return float(np.sqrt(weights @ (centres - mean) ** 2)), float(losses[-1] - losses[0])


def _coarse_points(mixture: Mixture, noise_multiplier: float) -> np.ndarray:
    return np.linspace(-REACH, max(mixture.shifts) / noise_multiplier + REACH, COARSE_POINTS)


def _edges(mixture: Mixture, noise_multiplier: float, interval: float) -> np.ndarray:
    """Where the loss is a multiple of the interval, nearly: interpolated twice, and both ends."""
    points = _coarse_points(mixture, noise_multiplier)
    losses = privacy_loss(mixture, noise_multiplier, points)
    grid = np.arange(np.ceil(losses[0] / interval), np.floor(losses[-1] / interval) + 1) * interval
    ends = points[[0, -1]]
    for _ in range(2):
        points = np.union1d(ends, np.interp(grid, losses, points))
        losses = np.maximum.accumulate(privacy_loss(mixture, noise_multiplier, points))
    return points


def _normal_masses(edges: np.ndarray, centre: float) -> np.ndarray:
    """(len(edges) + 1,) mass of N(centre, 1) below, between and above the edges, precise in both tails."""
    from scipy.special import ndtr

    below, above = ndtr(edges - centre), ndtr(centre - edges)
    between = np.where(edges[:-1] > centre, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.concatenate([below[:1], between, above[-1:]])


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
