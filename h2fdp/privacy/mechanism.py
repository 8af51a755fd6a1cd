"""The Gaussian mechanism on one vector, with noise from a stream of its own, and on many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from h2fdp.streams import generator_of, standard_normal_rows

if TYPE_CHECKING:
    from torch import Tensor

# Below the normal range of float32 a noise vanishes or loses its digits; above it, it overflows.
SMALLEST_NOISE, LARGEST_NOISE = 1e-30, 1e30
_VALUES_AT_ONCE = 4_000_000  # of the noise of several vectors, as float32 16 MB


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

    _check(noise_std)
    if vector.is_cuda:
        there = torch.Generator(vector.device).manual_seed(int(generator.integers(1 << 63)))
        noise = torch.randn(vector.numel(), generator=there, device=vector.device)
    else:
        noise = torch.from_numpy(generator.standard_normal(vector.numel(), dtype=np.float32))
    return torch.add(vector, noise, alpha=noise_std, out=out)


def add_gaussian_noises(vectors: Tensor, noise_stds: np.ndarray, keys: Sequence[int]) -> None:
    """`add_gaussian_noise` to each row of `vectors` (s, M), in place and to the bit, in few calls.

    Threads that add noise side by side wait for the interpreter at each call: with one for each vector, two threads
    took as long as one.

    Args:
        noise_stds: (s,) one for each row.
        keys: (s,) of the streams that the rows' noise is drawn from, as `Streams.key` has them.
    """
    import torch

    if not len(vectors) == len(noise_stds) == len(keys):
        raise AssertionError("each row has noise of its own")
    for noise_std in noise_stds.tolist():
        _check(noise_std)
    if vectors.is_cuda:
        for vector, noise_std, key in zip(vectors, noise_stds.tolist(), keys, strict=True):
            add_gaussian_noise(vector, noise_std, generator_of(key), out=vector)
        return
    levels = torch.from_numpy(noise_stds.astype(np.float32))[:, None]
    at_once = max(1, _VALUES_AT_ONCE // vectors.shape[1])
    for first in range(0, len(keys), at_once):
        part = slice(first, first + at_once)
        noise = torch.from_numpy(standard_normal_rows(keys[part], vectors.shape[1]))
        torch.addcmul(vectors[part], noise, levels[part], out=vectors[part])


def _check(noise_std: float) -> None:
    if not SMALLEST_NOISE <= noise_std <= LARGEST_NOISE:
        raise AssertionError("a private release carries noise that float32 can hold")
