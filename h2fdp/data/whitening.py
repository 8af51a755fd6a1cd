"""Fewer and whiter features: a linear map that is fitted on public records, and is fixed for all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FLOOR = 0.01  # of the mean variance


@dataclass(frozen=True, eq=False)
class Whitening:
    """z = (x - mean) @ axes: the directions in which public records differ most, each scaled to variance 1 or less.

    Steps of gradient descent are as long in all directions then, and a clip norm cuts none of them off.

    Attributes:
        mean: shape (d,).
        axes: shape (d, size); orthogonal columns, by falling variance.
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def of(cls, public: NDArray[np.float32], size: int) -> Whitening:
        """Fit it on public records (n, d); a floor keeps directions in which these hardly differ from being blown up.

        >>> fitted = Whitening.of(np.random.default_rng(0).normal(size=(200, 3)).astype("float32") * [5, 3, 1], 2)
        >>> bool(abs(fitted(np.random.default_rng(1).normal(size=(200, 3)) * [5, 3, 1]).std() - 1) < 0.1)
        True
        """
        mean = public.mean(axis=0, dtype=np.float64)
        wide = public - mean
        assert 1 <= size <= min(wide.shape), "no more directions than public records or values"
        # The records' products are a smaller matrix than the values' covariance, and have the same directions.
        values, sides = np.linalg.eigh(wide @ wide.T)
        values, sides = values[::-1][:size], sides[:, ::-1][:, :size]
        axes = wide.T @ sides / np.sqrt(values)
        axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(size)])  # else signs would differ by machine
        variances = values / (len(wide) - 1)
        floor = _FLOOR * wide.var(axis=0).mean()
        return cls(mean.astype(np.float32), (axes / np.sqrt(variances + floor)).astype(np.float32))

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, size)."""
        found: NDArray[np.float32] = (x - self.mean).astype(np.float32) @ self.axes
        return found
