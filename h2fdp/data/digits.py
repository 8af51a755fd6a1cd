"""`digits`: scikit-learn's 1,797 scanned digits of 8x8 pixels, which come with the library: nothing to download.

Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository.
"""

from __future__ import annotations

from hashlib import blake2b
from importlib import import_module

import numpy as np

from h2fdp.data.pool import DataRequest, Pool
from h2fdp.data.records import Records
from h2fdp.data.scaling import Scaling

# Pixels count from 0 to 16; mean and deviation of all 1,797 images after division by 16, in four digits.
SCALING = Scaling(16.0, (0.3053,), (0.3761,))
TEST_SHARE = 0.2


def load_digits(_: DataRequest) -> Pool:
    """1,438 training and 359 test records, x of shape (n, 1, 8, 8), uint8 from 0 to 16."""
    bunch = import_module("sklearn.datasets").load_digits()  # imported late: scikit-learn takes a second
    x = np.asarray(bunch.images, dtype=np.uint8)[:, None]
    y = np.asarray(bunch.target, dtype=np.int64)
    # The same split in every run and under every version of NumPy: ordered by a hash of the record's number.
    shuffled = np.array(sorted(range(len(y)), key=lambda place: blake2b(place.to_bytes(4, "little")).digest()))
    records, first_test = Records(x, y), len(y) - int(TEST_SHARE * len(y))
    return Pool(records.take(shuffled[:first_test]), records.take(shuffled[first_test:]), 10, SCALING)
