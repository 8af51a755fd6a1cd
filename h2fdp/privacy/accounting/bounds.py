"""Two numbers for comparison with an account: the attained epsilon, and a coarser upper bound."""

from __future__ import annotations

import math
from collections import Counter

from h2fdp.privacy.accounting.adversaries import ADVERSARIES, pair_of
from h2fdp.privacy.accounting.mixture_composition import epsilon_of_mixtures
from h2fdp.privacy.accounting.mixtures import coarse_mixture_of
from h2fdp.privacy.accounting.output_pairs import OutputPair
from h2fdp.privacy.accounting.pair_composition import attained_epsilon
from h2fdp.privacy.accounting.release_types import Composition
from h2fdp.privacy.accounting.seen_vectors import SeenVectors


def attained(vectors: SeenVectors, records: int, delta: float) -> float:
    """The epsilon that an explicit adversary really gets, the better one of `ADVERSARIES`: a lower bound on the truth.

    Vectors are independent, as batches and noises are: a record's adversary starts anew after each release.

    Args:
        vectors: what an observer has about one device.
        records: D of that device, the attacked one included.
    """
    seen = {vector: count for vector, count in vectors.items() if count and vector}
    if any(upload.noise_multiplier == 0 for vector in seen for upload in vector):
        return math.inf
    found = 0.0
    for adversary in ADVERSARIES:
        pairs: Counter[OutputPair] = Counter()
        for vector, count in seen.items():
            if (pair := pair_of(vector, records, adversary)) is not None:
                pairs[pair] += count
        found = max(found, attained_epsilon(pairs, delta, enough=found))
    return found


def coarse(composition: Composition, delta: float) -> float:
    """The epsilon of Poisson-subsampled Gaussians of rate 1-(1-q)^m and full shift; never below the `pld` account.

    An upper bound, at most 0.05 % (or 1e-5) above what these mechanisms have.
    """
    return epsilon_of_mixtures(composition, coarse_mixture_of, delta)
