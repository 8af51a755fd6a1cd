"""Clipping of whole uploads: an update or a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


ROUNDING = 1e-6  # of a length that is within its bound but for the order in which 32-bit numbers were added
_LAST_BITS = 1e-9  # relative; two sums of 64-bit numbers in any order differ by far less


def clip_rows(vectors: Tensor, bound: float, tolerance: float = 0.0, gamma: float | None = None) -> None:
    """Scale each of the vectors (s, M) to a norm of at most `bound`, in place; one that is not finite becomes zero.

    Norms are taken in double precision, and the factor is lowered by two roundings of 32-bit numbers, so that none
    leaves more. One that exceeds the bound by no more than `tolerance` times it stays as it is.

    Args:
        gamma: each vector x, whatever its length, becomes bound x / (|x| + gamma) instead, which is shorter than the
            bound (automatic clipping, Bu, Wang, Zha and Karypis 2023); zero stays zero.

    >>> import torch
    >>> rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [float("nan"), 1.0]])
    >>> clip_rows(rows, 1.0)
    >>> rows
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000],
            [0.0000, 0.0000]])
    >>> rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    >>> clip_rows(rows, 1.0, gamma=0.5)
    >>> rows
    tensor([[0.5455, 0.7273],
            [0.3000, 0.4000],
            [0.0000, 0.0000]])
    """
    import torch

    limit = bound * (1 + tolerance)
    # One call for all lengths: how it adds up may move their last bits, so that those near the limit are taken again.
    rough = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64).tolist() if gamma is None else []
    within = [length <= limit * (1 - _LAST_BITS) for length in rough] or [False] * len(vectors)
    for vector in (vectors[row] for row, short in enumerate(within) if not short):
        norm = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
        if gamma is None and norm <= limit:
            continue
        if norm < float("inf"):
            vector.mul_(bound / (norm + (gamma or 0.0)) * (1 - 2e-7))
        else:
            vector.zero_()
