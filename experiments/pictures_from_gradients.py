"""What a message of gradients says of one image in it: the picture that its receiver expects.

At a model of zeros softmax regression (Zhu et al. 2019; Geiping et al. 2020, Prop. 3.1) has the gradient
(1/10 - [j = y]) x for class j: a row is the image times a number that its label gives. A weighted sum of such gradients
is linear in the sums S_j of the images of each label, of which an observer that knows public images believes

    S_j ~ N(n_j m_j, n_j Q),   row_i = w sum_j (1/10 - [i = j]) S_j + noise,

with n_j records of label j in the message, the mean image m_j of that label and the covariance Q around it. Its picture
is E[S_y | message] / n_y: no other has a smaller expected squared error under this law.
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

    def picture(self, message: np.ndarray, noise_std: float, weight: float, labels: np.ndarray) -> np.ndarray:
        """(pixels,) E[S_y | message] / n_y for y = labels[0], cut to 0..1.

        Args:
            message: (classes * pixels,) an average of gradients, each with this weight, and noise of `noise_std`.
            labels: of the records in it, the attacked one first.
        """
        counts = np.bincount(labels, minlength=CLASSES)[:, None]
        rows = weight * (1 / CLASSES - np.eye(CLASSES))  # of what the message shows of each S_j
        expected = counts * (self.means @ self.axes)
        surprise = message.reshape(CLASSES, -1) @ self.axes - rows @ expected
        spread, basis = np.linalg.eigh(rows @ (counts * rows.T))
        variance = np.outer(np.maximum(spread, 0), self.variances) + max(noise_std, 1e-6) ** 2  # 1e-6: of rounding
        sums = expected + self.variances * (counts * rows.T @ basis @ (basis.T @ surprise / variance))
        return np.asarray(np.clip(self.axes @ sums[labels[0]] / counts[labels[0]], 0, 1))


def decibels(pictures: np.ndarray, originals: np.ndarray) -> np.ndarray:
    """(n,) peak signal-to-noise ratios, of pixels from 0 to 1."""
    errors = ((pictures - originals) ** 2).mean(axis=1)
    return np.asarray(-10 * np.log10(np.maximum(errors, 1e-12)))


def exact(pictures: np.ndarray, originals: np.ndarray) -> np.ndarray:
    """(n,) whether all 8 bits of all pixels are right."""
    return np.asarray((np.rint(255 * pictures) == np.rint(255 * originals)).all(axis=1))
