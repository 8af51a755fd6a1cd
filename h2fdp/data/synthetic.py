"""`synthetic(alpha, beta)`: classification tasks that differ from device to device (Li et al. 2020, Sec. 5.1).

Device k has its own linear model and its own inputs:

    y = argmax(W x + b),  entries of W, b ~ N(u_k, 1),  u_k ~ N(0, alpha)
    x ~ N(v_k, Sigma),  Sigma_jj = j^-1.2,  entries of v_k ~ N(B_k, 1),  B_k ~ N(0, beta)

and floor(exp(N(4, 2^2))) + 50 records, of which a tenth, rounded up, are test records. As in the authors' program,
alpha and beta are standard deviations. With `partition: iid` all devices share one W, b ~ N(0, 1) and v = 0.

Sharp edge: beta moves the devices' inputs apart, but alpha, meant to do so for their models, changes nothing. u_k adds
u_k (1 + sum_j x_j) to the score of every class alike, and the argmax stays. Models differ by the N(0, 1) part alone,
for every alpha. The recipe is kept as published, since published results rest on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from h2fdp.config.fields import Count, NonNegative
from h2fdp.data.partition import Integers, Partition
from h2fdp.data.records import Records, Scaling
from h2fdp.data.source import Classes, DataOptions, DataRequest, Pool
from h2fdp.data.targets import CLASS, Target
from h2fdp.errors import UserError
from h2fdp.streams import Streams

LARGEST_HELD = 100_000_000  # input values, 400 MB; larger data sets are drawn again at each use
_TEST_RECORDS = 50_000  # the test records of the first subnets, so many and the rest of the last one
LARGEST_DRAW = 2**32  # input values over all devices: 16 GiB
_PURPOSE = "synthetic data"
_TEST_SHARE, _APART = 0.1, 0.5
_LOG_MEAN, _LOG_DEVIATION, _LEAST = 4.0, 2.0, 50  # of sizes, as LEAF draws them


class Synthetic(DataOptions):
    """Records drawn from a linear task of each device.

    Attributes:
        test: the share of a device's records that go to the common test set, rounded up; one stays in any case; null:
            a tenth.
        alpha: standard deviation of u_k over devices, without effect on the records; null: 0.5, if devices differ.
        beta: standard deviation of B_k over devices; null: 0.5, if devices differ.
        features: length of x.
        classes: number of labels.
        records: as many on each device, test records included; null: 50 + floor(exp(N(4, 2^2))), drawn for each.
    """

    description: ClassVar[str] = "a linear task on each device; alpha and beta control how much devices differ"
    on_disk: ClassVar[bool] = False

    name: Literal["synthetic"] = "synthetic"
    alpha: NonNegative | None = None
    beta: NonNegative | None = None
    features: Count = 20
    classes: Classes = 10
    records: Count | None = None

    @model_validator(mode="after")
    def _fits(self) -> Synthetic:
        if self.partition not in (None, "iid"):
            raise ValueError("synthetic records are drawn for each device; expected partition: iid, or none")
        for key in ("alpha", "beta"):
            if self.iid and getattr(self, key) is not None:
                raise ValueError(f"`{key}` means nothing with `partition: iid`, where no device differs; leave it out")
        return self

    @property
    def iid(self) -> bool:
        """Whether all devices share one model and one distribution of inputs."""
        return self.partition == "iid"

    def partition_of(self, pool: Pool) -> Partition:
        """Records stay on the devices that they were drawn for."""
        return "natural"

    @property
    def tested_on_devices(self) -> None:
        """The records for tests are drawn."""
        return None

    def depends_on(self, request: DataRequest) -> Hashable:
        """All that is drawn from."""
        return self.model_copy(update={"validation": 0.0, "public": 0.0}), tuple(request.groups), request.streams

    def load(self, request: DataRequest) -> Pool:
        """All subnets' records, one after another; the test records of all devices are one test set.

        Raises:
            UserError: the sizes drawn exceed any memory, or leave no test record.
        """
        sizes = np.concatenate([draw_sizes(self, name, devices, request.streams) for name, devices in request.groups])
        if int(sizes.sum()) * self.features > LARGEST_DRAW:
            raise UserError("the records of all devices exceed 16 GiB; state fewer records", key="data")
        train = Records(np.empty((sizes.sum(), self.features), dtype=np.float32), np.empty(sizes.sum(), dtype=np.int64))
        tests: list[Records] = []
        begin = 0
        for name, devices in request.groups:  # into place: a copy of all subnets' records would double the memory
            drawn = draw_subnet(self, name, devices, request.streams)
            end = begin + len(drawn.train)
            train.x[begin:end], train.y[begin:end] = drawn.train.x, drawn.train.y
            tests.append(drawn.test)
            begin = end
        test = Records.joined(tests)
        if not len(test):
            raise UserError("no test record is left; raise test or records", key="data.test")
        return Pool(train, test, self.classes, Scaling(), owners=np.repeat(np.arange(len(sizes)), sizes))


@dataclass(frozen=True, eq=False)
class SubnetRecords:
    """The records of a subnet's devices, device after device.

    Attributes:
        train, test: the records.
        sizes: training records of each device, shape (devices,).
    """

    train: Records
    test: Records
    sizes: Integers


def draw_subnet(recipe: Synthetic, name: str, devices: int, streams: Streams) -> SubnetRecords:
    """The records of one subnet, from the stream of its name: no other subnet needs to be drawn for it.

    Raises:
        UserError: the sizes drawn exceed any memory.
    """
    rng = streams.open(name, _PURPOSE)
    sizes = _draw_sizes(recipe, devices, rng)
    numbers = _number_of_model_normals(recipe, devices)
    normals = rng.standard_normal(numbers + int(sizes.sum()) * recipe.features, dtype=np.float32)
    weight, bias, centre = _models(recipe, devices, normals[:numbers], streams)
    x = normals[numbers:].reshape(-1, recipe.features)
    x *= np.arange(1, recipe.features + 1, dtype=np.float32) ** np.float32(-0.6)  # the root of Sigma_jj
    scores = np.empty((len(x), recipe.classes), dtype=np.float32)
    kept, trains = _kept(recipe, sizes), np.empty(len(x), dtype=bool)
    for some, own in _of_equal_size(sizes):
        shape = len(range(devices)[some]), int(sizes[some.start]), -1
        own_x, own_scores = x[own].reshape(shape), scores[own].reshape(shape)
        own_x += centre[some, None]
        np.matmul(own_x, weight[some], out=own_scores)
        own_scores += bias[some, None]
        trains[own].reshape(shape[:2])[:] = np.arange(shape[1]) < kept[some, None]
    y = scores.argmax(axis=1)
    return SubnetRecords(Records(x[trains], y[trains]), Records(x[~trains], y[~trains]), kept)


def _of_equal_size(sizes: Integers) -> Iterator[tuple[slice, slice]]:
    """Devices that are computed by one call, and their records: all where they have equally many, else each."""
    if (sizes == sizes[0]).all():
        yield slice(0, len(sizes)), slice(0, int(sizes.sum()))
        return
    ends = np.cumsum(sizes).tolist()
    for device, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        yield slice(device, device + 1), slice(start, end)


def draw_sizes(recipe: Synthetic, name: str, devices: int, streams: Streams) -> Integers:
    """(devices,) the sizes that `draw_subnet` gives, without drawing any record."""
    return _kept(recipe, _draw_sizes(recipe, devices, streams.open(name, _PURPOSE)))


def _kept(recipe: Synthetic, sizes: Integers) -> Integers:
    """Training records of each device."""
    share = _TEST_SHARE if recipe.test is None else recipe.test
    return np.asarray(np.maximum(1, np.floor((1 - share) * sizes + 1e-9)), dtype=np.int64)


def _draw_sizes(recipe: Synthetic, devices: int, rng: np.random.Generator) -> Integers:
    drawn = rng.standard_normal(devices)  # also where it is not used, so that all else is drawn alike
    if recipe.records is None:
        sizes = np.floor(np.exp(_LOG_MEAN + _LOG_DEVIATION * drawn)) + _LEAST
    else:
        sizes = np.full(devices, float(recipe.records))
    if sizes.sum() * recipe.features > LARGEST_DRAW:
        raise UserError(f"the sizes drawn add up to {sizes.sum():.2g} records; state fewer records", key="data")
    return sizes.astype(np.int64)


def _number_of_model_normals(recipe: Synthetic, devices: int) -> int:
    """The count of the numbers in all devices' u, B, W, b and v; 0 where all share one model."""
    each = 2 + recipe.features * recipe.classes + recipe.classes + recipe.features
    return 0 if recipe.iid else devices * each


def _models(
    recipe: Synthetic, devices: int, normals: NDArray[np.float32], streams: Streams
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """W, b and v of each device: shapes (devices, features, classes), (devices, classes), (devices, features)."""
    shape = (recipe.features, recipe.classes)
    if recipe.iid:
        common = streams.open("", f"{_PURPOSE}: common model")  # the same for every subnet
        one_weight = common.standard_normal(shape, dtype=np.float32)
        one_bias = common.standard_normal(recipe.classes, dtype=np.float32)
        return (
            np.broadcast_to(one_weight, (devices, *shape)),
            np.broadcast_to(one_bias, (devices, recipe.classes)),
            np.zeros((devices, recipe.features), dtype=np.float32),
        )
    widths = (1, 1, recipe.features * recipe.classes, recipe.classes, recipe.features)
    parts = np.split(normals, np.cumsum([devices * width for width in widths])[:-1])
    model, inputs, weight, bias, centre = (part.reshape(devices, -1) for part in parts)
    alpha, beta = (_APART if stated is None else stated for stated in (recipe.alpha, recipe.beta))
    model_mean, input_mean = np.float32(alpha) * model, np.float32(beta) * inputs
    return model_mean[:, :, None] + weight.reshape(devices, *shape), model_mean + bias, input_mean + centre


@dataclass(frozen=True, eq=False)
class DrawnData:
    """A `DeviceData` with sizes and test records only, which draws records when needed: always the same ones.

    Attributes:
        groups: name and number of devices of each subnet.
        sizes: (I,) number of records of each device.
    """

    recipe: Synthetic
    groups: Sequence[tuple[str, int]]
    streams: Streams
    sizes: NDArray[np.int64]
    name: str = "synthetic"
    validation: Records | None = None
    public: Records | None = None
    scaling: Scaling = field(default_factory=Scaling)
    class_names: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    columns: ClassVar[None] = None
    whole: bool = False
    target: ClassVar[Target] = CLASS

    @property
    def rounded(self) -> DrawnData:
        """Drawn with 32 bits."""
        return self

    @classmethod
    def of(cls, recipe: Synthetic, groups: Sequence[tuple[str, int]], streams: Streams) -> DrawnData:
        """The data of these subnets; only sizes are drawn."""
        sizes = [draw_sizes(recipe, name, devices, streams) for name, devices in groups]
        return cls(recipe, groups, streams, np.concatenate(sizes))

    @property
    def test_owners(self) -> None:
        """No device has the test records."""
        return None

    @property
    def classes(self) -> int:
        """Number of labels."""
        return self.recipe.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return (self.recipe.features,)

    @property
    def values(self) -> int:
        """Input values over all devices."""
        return int(self.sizes.sum()) * self.recipe.features

    @cached_property
    def test(self) -> Records:
        """Test records of the first subnets."""
        parts: list[Records] = []
        for name, devices in self.groups:
            parts.append(self._draw(name, devices).test)
            if sum(map(len, parts)) >= _TEST_RECORDS:
                break
        return Records.joined(parts)

    def subnet(self, first: int, count: int) -> tuple[Records, NDArray[np.int64]]:
        """The records of these devices (`FederatedData.subnet`), drawn with the subnets that they are of."""
        starts = self._starts
        numbers = range(int(np.searchsorted(starts, first, "right")) - 1, int(np.searchsorted(starts, first + count)))
        drawn = Records.joined([self._draw(*self.groups[number]).train for number in numbers])
        begin = int(starts[numbers.start])
        offsets = np.concatenate([[0], np.cumsum(self.sizes[begin : int(starts[numbers.stop])])])
        wanted = offsets[first - begin : first - begin + count + 1]
        part = slice(int(wanted[0]), int(wanted[-1]))
        return Records(drawn.x[part], drawn.y[part]), wanted - wanted[0]

    def fingerprint(self) -> str:
        """A digest of the recipe, every device's size and the first subnet's records; the rest follows from them."""
        first = self._draw(*self.groups[0]).train
        digest = blake2b(repr((self.recipe, self.streams.seed, list(self.groups))).encode(), digest_size=16)
        for array in (self.sizes, first.x, first.y):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def _draw(self, name: str, devices: int) -> SubnetRecords:
        return draw_subnet(self.recipe, name, devices, self.streams)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """(N + 1,) number of the first device of each subnet."""
        return np.concatenate([[0], np.cumsum([devices for _, devices in self.groups])])
