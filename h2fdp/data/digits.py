"""`digits`: scikit-learn's 1,797 scanned digits of 8x8 pixels, which come with the library: nothing to download.

Alpaydin and Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI repository.
"""

from __future__ import annotations

from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from h2fdp.data.records import Records, Scaling
from h2fdp.data.source import DataRequest, Pool, Pooled

# Pixels count from 0 to 16; mean and deviation of all 1,797 images after division by 16, in four digits.
SCALING = Scaling(16.0, (0.3053,), (0.3761,))
TEST_SHARE = 0.2


class Digits(Pooled):
    """Scikit-learn's scanned digits."""

    description: ClassVar[str] = "1,797 scanned digits of 8x8 pixels, bundled with scikit-learn"
    name: Literal["digits"] = "digits"

    def load(self, request: DataRequest) -> Pool:
        """1,438 training and 359 test records, x of shape (n, 1, 8, 8), uint8 from 0 to 16."""
        values = np.loadtxt(_bundled_file(), delimiter=",", dtype=np.uint8)
        x, y = values[:, :-1].reshape(-1, 1, 8, 8), values[:, -1].astype(np.int64)
        # The same split in every run and under every version of NumPy: ordered by a hash of the record's number.
        shuffled = np.array(sorted(range(len(y)), key=lambda place: blake2b(place.to_bytes(4, "little")).digest()))
        records, first_test = Records(x, y), len(y) - int(TEST_SHARE * len(y))
        return Pool(records.part(shuffled[:first_test]), records.part(shuffled[first_test:]), 10, SCALING)


def _bundled_file() -> Path:
    """Where scikit-learn keeps the images; it is not imported, which would take a second."""
    found = find_spec("sklearn")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the data set digits comes with scikit-learn, which is not installed")
    return Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
