"""The Gaussian mechanism on one vector, with noise from a stream of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from h2fdp.streams import standard_normals

if TYPE_CHECKING:
    from torch import Tensor

# Below the normal range of float32 a noise vanishes or loses its digits; above it, it overflows.
SMALLEST_NOISE, LARGEST_NOISE = 1e-30, 1e30


def add_gaussian_noise(
    vector: Tensor, noise_std: float, generator: np.random.Generator, out: Tensor | None = None
) -> Tensor:
    """`vector` + N(0, noise_std^2 I), a new tensor or `out`.

    Guarantee: with `noise_std` = c times the vector's L2 sensitivity and a stream that is opened once in a run, the
    sum is a Gaussian mechanism of noise multiplier c. The noise is float32 from NumPy's ziggurat: the usual
    floating-point caveat holds.

    Args:
        vector: (M,) float32, on any device. On a GPU its noise is drawn there, by a generator that takes 63 bits of
            seed from the stream (torch's generator on a CPU keeps 32 of them: noise vectors could be equal).
        noise_std: standard deviation of each coordinate, above 0, and not so small that it vanishes in float32.
        generator: a fresh stream; no two releases may share one.
    """
    import torch  # its two seconds are not for those who only read accounts

    if not SMALLEST_NOISE <= noise_std <= LARGEST_NOISE:
        raise AssertionError("a private release carries noise that float32 can hold")
    if vector.is_cuda:
        there = torch.Generator(vector.device).manual_seed(int(generator.integers(1 << 63)))
        noise = torch.randn(vector.numel(), generator=there, device=vector.device)
    else:
        noise = torch.from_numpy(standard_normals(generator, vector.numel()))
    return torch.add(vector, noise, alpha=noise_std, out=out)
