"""Columns of tables as features: numbers, categories, hashed words and texts.

Columns are scaled by public bounds, and categories become indicators: means, deviations and lists of categories that
follow from devices' records would reveal some of these, and no account covers that. So bounds are stated, and
categories stated or hashed: what a record becomes depends on no other one.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.statistics import FARTHEST, LENGTH, Standardizing
from h2fdp.data.targets import REAL, Task
from h2fdp.data.texts import embedded, hashed, note_of_texts
from h2fdp.errors import Problem, UserError, hint
from h2fdp.wording import counted

LABELS = ("label", "labels", "target", "targets", "class", "y", "fine_label", "character")
NO_HEADING = re.compile(r"\s*|Unnamed: [\d.]+")  # what pandas calls it
_GROUPED = re.compile(r"[+-]?\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?")  # a number whose thousands are set apart
_SWAPPED = str.maketrans(",.", ".,")
_POINTS = False, False, ""  # of a frame: whether decimal marks are commas, whether that is stated, what to say about it


@dataclass(frozen=True)
class Columns:
    """The columns of a table as features of its records.

    Attributes:
        names: the column of each feature.
        kinds: of each feature: a number, `open` or `bounded`, which goes from 0 to 1; or one of those that a `category`
            or a `text` has, of which all together have length 1. Open ones have no public bounds.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def open(self) -> NDArray[np.bool_]:
        """(features,) whether a feature has no public bounds."""
        return np.isin(self.kinds, "open")

    @property
    def numbers(self) -> NDArray[np.bool_]:
        """(features,) whether a feature is a number by itself."""
        return np.isin(self.kinds, ("open", "bounded"))

    @property
    def unbounded(self) -> tuple[str, ...]:
        """The columns whose numbers have no public bounds."""
        pairs = zip(self.names, self.kinds, strict=True)
        return tuple(dict.fromkeys(name for name, kind in pairs if kind == "open"))

    @property
    def deviations(self) -> NDArray[np.float64]:
        """(features,) about that of each feature once numbers are standardised."""
        widths = np.array([self.names.count(each) for each in self.names])
        return np.where(self.numbers, 1.0, LENGTH / np.sqrt(widths))

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes that accompany every epsilon of a run on these features."""
        return (note_of_texts(),) if "text" in self.kinds else ()

    def standardizing(self, uniform: bool) -> Standardizing:
        """The map of bounded numbers to -1 .. 1, or `uniform`: to the deviation 1 that numbers all over these have; and
        of vectors to their length among standardised numbers."""
        bounded = ~self.open
        numbers = self.numbers[bounded]
        half = np.where(numbers, 0.5 / math.sqrt(3) if uniform else 0.5, 1 / LENGTH)
        high = np.where(numbers & (not uniform), 1.0, FARTHEST)
        return Standardizing(np.where(numbers, 0.5, 0.0), half, low=-high, high=high).within(bounded)


class Arrays(NamedTuple):
    """Records as arrays, and what their columns are.

    Attributes:
        x, y: inputs and labels.
        owners: the name of who holds each record; None where nothing says so.
        columns: of a table's features; None where inputs are no columns.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    owners: NDArray[Any] | None = None
    columns: Columns | None = None


class Tries:
    """Calls whose problems are kept, so that all are reported at once."""

    def __init__(self) -> None:
        self.problems = list[Problem]()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The function's answer; None where it raised a `UserError`."""
        try:
            return function(*arguments)
        except UserError as error:
            self.problems.extend(error.problems)

    def end(self) -> None:
        """Raise the problems.

        Raises:
            UserError: there were some.
        """
        if self.problems:
            raise UserError(self.problems)


@dataclass(frozen=True)
class Layout:
    """The roles of columns.

    Attributes:
        label: of labels, several for several labels; null for one of the usual names.
        inputs: one, or several that are joined; null for one of the usual names, of a frame for all others.
        by: the device of a record; null: no column has it.
        names: the labels in order; null where they are whole numbers, or a categorical column states them.
        ranges: column of a frame -> (lowest, highest), public: such columns are cut to them and go from 0 to 1. A third
            number is what a gap counts as; another feature is 1 there.
        categories: column of a frame -> its values, public: each becomes a feature that is 0 or 1; None is a gap. Of an
            empty list, values are hashed.
        exclude: columns of a frame that are no inputs.
        text: columns of a frame whose texts become 256 numbers each.
        task: see `Target`; null where the labels show it.
        hashed: the columns of words that nothing is stated about, see `settled`.
    """

    label: str | Sequence[str] | None = None
    inputs: str | Sequence[str] | None = None
    by: str | None = None
    names: Sequence[Any] | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    exclude: Sequence[str] = ()
    text: Sequence[str] = ()
    task: Task | None = None
    hashed: Sequence[str] = ()

    def labels(self, heads: Sequence[str], what: str) -> list[str]:
        """The columns of labels.

        Raises:
            UserError: one that is not there, or none of a usual name.
        """
        if self.label is None or isinstance(self.label, str):
            return [column_of(self.label, LABELS, heads, "label", what)]
        return [stated_column(each, heads, "label", what) for each in self.label]

    def settled(self, frame: Any, what: str) -> Layout:
        """The layout with the inputs of a training frame, and with those that are hashed as their words are not stated.

        Raises:
            UserError: columns that are not there, or no inputs.
        """
        heads, tried = list(frame.columns), Tries()
        labels = tried(self.labels, heads, what) or []
        for key, names in (("by", [self.by] if self.by else []), ("exclude", self.exclude)):
            for each in names:
                tried(stated_column, each, heads, key, what)
        if self.inputs is not None and self.exclude:
            raise UserError(f"{what}: expected inputs, or what to exclude, found both", key="data.exclude")
        others = *labels, self.by, *self.exclude
        inputs = [each for each in heads if each not in others and not NO_HEADING.fullmatch(each)]
        if self.inputs is not None:
            inputs = [self.inputs] if isinstance(self.inputs, str) else [*self.inputs]
        for each in inputs:
            tried(stated_column, each, heads, "inputs", what)
        if not (inputs or tried.problems):
            raise UserError(f"{what}: no columns are left as inputs", key="data")
        stated = {f"{key}.{each}": each for key in ("ranges", "categories") for each in getattr(self, key)}
        stated |= {f"text[{place}]": each for place, each in enumerate(self.text)}
        for key, each in stated.items():
            if tried(stated_column, each, heads, key, what) and each not in (*inputs, *others):
                text = f"{what}: {each} is no input; inputs are {listed(inputs)}"
                tried.problems.append(Problem(text, key=f"data.{key}"))
        tried.end()
        words = [each for each in inputs if self._kind_of(frame[each]) == "open" and holds_words(frame[each])]
        return replace(self, inputs=inputs, exclude=(), hashed=words)

    def of_frame(self, frame: Any, what: str) -> Arrays:
        """Inputs, labels and owners of a frame, once these columns are `settled`.

        Raises:
            UserError: columns that are not there, values that are no numbers.
        """
        heads, tried = list(frame.columns), Tries()
        labels = tried(self.labels, heads, what) or []
        inputs = [each for each in self.inputs or () if tried(stated_column, each, heads, "inputs", what)]
        parts = [tried(self._features_of, frame[each], each, what) for each in inputs]
        owners = None if self.by is None else tried(_filled, frame[self.by], "by", what)
        targets = [tried(self._label, frame[each], what) for each in labels]
        tried.end()
        y = targets[0] if len(targets) == 1 and self.task != "multilabel" else np.stack(targets, axis=1)
        every = [each for each, part in zip(inputs, parts, strict=True) for _ in range(part.shape[1])]
        kinds = {each: self._kind_of(frame[each]) for each in inputs}
        columns = Columns(tuple(every), tuple(kinds[each] for each in every))
        return Arrays(np.concatenate(parts, axis=1), y, owners, columns)

    def _kind_of(self, values: Any) -> str:
        """The kind of an input, see `Columns`; open where nothing is stated, of numbers or of words."""
        name, categories = values.name, (*self.categories, *self.hashed)
        if self.ranges.get(name):
            return "bounded"
        return "text" if name in self.text else "category" if name in categories or hasattr(values, "cat") else "open"

    def _label(self, values: Any, what: str) -> NDArray[Any]:
        """A column of labels of a frame."""
        labels = _filled(values, "label", what)
        if self.names is None and hasattr(values, "cat") and self.task in (None, "classification"):
            return label_numbers(labels, list(values.cat.categories), what)
        return self.numbers(labels, what)

    def numbers(self, labels: NDArray[Any], what: str) -> NDArray[Any]:
        """Labels as numbers, of one column or of all.

        Raises:
            UserError: texts where values are real, or several; see `label_numbers`.
        """
        if self.task in ("regression", "multilabel"):
            if labels.dtype.kind not in "buif":
                text = f"{what}: {self.task} needs numbers as labels, found {labels.dtype}, as {labels.tolist()[0]!r}"
                raise UserError(text, key="data.label")
            return labels
        return label_numbers(labels, self.names, what)

    def _features_of(self, values: Any, name: str, what: str) -> NDArray[Any]:
        """A column of a frame as one or more features (n, .): a number, or for each category 1 where it holds."""
        kinds, bounds = self.categories.get(name, () if name in self.hashed else None), self.ranges.get(name) or None
        column, gaps = f"{what}: the column {name}", np.asarray(values.isna())
        if name in self.text:
            if kinds or bounds:
                text = f"{column} has ranges or categories too; expected one of them"
                raise UserError(text, key=f"data.text[{self.text.index(name)}]")
            return embedded(values.tolist(), gaps)
        if kinds is None and hasattr(values, "cat"):
            kinds = list(values.cat.categories)
        if kinds is None:
            return _numbers_in(values, gaps, bounds, column)
        if bounds is not None:
            raise UserError(f"{column} has ranges and categories; expected one of them", key=f"data.ranges.{name}")
        return _indicators(values, gaps, kinds, column) if len(kinds) else hashed(values.tolist(), gaps, name)


def _filled(values: Any, key: str, what: str) -> NDArray[Any]:
    """The values of a column that may have no gaps."""
    if (gaps := np.asarray(values.isna())).any():
        right = "leave such rows out of the file"
        raise UserError(
            f"{what}: the column {values.name} has no value in {first_row(gaps)}; {right}", key=f"data.{key}"
        )
    return np.asarray(values)


def column_of(stated: str | None, usual: Sequence[str], heads: Sequence[str], key: str, what: str) -> str:
    """The column that is stated, or the first of the usual names.

    Raises:
        UserError: it is not there, or none has a usual name.
    """
    if stated is not None:
        return stated_column(stated, heads, key, what)
    if not (matches := [name for name in usual if name in heads]):
        raise UserError(f"{what}: which column is meant? State {key}, one of {listed(heads)}", key=f"data.{key}")
    return matches[0]


def usual_label(heads: Container[str], otherwise: str = "") -> str:
    """The first of the usual names of labels among those of columns."""
    return next((each for each in LABELS if each in heads), otherwise)


def stated_column(name: str, heads: Sequence[str], key: str, what: str) -> str:
    """The name of a column that is there, and is stated under a key of `data:`.

    Raises:
        UserError: it is not.
    """
    if name not in heads:
        near = hint(name, heads) or f"; expected one of {listed(heads)}"
        raise UserError(f"{what}: there is no column {name}{near}", key=f"data.{key}")
    return name


def label_numbers(labels: NDArray[Any], names: Sequence[Any] | None, what: str) -> NDArray[Any]:
    """Labels as numbers from 0, in the order of their names.

    Raises:
        UserError: texts without names, or a label that none of them is.
    """
    if names is None:
        if labels.dtype.kind in "OSU":
            text = f"labels are texts; state them in order, as [{listed(sorted(set(map(str, labels))))}]"
            raise UserError(f"{what}: {text}: their list is public", key="data.classes")
        if labels.dtype.kind == "b" or (labels.dtype.kind == "f" and (labels == np.floor(labels)).all()):
            return labels.astype(np.int64)
        if labels.dtype.kind == "f":
            raise UserError(f"{what}: {REAL}; found {labels.dtype} with fractions", key="data.label")
        return labels
    if labels.ndim != 1:
        text = f"{what}: are names of one label, found labels of shape {labels.shape}; expected a number, or null"
        raise UserError(text, key="data.classes")
    places = {name: place for place, name in enumerate(names)}
    unknown = np.array([each not in places for each in labels.tolist()])
    if unknown.any():
        label = labels.tolist()[unknown.argmax()]
        text = f"the label {label!r} in {first_row(unknown)} is none of the classes {listed(list(map(str, names)))}"
        raise UserError(f"{what}: {text}", key="data.classes")
    return np.array([places[each] for each in labels.tolist()], dtype=np.int64)


def _indicators(values: Any, gaps: NDArray[np.bool_], kinds: Sequence[Any], column: str) -> NDArray[np.float64]:
    """(n, kinds) 1 where a value is that category."""
    each_holds = [gaps if kind is None else np.asarray((values == kind).fillna(False), bool) for kind in kinds]
    holds = np.stack(each_holds, axis=1)
    outside = np.asarray(~holds.any(axis=1))
    if outside.any():
        found = "no value" if gaps[outside.argmax()] else repr(values.tolist()[outside.argmax()])
        text = f"{column} has {found} in {first_row(outside)}, which is none of its categories"
        how = "; a null among them counts gaps as one" if (gaps & outside).any() else ""
        raise UserError(f"{text} {', '.join(map(repr, kinds))}{how}", key=f"data.categories.{values.name}")
    return np.asarray(holds, np.float64)


def _numbers_in(values: Any, gaps: NDArray[np.bool_], bounds: Sequence[float] | None, column: str) -> NDArray[Any]:
    """(n, 1) numbers, or days; within bounds from 0 to 1, perhaps with a second feature that is 1 at gaps.

    A gap is NaN where nothing says what it counts as. It has no feature of its own then: that a column has gaps at all
    is private.
    """
    name = values.name
    array: NDArray[Any] = values.dropna().to_numpy()
    key = "data" if bounds is None else f"data.ranges.{name}"
    if len(array) and array.dtype.kind not in "buif":
        read = numbers_of(values.dropna())
        if None in read:
            odd, cell = ~gaps, values.dropna().tolist()[read.index(None)]
            odd[odd] = [each is None for each in read]
            _, _, why = values.attrs.get("decimal", _POINTS)
            right = "data.missing has words for gaps, dates are as 2024-12-31 or 2024/12/31"
            right = f"{right}; categories: {{{name}: []}} hashes all"
            if why and is_number(str(cell).replace(",", ".")):
                key, right = "data.decimal", why
            raise UserError(f"{column} has {cell!r} in {first_row(odd)}, which is no number; {right}", key=key)
        array = np.array(read, np.float64)
    if array.dtype.kind in "iu" and array.dtype != np.uint64 and bounds is None and not gaps.any():
        return array.astype(np.int64)[:, None]  # whole numbers stay such where all inputs are
    numbers = np.full(len(gaps), np.nan)
    numbers[~gaps] = array
    with np.errstate(over="ignore"):
        huge = np.isinf(numbers.astype(np.float32))
    if huge.any():
        text = f"{column} has {numbers[huge.argmax()]:g} in {first_row(huge)}; expected finite numbers of 32 bits"
        raise UserError(text, key=key)
    if bounds is not None and not (len(bounds) in (2, 3) and min(bounds) == bounds[0] < bounds[1] == max(bounds)):
        text = f"{column}: expected (lowest, highest), perhaps with what a gap counts as between them, found {bounds}"
        raise UserError(text, key=key)
    if bounds is None:
        return numbers[:, None]
    low, high, *instead = map(float, bounds)
    scaled = (np.clip(np.where(gaps, instead, numbers) if instead else numbers, low, high) - low) / (high - low)
    return np.asarray(np.stack([scaled, gaps], axis=1) if instead else scaled[:, None])


def holds_words(values: Any) -> bool:
    """Whether a column is one of words, or of true and false: more than half of its values are, and at least two.

    Words have letters, and are neither numbers nor dates. Fewer of them are refused among numbers, as is what has no
    letters and is no number. So no single record decides what a column is.
    """
    cells = Counter(map(str, () if values.dtype.kind in "uifM" else values.dropna().tolist()))
    return sum(count for cell, count in cells.items() if _is_word(cell)) > max(1, cells.total() / 2)


def _is_word(cell: str) -> bool:
    return re.search(r"[^\W\d_]", cell) is not None and not is_number(cell) and _days(cell) is None


def numbers_of(values: Any) -> list[float | None]:
    """The cells of a column without gaps as numbers, or where none is, as days since 1970; None of each other one.

    Thousands may be set apart, as in 1,234.5, and a percentage is its number. Of 1,234 a decimal mark has to be stated.
    """
    commas, sure, _ = values.attrs.get("decimal", _POINTS)

    def number(cell: Any) -> float | None:
        if isinstance(cell, str):
            cell = cell.strip().removesuffix("%").rstrip()
            cell = cell.translate(_SWAPPED) if commas else cell
            if _GROUPED.fullmatch(cell) and (sure or not re.fullmatch(r"[+-]?\d+,\d+", cell)):
                cell = re.sub(r"[^\d.+-]", "", cell)
        return float(cell) if is_number(cell) else None

    read = [number(each) for each in values.tolist()]
    return read if any(each is not None for each in read) else [_days(each) for each in values.tolist()]


def _days(cell: Any) -> float | None:
    """Days since 1970 of a date of ISO 8601, perhaps with slashes, perhaps with a time; None of what is none."""
    try:
        date = datetime.fromisoformat(str(cell).strip().replace("/", "-"))
    except ValueError:
        return None
    return (date.replace(tzinfo=date.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1)


def is_number(value: Any) -> bool:
    """Whether Python reads it as a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def listed(names: Sequence[str]) -> str:
    """Names in a sentence; of a thousand the first."""
    return textwrap.shorten(", ".join(names), 200, placeholder=" ...")


def first_row(marked: NDArray[np.bool_]) -> str:
    """The number of the first row that is marked, and how many more are."""
    more = int(marked.sum()) - 1
    return f"row {int(marked.argmax()) + 1} (the first is 1)" + (f", as {counted(more, 'more row')}" if more else "")
