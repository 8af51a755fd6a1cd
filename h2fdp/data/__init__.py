"""Data sets, partitions, and the records of a device. torchvision and scikit-learn are imported only when used."""

from h2fdp.data.from_python import from_python as from_python
