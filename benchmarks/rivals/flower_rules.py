"""Flower's robust rules on given vectors, in its own environment: `python -m benchmarks.rivals.flower_rules IN OUT`.

IN holds arrays `sets` (count, n, M) and `left_out`, how many uploads may lie or are trimmed on each side; OUT one array
(count, M) for each rule, under our name for it.
"""

from __future__ import annotations

import sys

import numpy as np
from flwr.server.strategy.aggregate import aggregate_krum, aggregate_median, aggregate_trimmed_avg
from numpy.typing import NDArray


def main(given: str, found: str) -> None:
    """Read, apply every rule to every set, write."""
    with np.load(given) as held:
        sets, left_out = held["sets"], int(held["left_out"])
    count = sets.shape[1]
    rules = {
        "median": aggregate_median,
        # Flower cuts the product of share and number to a whole one, which rounding of k / n * n could bring below k.
        "trimmed-mean": lambda results: aggregate_trimmed_avg(results, (left_out + 0.5) / count),
        "krum": lambda results: aggregate_krum(results, left_out, 0),
        "multi-krum": lambda results: aggregate_krum(results, left_out, count - left_out),
    }

    def applied(rule: str, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(rules[rule]([([vector], 1) for vector in vectors])[0])

    np.savez(found, **{rule: np.stack([applied(rule, vectors) for vectors in sets]) for rule in rules})


if __name__ == "__main__":
    main(*sys.argv[1:])
