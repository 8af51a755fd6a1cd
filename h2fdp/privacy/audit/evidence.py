"""How much one observed value speaks for a canary: the likelihood ratio of "in" against "out"."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from h2fdp.privacy.audit.design import CanaryKind


def log_likelihood_ratio(values: np.ndarray, shift: float, noise_std: float, steps: int, rate: float) -> np.ndarray:
    """log p(value | in) / p(value | out), for each value.

    A canary that is in was drawn Bin(steps, rate) times and moved its coordinate by `shift` each time; one that is out
    left it at 0; N(0, noise_std^2) came on top. For a weak canary this is the linear statistic
    value * shift * steps * rate / noise_std^2 up to a constant; for a strong one it sees single draws. Ratios of
    independent observations add up. The score is only a way to guess: a wrong model costs power, never validity.

    Args:
        values, shift, noise_std: in one unit.

    >>> log_likelihood_ratio(np.array([0.0, 1.0]), shift=1.0, noise_std=1.0, steps=1, rate=1.0)
    array([-0.5,  0.5])
    """
    draws = np.arange(steps + 1)
    moved = draws * (shift / noise_std)
    exponents = binom.logpmf(draws, steps, rate) + np.multiply.outer(values / noise_std, moved) - moved**2 / 2
    return np.asarray(logsumexp(exponents, axis=-1))


def canary_shift(kind: CanaryKind, clip_scope: str, clip_norm: float, records: int, rate: float) -> float:
    """How far a drawn canary moves its coordinate of the step's gradient, about; the account allows 2 G.

    A dominating canary turns the clipped batch gradient into G e_j. Any other is one of the B + 1 drawn records, with
    B ~ Bin(D_i, q_i): G E[1 / (B + 1)] = G (1 - (1-q)^(D+1)) / ((D+1) q). Other canaries are left out of account,
    and so is the clipping of a batch gradient that a `dirac` canary shares with large gradients.

    >>> canary_shift("dominating", "batch", 2.0, records=10, rate=0.1)
    2.0
    >>> canary_shift("dirac", "batch", 2.0, records=1, rate=1.0)
    1.0
    """
    if kind == "dominating" and clip_scope == "batch":
        return clip_norm
    return clip_norm * (1 - (1 - rate) ** (records + 1)) / ((records + 1) * rate)
