"""Two numbers for comparison with an account: the attained epsilon, and a coarser upper bound."""

from __future__ import annotations

import math
from collections import Counter

from h2fdp.privacy.accounting.mixture_composition import epsilon_of_mixtures
from h2fdp.privacy.accounting.mixtures import attained_mixture_of, coarse_mixture_of
from h2fdp.privacy.accounting.output_pairs import OutputPair
from h2fdp.privacy.accounting.pair_composition import attained_epsilon
from h2fdp.privacy.accounting.release_types import Composition, revealing


def attained(composition: Composition, delta: float) -> float:
    """The epsilon that a dominating record really gets: a lower bound on the truth, by the binomial mixture.

    A run's releases are independent given the models, as their batches are.
    """
    pairs: Counter[OutputPair] = Counter()
    for release, count in revealing(composition).items():
        if not release.attainable:
            continue
        if release.noise_multiplier == 0:
            return math.inf
        shifts, chances = attained_mixture_of(release)
        centres, present = zip(*sorted(zip(shifts, chances, strict=True)), strict=True)
        if centres[0] != 0:
            centres, present = (0.0, *centres), (0.0, *present)
        absent = (1.0, *(0.0 for _ in centres[1:]))
        pairs[OutputPair(tuple(each / release.noise_multiplier for each in centres), present, absent)] += count
    return attained_epsilon(pairs, delta)


def coarse(composition: Composition, delta: float) -> float:
    """The epsilon of Poisson-subsampled Gaussians of rate 1-(1-q)^m and full shift; never below the `pld` account.

    An upper bound, at most 0.05 % (or 1e-5) above what these mechanisms have.
    """
    return epsilon_of_mixtures(composition, coarse_mixture_of, delta)
