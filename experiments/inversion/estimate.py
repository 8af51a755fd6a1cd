"""What a message of gradients says of one image in it: the picture that its receiver expects.

At a model of zeros softmax regression (Zhu et al. 2019; Geiping et al. 2020, Prop. 3.1) has the gradient
(1/10 - [j = y]) x for class j: a row is the image times a number that its label gives. A weighted sum of such gradients
is linear in the weighted sums S_j of the images of each label. An observer that knows public images believes that

    S_j ~ N(a_j m_j, b_j Q),   row_i = sum_j (1/10 - [i = j]) S_j + noise,

where a_j and b_j are the sums of the weights w_i of the records of label j and of their squares, m_j is the mean image
of the label and Q the covariance around it. Its picture of record i is

    E[x_i | message] = m_y + (w_i / b_y) (E[S_y | message] - a_y m_y):

no other has a smaller expected squared error under this law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CLASSES = 10


@dataclass(frozen=True)
class Images:
    """x (n, pixels) from 0 to 1, and labels y (n,)."""

    x: np.ndarray
    y: np.ndarray

    def shrunk(self, clip_norm: float) -> np.ndarray:
        """(n,) by how much clipping makes each gradient at a model of zeros shorter."""
        lengths = np.linalg.norm(self.x, axis=1) * np.sqrt(1 - 1 / CLASSES)
        return np.asarray(np.minimum(1, clip_norm / lengths))


@dataclass(frozen=True)
class Knowledge:
    """What an observer knows of images beforehand.

    Attributes:
        means: (classes, pixels) m_j.
        axes: (pixels, pixels) principal axes of Q, one a column.
        variances: (pixels,) along them.
    """

    means: np.ndarray
    axes: np.ndarray
    variances: np.ndarray

    @classmethod
    def of(cls, public: Images) -> Knowledge:
        """That of public images, among which every label is."""
        means = np.stack([public.x[public.y == label].mean(axis=0) for label in range(CLASSES)])
        variances, axes = np.linalg.eigh(np.cov(public.x - means[public.y], rowvar=False, bias=True))
        return cls(means, axes, np.maximum(variances, 1e-6))  # pixels that are always black may be grey

    def picture(self, message: np.ndarray, noise_std: float, weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """(pixels,) of the first record, cut to 0..1.

        Args:
            message: (classes * pixels,) a weighted sum of gradients, and noise of `noise_std`.
            weights, labels: (s,) of the records in it, the attacked one first.
        """
        sums, squares = (np.bincount(labels, weights**power, CLASSES)[:, None] for power in (1, 2))
        rows = 1 / CLASSES - np.eye(CLASSES)  # of what the message shows of each S_j
        means = self.means @ self.axes
        surprise = message.reshape(CLASSES, -1) @ self.axes - rows @ (sums * means)
        spread, basis = np.linalg.eigh(rows @ (squares * rows.T))
        variance = np.outer(np.maximum(spread, 0), self.variances) + max(noise_std, 1e-7) ** 2  # 1e-7: of rounding
        moves = self.variances * (rows.T @ basis @ (basis.T @ surprise / variance))  # (S_j - a_j m_j) / b_j
        return np.asarray(np.clip(self.axes @ (means[labels[0]] + weights[0] * moves[labels[0]]), 0, 1))


def decibels(pictures: np.ndarray, originals: np.ndarray) -> np.ndarray:
    """(n,) peak signal-to-noise ratios, of pixels from 0 to 1."""
    errors = ((pictures - originals) ** 2).mean(axis=1)
    return np.asarray(-10 * np.log10(np.maximum(errors, 1e-12)))


def exact(pictures: np.ndarray, originals: np.ndarray) -> np.ndarray:
    """(n,) whether all 8 bits of all pixels are right."""
    return np.asarray((np.rint(255 * pictures) == np.rint(255 * originals)).all(axis=1))
