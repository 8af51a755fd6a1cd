"""Data sets, partitions, and the records of a device. torchvision and scikit-learn are imported only when used."""
