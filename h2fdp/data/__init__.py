"""Data sets, partitions, and the records of a device. torchvision and scikit-learn are imported only when used."""

from h2fdp.data.federate import (
    DATA_SETS,
    DataSection,
    describe,
    from_function,
    load,
    within_unit_ball,
)
from h2fdp.data.federated import DeviceData, FederatedData, Standardizing, label_counts
from h2fdp.data.from_python import PythonData, from_python
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Records, Scaling
from h2fdp.data.source import GIVEN, DataOptions, DataRequest, Given, Pool
from h2fdp.data.synthetic import LARGEST_HELD

__all__ = [
    "DATA_SETS",
    "GIVEN",
    "LARGEST_HELD",
    "DataOptions",
    "DataRequest",
    "DataSection",
    "DeviceData",
    "FederatedData",
    "Given",
    "PartitionSection",
    "Pool",
    "PythonData",
    "Records",
    "Scaling",
    "Standardizing",
    "describe",
    "from_function",
    "from_python",
    "label_counts",
    "load",
    "within_unit_ball",
]
