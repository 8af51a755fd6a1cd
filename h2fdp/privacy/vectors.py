"""The vectors of private releases: they are cut to a length, and get noise of some law."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from h2fdp.privacy.accounting.mixtures import OTHER_LAWS, LawPair, ReleaseType
from h2fdp.streams import Streams, generator_of, standard_normal_rows

if TYPE_CHECKING:
    from torch import Tensor

    from h2fdp.privacy.views import Past


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

    check_holdable(noise_std)
    return torch.add(vector, standard_normal(vector, generator), alpha=noise_std, out=out)


def standard_normal(vector: Tensor, generator: np.random.Generator) -> Tensor:
    """(M,) from N(0, I), where `vector` (M,) is; see `add_gaussian_noise`."""
    import torch

    if vector.is_cuda:
        there = torch.Generator(vector.device).manual_seed(int(generator.integers(1 << 63)))
        return torch.randn(vector.numel(), generator=there, dtype=torch.float32, device=vector.device)
    return torch.from_numpy(generator.standard_normal(vector.numel(), dtype=np.float32))


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
        check_holdable(noise_std)
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


def check_holdable(noise_std: float) -> None:
    """Refuse a noise that vanishes or overflows in float32."""
    if not SMALLEST_NOISE <= noise_std <= LARGEST_NOISE:
        raise AssertionError("a private release carries noise that float32 can hold")


class NoiseLaw(ABC):
    """The law of a noise: how it is drawn, in which norm it hides a move, and what an account makes of it.

    A law has a file of its own and one registration, `noise_law`. A level of a noise is its standard deviation.

    Attributes:
        name: of `method.privacy.law` and of the ledger.
        stable: sums of independent noises of the law are of the law. Where they are not, nothing hides a device but its
            own noise or its node's, and no noise can be divided into shares.
        note: the note with every number about it; None for none.
    """

    name: ClassVar[str]
    stable: ClassVar[bool] = False
    note: ClassVar[str | None] = None

    def key(self, streams: Streams, node: str, purpose: str, interval: int, slot: int, number: int) -> Any:
        """The source of a node's noise in `add`: the key of its stream, which no other noise has.

        Args:
            number: of the release among those of the node, from 1, where the law has a past; else 0.
        """
        return streams.key(node, purpose, interval, slot)

    @abstractmethod
    def add(self, vectors: Tensor, noise_stds: np.ndarray, keys: Sequence[Any]) -> None:
        """Noise on each row of `vectors` (s, M), in place, of its own level (s,), drawn from its `key` (s,).

        Row i depends on row i of the arguments alone, to the bit.
        """

    @property
    def in_words(self) -> str:
        """The law as it is named to users."""
        return self.name

    @property
    def of_sums(self) -> NoiseLaw:
        """The law of devices' noises where their uploads are seen as sums alone."""
        return self

    def begun(self, devices: int) -> Past | None:
        """The past of the noises above so many devices before anything is released; None where each noise is
        independent of all others."""
        return None

    def variance(self, levels: np.ndarray) -> float:
        """The variance of each coordinate of the sum of a node's releases under levels (r,)."""
        return float(np.square(levels).sum())

    @abstractmethod
    def norm_ratio(self, parameters: int) -> float:
        """The factor by which a vector of so many numbers may be longer in the norm of the law than in L2:
        sensitivities are in that norm."""

    @abstractmethod
    def pair(self, release: ReleaseType) -> LawPair:
        """The laws of a release with the record and without it."""


class Gaussian(NoiseLaw):
    """N(0, sigma^2 I), for vectors that move in L2. Accounts know its mixtures themselves."""

    name: ClassVar[str] = "gaussian"
    stable: ClassVar[bool] = True

    def add(self, vectors: Tensor, noise_stds: np.ndarray, keys: Sequence[Any]) -> None:
        add_gaussian_noises(vectors, noise_stds, keys)

    def norm_ratio(self, parameters: int) -> float:
        """1."""
        return 1.0

    def pair(self, release: ReleaseType) -> LawPair:
        """The pair of distributions; see `mixture_of`."""
        raise AssertionError("accounts know mixtures of Gaussians")


GAUSSIAN = Gaussian()
NOISE_LAWS: dict[str, NoiseLaw] = {GAUSSIAN.name: GAUSSIAN}


def noise_law(law: NoiseLaw) -> NoiseLaw:
    """Register a law, for methods and for accounts."""
    NOISE_LAWS[law.name], OTHER_LAWS[law.name] = law, law.pair
    return law
