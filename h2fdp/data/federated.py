"""A data set spread over devices: one array of all records, and for each device the places of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from h2fdp.data.records import Records, Scaling
from h2fdp.data.source import DataSet
from h2fdp.data.statistics import Standardizing
from h2fdp.data.synthetic import DrawnData
from h2fdp.data.targets import CLASS
from h2fdp.errors import UserError


@dataclass(frozen=True, eq=False, kw_only=True)
class FederatedData(DataSet):
    """The records of I devices, device i's being `train[order[offsets[i]:offsets[i + 1]]]`.

    Attributes:
        name: the data set's name.
        order: places in `train`, shape (records in use,), int64, each at most once, but for rows (see `for_rows`); the
            others are no device's.
        offsets: where each device's places begin in `order`, shape (I + 1,), int64.
        public: training records that are no device's and count as public, or None.
        holders: whose records each device has, by name; empty where these have no owner.
        whole: inputs came as whole numbers, so a model that takes nothing else may have them.
    """

    name: str
    order: NDArray[np.int64]
    offsets: NDArray[np.int64]
    public: Records | None = None
    holders: tuple[str, ...] = ()
    whole: bool = False

    @property
    def devices(self) -> int:
        """Number of devices I."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Number of records D_i of each device, shape (I,)."""
        return np.diff(self.offsets)

    @property
    def values(self) -> int:
        """Input values over all devices."""
        return self.train.x.size

    def device(self, index: int) -> Records:
        """A copy of one device's records."""
        return self.subnet(index, 1)[0]

    def subnet(self, first: int, count: int) -> tuple[Records, NDArray[np.int64]]:
        """A copy of the records of the devices first .. first + count - 1, and where each device's begin in it.

        Returns:
            records of shape (n, ...) device after device, and offsets of shape (count + 1,) that start at 0.
        """
        assert 0 <= first <= first + count <= self.devices, "a subnet lies within the devices"
        offsets = self.offsets[first : first + count + 1]
        return self.train.part(self.order[offsets[0] : offsets[-1]]), offsets - offsets[0]

    @property
    def rounded(self) -> FederatedData:
        """A copy with inputs of the type that models compute with."""
        return self.of_records(lambda records: records.rounded)

    def of_records(self, change: Callable[[Records], Records]) -> FederatedData:
        """A copy with all records changed."""
        train, test = change(self.train), change(self.test)
        validation, public = (None if each is None else change(each) for each in (self.validation, self.public))
        return replace(self, train=train, test=test, validation=validation, public=public)

    def for_rows(self, devices: NDArray[np.int64]) -> FederatedData:
        """A copy for rows of which several may be one device's; each row has all the records of its device.

        Args:
            devices: (rows,) the device of each row.
        """
        parts = [self.order[self.offsets[device] : self.offsets[device + 1]] for device in devices.tolist()]
        offsets = np.concatenate([[0], np.cumsum(self.sizes[devices])])
        return replace(self, order=np.concatenate(parts), offsets=offsets)

    def fingerprint(self, *, stored: bool = False) -> str:
        """A digest of every record, the partition and the scaling: equal fingerprints, equal inputs to a run.

        Args:
            stored: of inputs as they are stored, which may be more than the 32 bits that a model sees.
        """
        digest = _begun_with(self.train if stored else self.train.rounded)
        others = [each for each in (self.test, self.validation, self.public) if each is not None]
        parts = others if stored else [each.rounded for each in others]
        for array in [a for records in parts for a in (records.x, records.y)] + [self.order, self.offsets]:
            _add(digest, array)
        if self.test_owners is not None:
            _add(digest, self.test_owners)
        known = (self.classes, self.scaling) if self.target == CLASS else (self.classes, self.scaling, self.target)
        digest.update(repr(known).encode())
        return digest.hexdigest()


DeviceData = FederatedData | DrawnData  # records of I devices, in memory or drawn when needed


# Runs of one process may share these records, which are most of what there is to read.
_BEGUN: WeakKeyDictionary[Records, blake2b] = WeakKeyDictionary()


def _begun_with(train: Records) -> blake2b:
    """A digest of the training records that more records can be added to."""
    if train not in _BEGUN:
        digest = blake2b(digest_size=16)
        for array in (train.x, train.y):
            _add(digest, array)
        _BEGUN[train] = digest
    return _BEGUN[train].copy()


def _add(digest: Any, array: NDArray[Any]) -> None:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest.update(f"{little.dtype.name}{little.shape}".encode())
    digest.update(little.reshape(-1).view(np.uint8).data)


def dealt(holders: Sequence[str], names: Sequence[str]) -> str:
    """The statement that owners were dealt to devices of these names; empty where each is the device of its name."""
    called = {part for each in names for part in (each, each.removesuffix("/1"))}
    apart = holders and called.isdisjoint(holders)
    return "owners of records are dealt to devices, as no device has the name of one" if apart else ""


_DEVICES_AT_ONCE = 1_000


def label_counts(data: DeviceData) -> NDArray[np.int64]:
    """(devices, classes) how many records of each label each device holds; of real values, (devices, 1) how many.

    Several labels of one record count each; so do the positions of a sequence.

    >>> from h2fdp.data.federate import load
    >>> from h2fdp.data.images import Digits
    >>> from h2fdp.streams import Streams
    >>> counts = label_counts(load(Digits(), devices=10, streams=Streams(1)))
    >>> counts.shape, (counts > 0).sum(axis=1).tolist()
    ((10, 10), [3, 3, 3, 3, 3, 3, 3, 3, 3, 3])
    """
    devices, classes = len(data.sizes), data.classes
    counts = np.zeros((devices, classes), dtype=np.int64)
    for first in range(0, devices, _DEVICES_AT_ONCE):
        count = min(_DEVICES_AT_ONCE, devices - first)
        records, offsets = data.subnet(first, count)
        owner, y = np.repeat(np.arange(count), np.diff(offsets)), records.y
        if data.target.task in ("regression", "multilabel"):
            ones = np.ones((len(y), 1), np.int64) if y.ndim == 1 else y
            counts[first : first + count] = np.add.reduceat(ones, offsets[:-1])
            continue
        own, labels = y.ravel() >= 0, y.ravel()  # positions that are no record's own have no class
        owner = np.repeat(owner, y.size // max(1, len(y)))
        found = np.bincount(owner[own] * classes + labels[own], minlength=count * classes)
        counts[first : first + count] = found.reshape(count, classes)
    return counts


STANDARDIZED = (
    "model logistic: inputs are standardised by the test records, which count as public; no account covers these"
)


def standardizing_by_tests(data: DeviceData) -> Standardizing | None:
    """A map by the test records' inputs, without gaps; None where these belong to devices, or records are drawn."""
    if data.test_owners is not None or not isinstance(data, FederatedData) or len(data.test) < 2:
        return None
    base = data.test.x[0] if data.test.whole else 0
    seen = (data.test.x - base).astype(np.float64)
    if (gaps := np.isnan(seen)).any():
        seen = np.ma.masked_array(seen, gaps)
    mean, deviation = (np.ma.filled(each, 0.0) for each in (seen.mean(axis=0), seen.std(axis=0)))
    return Standardizing(mean, deviation, base)


def standardized(data: DeviceData, by: Standardizing) -> DeviceData:
    """A copy with standardised inputs; without a copy of records that are moved alone."""
    assert isinstance(data, FederatedData), "drawn records stay as they are"
    if by.moves and data.scaling == Scaling():
        mean = tuple(by.mean.ravel().tolist())
        return replace(data, scaling=Scaling(1.0, mean, (1.0,) * len(mean), of_channels=False))
    changed = data.of_records(lambda records: Records(by(records.x), records.y))
    return replace(changed, scaling=Scaling())


def refuse_gaps(data: DeviceData) -> None:
    """Refuse records with gaps (NaN), where nothing fills these before training.

    Raises:
        UserError: there are some.
    """
    if not (isinstance(data, FederatedData) and data.columns is not None):
        return
    parts = filter(None, (data.train, data.test, data.validation, data.public))
    gaps = np.any([np.isnan(each.x).any(axis=0) for each in parts], axis=0)
    if gaps.any():
        names = list(dict.fromkeys(np.array(data.columns.names)[gaps].tolist()))
        text = (
            f"no value (or NaN) in some rows of the columns {', '.join(names)}; state what a gap counts as, the third"
        )
        raise UserError(f"{text} number of ranges; or fill in, or drop rows", key=f"data.ranges.{names[0]}")


_VALUES_AT_ONCE = 4_000_000
_ROUNDING = 1e-5  # relative, of norms in 32 bits


def within_unit_ball(data: DeviceData, bound: float) -> DeviceData:
    """The data with all inputs divided by `bound`, after every device's record was checked.

    Raises:
        UserError: a record that is longer.
    """
    longest = _longest(data)
    if longest > bound * (1 + _ROUNDING):
        # How long it is is private: a bound that follows it would be no public one.
        text = (
            f"a device has a record of larger norm; expected a public bound on the norm of all inputs, found {bound:g}"
        )
        raise UserError(text, key="method.privacy.input_bound")
    scaling = data.scaling
    return replace(data, scaling=replace(scaling, deviation=tuple(bound * each for each in scaling.deviation)))


def _longest(data: DeviceData) -> float:
    """The largest norm of a device's record, as the model sees it."""
    devices, width = len(data.sizes), int(np.prod(data.shape))
    at_once = max(1, _VALUES_AT_ONCE // (width * max(1, int(data.sizes.max()))))
    longest = 0.0
    for first in range(0, devices, at_once):
        records, _ = data.subnet(first, min(at_once, devices - first))
        seen = records.x.astype(np.float64) * data.scaling.scale + data.scaling.shift
        longest = max(longest, float(np.sqrt((seen.reshape(len(seen), -1) ** 2).sum(axis=1)).max(initial=0.0)))
    return longest
