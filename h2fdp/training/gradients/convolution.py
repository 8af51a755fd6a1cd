"""nn.Conv2d over a stack of devices.

Two ways, by geometry alone. With strides, windows are unfolded and convolution is a batched product: oneDNN takes 0.94
ms for the input gradient of a 4x4 kernel with stride 2 (16 to 32 channels of 12x12, 32 records), the product and the
way back 0.3 ms. Without strides windows overlap most, and oneDNN is faster by half, device after device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from h2fdp.training.gradients.per_example import (
    ExplicitGradients,
    GhostGradients,
    PerExampleGradients,
    PermutedGradients,
    ghost_is_cheaper,
)

_VALUES_AT_ONCE = 250_000  # of unfolded records, as float32 1 MB: what a core's own cache holds


class StackedConvolution:
    """Convolution of images (n, W, C, H, W'), whose channels are last in memory, without dilation or groups."""

    def __init__(self, windows: Windows, biased: bool) -> None:
        self._windows = windows
        self._biased = biased
        self._unfolds = windows.stride != (1, 1)

    def forward(self, parameters: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Any]:
        weights, biases = parameters[0], parameters[1] if self._biased else None
        images = x.flatten(0, 1)
        if self._unfolds:
            output, unfolded = _UnfoldedConvolution.apply(images, weights, biases, self._windows)
        else:
            output, unfolded = self._one_by_one(images, weights, biases), None
        return output.view(*x.shape[:2], *output.shape[1:]), (x.detach(), unfolded)

    def _one_by_one(self, images: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
        outputs = [
            nn.functional.conv2d(
                own,
                weight.contiguous(memory_format=torch.channels_last),
                None if biases is None else biases[device],
                padding=self._windows.padding,
            )
            for device, (own, weight) in enumerate(zip(images.chunk(len(weights)), weights, strict=True))
        ]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def sums(self, saved: Any, delta: Tensor) -> list[Tensor]:
        x, unfolded = saved
        rows = _rows(delta)
        if unfolded is not None:
            summed = torch.bmm(rows.flatten(1, 2).transpose(1, 2), unfolded.view(len(x), -1, unfolded.shape[2]))
            weight = self._as_parameter(summed.flatten(1), x.shape[2])
        else:
            weight = torch.stack([self._weight_gradient(*each) for each in zip(x, delta, strict=True)])
        return [weight, rows.sum(dim=(1, 2))] if self._biased else [weight]

    def _weight_gradient(self, x: Tensor, delta: Tensor) -> Tensor:
        """(O, C, kh, kw) of one device by oneDNN."""
        size = (delta.shape[1], x.shape[1], *self._windows.kernel)
        gradient: Tensor = conv2d_weight(x, size, delta, padding=self._windows.padding)  # type: ignore[no-untyped-call]
        return gradient

    def record_gradients(self, saved: Any, delta: Tensor) -> list[PerExampleGradients]:
        x, unfolded = saved
        rows, channels = _rows(delta), x.shape[2]
        found = records_gradients(self._windows, x, rows, unfolded)
        weight = PermutedGradients(found, lambda summed: self._as_parameter(summed, channels))
        return [weight, ExplicitGradients(rows.sum(dim=2))] if self._biased else [weight]

    def _as_parameter(self, weight: Tensor, channels: int) -> Tensor:
        """(n, O C kh kw) from (n, O kh kw C)."""
        return weight.view(len(weight), -1, *self._windows.kernel, channels).permute(0, 1, 4, 2, 3).flatten(1)


def _rows(delta: Tensor) -> Tensor:
    """(n, W, L, O) from (n, W, O, H, W')."""
    return delta.permute(0, 1, 3, 4, 2).flatten(2, 3)


def records_gradients(windows: Windows, x: Tensor, rows: Tensor, unfolded: Tensor | None = None) -> PerExampleGradients:
    """The gradients of a convolution's weights record by record, in the order (O, kh, kw, C).

    Args:
        x: (n, W, C, H, W') images.
        rows: (n, W, L, O) gradients in what is made of their windows.
        unfolded: (n W, L, kh kw C) the windows, if somebody has them.
    """
    images = x.flatten(0, 1)
    if ghost_is_cheaper(rows.shape[2], x.shape[2] * windows.kernel[0] * windows.kernel[1], rows.shape[3]):
        unfolded = windows.unfold(images) if unfolded is None else unfolded
        return GhostGradients(unfolded.view(*x.shape[:2], *unfolded.shape[1:]), rows)
    return ExplicitGradients(_written(windows, images, unfolded, rows.flatten(0, 1)).view(*x.shape[:2], -1))


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


class _UnfoldedConvolution(torch.autograd.Function):
    """Convolution as a product of windows and weights, differentiable in the images only."""

    @staticmethod
    def forward(
        ctx: Any, images: Tensor, weights: Tensor, biases: Tensor | None, windows: Windows
    ) -> tuple[Tensor, Tensor]:
        """(N, O, H, W) and the windows (N, L, kh kw C); weights (n, O, C, kh, kw), N = n W."""
        stack, outputs = weights.shape[:2]
        unfolded = windows.unfold(images)
        matrices = weights.permute(0, 1, 3, 4, 2).flatten(2)
        rows = unfolded.view(stack, -1, unfolded.shape[2])
        if biases is None:
            output = torch.bmm(rows, matrices.transpose(1, 2))
        else:
            output = torch.baddbmm(biases[:, None, :], rows, matrices.transpose(1, 2))
        ctx.matrices, ctx.windows, ctx.shape = matrices, windows, images.shape
        ctx.mark_non_differentiable(unfolded)
        ctx.set_materialize_grads(False)  # no zeros in the place of a gradient in the windows
        sides = windows.counts(images.shape[2:])
        return output.view(len(images), *sides, outputs).permute(0, 3, 1, 2), unfolded

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient in the images."""
        rows = gradients[0].permute(0, 2, 3, 1).reshape(len(ctx.matrices), -1, ctx.matrices.shape[1])
        unfolded = torch.bmm(rows, ctx.matrices).view(ctx.shape[0], -1, ctx.matrices.shape[2])
        return ctx.windows.fold(unfolded, ctx.shape), None, None, None


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
        below, beside = -(-self.kernel[0] // down), -(-self.kernel[1] // right)
        tall = max(rows - 1 + below, -(-(above + height) // down))
        wide = max(columns - 1 + beside, -(-(left + width) // right))
        images = windows.new_zeros(count, tall, down, wide, right, channels)
        windows = windows.view(count, rows, columns, *self.kernel, channels)
        for row in range(below):
            for column in range(beside):
                block = windows[:, :, :, row * down : (row + 1) * down, column * right : (column + 1) * right]
                part = images[:, row : row + rows, : block.shape[3], column : column + columns, : block.shape[4]]
                part += block.transpose(2, 3)
        pixels = images.view(count, tall * down, wide * right, channels)
        return pixels[:, above : above + height, left : left + width].permute(0, 3, 1, 2)
