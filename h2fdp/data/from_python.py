"""Records in any of the forms that people have them in: arrays, a torch or Hugging Face `Dataset`, a pandas frame.

None of the libraries that make these forms is imported: an object counts as what it can do.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.columns import NO_HEADING, Arrays, Columns, Layout, column_of, listed, stated_column, usual_label
from h2fdp.data.records import Scaling, as_records
from h2fdp.data.source import Owned, Pool, pool_of, splits_of
from h2fdp.data.targets import Task
from h2fdp.data.texts import NUMBERS
from h2fdp.errors import UserError
from h2fdp.wording import note

INPUTS = ("image", "img", "pixel_values", "x", "input", "inputs", "features", "input_ids")
_KINDS = (
    "(inputs, labels), a torch Dataset, a Hugging Face Dataset or a pandas frame; or, for data by device, a mapping or "
    "a function from a device's name to (inputs, labels)"
)


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
            of an empty list, and of columns of words that are not stated, become 256 numbers each by a hash.
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
    labels = label if isinstance(label, list | tuple) else None
    if labels is not None and task not in (None, "multilabel"):
        raise UserError(f"expected one column of labels for {task}, found {label}", key="data.label")
    task = "multilabel" if labels is not None else task
    by_name = by if isinstance(by, str | int) else None
    about = {"ranges": ranges or {}, "categories": categories or {}, "exclude": exclude, "text": text}
    columns = {"label": label, "inputs": inputs, "by": by_name, **about}
    named = {key: _as_texts(each) for key, each in columns.items()}
    stated = Layout(**named, names=None if isinstance(classes, int) else classes, task=task)
    of = f"data of {place}" if place else "data"
    parts = {"training": training, "test": test, "validation": validation}
    training, test, validation = (_named(part, f"the {name} {of}") for name, part in parts.items())
    heads = _heads(training)
    settled = stated.settled(training, f"the training {of}") if _is_frame(training) else stated

    def read(source: Any, part: str, by: str | None) -> tuple[Owned, Columns | None]:
        what, layout = f"the {part} {of}", replace(settled if _is_frame(source) else stated, by=by)
        x, y, owners, columns = _arrays(source, layout, what)
        return (as_records(x, y, what, gaps=_is_frame(source), task=task), owners), columns

    train, features = read(training, "training", stated.by)
    if inputs is None and (bare := [each for each in heads if NO_HEADING.fullmatch(each)]):
        note(f"column {heads.index(bare[0]) + 1} has no heading, as row numbers that pandas writes: it is left out")
    if settled.hashed:
        better = "better: data.categories, data.text or data.exclude"
        note(f"{listed(settled.hashed)}: words are hashed to {NUMBERS} numbers a column; {better}")
    for each in features.notes if features else ():
        note(each)
    if by is not None and by_name is None:
        owners, count = np.asarray(by), len(train[0])
        if owners.shape != (count,):
            raise UserError(f"by: expected a value for each of the {count} records, found {owners.shape}", key="data")
        train = train[0], owners
    if not isinstance(test, float):  # whose records need no owners
        test, _ = read(test, "test", stated.by if not (names := _heads(test)) or stated.by in names else None)
    valid = None if validation is None else read(validation, "validation", None)[0][0]
    called = stated.label if isinstance(stated.label, str) else usual_label(heads, "y")
    classes = labels if classes is None else classes
    pool = pool_of(train, test, valid, classes, "data", task, (called, stated.ranges.get(called)), scaling)
    known = {} if pool.target.task == "classification" else {"task": pool.target.task}
    return PythonData(replace(pool, columns=features), options | known)


def _as_texts(names: Any) -> Any:
    """Names of columns, which are numbers in some frames, as texts: one, several, or those of a mapping."""
    if isinstance(names, Mapping):
        return {str(name): each for name, each in names.items()}
    return names if names is None else str(names) if isinstance(names, str | int) else [*map(str, names)]


def _is_frame(source: Any) -> bool:
    return hasattr(source, "iloc") and hasattr(source, "columns")


def _heads(source: Any) -> list[str]:
    """The names of columns; empty where only items have them, or nothing has."""
    return list(source.columns if _is_frame(source) else getattr(source, "column_names", ()))


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


def _arrays(source: Any, layout: Layout, what: str) -> Arrays:
    """The records of an object.

    Raises:
        UserError: an object of another kind, columns that are not there, values that are no numbers.
    """
    if _is_frame(source):
        return layout.of_frame(source, what)
    if hasattr(source, "column_names"):
        return _of_columns(source, list(source.column_names), layout, what)
    pair = isinstance(source, (tuple, list)) and len(source) == 2
    if not pair and (
        isinstance(source, (str, bytes, Mapping)) or not (hasattr(source, "__getitem__") and hasattr(source, "__len__"))
    ):
        raise UserError(f"{what}: expected {_KINDS}; found {type(source).__name__}", key="data")
    items = [] if pair else [source[place] for place in range(len(source))]  # each a pair, or a mapping
    if items and isinstance(items[0], Mapping):
        return _of_columns({name: [item[name] for item in items] for name in items[0]}, [*items[0]], layout, what)
    for key in ("label", "inputs", "by"):
        if (value := getattr(layout, key)) is not None:
            raise UserError(f"{what}: has no named columns, so {key}={value!r} means nothing", key=f"data.{key}")
    if pair:
        return Arrays(as_array(source[0], what), layout.numbers(as_array(source[1], what), what))
    if not items or not isinstance(items[0], (tuple, list)) or len(items[0]) != 2:
        kind = type(items[0]).__name__ if items else "no items"
        raise UserError(f"{what}: expected items of an input and a label, found {kind}", key="data")
    labels = np.asarray([as_array(each[1], what) for each in items])
    return Arrays(stacked([each[0] for each in items], what), layout.numbers(labels, what))


def _of_columns(source: Any, heads: Sequence[str], layout: Layout, what: str) -> Arrays:
    """The records of an object with named columns, `source["label"]`."""

    def values(name: str) -> list[Any]:
        column = source[name]
        return list(column.to_pylist() if hasattr(column, "to_pylist") else column)  # of a table of pyarrow's

    columns = [np.asarray(values(each)) for each in layout.labels(heads, what)]
    labels = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    if layout.inputs is None or isinstance(layout.inputs, str):
        x = stacked(values(column_of(layout.inputs, INPUTS, heads, "inputs", what)), what)
    else:
        parts = [stacked(values(stated_column(each, heads, "inputs", what)), what) for each in layout.inputs]
        x = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    owners = None if layout.by is None else np.asarray(values(stated_column(layout.by, heads, "by", what)))
    return Arrays(x, layout.numbers(labels, what), owners)


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
