"""nn.Conv2d over a stack of devices.

Two ways, by geometry alone. With strides, windows are unfolded and convolution is a batched product: oneDNN takes 0.94
ms for the input gradient of a 4x4 kernel with stride 2 (16 to 32 channels of 12x12, 32 records), the product and the
way back 0.3 ms. Without strides windows overlap most, and oneDNN is faster by half, device after device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from h2fdp.training.gradients.per_example import (
    ExplicitGradients,
    GhostGradients,
    Gradients,
    Parameters,
    PerExampleGradients,
    Step,
    Summed,
    ghost_is_cheaper,
    stacked,
)

_VALUES_AT_ONCE = 250_000  # of unfolded records, as float32 1 MB: what a core's own cache holds


@dataclass(frozen=True)
class Convolution(Step):
    """A convolution of images (n, W, C, H, W'), without dilation or groups.

    Attributes:
        numbers: to which the factors of products are rounded. Gradients of clipped records are added up as they were
            measured, so that none exceeds its bound.
    """

    names: tuple[str, ...]
    windows: Windows
    numbers: torch.dtype = torch.float32

    def forward(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Any]:
        weights, *biases = (parameters[name].to(self.numbers) for name in self.names)
        images = x.flatten(0, 1).contiguous(memory_format=torch.channels_last).to(self.numbers)
        if self._unfolds:
            unfolded, matrices = self.windows.unfold(images), weights.permute(0, 1, 3, 4, 2).flatten(2)
            rows, across = unfolded.reshape(len(x), -1, unfolded.shape[2]), matrices.transpose(1, 2)
            y = torch.baddbmm(biases[0][:, None, :], rows, across) if biases else torch.bmm(rows, across)
            sides = self.windows.counts(x.shape[3:])
            return y.view(*x.shape[:2], *sides, -1).permute(0, 1, 4, 2, 3), (images, unfolded, matrices)
        kernels = [each.contiguous(memory_format=torch.channels_last) for each in weights]
        each_bias = biases[0] if biases else [None] * len(x)
        outputs = [
            nn.functional.conv2d(own, kernel, bias, self.windows.stride, self.windows.padding).to(x.dtype)
            for own, kernel, bias in zip(images.chunk(len(x)), kernels, each_bias, strict=True)
        ]
        return stacked(outputs), (images, None, kernels)

    def back(
        self, parameters: Parameters, saved: Any, delta: Tensor, goes_on: bool, by_record: bool
    ) -> tuple[Tensor | None, Gradients]:
        images, unfolded, _ = saved
        biased = len(self.names) > 1
        if unfolded is None and not by_record:
            gradient, *sums = self._one_by_one(saved, delta, (goes_on, True, biased))
            wholes = [Summed(torch.stack(each) if len(each) > 1 else each[0][None]) for each in sums]
            return stacked(gradient) if goes_on else None, wholes
        rows = _rows(delta)
        as_parameter = partial(self._as_parameter, channels=images.shape[1])
        gradients: list[Summed | PerExampleGradients] = []
        if by_record:
            of_weights = records_gradients(self.windows, images.to(delta.dtype), rows, unfolded)
            gradients.append(replace(of_weights, as_parameter=as_parameter))
        else:
            gradients.append(GhostGradients(unfolded.reshape(*rows.shape[:3], -1), rows, as_parameter))
        if biased:
            gradients.append(ExplicitGradients(rows.sum(dim=2)) if by_record else Summed(rows.sum(dim=(1, 2))))
        if not goes_on:
            return None, gradients
        if unfolded is None:
            return stacked(self._one_by_one(saved, delta, (True, False, False))[0]), gradients
        return self._folded(saved, rows), gradients

    def of_records(self, calls: Sequence[tuple[Tensor, Tensor]]) -> Gradients:
        """The gradients of W records, over calls with images (W, C, H, W') and gradients (W, O, ...) in what became of
        them, for a stack of one device."""
        (images, delta), *more = calls
        if not more:
            return self.back({}, (images, None, None), delta[None], goes_on=False, by_record=True)[1]
        windows = torch.cat([self.windows.unfold(each) for each, _ in calls], dim=1)[None]
        rows = torch.cat([_rows(each[None]) for _, each in calls], dim=2)
        weights = GhostGradients(windows, rows, partial(self._as_parameter, channels=images.shape[1]))
        gradients: Gradients = [weights, ExplicitGradients(rows.sum(dim=2))]
        return gradients[: len(self.names)]

    @property
    def _unfolds(self) -> bool:
        return self.windows.stride != (1, 1) and self.numbers == torch.float32

    def _one_by_one(self, saved: Any, delta: Tensor, asked: tuple[bool, bool, bool]) -> list[list[Any]]:
        """Gradients in the images, the weights and the biases of each device, those that are asked for, by oneDNN."""
        images, _, kernels = saved
        geometry = (self.windows.stride, self.windows.padding, (1, 1), False, (0, 0), 1)
        by_device = []
        for own, kernel, each in zip(images.chunk(len(kernels)), kernels, delta, strict=True):
            biases = [len(kernel)] if asked[2] else None
            back = torch.ops.aten.convolution_backward(each.to(self.numbers), own, kernel, biases, *geometry, asked)
            by_device.append([None if part is None else part.to(delta.dtype) for part in back])
        return [list(parts) for parts in zip(*by_device, strict=True)][: 3 if asked[2] else 2]

    def _folded(self, saved: Any, rows: Tensor) -> Tensor:
        """The gradient in unfolded images by that in their windows' outputs (n, W, L, O)."""
        images, _, matrices = saved
        windows = torch.bmm(rows.flatten(1, 2), matrices).view(len(images), -1, matrices.shape[2])
        return self.windows.fold(windows, images.shape).view(*rows.shape[:2], *images.shape[1:])

    def _as_parameter(self, weight: Tensor, channels: int) -> Tensor:
        """(n, O, C, kh, kw) from (n, O kh kw C)."""
        return weight.reshape(len(weight), -1, *self.windows.kernel, channels).permute(0, 1, 4, 2, 3)


def _rows(delta: Tensor) -> Tensor:
    """(n, W, L, O) from (n, W, O, H, W')."""
    return delta.permute(0, 1, 3, 4, 2).flatten(2, 3)


def records_gradients(
    windows: Windows, images: Tensor, rows: Tensor, unfolded: Tensor | None = None
) -> ExplicitGradients | GhostGradients:
    """The gradients of a convolution's weights record by record, in the order (O, kh, kw, C).

    Args:
        images: (n W, C, H, W').
        rows: (n, W, L, O) gradients in what is made of their windows.
        unfolded: (n W, L, kh kw C) the windows, where they are there.
    """
    if ghost_is_cheaper(rows.shape[2], images.shape[1] * windows.kernel[0] * windows.kernel[1], rows.shape[3]):
        unfolded = windows.unfold(images) if unfolded is None else unfolded
        return GhostGradients(unfolded.reshape(*rows.shape[:2], *unfolded.shape[1:]), rows)
    return ExplicitGradients(_written(windows, images, unfolded, rows.flatten(0, 1)).view(*rows.shape[:2], -1))


def _written(windows: Windows, images: Tensor, unfolded: Tensor | None, rows: Tensor) -> Tensor:
    """(N, O, kh kw C) gradients of records; unfolds few of them at a time where they are not unfolded yet."""
    if unfolded is not None:
        return torch.bmm(rows.transpose(1, 2), unfolded)
    inputs = images.shape[1] * windows.kernel[0] * windows.kernel[1]
    written = rows.new_empty(len(rows), rows.shape[2], inputs)
    step = max(1, _VALUES_AT_ONCE // (rows.shape[1] * inputs))
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        torch.bmm(rows[part].transpose(1, 2), windows.unfold(images[part]), out=written[part])
    return written


_LONG_RUN = 32  # values of a window's row from which on they are copied as they are


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
        run = self.kernel[1] * channels
        if run >= _LONG_RUN:
            strides = (image, row * self.stride[0], column * self.stride[1], row, 1)
            windows = images.as_strided((len(x), rows, columns, self.kernel[0], run), strides)
        else:
            # First along the rows of pixels, with the columns outside: then a window is one run of memory, all of it.
            tall = images.shape[1]
            strips = images.as_strided((len(x), columns, tall, run), (image, column * self.stride[1], row, 1))
            windows = strips.contiguous().as_strided(
                (len(x), rows, columns, self.kernel[0] * run),
                (columns * tall * run, self.stride[0] * run, tall * run, 1),
            )
        return windows.reshape(len(x), rows * columns, -1)

    def fold(self, windows: Tensor, shape: torch.Size) -> Tensor:
        """(N, C, H, W) = `shape`: what each pixel's windows (N, L, kh kw C) add up to, the transpose of `unfold`."""
        # The kernel in blocks of one step each way: equal blocks of neighbouring windows lie side by side, so that a
        # block of all windows is added at once, in runs of memory.
        (above, left), (down, right), (count, channels, height, width) = self.padding, self.stride, shape
        rows, columns = self.counts((height, width))
        below, right_blocks = -(-self.kernel[0] // down), -(-self.kernel[1] // right)
        tall = max(rows - 1 + below, -(-(above + height) // down))
        wide = max(columns - 1 + right_blocks, -(-(left + width) // right))
        images = windows.new_zeros(count, tall, down, wide, right, channels)
        windows = windows.view(count, rows, columns, *self.kernel, channels)
        for row in range(below):
            for column in range(right_blocks):
                block = windows[:, :, :, row * down : (row + 1) * down, column * right : (column + 1) * right]
                part = images[:, row : row + rows, : block.shape[3], column : column + columns, : block.shape[4]]
                part += block.transpose(2, 3)
        pixels = images.view(count, tall * down, wide * right, channels)
        return pixels[:, above : above + height, left : left + width].permute(0, 3, 1, 2)
