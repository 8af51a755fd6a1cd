"""Tables: numbers scaled by public bounds, categories as indicators; nothing is computed from the records.

Means, deviations and lists of categories that follow from devices' records would reveal some of these, and no account
covers that. So bounds are stated, and categories too: as a categorical column, or by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from h2fdp.errors import UserError

_LABELS = ("label", "labels", "target", "class", "y")
_NO_HEADING = re.compile(r"\s*|Unnamed: [\d.]+")  # what pandas calls it


def frame_arrays(
    frame: Any,
    label: str | None,
    inputs: Sequence[str] | None,
    by: str | None,
    names: Sequence[Any] | None,
    ranges: Mapping[str, Sequence[float]],
    what: str,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Inputs (n, features) float32, labels (n,) and owners of a pandas frame.

    Args:
        inputs: columns; null for all but the label's and the owner's.
        names: the labels in order; null where they are whole numbers, or a categorical column states them.
        ranges: column -> (lowest, highest).

    Raises:
        UserError: a column that is not there or has no heading, no numbers and no categories, missing or infinite
            values, bounds that are none.
    """
    there = [str(each) for each in frame.columns]
    usual = next((each for each in _LABELS if each in there), None)
    target = usual if label is None else named(label, there, what)
    if target is None:
        raise UserError(f"{what}: which column has the labels? Say it as label=, one of {', '.join(there)}", key="data")
    owner = None if by is None else named(by, there, what)
    used = [named(each, there, what) for each in inputs] if inputs else [c for c in there if c not in (target, owner)]
    if bare := [each for each in used if not inputs and _NO_HEADING.fullmatch(each)]:
        rest = ", ".join(each for each in used if each not in bare)
        text = f"{what}: column {there.index(bare[0]) + 1} has no heading, as row numbers that pandas wrote have none"
        raise UserError(f"{text}; leave it out of the file (index=False), or say inputs: [{rest}]"[:400], key="data")
    if not used:
        raise UserError(f"{what}: no columns are left as inputs", key="data")
    for key in ranges:
        if key not in used:
            raise UserError(f"{what}: ranges: {key} is no input; inputs are {', '.join(used)}", key="data")
    parts = [_features(frame[each], each, ranges.get(each), what) for each in used]
    labels = frame[target]
    for stated in (target,) if owner is None else (target, owner):
        if (missing := np.asarray(frame[stated].isna())).any():
            raise UserError(f"{what}: the column {stated} has no value in {first(missing)}", key="data")
    if names is None and hasattr(labels, "cat"):
        names = list(labels.cat.categories)
    owners = None if owner is None else np.asarray(frame[owner])
    x = np.concatenate(parts, axis=1).astype(np.float32)
    return x, label_numbers(np.asarray(labels), names, what), owners


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
        listed = ", ".join(map(str, names))
        found = labels.tolist()[unknown.argmax()]
        text = f"{what}: the label {found!r} in {first(unknown)} is none of the classes {listed}"
        raise UserError(text, key="data")
    return np.array([places[each] for each in labels.tolist()], dtype=np.int64)


def _features(values: Any, name: str, bounds: Sequence[float] | None, what: str) -> NDArray[Any]:
    """A column as one or more features (n, .)."""
    if hasattr(values, "cat"):
        if (missing := np.asarray(values.isna())).any():
            text = f"the column {name} has no value, or none of its categories, in {first(missing)}"
            raise UserError(f"{what}: {text}", key="data")
        return _indicators(np.asarray(values), list(values.cat.categories))
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        right = "make it categorical with stated categories (in a file data.categories), or leave it out"
        raise UserError(f"{what}: the column {name} has no numbers; {right}", key="data")
    numbers = array.astype(np.float64)[:, None]
    with np.errstate(over="ignore"):
        wrong = ~np.isfinite(numbers.astype(np.float32))[:, 0]
    if wrong.any():
        found = numbers[wrong.argmax(), 0]
        shown = "no value (or NaN)" if np.isnan(found) else f"{found:g}"
        text = f"the column {name} has {shown} in {first(wrong)}; expected finite numbers (of 32 bits)"
        raise UserError(f"{what}: {text}", key="data")
    if bounds is None:
        return numbers
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise UserError(f"{what}: ranges.{name}: expected (lowest, highest), found {bounds}", key="data")
    low, high = map(float, bounds)
    return np.asarray((np.clip(numbers, low, high) - low) / (high - low))


def first(marked: NDArray[np.bool_]) -> str:
    """The number of the first row that is marked."""
    return f"row {int(marked.argmax()) + 1} (the first is 1)"


def _indicators(values: NDArray[Any], categories: Sequence[Any]) -> NDArray[Any]:
    """One feature for each category, 1 where it holds."""
    return np.stack([(values == each) for each in categories], axis=1).astype(np.float64)


def named(name: str, there: Sequence[str], what: str) -> str:
    """The name of a column that is there.

    Raises:
        UserError: it is not.
    """
    if name not in there:
        close = difflib.get_close_matches(name, there, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; expected one of {', '.join(there)}"
        raise UserError(f"{what}: there is no column {name}{hint}", key="data")
    return name
