"""Records: inputs and labels side by side, how inputs are scaled, and how arrays from outside are checked.

They are `Rows`, as all arrays here that have a row for each of the same things.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.targets import CLASS, PADDING, REAL, Target, Task, problem_of
from h2fdp.errors import UserError
from h2fdp.wording import note


class Rows:
    """Base of dataclasses: every array, tensor, list and `Rows` among the fields has a row for each of the same things.

    Such a field is None in all parts that are joined, or in none of them; an array of no rows has none for any part.
    Any other value holds for all rows.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sizes(Rows):
    ...     unit: str
    ...     names: list[str]
    ...     values: NDArray[np.int64]
    >>> whole = Sizes("records", ["a", "b", "c"], np.array([5, 6, 7]))
    >>> part = whole.part(np.array([2, 0]))
    >>> part.unit, part.names, part.values
    ('records', ['c', 'a'], array([7, 5]))
    >>> Sizes.joined([part, whole.part(slice(1, 2))]).names
    ['c', 'a', 'b']
    """

    def part(self, rows: slice | NDArray[np.int64]) -> Self:
        """These rows: views of the same memory for a slice, copies for numbers of rows."""
        return type(self)(**{each.name: _taken(getattr(self, each.name), rows) for each in fields(self)})  # type: ignore[arg-type]

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one part after another."""
        if len(parts) == 1:
            return parts[0]
        names = [each.name for each in fields(cls)]  # type: ignore[arg-type]  # of dataclasses
        return cls(**{name: _joined([getattr(part, name) for part in parts]) for name in names})


def _taken(value: Any, rows: slice | NDArray[np.int64]) -> Any:
    if isinstance(value, Rows):
        return value.part(rows)
    if isinstance(value, list):
        return value[rows] if isinstance(rows, slice) else [value[row] for row in rows.tolist()]
    return value[rows] if _has_rows(value) and len(value) else value


def _has_rows(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0))


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if not isinstance(first, (Rows, list)) and not _has_rows(first):
        assert first is not None or all(value is None for value in values), "of all parts or of none"
        return first
    assert all(value is not None for value in values), "of all parts or of none"
    if isinstance(first, Rows):
        return type(first).joined(values)
    if isinstance(first, list):
        return [each for value in values for each in value]
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    import torch  # what else has rows is a tensor

    return torch.cat(values)


@dataclass(frozen=True, eq=False)
class Records(Rows):
    """Inputs and labels of the same records.

    Attributes:
        x: inputs, shape (n, *shape), uint8 (images, kept small), float32, float64 (NaN for gaps in tables) or int64.
        y: labels: classes (n,) from 0 to classes - 1, several labels or positions (n, width), int64; real values (n,)
            in their units, float64.
    """

    x: NDArray[Any]
    y: NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)

    @cached_property
    def rounded(self) -> Records:
        """A copy of the type that models compute with: inputs are uint8 or float32."""
        return self if self.x.dtype in (np.uint8, np.float32) else Records(self.x.astype(np.float32), self.y)

    @property
    def whole(self) -> bool:
        """Whether inputs are whole numbers, which may stand for words."""
        return self.x.dtype == np.int64


@dataclass(frozen=True)
class Scaling:
    """x_model = (x / divisor - mean) / deviation = x * scale + shift.

    The constants are published properties of a data set or are stated by the user; none is ever computed from the
    devices' records, since that would leak.

    Attributes:
        divisor: the largest stored value (255 for 8-bit images, 16 for digits), or 1.
        mean: subtracted after the division; one value, or one for each channel.
        deviation: divided by last; as many values as `mean`.
        of_channels: several values are of channels, not of the numbers of a record of one dimension.

    >>> Scaling(255.0, (0.5,), (0.25,)).scale * 255
    array([4.], dtype=float32)
    >>> to_both_sides = Scaling(16.0, (0.5,), (0.5,))
    >>> (np.array([0.0, 4.0, 16.0]) * to_both_sides.scale + to_both_sides.shift).tolist()
    [-1.0, -0.5, 1.0]
    >>> Scaling(255.0, (0.1, 0.2, 0.3), (1.0, 1.0, 1.0)).shift.shape
    (3, 1, 1)
    """

    divisor: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)
    of_channels: bool = field(default=True, repr=False)

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

    def _broadcast(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        shape = (-1, 1, 1) if self.of_channels and len(self.mean) > 1 else (-1,)
        return values.astype(np.float32).reshape(shape)


def as_records(x: Any, y: Any, what: str, key: str = "data", gaps: bool = False, task: Task | None = None) -> Records:
    """Arrays from outside as records: labels become int64; inputs stay as they are until columns are standardised.

    Args:
        x: at least two-dimensional, numbers only. 8-bit inputs of two sides (n, h, w) are grey images, (n, 1, h, w).
        y: one-dimensional, whole numbers of at least 0; others see `Target`, and with positions that are not a record's
            own (-1 or -100).
        what: what the arrays are, for messages ("x_train and y_train of points.npz").
        key: the key of the experiment file to blame.
        gaps: NaN stands for what a record has no value of.
        task: see `Target`; null for what the labels show, classes or sequences.

    Raises:
        UserError: other shapes, types, lengths, NaN, infinities, negative or huge labels.

    >>> records = as_records([[0.5, 1.0], [2.0, 3.0]], [0, 1], "two points")
    >>> records.x.dtype.name, records.y.dtype.name, len(records)
    ('float64', 'int64', 2)
    """
    try:
        inputs, labels = np.asarray(x), np.asarray(y)
    except ValueError as error:
        raise UserError(f"{what}: not rectangular arrays: {error}", key=key) from None
    if problem := _problem(inputs) or problem_of(labels, len(inputs), task):
        raise UserError(f"{what}: {problem}", key=key)
    if inputs.dtype != np.uint8:
        with np.errstate(over="ignore"):
            rounded = np.ascontiguousarray(inputs, dtype=np.float32)
        if not (np.isfinite(rounded) | (gaps & np.isnan(inputs))).all():
            raise UserError(f"{what}: inputs must be finite in 32 bits; found NaN, infinite or huge values", key=key)
        if inputs.dtype.kind in "iu":  # others than 64 bits could overflow where columns are standardised
            inputs = inputs.astype(np.float64 if inputs.dtype == np.uint64 else np.int64)
        elif inputs.dtype != np.float64:
            inputs = rounded
    elif inputs.ndim == 3:
        inputs = inputs[:, None]
    if task == "regression":
        return Records(np.ascontiguousarray(inputs), labels.astype(np.float64))
    whole = labels.astype(np.int64)
    return Records(np.ascontiguousarray(inputs), np.where(whole < 0, PADDING, whole) if whole.ndim == 2 else whole)


def class_count(
    train: Records,
    test: Records,
    stated: int | None,
    what: str,
    validation: Records | None = None,
    target: Target = CLASS,
) -> int:
    """The number of classes: as stated, else as many as the test labels show, at least 2.

    Of real values there is one score, of several labels one for each.

    The number is public, for it is the width of the model's last layer. Were it taken from the devices' labels, one
    record could change it, and no noise would hide that record.

    Raises:
        UserError: a label beyond it; training or validation inputs that are not as test inputs are.
    """
    others = {"training": train} if validation is None else {"training": train, "validation": validation}
    for name, part in others.items():
        if not alike(part, test):
            shapes = f"{part.x.shape[1:]} {part.x.dtype} and {test.x.shape[1:]} {test.x.dtype}"
            raise UserError(f"{what}: {name} and test inputs must be alike, found {shapes}", key="data")
        if part.y.shape[1:] != test.y.shape[1:]:
            shapes = f"{part.y.shape} and {test.y.shape}"
            raise UserError(f"{what}: {name} and test labels must be alike, found shapes {shapes}", key="data")
    if target.task in ("regression", "multilabel"):
        width = target.width or 1
        if stated not in (None, width):
            raise UserError(
                f"{what}: means nothing for {target.task}, leave it out; found {stated}", key="data.classes"
            )
        return width
    highest = int(test.y.max())
    public = max(2, highest + 1) if stated is None else stated
    shown = max(highest, *(int(part.y.max()) for part in others.values()))
    different = len(np.unique(test.y))
    amounts = different > max(_FEW, test.y.size / 2)
    if shown >= public and stated is None:
        text = f"{what}: the test labels, which are public, go up to {highest}, those of devices to {shown}"
        hint = "the number of classes must be public: state it, or have test records of every class"
        hint = REAL if amounts else f"{hint}; {REAL}"
        raise UserError(f"{text}; {hint}", key="data.classes")
    if shown >= public:
        raise UserError(f"{what}: {public} classes have labels 0 to {public - 1}, found {shown}", key="data.classes")
    if amounts and stated is None:
        text = f"{what}: {different:,} different labels among {len(test):,} test records; {REAL}"
        raise UserError(f"{text}, or for so many classes data.classes", key="data.task")
    if amounts or public > train.y.size + test.y.size:
        note(f"{what}: {public:,} classes, {different:,} of them among {len(test):,} test records; {REAL}")
    elif different == 1 and len(test) > 1:
        note(f"{what}: all test records have the label {highest}, so accuracy says nothing")
    return public


_FEW = 20  # different labels, which no one takes for amounts


def alike(one: Records, other: Records) -> bool:
    """Whether inputs have one shape, and are pixels of 8 bits in both or in neither."""
    return one.x.shape[1:] == other.x.shape[1:] and (one.x.dtype == np.uint8) == (other.x.dtype == np.uint8)


def _problem(inputs: NDArray[Any]) -> str:
    """A sentence on what is wrong with the form of inputs; empty when nothing is."""
    if inputs.ndim < 2:
        return f"inputs must have a row for each record (two dimensions or more), found shape {inputs.shape}"
    if inputs.size == 0:
        return f"no records: inputs of shape {inputs.shape}"
    if inputs.dtype.kind not in "buif":
        return f"inputs must be numbers, found type {inputs.dtype}"
    return ""
