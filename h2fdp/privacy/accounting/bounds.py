"""Two numbers for comparison with an account: the attained epsilon, and a coarser upper bound."""

from __future__ import annotations

from h2fdp.privacy.accounting.mixture_composition import epsilon_of_mixtures
from h2fdp.privacy.accounting.mixtures import attained_mixture_of, coarse_mixture_of
from h2fdp.privacy.accounting.release_types import Composition


def attained(composition: Composition, delta: float) -> float:
    """The epsilon that a dominating record really gets: a lower bound on the truth, by the binomial mixture.

    Computed by privacy loss distributions and lowered by the estimate of their error (`epsilon_bracket`; 0.05 %), so
    that a claim below it is broken. A run's releases are independent given the models, as their batches are.
    """
    attainable = {release: count for release, count in composition.items() if release.attainable}
    return epsilon_of_mixtures(attainable, attained_mixture_of, delta).lower


def coarse(composition: Composition, delta: float) -> float:
    """The epsilon of Poisson-subsampled Gaussians of rate 1-(1-q)^m and full shift; never below the `pld` account.

    An upper bound, at most 0.05 % (or 1e-5) above what these mechanisms have.
    """
    return epsilon_of_mixtures(composition, coarse_mixture_of, delta).upper
