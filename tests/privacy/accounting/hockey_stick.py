"""Hockey-stick divergences of mixtures of Gaussians on a line or a plane, by brute force on a fine grid."""

import numpy as np


def line_density(shifts, probabilities, noise_std, grid):
    """Density on `grid` of sum_j p_j N(s_j, noise_std^2)."""
    bumps = np.exp(-((grid[:, None] - np.asarray(shifts)) ** 2) / (2 * noise_std**2))
    return bumps @ np.asarray(probabilities) / (noise_std * np.sqrt(2 * np.pi))


def plane_density(shifts, probabilities, noise_std, grid):
    """Density on grid x grid of sum_j p_j N(s_j, noise_std^2 I); shifts is (n, 2)."""
    bumps = [np.exp(-((grid[:, None] - column) ** 2) / (2 * noise_std**2)) for column in np.asarray(shifts).T]
    return np.einsum("xj,yj,j->xy", *bumps, np.asarray(probabilities)) / (2 * np.pi * noise_std**2)


def hockey_stick(one, other, epsilon, cell):
    """integral of (one - e^epsilon other)_+, with `cell` the measure of a grid cell."""
    return float(np.maximum(one - np.exp(epsilon) * other, 0).sum() * cell)


def both_directions(with_record, without, epsilons, cell):
    """(2, len(epsilons)) divergences: record removed, record added."""
    return np.array(
        [
            [hockey_stick(one, other, epsilon, cell) for epsilon in epsilons]
            for one, other in ((with_record, without), (without, with_record))
        ]
    )
