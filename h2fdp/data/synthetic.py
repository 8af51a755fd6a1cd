"""`synthetic(alpha, beta)`: classification tasks that differ from device to device (Li et al. 2020, Sec. 5.1).

Device k has its own linear model and its own inputs:

    y = argmax(W x + b),  entries of W, b ~ N(u_k, 1),  u_k ~ N(0, alpha)
    x ~ N(v_k, Sigma),  Sigma_jj = j^-1.2,  entries of v_k ~ N(B_k, 1),  B_k ~ N(0, beta)

and floor(exp(N(4, 2^2))) + 50 records, of which a tenth, rounded up, are test records. As in the authors' program,
alpha and beta are standard deviations. With `iid: true` all devices share one W, b ~ N(0, 1) and v = 0.

Sharp edge: beta moves the devices' inputs apart, but alpha, meant to do so for their models, changes nothing. u_k adds
u_k (1 + sum_j x_j) to the score of every class alike, and the argmax stays. Models differ by the N(0, 1) part alone,
for every alpha. The recipe is kept as published, since published results rest on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from h2fdp.config.fields import Count, Expect, Flag, NonNegative, OpenProbability
from h2fdp.data.partitioners import Integers
from h2fdp.data.records import Records, Scaling
from h2fdp.data.source import Classes, DataOptions, DataRequest, Pool
from h2fdp.errors import UserError
from h2fdp.streams import Streams

LARGEST_DRAW = 2**32  # input values over all devices: 16 GiB
_PURPOSE = "synthetic data"


LogSize = Annotated[float, Field(ge=0, le=20), Expect("a number from 0 to 20")]


class Synthetic(DataOptions):
    """What is drawn.

    Attributes:
        iid: all devices share one model and one distribution of inputs; then there is no alpha and no beta.
        alpha: standard deviation of u_k over devices; without effect on the records.
        beta: standard deviation of B_k over devices.
        features: length of x.
        classes: number of labels.
        log_size_mean: mean of the logarithm of a device's size above the smallest.
        log_size_deviation: its standard deviation.
        smallest_size: the size that every device has at least, test records included.
        test_share: share of a device's records that go to the common test set, rounded up; one stays in any case.
    """

    description: ClassVar[str] = "a linear task on each device; alpha and beta control how much devices differ"
    on_disk: ClassVar[bool] = False

    name: Literal["synthetic"] = "synthetic"
    iid: Flag = False
    alpha: NonNegative | None = None
    beta: NonNegative | None = None
    features: Count = 20
    classes: Classes = 10
    log_size_mean: LogSize = 4.0
    log_size_deviation: LogSize = 2.0
    smallest_size: Count = 50
    test_share: OpenProbability = 0.1

    @model_validator(mode="before")
    @classmethod
    def _devices_differ(cls, value: Any) -> Any:
        differ = isinstance(value, Mapping) and value.get("iid") in (None, False, "no", "off")
        return {"alpha": 0.5, "beta": 0.5, **value} if differ else value

    @field_validator("alpha", "beta")
    @classmethod
    def _means_something(cls, value: float | None, info: ValidationInfo) -> float | None:
        if info.data.get("iid"):
            raise ValueError(
                f"`{info.field_name}` means nothing with `iid: true`, where no device differs; leave it out"
            )
        return value

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
            raise UserError("the records of all devices exceed 16 GiB; lower log_size_mean", key="data")
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
            raise UserError("no test record is left; raise test_share or smallest_size", key="data.test_share")
        return Pool(train, test, self.classes, Scaling(), np.repeat(np.arange(len(sizes)), sizes))


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
    return np.asarray(np.maximum(1, np.floor((1 - recipe.test_share) * sizes + 1e-9)), dtype=np.int64)


def _draw_sizes(recipe: Synthetic, devices: int, rng: np.random.Generator) -> Integers:
    exponents = recipe.log_size_mean + recipe.log_size_deviation * rng.standard_normal(devices)
    sizes = np.floor(np.exp(np.minimum(exponents, 60.0))) + recipe.smallest_size
    if sizes.sum() * recipe.features > LARGEST_DRAW:
        text = f"the sizes drawn add up to {sizes.sum():.2g} records; lower log_size_mean or log_size_deviation"
        raise UserError(text, key="data")
    return sizes.astype(np.int64)


def _number_of_model_normals(recipe: Synthetic, devices: int) -> int:
    """Of all devices' u, B, W, b and v; none where all share one model."""
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
    assert recipe.alpha is not None, "devices differ"
    assert recipe.beta is not None, "devices differ"
    widths = (1, 1, recipe.features * recipe.classes, recipe.classes, recipe.features)
    parts = np.split(normals, np.cumsum([devices * width for width in widths])[:-1])
    model, inputs, weight, bias, centre = (part.reshape(devices, -1) for part in parts)
    model_mean, input_mean = np.float32(recipe.alpha) * model, np.float32(recipe.beta) * inputs
    return model_mean[:, :, None] + weight.reshape(devices, *shape), model_mean + bias, input_mean + centre
