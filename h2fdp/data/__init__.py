"""Data sets, partitioners, and the records of a device. torchvision and scikit-learn are imported only when used."""

from h2fdp.data.federate import LARGEST_HELD, from_function, load, within_unit_ball
from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.from_python import GIVEN, Given, PythonData, from_python
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Records, Scaling
from h2fdp.data.registry import DATA_SETS, DataSection, describe
from h2fdp.data.source import DataOptions, DataRequest, Pool

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
    "describe",
    "from_function",
    "from_python",
    "load",
    "within_unit_ball",
]
