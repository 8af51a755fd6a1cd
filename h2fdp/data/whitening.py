"""Fewer and whiter features: a linear map that is fitted on public records, and is fixed for all others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FLOOR = 1e-6  # of the mean variance: directions in which public records do not differ are not blown up
_SPARE, _ITERATIONS = 32, 4  # directions besides those that are wanted, and iterations that turn to them


@dataclass(frozen=True, eq=False)
class Whitening:
    """z = (x - mean) @ axes: the directions in which public records differ most, each scaled to variance 1.

    Steps of gradient descent are as long in all directions then, and a clip norm cuts none of them off: whitening is
    the second-order step, with a public Hessian.

    Attributes:
        mean: shape (d,).
        axes: shape (d, size); orthogonal columns, by falling variance.
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def of(cls, public: NDArray[np.float32], size: int) -> Whitening:
        """Fit it on public records (n, d).

        >>> drawn = (np.random.default_rng(0).normal(size=(400, 3)) * [5, 3, 1]).astype("float32")
        >>> bool(abs(Whitening.of(drawn[:200], 2)(drawn[200:]).std() - 1) < 0.1)
        True
        """
        mean = public.mean(axis=0, dtype=np.float64).astype(np.float32)
        wide = public - mean
        assert 1 <= size <= min(wide.shape), "no more directions than public records or values"
        span = _leading(wide, min(size + _SPARE, *wide.shape))
        scores = (wide @ span).astype(np.float64)
        values, turned = np.linalg.eigh(scores.T @ scores / (len(wide) - 1))
        values, axes = values[::-1][:size], span @ turned[:, ::-1][:, :size]
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(size)])  # else signs would differ by machine
        floor = _FLOOR * wide.var(axis=0).mean()
        return cls(mean, (axes / np.sqrt(values + floor)).astype(np.float32))

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n, d) -> (n, size)."""
        found: NDArray[np.float32] = (x - self.mean).astype(np.float32) @ self.axes
        return found


def _leading(wide: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """(d, size) orthonormal columns that span the leading directions of (n, d), by subspace iteration: all directions
    of 4,000 values would take ten times as long (Halko, Martinsson and Tropp 2011, Algorithm 4.4)."""
    import torch

    rng = np.random.Generator(np.random.Philox(0))
    records, span = torch.from_numpy(wide), torch.from_numpy(rng.standard_normal((wide.shape[1], size), np.float32))
    for _ in range(_ITERATIONS):
        span = torch.linalg.qr(records.T @ (records @ span))[0]
    found: NDArray[np.float32] = span.numpy()
    return found
