"""Statistics of records that are released before training: a sum of bounded rows, and what its noisy average becomes.

A statistic is a function f of one record whose length is at most a norm. Its average over all devices' records goes up
the tree in an interval of its own, under the trust, the noise, the ledger and the bill of an upload (`run.prelude`);
the record's part in it is what a clipped gradient's is. What the average becomes is post-processing, and public.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from h2fdp.config.fields import Options
from h2fdp.config.named_options import Choices
from h2fdp.config.own_answers import Checked, Rule, Words, is_number
from h2fdp.config.own_parts import OwnKind, OwnPart

Averages = NDArray[np.float64]
LENGTH = 3.0  # of a category or a text among standardised numbers: a rare one is to count as much as a number
FARTHEST = 5.0  # deviations; what lies beyond is cut off, as in the columns of tables


@dataclass(frozen=True, eq=False)
class Standardizing:
    """x -> (x - mean) / deviation, cut to low .. high; inputs that do not differ become 0, as gaps (NaN) do.

    Columns of large means or unlike deviations make gradient descent slow, and clipping cuts off what is small.

    Attributes:
        mean, deviation: of each value, float64 (64 bits, for columns of large means), the shape of one record.
        base: is subtracted first, in whole numbers where inputs are such, as these may be beyond 2^53.
        low, high: by default -5 and 5 deviations, as in the columns of tables; or of each value.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    base: NDArray[Any] | int = 0
    low: NDArray[np.float64] | float = -FARTHEST
    high: NDArray[np.float64] | float = FARTHEST

    def then(self, other: Standardizing) -> Standardizing:
        """Both in one, this one first.

        >>> halved = Standardizing(np.array([1.0]), np.array([2.0]), low=-1.0, high=1.0)
        >>> both = halved.then(Standardizing(np.array([0.5]), np.array([0.25])))
        >>> both(np.array([[1.0], [2.0], [9.0]])).tolist()
        [[-2.0], [0.0], [2.0]]
        """
        divisor = np.where(other.deviation > 0, other.deviation, np.inf)
        ends = (np.broadcast_to(end, divisor.shape) for end in (self.low, self.high))
        # Where inputs become 0 no end is needed, and an infinite one would be none of a number.
        low, high = (np.where(other.deviation > 0, end - other.mean, 0.0) / divisor for end in ends)
        mean, deviation = self.mean + self.deviation * other.mean, self.deviation * other.deviation
        low, high = (np.clip(end, other.low, other.high) for end in (low, high))
        return Standardizing(mean, deviation, self.base, low, high)

    def written(self) -> dict[str, list[float]]:
        """Value after value, for a file."""
        parts = {"mean": self.base + self.mean, "deviation": self.deviation, "low": self.low, "high": self.high}
        return {key: np.broadcast_to(part, self.mean.shape).ravel().tolist() for key, part in parts.items()}

    def within(self, columns: NDArray[np.bool_]) -> Standardizing:
        """A standardising of these columns of more, the others of which stay as they are."""
        others = {"mean": 0.0, "deviation": 1.0, "low": -np.inf, "high": np.inf}
        parts = {key: np.full(columns.shape, usual) for key, usual in others.items()}
        for key, part in parts.items():
            part[columns] = np.broadcast_to(getattr(self, key), self.mean.shape)
        return Standardizing(**parts)

    def apart(self) -> tuple[Standardizing, Sequence[float]]:
        """The standardising of all columns but the last one; and mean, deviation, low and high of the last one."""
        parts = {key: np.array(each) for key, each in self.written().items()}
        others = Standardizing(**{key: each[:-1] for key, each in parts.items()})
        return others, [float(parts[key][-1]) for key in ("mean", "deviation", "low", "high")]

    @property
    def moves(self) -> bool:
        """Whether it takes a mean off, and no more."""
        return bool(np.all(self.deviation == 1) and np.all(np.isinf(self.low)) and np.all(np.isinf(self.high)))

    @classmethod
    def read(cls, written: Mapping[str, Sequence[float]], shape: tuple[int, ...]) -> Standardizing:
        """The standardising that was `written`, of records of this shape."""
        return cls(**{key: np.array(part, np.float64).reshape(shape) for key, part in written.items()})

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Inputs (n, *shape), alike; only the result is rounded to 32 bits."""
        divisor = np.where(self.deviation > 0, self.deviation, np.inf)
        scaled = np.clip((x - self.base - self.mean) / divisor, self.low, self.high)
        scaled[np.isnan(scaled) & np.isfinite(self.low)] = 0.0
        rounded: NDArray[np.float32] = scaled.astype(np.float32)
        return rounded


class Statistic(Options):
    """A statistic by name.

    Attributes:
        share: of the squared mu of the privacy budget (Dong et al. 2022), which the release has.
    """

    share: ClassVar[float]

    @abstractmethod
    def of(self, x: Tensor) -> Tensor:
        """(n, p) f of each of n records (n, *shape) by itself; a longer row than `norm` is cut to that."""

    @abstractmethod
    def norm(self, shape: tuple[int, ...]) -> float:
        """The largest length of f of a record of this shape."""

    def hides(self, noise_std: float) -> str:
        """The values that noise of this deviation on the average hides, in words; empty where it leaves enough."""
        return ""

    @abstractmethod
    def use(self, average: Averages, noise_std: float, shape: tuple[int, ...]) -> Standardizing:
        """The standardising of records from then on.

        Args:
            average: (p,) of f over all records, with noise.
            noise_std: of that noise, in each coordinate.
        """


STATISTICS: Choices[Statistic] = Choices(OwnKind("a statistic", ("of", "norm", "use")))
StatisticSection = Annotated[Statistic | OwnPart, STATISTICS]


def _rows(answer: Any, x: Tensor) -> str:
    right = isinstance(answer, Tensor) and answer.ndim == 2 and len(answer) == len(x) and answer.is_floating_point()
    return "" if right else f"rows of numbers, a tensor of shape ({len(x)}, p),"


def _positive(answer: Any, *given: Any) -> str:
    return "" if is_number(answer) and answer > 0 else "a number above 0"


def _share(answer: Any) -> str:
    return "" if is_number(answer) and 0 < answer <= 1 / 2 else "a share of the budget, above 0 and at most 0.5"


def _standardizing(answer: Any, average: Any, noise_std: Any, shape: tuple[int, ...]) -> str:
    parts = answer if isinstance(answer, tuple) and len(answer) == 2 else ()
    arrays = [np.asarray(each, np.float64) for each in parts if np.shape(each) == shape]
    right = len(arrays) == 2 and np.isfinite(arrays).all() and bool((arrays[1] > 0).all())
    return "" if right else f"means and deviations above 0, two arrays of shape {shape}"


class OwnStatistic(Checked):
    """A user's statistic, whose answers are checked; `use` gives means and deviations.

    Devices see it record by record, so that it cannot couple records, and cut a row that is longer than its norm.
    """

    rules: ClassVar[Mapping[str, Rule]] = {"of": _rows, "norm": _positive, "share": _share, "use": _standardizing}

    @property
    def name(self) -> str:
        """The name of the part in the file."""
        return self._origin.name

    def check_rows(self, shape: tuple[int, ...]) -> None:
        """Try rows of three records of this shape.

        Raises:
            UserError: a row differs from call to call, or with the records that it is computed with.
        """
        x = torch.linspace(-1.0, 1.0, 3 * math.prod(shape), dtype=torch.float32).view(3, *shape)
        rows, again = (torch.cat([self.of(each[None]) for each in x]) for _ in range(2))
        if not again.nan_to_num().equal(rows.nan_to_num()):  # what it remembers could be other records
            raise self._origin.wrong("of", "the same rows at each call", Words("other ones"))
        if not torch.allclose(self.of(x), rows, rtol=1e-4, atol=1e-6, equal_nan=True):
            raise self._origin.problem("a record's row depends on the other records; expected rows of single records")

    def hides(self, noise_std: float) -> str:
        """An empty text: the package cannot judge a user's own statistic."""
        return ""

    def use(self, average: Averages, noise_std: float, shape: tuple[int, ...]) -> Standardizing:
        """The standardising by the means and deviations of the user's `use`."""
        mean, deviation = self._ask("use", self._own.use, average, noise_std, shape)
        return Standardizing(np.array(mean, np.float64), np.array(deviation, np.float64))


def statistic_of(section: Statistic | OwnPart) -> Statistic:
    """The statistic that a section describes."""
    return cast(Statistic, OwnStatistic(section.make(), section.origin)) if isinstance(section, OwnPart) else section


class OfRecords(nn.Module):
    """f of each record by itself, as the first layer of a model whose gradient it is."""

    def __init__(self, statistic: Statistic) -> None:
        super().__init__()
        self.statistic = statistic

    def forward(self, x: Tensor) -> Tensor:
        """(n, p) of records (n, *shape)."""
        return self.statistic.of(x)


def score_of(statistic: Statistic, shape: tuple[int, ...]) -> nn.Module:
    """A model of one score, whose gradient in its p parameters is f of the record."""
    length = statistic.of(torch.zeros(1, *shape, dtype=torch.float32)).shape[1]
    score = nn.Linear(length, 1, bias=False)
    nn.init.zeros_(score.weight)
    return nn.Sequential(OfRecords(statistic), score)


_LOWEST, _HIGHEST = -20, 33  # exponents of the bins: 1e-6 to 1.7e10, so that seconds since 1970 lie inside
_SIDE = _HIGHEST - _LOWEST + 1  # bins of one sign
_BINS = 2 * _SIDE + 1
_SURE = 4.0  # deviations of its noise that the count of a bin has to pass


@STATISTICS.register
class Bounds(Statistic):
    """The range of each column, by counts in bins between signed powers of two, which no record chose.

    A column goes from the lowest to the highest bin whose noisy count passes four deviations of its noise (the
    histogram of Karwa and Vadhan 2018, in scale). A gap is in no bin.
    """

    share: ClassVar[float] = 0.05
    name: Literal["bounds"] = "bounds"

    def of(self, x: Tensor) -> Tensor:
        """(n, columns * bins) 1 in the bin of each number."""
        x = x.flatten(1)
        _, exponents = torch.frexp(x)
        magnitude = (exponents - 1).clamp(_LOWEST - 1, _HIGHEST) - _LOWEST + 1  # 0: nearer to 0 than all bins
        magnitude = torch.where(x.isinf(), _SIDE, torch.where(x == 0, 0, magnitude))
        bins = _SIDE + torch.where(x < 0, -magnitude, magnitude)
        counted = (bins[..., None] == torch.arange(_BINS, device=x.device)) & ~x.isnan()[..., None]
        return counted.flatten(1).to(x.dtype)

    def norm(self, shape: tuple[int, ...]) -> float:
        """The root of the number of columns, in each of which a record is in one bin at most."""
        return math.sqrt(math.prod(shape))

    def hides(self, noise_std: float) -> str:
        """Bins that hold half of the records of their column, or fewer."""
        needed = min(_SURE * noise_std, 1.0)
        text = f"noise hides bins that hold less than {needed:.0%} of a column, which may seem to go from -1 to 1"
        return f"{text}; state data.ranges" if needed > 1 / 2 else ""

    def use(self, average: Averages, noise_std: float, shape: tuple[int, ...]) -> Standardizing:
        """The middle and the half width of each column: numbers from -1 to 1. From -1 to 1 it goes where no bin is
        sure."""
        full = average.reshape(-1, _BINS) > max(_SURE * noise_std, 1e-9)
        powers = 2.0 ** np.arange(_LOWEST, _HIGHEST + 2)
        edges = np.concatenate([-powers[::-1], powers])
        sure = full.any(axis=1)
        low = np.where(sure, edges[full.argmax(axis=1)], -1.0)
        high = np.where(sure, edges[_BINS - full[:, ::-1].argmax(axis=1)], 1.0)
        middle, half = ((high + low) / 2).reshape(shape), ((high - low) / 2).reshape(shape)
        return Standardizing(middle, half, low=np.full(shape, -1.0), high=np.ones(shape))


@STATISTICS.register
class Moments(Statistic):
    """Means and deviations of columns whose numbers lie from -1 to 1."""

    share: ClassVar[float] = 0.08
    name: Literal["moments"] = "moments"

    def of(self, x: Tensor) -> Tensor:
        """(n, 2 columns) numbers and their squares; of a gap 0."""
        x = x.flatten(1).nan_to_num(0.0)
        return torch.cat([x, x.square()], dim=1)

    def norm(self, shape: tuple[int, ...]) -> float:
        """The root of the number of columns: few records are longer, as few have all numbers near the ends."""
        return math.sqrt(math.prod(shape))

    def use(self, average: Averages, noise_std: float, shape: tuple[int, ...]) -> Standardizing:
        """A standardising to mean 0 and deviation 1; no deviation is taken for less than what noise alone makes it."""
        mean, square = average.reshape(2, -1).clip(-1.0, 1.0)
        deviation = np.sqrt(np.maximum(square - mean**2, (2 * noise_std) ** 2))
        return Standardizing(mean.reshape(shape), deviation.reshape(shape))


_LEAST = 1e-3  # of the mean that arrived


@STATISTICS.register
class Mean(Statistic):
    """The mean of public features of images, which are of length 1 and end in a constant: it is taken off them.

    Features that were whitened on public images have a mean on the devices' images. Without it they are shorter, so
    that a record's gradient fits the same bound with more of it; and no direction is as steep as that of the mean.
    """

    share: ClassVar[float] = 2 / 31  # as the first of 30 intervals has whose shares fall in equal parts
    name: Literal["mean"] = "mean"

    def of(self, x: Tensor) -> Tensor:
        """(n, K - 1) features without the constant."""
        return x.flatten(1)[:, :-1]

    def norm(self, shape: tuple[int, ...]) -> float:
        """1."""
        return 1.0

    def use(self, average: Averages, noise_std: float, shape: tuple[int, ...]) -> Standardizing:
        """The mean, drawn towards 0 by its noise (James and Stein 1961), but never quite to it."""
        length = float((average**2).sum())
        kept = max(_LEAST, 1 - (len(average) - 1) * noise_std**2 / length) if length else 0.0
        mean = np.append(average * kept, 0.0).reshape(shape)
        return Standardizing(mean, np.ones(shape), low=-np.inf, high=np.inf)
