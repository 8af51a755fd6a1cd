"""Records handed over in Python: arrays, a torch `Dataset`, a Hugging Face `Dataset`, a pandas frame."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from h2fdp.data.columns import Columns
from h2fdp.data.records import Scaling, as_records
from h2fdp.data.source import DataOptions, DataRequest, Owned, Pool, pool_of, splits_of
from h2fdp.errors import UserError

GIVEN = "given"


class Given(DataOptions):
    """Records that Python handed over; a configuration only says that it did."""

    description: ClassVar[str] = "records handed over in Python"
    on_disk: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    name: Literal["given"] = "given"
    _pool: Pool | None = PrivateAttr(None)

    def holding(self, pool: Pool) -> Given:
        """The same options with records."""
        found = self.model_copy()
        found._pool = pool
        return found

    def depends_on(self, request: DataRequest) -> Hashable:
        """The records themselves."""
        return id(self._pool)

    def load(self, request: DataRequest | None = None) -> Pool:
        """The records as they were handed over.

        Raises:
            UserError: a file names them; only Python has them.
        """
        if self._pool is None:
            text = "records of this kind are handed over in Python: Experiment(data=(x, y), test_data=(x, y))"
            raise UserError(text, key="data")
        return self._pool


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
        text = "expected test data: test_data=(inputs, labels), or a share of these records as test_data=0.2"
        raise UserError(text, key="data")
    if isinstance(test, (int, str)):
        raise UserError(f"test_data: expected a pair, data, or a share as 0.2, found {test!r}", key="data")
    named = by if isinstance(by, str) else None
    names = None if isinstance(classes, int) else classes
    columns = Columns(label, inputs, named, names, ranges or {})
    train = _records(columns, training, "the training data")
    if by is not None and named is None:
        owners, count = np.asarray(by), len(train[0])
        if owners.shape != (count,):
            raise UserError(f"by: expected a value for each of the {count} records, found {owners.shape}", key="data")
        train = train[0], owners
    if not isinstance(test, float):
        test = _records(columns.beside(training, test), test, "the test data")
    valid = None
    if validation is not None:
        beside = replace(columns.beside(training, validation), by=None)
        valid = _records(beside, validation, "the validation data")[0]
    stored = scaling or Scaling(255.0 if train[0].x.dtype == np.uint8 else 1.0)
    return PythonData(pool_of(train, test, valid, classes, stored, "data"), options)


def _records(columns: Columns, source: Any, what: str) -> Owned:
    x, y, owners = columns.arrays(source, what)
    return as_records(x, y, what), owners
