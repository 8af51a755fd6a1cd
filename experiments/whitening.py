"""Write h2fdp/data/whitening.npz: the whitening of scattering of grey images of 28x28 pixels, in ten bits a number.

python -m experiments.whitening

Fitting it on parts of two photographs (`Scattering`) takes five seconds of a processor, and its last bits are those of
the machine; the file is the same everywhere. An axis is stored in 511ths of its largest number, which turns features
by a quarter of a degree.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

from h2fdp.arithmetic import run_arithmetic
from h2fdp.data.public_features import crops
from h2fdp.data.scattering import CROPS, SHIPPED, SHIPPED_SIDE, SIZE, Whitening, scattering


def fitted() -> Whitening:
    """By the numbers of this machine."""
    with run_arithmetic():
        return Whitening.of(scattering(crops(CROPS, SHIPPED_SIDE)), SIZE)


def rounded(whitening: Whitening) -> dict[str, Any]:
    """Arrays of the file: `mean` (d,), and in units (size,) 256 `high` (d, size) + `low` (d, size), the axes."""
    units = np.abs(whitening.axes).max(axis=0) / 511
    high, low = np.divmod(np.rint(whitening.axes / units), 256)
    return {"mean": whitening.mean, "units": units, "high": high.astype(np.int8), "low": low.astype(np.uint8)}


if __name__ == "__main__":
    np.savez_compressed(SHIPPED, **rounded(fitted()))
    content = SHIPPED.read_bytes()
    print(f"{SHIPPED.name}: {len(content):,} bytes of digest {blake2b(content, digest_size=16).hexdigest()}")
