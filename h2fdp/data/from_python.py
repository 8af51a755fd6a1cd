"""Records in any of the forms that people have them in: arrays, a torch or Hugging Face `Dataset`, a pandas frame.

None of the libraries that make these forms is imported: an object counts as what it can do. Columns of tables are
scaled by public bounds, and categories become indicators: means, deviations and lists of categories that follow from
devices' records would reveal some of these, and no account covers that. So bounds are stated, and categories too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.records import Scaling, as_records
from h2fdp.data.source import Owned, Pool, pool_of, splits_of
from h2fdp.errors import UserError, hint

LABELS = ("label", "labels", "target", "targets", "class", "y", "fine_label", "character")
INPUTS = ("image", "img", "pixel_values", "x", "input", "inputs", "features", "input_ids")
_NO_HEADING = re.compile(r"\s*|Unnamed: [\d.]+")  # what pandas calls it
_KINDS = (
    "(inputs, labels), a torch Dataset, a Hugging Face Dataset or a pandas frame; or, for data by device, a mapping or "
    "a function from a device's name to (inputs, labels)"
)

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


@dataclass(frozen=True)
class Columns:
    """Which columns are which.

    Attributes:
        label: of labels; null for one of the usual names.
        inputs: one, or several that are joined; null for one of the usual names, of a frame for all others.
        by: the device of a record; null: no column has it.
        names: the labels in order; null where they are whole numbers, or a categorical column states them.
        ranges: column of a frame -> (lowest, highest), public: such columns are cut to them and go from 0 to 1.
    """

    label: str | None = None
    inputs: str | Sequence[str] | None = None
    by: str | None = None
    names: Sequence[Any] | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def of_others(self, training: Any, other: Any) -> Columns:
        """The same of test records, which need no owners; of frames, with the inputs of the training frame."""
        heads = getattr(other, "columns", getattr(other, "column_names", (self.by,)))
        by = self.by if self.by in heads else None
        inputs = self._inputs_of(training, "the training data") if _is_frame(other) else self.inputs
        return replace(self, by=by, inputs=inputs)

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
            return as_array(source[0], what), label_numbers(as_array(source[1], what), self.names, what), None
        listed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        if listed and not isinstance(source, (str, bytes, Mapping)):
            return self._of_items(source, what)
        raise UserError(f"{what}: expected {_KINDS}; found {type(source).__name__}", key="data")

    def _inputs_of(self, source: Any, what: str) -> str | Sequence[str] | None:
        if self.inputs is not None or not _is_frame(source):
            return self.inputs
        heads = list(map(str, source.columns))
        used = [each for each in heads if each not in (_column(self.label, LABELS, heads, "label", what), self.by)]
        if bare := [each for each in used if _NO_HEADING.fullmatch(each)]:
            rest = ", ".join(each for each in used if each not in bare)
            text = f"{what}: column {heads.index(bare[0]) + 1} has no heading, as row numbers that pandas wrote"
            raise UserError(f"{text}; leave it out (index=False), or say inputs: [{rest}]"[:400], key="data")
        return used

    def _of_frame(self, frame: Any, what: str) -> Arrays:
        heads = list(map(str, frame.columns))
        target = _column(self.label, LABELS, heads, "label", what)
        owner = None if self.by is None else _column(self.by, (), heads, "by", what)
        inputs = self._inputs_of(frame, what) or []
        used = [_column(each, (), heads, "inputs", what) for each in ([inputs] if isinstance(inputs, str) else inputs)]
        if not used:
            raise UserError(f"{what}: no columns are left as inputs", key="data")
        for key in self.ranges:
            if key not in used:
                raise UserError(f"{what}: ranges: {key} is no input; inputs are {', '.join(used)}", key="data")
        parts = [_features(frame[each], each, self.ranges.get(each), what) for each in used]
        labels = frame[target]
        for stated in (target,) if owner is None else (target, owner):
            if (missing := np.asarray(frame[stated].isna())).any():
                raise UserError(f"{what}: the column {stated} has no value in {first_row(missing)}", key="data")
        names = list(labels.cat.categories) if self.names is None and hasattr(labels, "cat") else self.names
        owners = None if owner is None else np.asarray(frame[owner])
        x = np.concatenate(parts, axis=1).astype(np.float32)
        return x, label_numbers(np.asarray(labels), names, what), owners

    def _of_columns(self, source: Any, heads: Sequence[str], what: str) -> Arrays:
        """Of an object with named columns, `source["label"]`."""

        def values(stated: str | None, usual: Sequence[str], key: str) -> list[Any]:
            column = source[_column(stated, usual, heads, key, what)]
            return list(column.to_pylist() if hasattr(column, "to_pylist") else column)  # of a table of pyarrow's

        labels = values(self.label, LABELS, "label")
        if self.inputs is None or isinstance(self.inputs, str):
            x = stacked(values(self.inputs, INPUTS, "inputs"), what)
        else:
            parts = [stacked(values(each, (), "inputs"), what) for each in self.inputs]
            x = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
        owners = None if self.by is None else np.asarray(values(self.by, (), "by"))
        return x, label_numbers(np.asarray(labels), self.names, what), owners

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
        return stacked([each[0] for each in items], what), label_numbers(labels, self.names, what), None

    def _mean_nothing(self, what: str) -> None:
        for key in ("label", "inputs", "by"):
            if (value := getattr(self, key)) is not None:
                raise UserError(f"{what}: has no named columns, so {key}={value!r} means nothing", key="data")


def _is_frame(source: Any) -> bool:
    return hasattr(source, "iloc") and hasattr(source, "columns")


def _column(stated: str | None, usual: Sequence[str], heads: Sequence[str], key: str, what: str) -> str:
    """The column that is stated, or the first of the usual names.

    Raises:
        UserError: it is not there, or none has a usual name.
    """
    if stated is not None:
        return stated_column(stated, heads, what)
    matches = [name for name in usual if name in heads]
    if not matches:
        raise UserError(f"{what}: which column is meant? State {key}, one of {', '.join(heads)}", key="data")
    return matches[0]


def stated_column(name: str, heads: Sequence[str], what: str) -> str:
    """The name of a column that is there.

    Raises:
        UserError: it is not.
    """
    if name not in heads:
        near = hint(name, heads) or f"; expected one of {', '.join(heads)}"
        raise UserError(f"{what}: there is no column {name}{near}", key="data")
    return name


def label_numbers(labels: NDArray[Any], names: Sequence[Any] | None, what: str) -> NDArray[Any]:
    """Labels as numbers from 0, in the order of their names.

    Raises:
        UserError: texts without names, or a label that none of them is.
    """
    if names is None:
        if labels.dtype.kind in "OSU":
            text = f"{what}: labels are texts; say them in order as classes=[...], since their list must be public"
            raise UserError(text, key="data")
        if labels.dtype.kind == "b" or (labels.dtype.kind == "f" and (labels == np.floor(labels)).all()):
            return labels.astype(np.int64)
        return labels
    places = {name: place for place, name in enumerate(names)}
    unknown = np.array([each not in places for each in labels.tolist()])
    if unknown.any():
        label = labels.tolist()[unknown.argmax()]
        text = f"the label {label!r} in {first_row(unknown)} is none of the classes {', '.join(map(str, names))}"
        raise UserError(f"{what}: {text}", key="data")
    return np.array([places[each] for each in labels.tolist()], dtype=np.int64)


def _features(values: Any, name: str, bounds: Sequence[float] | None, what: str) -> NDArray[Any]:
    """A column of a frame as one or more features (n, .): a number, or for each category 1 where it holds."""
    if hasattr(values, "cat"):
        if (missing := np.asarray(values.isna())).any():
            text = f"the column {name} has no value, or none of its categories, in {first_row(missing)}"
            raise UserError(f"{what}: {text}", key="data")
        return np.stack([np.asarray(values) == each for each in values.cat.categories], axis=1).astype(np.float64)
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        texts = np.array([not _is_number(each) for each in array.tolist()])
        first = array.tolist()[texts.argmax()]
        wrong_one = f"{first!r} in {first_row(texts)}, which is no number" if texts.any() else f"the type {array.dtype}"
        right = "make it categorical with stated categories (in a file data.categories), or leave it out of inputs"
        raise UserError(f"{what}: the column {name} has {wrong_one}; {right}", key="data")
    numbers = array.astype(np.float64)[:, None]
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(numbers.astype(np.float32))[:, 0]
    if wrong.any():
        wrong_one = numbers[wrong.argmax(), 0]
        shown = "no value (or NaN)" if np.isnan(wrong_one) else f"{wrong_one:g}"
        text = f"the column {name} has {shown} in {first_row(wrong)}; expected finite numbers: fill in, or drop the row"
        raise UserError(f"{what}: {text}", key="data")
    if bounds is None:
        return numbers
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise UserError(f"{what}: ranges.{name}: expected (lowest, highest), found {bounds}", key="data")
    low, high = map(float, bounds)
    return np.asarray((np.clip(numbers, low, high) - low) / (high - low))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def first_row(marked: NDArray[np.bool_]) -> str:
    """The number of the first row that is marked."""
    return f"row {int(marked.argmax()) + 1} (the first is 1)"


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
    label: str | None = None,
    inputs: str | Sequence[str] | None = None,
    by: str | Sequence[Any] | NDArray[Any] | None = None,
    classes: int | Sequence[Any] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
    scaling: Scaling | None = None,
    place: str = "",
    **options: Any,
) -> PythonData:
    """Records of an object, for `Experiment(data=...)`.

    Args:
        source: (inputs, labels) as arrays or tensors; a map-style torch `Dataset` of (input, label) pairs; a Hugging
            Face `Dataset`, or a `DatasetDict` with `train`, `test` and perhaps `validation`; a pandas frame.
        test: the same for the test data, or the share of the records that becomes these, as 0.2.
        label: the column of labels; null for one called label, labels, target or y.
        inputs: the column of inputs, or for a frame the columns; null for one called image, x, ..., or all others.
        by: who holds each record: a column, or a value for each training record. Each of them is a device then.
        classes: the number of labels, or what they are called in order; null for as many as the test labels show.
        ranges: column of a frame -> (lowest, highest): public bounds; such columns are cut to them and go from 0 to 1.
        scaling: public constants between stored inputs and those of the model; null: 8-bit inputs are divided by 255.
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
    named = by if isinstance(by, str) else None
    columns = Columns(label, inputs, named, None if isinstance(classes, int) else classes, ranges or {})
    of = f" of {place}" if place else ""
    train = _records(columns, training, f"the training data{of}")
    if by is not None and named is None:
        owners, count = np.asarray(by), len(train[0])
        if owners.shape != (count,):
            raise UserError(f"by: expected a value for each of the {count} records, found {owners.shape}", key="data")
        train = train[0], owners
    if not isinstance(test, float):
        test = _records(columns.of_others(training, test), test, f"the test data{of}")
    valid = None
    if validation is not None:
        without_owners = replace(columns.of_others(training, validation), by=None)
        valid = _records(without_owners, validation, f"the validation data{of}")[0]
    stored = scaling or Scaling(255.0 if train[0].x.dtype == np.uint8 else 1.0)
    return PythonData(pool_of(train, test, valid, classes, stored, "data"), options)


def _records(columns: Columns, source: Any, what: str) -> Owned:
    x, y, owners = columns.arrays(source, what)
    return as_records(x, y, what), owners
