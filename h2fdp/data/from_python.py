"""Records in any of the forms that people have them in: arrays, a torch or Hugging Face `Dataset`, a pandas frame.

None of the libraries that make these forms is imported: an object counts as what it can do. Columns of tables are
scaled by public bounds, and categories become indicators: means, deviations and lists of categories that follow from
devices' records would reveal some of these, and no account covers that. So bounds are stated, and categories stated or
hashed: what a record becomes depends on no other one.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.records import Scaling, as_records
from h2fdp.data.source import Owned, Pool, pool_of, splits_of
from h2fdp.data.targets import REAL, Task
from h2fdp.data.texts import BUCKETS, embedded, hashed, note_of_texts
from h2fdp.errors import Problem, UserError, hint
from h2fdp.wording import counted, note

LABELS = ("label", "labels", "target", "targets", "class", "y", "fine_label", "character")
INPUTS = ("image", "img", "pixel_values", "x", "input", "inputs", "features", "input_ids")
_NO_HEADING = re.compile(r"\s*|Unnamed: [\d.]+")  # what pandas calls it
_GROUPED = re.compile(r"[+-]?\d{1,3}([,' \u00a0\u202f]\d{3})+(\.\d+)?")  # a number whose thousands are set apart
_SWAPPED = str.maketrans(",.", ".,")
_POINTS = False, False, ""  # of a frame: whether decimal marks are commas, whether that is stated, what to say about it
_KINDS = (
    "(inputs, labels), a torch Dataset, a Hugging Face Dataset or a pandas frame; or, for data by device, a mapping or "
    "a function from a device's name to (inputs, labels)"
)

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


@dataclass(frozen=True)
class Columns:
    """Which columns are which.

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
        hashed: the columns of words that nothing is stated about; null: see `settled`.
        task: see `Target`; null where the labels show it.
    """

    label: str | Sequence[str] | None = None
    inputs: str | Sequence[str] | None = None
    by: str | None = None
    names: Sequence[Any] | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    categories: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    exclude: Sequence[str] = ()
    text: Sequence[str] = ()
    hashed: Sequence[str] | None = None
    task: Task | None = None

    def labels(self, heads: Sequence[str], what: str) -> list[str]:
        """The columns of labels.

        Raises:
            UserError: one that is not there, or none of a usual name.
        """
        if self.label is None or isinstance(self.label, str):
            return [_column(self.label, LABELS, heads, "label", what)]
        return [stated_column(each, heads, "label", what) for each in self.label]

    def settled(self, frame: Any) -> Columns:
        """With the inputs of a training frame, and which of them are hashed as nothing is stated about their words."""
        inputs = self._listed_inputs(frame, "the training data")
        unstated = [x for x in inputs if not self.ranges.get(x) and x not in (*self.categories, *self.text)]
        words = [x for x in unstated if not hasattr(frame[x], "cat") and holds_words(frame[x])]
        return replace(self, inputs=inputs, exclude=(), hashed=words)

    def of_others(self, other: Any) -> Columns:
        """The same of test records, which need no owners."""
        heads = getattr(other, "columns", getattr(other, "column_names", (self.by,)))
        return replace(self, by=self.by if self.by in heads else None)

    def arrays(self, source: Any, what: str) -> Arrays:
        """Inputs, labels and, where `by` names a column, owners.

        Raises:
            UserError: an object of another kind, columns that are not there, values that are no numbers.
        """
        if _is_frame(source):
            return self._of_frame(source, what)
        if hasattr(source, "column_names"):
            return self._of_columns(source, list(source.column_names), what)
        if isinstance(source, (tuple, list)) and len(source) == 2:
            self._mean_nothing(what)
            return as_array(source[0], what), self._numbers(as_array(source[1], what), what), None
        listed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        if listed and not isinstance(source, (str, bytes, Mapping)):
            return self._of_items(source, what)
        raise UserError(f"{what}: expected {_KINDS}; found {type(source).__name__}", key="data")

    def features(self, frame: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of a frame without public bounds, and the column of each feature, once these are `settled`."""
        inputs, first = self._listed_inputs(frame, ""), frame.iloc[:1]
        bounded = {*self.categories, *self.text, *(self.hashed or ()), *(x for x in self.ranges if self.ranges[x])}
        unbounded = tuple(x for x in inputs if x not in bounded and not hasattr(frame[x], "cat"))
        of_each = tuple(x for x in inputs for _ in range(self._features_of(first, x, "").shape[1]))
        return unbounded, of_each

    def _listed_inputs(self, frame: Any, what: str) -> Sequence[str]:
        if self.inputs is not None:
            if self.exclude:
                raise UserError(f"{what}: expected inputs, or what to exclude, found both", key="data.exclude")
            return [self.inputs] if isinstance(self.inputs, str) else self.inputs
        heads = list(frame.columns)
        others = *self.labels(heads, what), self.by, *self.exclude
        return [each for each in heads if each not in others and not _NO_HEADING.fullmatch(each)]

    def _of_frame(self, frame: Any, what: str) -> Arrays:
        heads, problems = list(frame.columns), list[Problem]()

        def tried(function: Callable[..., Any], *arguments: Any) -> Any:
            """Its answer; a problem is kept, so that all are told at once."""
            try:
                return function(*arguments, what)
            except UserError as error:
                problems.extend(error.problems)

        targets = tried(self.labels, heads) or []
        owner = None if self.by is None else tried(_column, self.by, (), heads, "by")
        for each in self.exclude:
            tried(stated_column, each, heads, "exclude")
        listed = tried(self._listed_inputs, frame) if targets or self.inputs is not None else None
        used = [each for each in listed or () if tried(stated_column, each, heads, "inputs")]
        if not used and not problems:
            problems.append(Problem(f"{what}: no columns are left as inputs", key="data"))
        stated = {f"{key}.{each}": each for key in ("ranges", "categories") for each in getattr(self, key)}
        stated |= {f"text[{place}]": each for place, each in enumerate(self.text)}
        for key, each in stated.items():
            if tried(stated_column, each, heads, key) and used and each not in (*used, *targets, owner, *self.exclude):
                text = f"{what}: {each} is no input; inputs are {_listed(used)}"
                problems.append(Problem(text, key=f"data.{key}"))
        lost = {self.by, *self.exclude}.difference([None, *heads])  # each may be meant for one of the inputs
        before = len(problems)
        known = replace(self, inputs=used, exclude=()).settled(frame) if self.hashed is None else self
        parts = [tried(known._features_of, frame, each) for each in used]
        if len(plain := [each for each in problems[before:] if each.key == "data"]) <= len(lost):
            problems = [each for each in problems if each not in plain]
        owners = None if owner is None else tried(_filled, frame[owner], "by")
        labels = [found for each in targets if (found := tried(self._label, frame[each])) is not None]
        if problems:
            raise UserError(problems)
        whole = labels[0] if len(targets) == 1 and self.task != "multilabel" else np.stack(labels, axis=1)
        return np.concatenate(parts, axis=1), whole, owners

    def _label(self, values: Any, what: str) -> NDArray[Any]:
        """A column of labels of a frame."""
        labels = _filled(values, "label", what)
        if self.names is None and hasattr(values, "cat") and self.task in (None, "classification"):
            return label_numbers(labels, list(values.cat.categories), what)
        return self._numbers(labels, what)

    def _numbers(self, labels: NDArray[Any], what: str) -> NDArray[Any]:
        """Labels as numbers, of one column or of all."""
        if self.task in ("regression", "multilabel"):
            if labels.dtype.kind not in "buif":
                text = f"{what}: {self.task} needs numbers as labels, found {labels.dtype}, as {labels.tolist()[0]!r}"
                raise UserError(text, key="data.label")
            return labels
        return label_numbers(labels, self.names, what)

    def _features_of(self, frame: Any, name: str, what: str) -> NDArray[Any]:
        kinds, bounds = self.categories.get(name, () if name in (self.hashed or ()) else None), self.ranges.get(name)
        if name not in self.text:
            return _features(frame[name], name, bounds or None, kinds, what)
        if kinds or bounds:
            text = f"{what}: the column {name} has ranges or categories too; expected one of them"
            raise UserError(text, key=f"data.text[{self.text.index(name)}]")
        return embedded(frame[name].tolist(), np.asarray(frame[name].isna()))

    def _of_columns(self, source: Any, heads: Sequence[str], what: str) -> Arrays:
        """Of an object with named columns, `source["label"]`."""

        def values(stated: str | None, usual: Sequence[str], key: str) -> list[Any]:
            column = source[_column(stated, usual, heads, key, what)]
            return list(column.to_pylist() if hasattr(column, "to_pylist") else column)  # of a table of pyarrow's

        columns = [np.asarray(values(each, (), "label")) for each in self.labels(heads, what)]
        labels = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        if self.inputs is None or isinstance(self.inputs, str):
            x = stacked(values(self.inputs, INPUTS, "inputs"), what)
        else:
            parts = [stacked(values(each, (), "inputs"), what) for each in self.inputs]
            x = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
        owners = None if self.by is None else np.asarray(values(self.by, (), "by"))
        return x, self._numbers(labels, what), owners

    def _of_items(self, source: Any, what: str) -> Arrays:
        """Of a map-style data set: `source[0]` is a pair, or a mapping."""
        items = [source[place] for place in range(len(source))]
        if items and isinstance(items[0], Mapping):
            return self._of_columns({name: [item[name] for item in items] for name in items[0]}, [*items[0]], what)
        self._mean_nothing(what)
        if not items or not isinstance(items[0], (tuple, list)) or len(items[0]) != 2:
            kind = type(items[0]).__name__ if items else "no items"
            raise UserError(f"{what}: expected items of an input and a label, found {kind}", key="data")
        labels = np.asarray([as_array(each[1], what) for each in items])
        return stacked([each[0] for each in items], what), self._numbers(labels, what), None

    def _mean_nothing(self, what: str) -> None:
        for key in ("label", "inputs", "by"):
            if (value := getattr(self, key)) is not None:
                raise UserError(f"{what}: has no named columns, so {key}={value!r} means nothing", key=f"data.{key}")


def _is_frame(source: Any) -> bool:
    return hasattr(source, "iloc") and hasattr(source, "columns")


def _named(frame: Any, what: str) -> Any:
    """A frame with texts as names of columns; anything else as it is.

    Raises:
        UserError: a name that occurs twice.
    """
    if not _is_frame(frame):
        return frame
    heads = list(map(str, frame.columns))
    if repeated := [each for each, count in Counter(heads).items() if count > 1]:
        raise UserError(f"{what}: the name {repeated[0]} is that of two columns; expected different names", key="data")
    return frame.set_axis(heads, axis=1)


def _filled(values: Any, key: str, what: str) -> NDArray[Any]:
    """The values of a column that may have no gaps."""
    if (gaps := np.asarray(values.isna())).any():
        raise UserError(f"{what}: the column {values.name} has no value in {first_row(gaps)}", key=f"data.{key}")
    return np.asarray(values)


def _column(stated: str | None, usual: Sequence[str], heads: Sequence[str], key: str, what: str) -> str:
    """The column that is stated, or the first of the usual names.

    Raises:
        UserError: it is not there, or none has a usual name.
    """
    if stated is not None:
        return stated_column(stated, heads, key, what)
    if not (matches := [name for name in usual if name in heads]):
        raise UserError(f"{what}: which column is meant? State {key}, one of {_listed(heads)}", key=f"data.{key}")
    return matches[0]


def stated_column(name: str, heads: Sequence[str], key: str, what: str) -> str:
    """The name of a column that is there, and is stated under a key of `data:`.

    Raises:
        UserError: it is not.
    """
    if name not in heads:
        near = hint(name, heads) or f"; expected one of {_listed(heads)}"
        raise UserError(f"{what}: there is no column {name}{near}", key=f"data.{key}")
    return name


def label_numbers(labels: NDArray[Any], names: Sequence[Any] | None, what: str) -> NDArray[Any]:
    """Labels as numbers from 0, in the order of their names.

    Raises:
        UserError: texts without names, or a label that none of them is.
    """
    if names is None:
        if labels.dtype.kind in "OSU":
            text = f"labels are texts; state them in order, as [{_listed(sorted(set(map(str, labels))))}]"
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
        text = f"the label {label!r} in {first_row(unknown)} is none of the classes {_listed(list(map(str, names)))}"
        raise UserError(f"{what}: {text}", key="data.classes")
    return np.array([places[each] for each in labels.tolist()], dtype=np.int64)


def _features(
    values: Any, name: str, bounds: Sequence[float] | None, kinds: Sequence[Any] | None, what: str
) -> NDArray[Any]:
    """A column of a frame as one or more features (n, .): a number, or for each category 1 where it holds.

    A gap among numbers is NaN where nothing says what it counts as. It has no feature of its own then: that a column
    has gaps at all is private.

    Args:
        kinds: the categories; values of none are hashed. Null for numbers.
    """
    column, gaps = f"{what}: the column {name}", np.asarray(values.isna())
    if kinds is not None or hasattr(values, "cat"):
        kinds = list(values.cat.categories) if kinds is None else kinds
        if bounds is not None:
            raise UserError(f"{column} has ranges and categories; expected one of them", key=f"data.ranges.{name}")
        if not len(kinds):
            return hashed(values.tolist(), gaps, name)
        each_holds = [gaps if kind is None else np.asarray((values == kind).fillna(False), bool) for kind in kinds]
        holds = np.stack(each_holds, axis=1)
        outside = np.asarray(~holds.any(axis=1))
        if outside.any():
            found = "no value" if gaps[outside.argmax()] else repr(values.tolist()[outside.argmax()])
            text = f"{column} has {found} in {first_row(outside)}, which is none of its categories"
            how = "; a null among them counts gaps as one" if (gaps & outside).any() else ""
            raise UserError(f"{text} {', '.join(map(repr, kinds))}{how}", key=f"data.categories.{name}")
        return np.asarray(holds, np.float64)
    array: NDArray[Any] = values.dropna().to_numpy()
    key = "data" if bounds is None else f"data.ranges.{name}"
    if len(array) and array.dtype.kind not in "buif":
        read = numbers_of(values.dropna())
        if None in read:
            odd, cell = ~gaps, values.dropna().tolist()[read.index(None)]
            odd[odd] = [each is None for each in read]
            _, _, why = values.attrs.get("decimal", _POINTS)
            right = f"data.missing has words for gaps, dates are as 2024-12-31; categories: {{{name}: []}} hashes all"
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
    """Days since 1970 of a date of ISO 8601, perhaps with a time; None of what is none."""
    try:
        date = datetime.fromisoformat(str(cell).strip())
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


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence; of a thousand the first."""
    return textwrap.shorten(", ".join(names), 200, placeholder=" ...")


def first_row(marked: NDArray[np.bool_]) -> str:
    """The number of the first row that is marked, and how many more are."""
    more = int(marked.sum()) - 1
    return f"row {int(marked.argmax()) + 1} (the first is 1)" + (f", as {counted(more, 'more row')}" if more else "")


def as_array(values: Any, what: str) -> NDArray[Any]:
    """An array of NumPy's; tensors of other libraries are taken from their devices."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise UserError(f"{what}: not rectangular arrays: {error}", key="data") from None


def stacked(values: Sequence[Any], what: str) -> NDArray[Any]:
    """Single inputs as one array: numbers, arrays, tensors, images (channels first).

    Raises:
        UserError: no values, or values of unequal shapes, or texts.
    """
    if not len(values):
        raise UserError(f"{what}: no records", key="data")
    if isinstance(values[0], str):
        raise UserError(f"{what}: inputs are texts; expected numbers, as a tokenizer makes them", key="data")
    parts = [_one(each) for each in values]
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        unequal = " and ".join(str(each) for each in sorted(shapes, key=str)[:2])
        raise UserError(f"{what}: inputs must be of one shape, found {unequal}", key="data")
    array = np.stack(parts)
    return array[:, None] if array.ndim == 1 else array


def _one(value: Any) -> NDArray[Any]:
    if isinstance(value, Mapping) and value.get("bytes") is not None:
        from PIL import Image  # comes with torchvision

        value = Image.open(io.BytesIO(value["bytes"]))
    if hasattr(value, "getbands"):  # an image of PIL's: height, width and perhaps channels
        pixels = np.asarray(value)
        return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)
    return as_array(value, "an input")


@dataclass(frozen=True)
class PythonData:
    """Records from Python with the options of their `data:` section; made by `from_python`."""

    pool: Pool
    options: Mapping[str, Any] = field(default_factory=dict)


def from_python(
    source: Any,
    test: Any = None,
    *,
    label: str | Sequence[str] | None = None,
    inputs: str | Sequence[str] | None = None,
    by: str | Sequence[Any] | NDArray[Any] | None = None,
    classes: int | Sequence[Any] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    exclude: Sequence[str] = (),
    text: Sequence[str] = (),
    scaling: Scaling | None = None,
    task: Task | None = None,
    place: str = "",
    **options: Any,
) -> PythonData:
    """Records of an object, for `Experiment(data=...)`.

    Args:
        source: (inputs, labels) as arrays or tensors; a map-style torch `Dataset` of (input, label) pairs; a Hugging
            Face `Dataset`, or a `DatasetDict` with `train`, `test` and perhaps `validation`; a pandas frame.
        test: the same for the test data, or the share of the records that becomes these, as 0.2.
        label: the column of labels, or of `multilabel` several; null for one called label, labels, target or y.
        inputs: the column of inputs, or for a frame the columns; null for one called image, x, ..., or all others.
        by: who holds each record: a column, or a value for each training record. Each of them is a device then.
        classes: the number of labels, or what they are called in order; null for as many as the test labels show.
        ranges: column of a frame -> (lowest, highest): public bounds; such columns are cut to them and go from 0 to 1.
            With a third number, that is what a gap counts as, and another feature is 1 there. Of real values also of
            the label, which is called y in arrays.
        categories: column of a frame -> its values, public: each becomes a feature that is 0 or 1; None is a gap. Those
            of an empty list, and of columns of words that are not stated, are hashed to 32 such features.
        exclude: columns of a frame that are no inputs.
        text: columns of a frame whose texts become 256 numbers each: averages of vectors of their tokens where the
            package `wordllama` is installed, else hashes of their words.
        scaling: public constants between stored inputs and those of the model; null: 8-bit inputs are divided by 255.
        task: what a label is: "classification", "regression", "multilabel" or "tokens" (a class at each position of a
            sequence); null for classes, or what lists of labels show.
        place: the file or folder that the records are from, for messages.
        options: `partition`, `validation`, `public` as in an experiment file.

    Raises:
        UserError: an object of another kind, columns that are not there, arrays that are no records.

    >>> data = from_python((np.eye(4), [0, 1, 0, 1]), test=0.25, partition="iid")
    >>> len(data.pool.train), len(data.pool.test), data.pool.classes
    (3, 1, 2)
    """
    training, split, validation = splits_of(source)
    test = split if test is None else test
    if test is None:
        raise UserError("expected test data: test_data=(inputs, labels), or a share of the records as 0.2", key="data")
    if isinstance(test, (int, str)):
        raise UserError(f"test_data: expected a pair, data, or a share as 0.2, found {test!r}", key="data")
    named = str(by) if isinstance(by, str | int) else None
    if _is_frame(training):  # whose columns may have numbers for names
        label = label if label is None or isinstance(label, list | tuple) else str(label)
        label = list(map(str, label)) if isinstance(label, list | tuple) else label
        inputs = list(map(str, inputs)) if isinstance(inputs, list | tuple) else inputs
        ranges, categories = ({str(key): each for key, each in (some or {}).items()} for some in (ranges, categories))
    names = None if isinstance(classes, int) else classes
    listed = isinstance(label, list | tuple)
    if listed and task not in (None, "multilabel"):
        raise UserError(f"expected one column of labels for {task}, found {label}", key="data.label")
    task = "multilabel" if listed else task
    lists = list(map(str, exclude)), list(map(str, text))
    columns = Columns(label, inputs, named, names, ranges or {}, categories or {}, *lists, task=task)
    of = f" of {place}" if place else ""
    training, test, validation = (
        _named(part, f"the {name} data{of}")
        for name, part in (("training", training), ("test", test), ("validation", validation))
    )
    train = _records(columns, training, f"the training data{of}")
    framed = _is_frame(training)
    heads = list(training.columns if framed else getattr(training, "column_names", ()))
    settled = columns.settled(training) if framed else columns
    if inputs is None and (bare := [each for each in heads if _NO_HEADING.fullmatch(each)]):
        note(f"column {heads.index(bare[0]) + 1} has no heading, as row numbers that pandas writes: it is left out")
    if settled.hashed:
        better = "better: data.categories, data.text or data.exclude"
        note(f"{_listed(settled.hashed)}: words are hashed to {BUCKETS} numbers a column; {better}")
    about = (note_of_texts(),) if columns.text else ()
    for each in about:
        note(each)
    if by is not None and named is None:
        owners, count = np.asarray(by), len(train[0])
        if owners.shape != (count,):
            raise UserError(f"by: expected a value for each of the {count} records, found {owners.shape}", key="data")
        train = train[0], owners
    if not isinstance(test, float):
        others = settled if _is_frame(test) else columns
        test = _records(others.of_others(test), test, f"the test data{of}")
    valid = None
    if validation is not None:
        valid = _records(replace(settled, by=None), validation, f"the validation data{of}")[0]
    stored = scaling or Scaling(255.0 if train[0].x.dtype == np.uint8 else 1.0)
    called = label if isinstance(label, str) else next((each for each in LABELS if each in heads), "y")
    classes = [*label] if label is not None and listed and classes is None else classes
    pool = pool_of(train, test, valid, classes, stored, "data", task, (called, (ranges or {}).get(called)))
    known = {} if pool.target.task == "classification" else {"task": pool.target.task}
    unbounded, of_each = settled.features(training) if framed else (None, ())
    pool = replace(pool, unbounded=unbounded, columns=of_each, texts=columns.text, notes=about)
    return PythonData(pool, options | known)


def _records(columns: Columns, source: Any, what: str) -> Owned:
    x, y, owners = columns.arrays(source, what)
    return as_records(x, y, what, gaps=_is_frame(source), task=columns.task), owners
