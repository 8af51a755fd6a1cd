"""Clipping, which makes Assumption 2 (||g_i|| <= G) true: of the averaged gradient, or of each record's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from h2fdp.training.local_steps import gain

ClipScope = Literal["batch", "record"]
GAMMA = 0.01  # of normalised vectors, as in their source


@dataclass(frozen=True)
class Clipping:
    """A rule of clipping: which vectors are scaled down to a norm of at most G.

    Attributes:
        norm: G, above 0.
        scope: `batch` scales the mini-batch gradient; `record` scales each record's gradient before the average.
        mean_too: under `record`, the average too: divided by the expected number of records it may be longer than G.
        gamma: vectors g are not cut but normalised to G g / (|g| + gamma), which is shorter than G (automatic clipping,
            Bu, Wang, Zha and Karypis 2023, AUTO-S); None cuts those that are longer.
    """

    norm: float
    scope: ClipScope = "batch"
    mean_too: bool = False
    gamma: float | None = None

    @property
    def plain(self) -> bool:
        """Whether vectors are cut, and nothing else."""
        return self.gamma is None

    @property
    def of_batches(self) -> bool:
        """Whether batch gradients are clipped."""
        return self.scope == "batch" or self.mean_too

    @property
    def for_batches(self) -> Clipping:
        """The clipping of batch gradients: an average of vectors that were normalised one by one is cut."""
        return self if self.scope == "batch" else replace(self, gamma=None)

    def apply(self, gradients: Tensor, out: Tensor | None = None) -> Tensor:
        """Scale each vector along the last axis to a norm of at most G, into new memory or `out`; zero stays zero.

        Vectors that are normalised are scaled up, too.

        A vector with an infinite or undefined norm becomes zero: it may not pass unbounded.

        >>> Clipping(norm=1.0).apply(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000],
                [0.0000, 0.0000]])
        """
        norms = torch.linalg.vector_norm(gradients, dim=-1, keepdim=True)
        clipped = torch.mul(gradients, clip_factors(norms, self.norm, self.gamma), out=out)
        if norms.device.type != "cpu" or not norms.isfinite().all():  # a GPU would have to be waited for, to know
            # A factor of 0 leaves undefined numbers behind where there were infinite ones, and nowhere else.
            clipped.nan_to_num_(nan=0.0)
        return clipped


def of_records(clipping: Clipping | None) -> Clipping | None:
    """The clipping where it is of each record's gradient."""
    return clipping if clipping is not None and clipping.scope == "record" else None


def clip_factors(norms: Tensor, bound: float, gamma: float | None = None) -> Tensor:
    """The factors that make vectors of these norms no longer than the bound; 0 where a norm is not finite.

    Args:
        gamma: see `Clipping`.

    >>> clip_factors(torch.tensor([0.5, 2.0, float("inf")]), 1.0)
    tensor([1.0000, 0.5000, 0.0000])
    >>> clip_factors(torch.tensor([0.0, 0.5, 2.0]), 1.0, gamma=0.5)
    tensor([2.0000, 1.0000, 0.4000])
    """
    if gamma is not None:
        return torch.where(norms.isfinite(), bound / (norms + gamma), 0.0)
    return torch.where(norms.isfinite(), bound / norms.clamp(min=bound), 0.0)


@dataclass(frozen=True)
class LongestSum:
    """A map from a step size and a number of steps to the longest update that gradients of norm G make."""

    norm: float
    momentum: float

    def __call__(self, step_size: float, steps: int) -> float:
        """eta gain(m) G."""
        return step_size * gain(self.momentum, steps) * self.norm
