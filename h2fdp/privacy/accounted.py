"""Calibration to an account instead of a formula: the smallest noise whose accounted epsilon meets the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from h2fdp.errors import UserError
from h2fdp.privacy.accounting import ReleaseType

Composition = dict[ReleaseType, int]
_PRECISION = 1e-3  # relative; the factor found is on the safe side of it
_SMALLEST, _LARGEST = 1e-6, 1e6


def scaled(composition: Composition, factor: float) -> Composition:
    """The same releases under noise `factor` times as large."""
    return {
        replace(kind, noise_multiplier=kind.noise_multiplier * factor): count for kind, count in composition.items()
    }


def smallest_factor(
    compositions: Iterable[Composition], target: float, epsilon: Callable[[Composition], float]
) -> float:
    """The smallest common factor on all noises at which every composition's epsilon is at most `target`.

    Bisection on the logarithm, ended on the safe side within 0.1 %. The composition that is worst at one factor need
    not be at another, so the answer is checked against all of them.

    Args:
        compositions: what each watched observer would hold about each distinct device after the planned run.
        epsilon: an accountant's epsilon at the run's delta; falls as the noise grows.

    Raises:
        UserError: no noise that is up to a million times as large meets the target.
    """
    remaining = list(compositions)
    factor = _SMALLEST
    while remaining:
        worst = max(remaining, key=lambda each: epsilon(scaled(each, max(factor, 1.0))))
        factor = _factor_of(worst, target, epsilon, factor)
        remaining = [each for each in remaining if each is not worst and epsilon(scaled(each, factor)) > target]
    return factor


def _factor_of(composition: Composition, target: float, epsilon: Callable[[Composition], float], floor: float) -> float:
    """The smallest factor of at least `floor` for one composition."""

    def met(factor: float) -> bool:
        return epsilon(scaled(composition, factor)) <= target

    low = high = max(1.0, floor)
    while not met(high):  # accounts of little noise are slow to compute, so the search begins at the noise as it is
        if high >= _LARGEST:
            text = f"no noise up to {_LARGEST:g} times that of the formula meets the target of {target:g}"
            raise UserError(f"{text} by this accountant; expected a larger epsilon or delta", key="privacy.epsilon")
        low, high = high, high * 2
    while low == high or met(low):
        if low <= floor:
            return floor
        low, high = max(low / 2, floor), low
    while math.log(high / low) > _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if met(middle) else (middle, high)
    return high
