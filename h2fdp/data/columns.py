"""Inputs, labels and owners of records in any of the forms that people hold them in."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.frames import frame_arrays, label_numbers
from h2fdp.errors import UserError

LABELS = ("label", "labels", "target", "targets", "y", "fine_label", "character", "class")
INPUTS = ("image", "img", "pixel_values", "x", "input", "inputs", "features", "input_ids")
VALIDATION = ("validation", "valid", "val", "dev")  # what the split is called
_KINDS = (
    "(inputs, labels), a torch Dataset, a Hugging Face Dataset or a pandas frame; or, for data by device, a mapping or "
    "a function from a device's name to (inputs, labels)"
)

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


def splits_of(source: Any) -> tuple[Any, Any, Any]:
    """The training, test and validation part of a mapping of splits; else the source, and None twice.

    Where there is no test part, the validation part is it.

    >>> splits_of({"train": 1, "dev": 2})
    (1, 2, None)
    """
    if not isinstance(source, Mapping) or "train" not in source:
        return source, None, None
    validation = next((source[name] for name in VALIDATION if name in source), None)
    return (source["train"], source["test"], validation) if "test" in source else (source["train"], validation, None)


def arrays_of(
    source: Any,
    label: str | None,
    inputs: str | Sequence[str] | None,
    by: str | None,
    classes: int | Sequence[Any] | None,
    ranges: Mapping[str, Sequence[float]],
    what: str,
) -> Arrays:
    """Inputs, labels and, where `by` names a column, owners; see `from_python`.

    Raises:
        UserError: an object of another kind, columns that are not there, values that are no numbers.
    """
    names = classes if classes is not None and not isinstance(classes, int) else None
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        wanted = [inputs] if isinstance(inputs, str) else inputs
        return frame_arrays(source, label, wanted, by, names, ranges, what)
    if hasattr(source, "column_names"):
        return _of_columns(source, label, inputs, by, names, what)
    if isinstance(source, (tuple, list)) and len(source) == 2:
        _no_columns(label, inputs, by, what)
        return as_array(source[0], what), label_numbers(as_array(source[1], what), names, what), None
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, (str, bytes, Mapping)):
        return _of_items(source, label, inputs, by, names, what)
    raise UserError(f"{what}: expected {_KINDS}; found {type(source).__name__}", key="data")


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
    first = values[0]
    if isinstance(first, str):
        text = f"{what}: inputs are texts; expected numbers, as a tokenizer makes them"
        raise UserError(text, key="data")
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


def _of_columns(
    source: Any,
    label: str | None,
    inputs: str | Sequence[str] | None,
    by: str | None,
    names: Sequence[Any] | None,
    what: str,
) -> Arrays:
    """Of an object with named columns, `source["label"]`."""
    there = list(source.column_names)
    label_column = column(label, LABELS, there, "label", what)
    if inputs is not None and not isinstance(inputs, str):
        parts = [stacked(list(source[column(each, (), there, "inputs", what)]), what) for each in inputs]
        x = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    else:
        x = stacked(list(source[column(inputs, INPUTS, there, "inputs", what)]), what)
    y = label_numbers(np.asarray(list(source[label_column])), names, what)
    owners = None if by is None else np.asarray(list(source[column(by, (), there, "by", what)]))
    return x, y, owners


def _of_items(
    source: Any,
    label: str | None,
    inputs: str | Sequence[str] | None,
    by: str | None,
    names: Sequence[Any] | None,
    what: str,
) -> Arrays:
    """Of a map-style data set: `source[0]` is a pair, or a mapping."""
    items = [source[place] for place in range(len(source))]
    if items and isinstance(items[0], Mapping):
        return _of_columns(_Items(items), label, inputs, by, names, what)
    _no_columns(label, inputs, by, what)
    if not items or not isinstance(items[0], (tuple, list)) or len(items[0]) != 2:
        found = type(items[0]).__name__ if items else "no items"
        raise UserError(f"{what}: expected items of an input and a label, found {found}", key="data")
    labels = np.asarray([as_array(each[1], what) for each in items])
    return stacked([each[0] for each in items], what), label_numbers(labels, names, what), None


class _Items:
    """A list of mappings as columns."""

    def __init__(self, items: Sequence[Mapping[str, Any]]) -> None:
        self._items = items
        self.column_names = list(items[0])

    def __getitem__(self, name: str) -> list[Any]:
        return [item[name] for item in self._items]


def column(stated: str | None, usual: Sequence[str], there: Sequence[str], key: str, what: str) -> str:
    """The column that is stated, or the only one of a usual name.

    Raises:
        UserError: it is not there, or none has a usual name.
    """
    if stated is not None:
        if stated not in there:
            raise UserError(f"{what}: there is no column {stated}; expected one of {', '.join(there)}", key="data")
        return stated
    found = [name for name in usual if name in there]
    if not found:
        text = f"{what}: which column is meant? Say it as {key}=, one of {', '.join(there)}"
        raise UserError(text, key="data")
    return found[0]


def _no_columns(label: str | None, inputs: Any, by: str | None, what: str) -> None:
    for key, value in (("label", label), ("inputs", inputs), ("by", by)):
        if value is not None:
            raise UserError(f"{what}: has no named columns, so {key}={value!r} means nothing", key="data")
