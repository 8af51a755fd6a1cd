"""All data sets by name: a new one is its own file and a line here."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any

from h2fdp.data.digits import load_digits
from h2fdp.data.images import CIFAR10, FASHION_MNIST, MNIST
from h2fdp.data.npz import load_npz
from h2fdp.data.partition_section import PartitionSection
from h2fdp.data.pool import DataRequest, DataSet, Pool
from h2fdp.data.synthetic import DEFAULTS, load_synthetic, recipe_of

PARTITION = PartitionSection(labels_per_device=3)  # the paper's, Sec. 6.1
_POOLED: Mapping[str, Any] = MappingProxyType({"partition": PARTITION, "normalize": "standard"})

DATA_SETS: Mapping[str, DataSet] = MappingProxyType(
    {
        "digits": DataSet("1,797 scanned digits of 8x8 pixels, bundled with scikit-learn", load_digits, _POOLED),
        "fashion-mnist": DataSet("70,000 images of clothes, 28x28, 10 classes", FASHION_MNIST.load, _POOLED),
        "mnist": DataSet("70,000 handwritten digits, 28x28", MNIST.load, _POOLED),
        "cifar10": DataSet("60,000 colour images, 3x32x32, 10 classes", CIFAR10.load, _POOLED),
        "synthetic": DataSet(
            "a linear task on each device; alpha and beta control how much devices differ",
            load_synthetic,
            DEFAULTS,
            lambda request: (recipe_of(request.options), tuple(request.groups), request.streams),
        ),
        "npz": DataSet(
            "your arrays: x_train, y_train, x_test, y_test and optionally device_train",
            load_npz,
            {"path": None, "classes": None, "partition": None},
            lambda request: (
                request.options["path"],
                request.options["classes"],
                request.options["partition"] is None,
                request.devices,
            ),
        ),
    }
)


def read_pool(request: DataRequest) -> Pool:
    """All records of the data set that is wanted."""
    return DATA_SETS[request.name].load(request)


def origin(request: DataRequest) -> Hashable:
    """Requests of equal origins are answered by equal pools, as long as no file changes."""
    return request.name, DATA_SETS[request.name].depends_on(request)


def describe() -> list[dict[str, str]]:
    """A row for each data set, for `h2fdp datasets`; nothing is loaded.

    >>> describe()[0]["name"]
    'digits'
    """
    return [
        {"name": name, "description": entry.description, "keys": ", ".join((*entry.keys, "validation"))}
        for name, entry in DATA_SETS.items()
    ]
