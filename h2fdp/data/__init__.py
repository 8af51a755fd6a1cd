"""Data sets, partitioners, and the records of a device. torchvision and scikit-learn are imported only when used."""

from h2fdp.data.federated import DeviceData, FederatedData
from h2fdp.data.load import from_function, load
from h2fdp.data.partition_section import PartitionSection
from h2fdp.data.records import Records
from h2fdp.data.registry import describe
from h2fdp.data.scaling import Scaling
from h2fdp.data.section import DataChoice, DataSection

__all__ = [
    "DataChoice",
    "DataSection",
    "DeviceData",
    "FederatedData",
    "PartitionSection",
    "Records",
    "Scaling",
    "describe",
    "from_function",
    "load",
]
