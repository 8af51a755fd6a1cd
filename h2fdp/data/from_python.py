"""Records handed over in Python: arrays, a torch `Dataset`, a Hugging Face `Dataset`, a pandas frame.

None of these libraries is imported: an object counts as what it can do. Any partition spreads the records.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from h2fdp.config.fields import Text
from h2fdp.data.columns import arrays_of, splits_of
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Scaling, as_records, class_count
from h2fdp.data.source import DataOptions, DataRequest, Pool, split_off
from h2fdp.errors import UserError

GIVEN = "given"


class Given(DataOptions):
    """Records that Python handed over; a configuration only says what they were.

    Attributes:
        source: the type of the object that held them.
        partition: null: by owner where owners are known, else `iid`.
    """

    description: ClassVar[str] = "records handed over in Python"
    on_disk: ClassVar[bool] = False
    nulls: ClassVar[bool] = False
    listed: ClassVar[bool] = False

    name: Literal["given"] = "given"
    source: Text | None = None
    partition: PartitionSection | None = None
    _pool: Pool | None = PrivateAttr(None)

    @property
    def spread(self) -> PartitionSection:
        """As stated, else by owner or at random."""
        if self.partition is not None:
            return self.partition
        owned = self._pool is not None and self._pool.owners is not None
        return PartitionSection(natural=True) if owned else PartitionSection(iid=True)

    def holding(self, pool: Pool) -> Given:
        """The same options with records."""
        found = self.model_copy()
        found._pool = pool
        return found

    def depends_on(self, request: DataRequest) -> Hashable:
        """The records themselves."""
        return id(self._pool)

    def load(self, request: DataRequest) -> Pool:
        """The records, without owners where a partition spreads them; see `load_given`."""
        pool = self.load_given()
        return pool if self.spread.natural else replace(pool, owners=None, test_owners=None, owner_names=())

    def load_given(self) -> Pool:
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
    named = by if isinstance(by, str) else None
    x, y, owners = arrays_of(training, label, inputs, named, classes, ranges or {}, "the training data")
    if test is None:
        text = "expected test data: test_data=(inputs, labels), or a share of these records as test_data=0.2"
        raise UserError(text, key="data")
    if by is not None and named is None:
        owners = np.asarray(by)
        if owners.shape != (len(y),):
            raise UserError(f"by: expected a value for each of the {len(y)} records, found {owners.shape}", key="data")
    train = as_records(x, y, "the training data")
    if isinstance(test, float):
        kept, rest = split_off(len(train), test)
        held = train.part(rest)
        test_names = None if owners is None else owners[rest]
        train, owners = train.part(kept), None if owners is None else owners[kept]
    else:
        if isinstance(test, (int, str)):
            raise UserError(f"test_data: expected a pair, data, or a share as 0.2, found {test!r}", key="data")
        x, y, test_names = arrays_of(test, label, inputs, named, classes, ranges or {}, "the test data")
        held = as_records(x, y, "the test data")
    valid = None
    if validation is not None:
        x, y, _ = arrays_of(validation, label, inputs, None, classes, ranges or {}, "the validation data")
        valid = as_records(x, y, "the validation data")
    count = classes if isinstance(classes, int) or classes is None else len(classes)
    stored = scaling or Scaling(255.0 if train.x.dtype == np.uint8 else 1.0)
    numbers, test_numbers = numbered(owners, test_names)
    names = () if classes is None or isinstance(classes, int) else tuple(map(str, classes))
    called = () if owners is None else tuple(map(str, np.unique(owners)))
    number = class_count(train, held, count, "data", valid)
    pool = Pool(train, held, number, stored, numbers, test_numbers, valid, names, called)
    return PythonData(pool, {"source": _called(source), **options})


def numbered(
    owners: NDArray[Any] | None, test_owners: NDArray[Any] | None
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Owners by any name as numbers, in the order of the names; test owners only where all hold training records."""
    if owners is None:
        return None, None
    names, numbers = np.unique(owners, return_inverse=True)
    if test_owners is None or not np.isin(test_owners, names).all():
        return numbers.astype(np.int64), None
    return numbers.astype(np.int64), np.searchsorted(names, test_owners).astype(np.int64)


def _called(source: Any) -> str:
    kind = type(source)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
