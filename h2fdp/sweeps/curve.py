"""A monotone curve of a score over the noise in the last model, with a band for one more run.

The curve falls (or rises, of errors) with the noise: the means of runs at each level are made monotone by pooling
adjacent violators (Barlow et al. 1972), and monotone cubics of log x (Fritsch and Carlson 1980) go through them. The
band is Student's interval for one more run at that noise: t s sqrt(1 + 1/m), of m runs at a level and of s, what runs
at it and the levels next to it deviate from the means of their levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
MOST_LEVELS, SEEDS = 7, 3
_APART = 1.35  # at least, of neighbouring levels


def levels_between(least: float, most: float) -> Floats:
    """Levels of noise for the runs of a curve: equally far apart on a logarithmic scale, fewer of a short range.

    >>> levels_between(1.0, 64.0).round(2).tolist(), levels_between(2.0, 2.0).tolist()
    ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], [2.0])
    """
    number = min(MOST_LEVELS, 1 + int(np.ceil(np.log(most / least) / np.log(_APART) - 1e-9)))
    return np.geomspace(least, most, number)


def monotone(values: ArrayLike, weights: ArrayLike) -> Floats:
    """(n,) the nearest values, by weighted squares, of which none is above the one before it.

    >>> monotone([0.9, 0.7, 0.8, 0.5], [1, 1, 1, 1]).tolist()
    [0.9, 0.75, 0.75, 0.5]
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(np.asarray(values, float).tolist(), np.asarray(weights, float).tolist(), strict=True):
        mean, mass, count = value, weight, 1
        while blocks and blocks[-1][0] < mean:
            before, more, many = blocks.pop()
            mean, mass, count = (before * more + mean * mass) / (more + mass), more + mass, count + many
        blocks.append((mean, mass, count))
    return np.concatenate([np.full(count, mean) for mean, _, count in blocks])


@dataclass(frozen=True, eq=False)
class Curve:
    """A score over noise, from runs at a few levels.

    Attributes:
        noise: (L,) of each level, ascending: the geometric mean of its runs.
        runs: of each level the noise and the score of each run, (2, runs).
        falls: whether less of the score is better, so that it rises with the noise.
    """

    noise: Floats
    runs: tuple[Floats, ...]
    falls: bool = False

    @classmethod
    def of_runs(
        cls, noise: Sequence[float], scores: Sequence[float], falls: bool = False, levels: Sequence[Any] | None = None
    ) -> Curve:
        """The curve of runs.

        Args:
            levels: what the runs of a level have in common; None: those of equal noise are one.
        """
        groups: dict[Any, list[tuple[float, float]]] = {}
        for x, y, level in zip(noise, scores, noise if levels is None else levels, strict=True):
            groups.setdefault(level, []).append((x, y))
        runs = sorted((np.array(each, float).T for each in groups.values()), key=_middle)
        return cls(np.array([_middle(each) for each in runs]), tuple(runs), falls)

    def __call__(self, noise: ArrayLike) -> Floats:
        """The score at each noise; outside of the levels that of the nearest one."""
        x = np.log(np.clip(np.asarray(noise, float), self.noise[0], self.noise[-1]))
        read: Floats = np.full_like(x, self._means[0]) if len(self.noise) == 1 else self._cubics(x)
        return np.asarray(np.clip(read, self._means.min(), self._means.max()))

    def band(self, noise: ArrayLike) -> Floats:
        """Half of the 95 % interval of one more run at each noise; nan where no level has two runs."""
        at = np.log(np.clip(np.asarray(noise, float), self.noise[0], self.noise[-1]))
        return np.asarray(np.interp(at, np.log(self.noise), self._halves), dtype=np.float64)

    def noise_of(self, score: float) -> float:
        """The largest noise at which the curve reaches a score; 0 where no level does, inf where all do.

        >>> round(Curve.of_runs([1, 1, 4, 4], [0.9, 0.9, 0.7, 0.7]).noise_of(0.8), 6)
        2.0
        """
        better = np.sign(self._means - score) * (-1 if self.falls else 1)
        if (better >= 0).all() or (better < 0).all():
            return np.inf if better[0] >= 0 else 0.0
        low, high = float(self.noise[0]), float(self.noise[-1])
        for _ in range(60):
            middle = float(np.sqrt(low * high))
            reached = self(middle) <= score if self.falls else self(middle) >= score
            low, high = (middle, high) if reached else (low, middle)
        return low

    @cached_property
    def _means(self) -> Floats:
        sign = -1.0 if self.falls else 1.0
        return sign * monotone([sign * each[1].mean() for each in self.runs], [each.shape[1] for each in self.runs])

    @cached_property
    def _cubics(self) -> Any:
        from scipy.interpolate import PchipInterpolator

        return PchipInterpolator(np.log(self.noise), self._means)

    @cached_property
    def _halves(self) -> Floats:
        from scipy.stats import t

        off = [each[1] - self(each[0]) for each in self.runs]  # seeds may draw other networks, of other noise
        squares = [float(((each - each.mean()) ** 2).sum()) for each in off]
        found = []
        for level, each in enumerate(off):
            near = slice(max(level - 1, 0), level + 2)
            free = sum(len(one) - 1 for one in off[near])
            deviation = np.sqrt(sum(squares[near]) / max(free, 1) * (1 + 1 / len(each)))
            found.append(t.ppf(0.975, free) * deviation if free else np.nan)
        return np.array(found)


def _middle(run: Floats) -> float:
    return float(np.exp(np.log(run[0]).mean()))
