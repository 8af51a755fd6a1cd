"""How stored inputs become the numbers that a model sees: public constants, applied on the fly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Scaling:
    """x_model = (x / divisor - mean) / deviation = x * scale + shift.

    The constants are published properties of a data set or are stated by the user; none is ever computed from the
    devices' records, since that would leak.

    Attributes:
        divisor: the largest stored value (255 for 8-bit images, 16 for digits), or 1.
        mean: subtracted after the division; one value, or one for each channel.
        deviation: divided by last; as many values as `mean`.

    >>> Scaling(255.0, (0.5,), (0.25,)).scale * 255
    array([4.], dtype=float32)
    >>> Scaling(255.0, (0.1, 0.2, 0.3), (1.0, 1.0, 1.0)).shift.shape
    (3, 1, 1)
    """

    divisor: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        assert len(self.mean) == len(self.deviation) >= 1, "a mean and a deviation for each channel"
        assert min(self.divisor, *self.deviation) > 0, "a scaling can be undone"

    @property
    def scale(self) -> NDArray[np.float32]:
        """The factor, float32, shape (1,) or (channels, 1, 1): broadcasts over one record's shape."""
        return self._broadcast(1.0 / (self.divisor * np.array(self.deviation)))

    @property
    def shift(self) -> NDArray[np.float32]:
        """The summand, float32, shape (1,) or (channels, 1, 1): broadcasts over one record's shape."""
        return self._broadcast(-np.array(self.mean) / np.array(self.deviation))

    def unit(self) -> Scaling:
        """The division alone: `normalize: unit`."""
        return Scaling(self.divisor)

    def _broadcast(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        shape = (1,) if len(self.mean) == 1 else (len(self.mean), 1, 1)
        return values.astype(np.float32).reshape(shape)
