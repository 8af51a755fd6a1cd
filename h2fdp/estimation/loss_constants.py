"""The controller's view of beta, sigma, zeta and zeta_c: averages that settle over the intervals (H2FDP, Sec. 10)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from h2fdp.estimation.device_estimates import gradient_dispersion
from h2fdp.estimation.feedback import IntervalObservation, Measurements
from h2fdp.estimation.from_releases import ReleasedInterval, released_constants
from h2fdp.theory.ranges import require

NAMES = ("beta", "sigma", "zeta", "zeta_c")
_WEIGHT = 0.2  # of the newest value: about the last five intervals count
_CLEAR = 3.0  # standard deviations of noise that a measurement must exceed


@dataclass(frozen=True)
class Smoothed:
    """An exponential average.

    Attributes:
        value: the average so far, at first the operator's own; None when there is none yet.
        weight: of each new value, above 0 and at most 1 (1 keeps the newest only).

    Raises:
        UserError: a weight out of its range.

    >>> Smoothed(4.0, weight=0.25).updated(8.0).updated(None).value, Smoothed(None, weight=0.25).updated(8.0).value
    (5.0, 8.0)
    """

    value: float | None
    weight: float

    def __post_init__(self) -> None:
        require(0 < self.weight <= 1, "weight", self.weight, "a number above 0 and at most 1")

    def updated(self, new: float | None) -> Smoothed:
        """The average with one more value; the same when there is none, the new one alone when it is the first."""
        if new is None:
            return self
        return replace(self, value=new if self.value is None else self.value + self.weight * (new - self.value))


@dataclass(frozen=True)
class LearnedConstants:
    """What is known of the loss so far; None where nothing is.

    Attributes:
        beta, sigma, zeta, zeta_c: smoothness, mini-batch deviation, dispersion of subnets, the largest dispersion of
            devices in a subnet.
        swamped: the constants whose newest estimate drowned in noise, so that the last good value stays.
        previous: the last interval's releases, to compare the next with.
    """

    beta: Smoothed
    sigma: Smoothed
    zeta: Smoothed
    zeta_c: Smoothed
    swamped: tuple[str, ...] = ()
    previous: ReleasedInterval | None = field(default=None, repr=False)

    @classmethod
    def of_operator(
        cls, beta: float | None, sigma: float | None, zeta: float | None, zeta_c: float | None
    ) -> LearnedConstants:
        """The operator's own values."""
        return cls(
            Smoothed(beta, _WEIGHT), Smoothed(sigma, _WEIGHT), Smoothed(zeta, _WEIGHT), Smoothed(zeta_c, _WEIGHT)
        )

    def learned(self, seen: IntervalObservation) -> LearnedConstants:
        """With the estimates of one more interval: released vectors for all, measurements over them where made."""
        if not seen.uploads:  # nobody was there, and nothing is known of it
            return self
        current = ReleasedInterval(
            np.stack([upload.numpy().astype(np.float64) for upload in seen.uploads]),
            seen.noise_variance,
            seen.weights,
            seen.step_size,
            seen.mean_steps,
            seen.model.numpy().astype(np.float64),
        )
        released = released_constants(current, self.previous)
        found: dict[str, float | None] = {}
        if len(seen.uploads) > 1:  # one subnet is at no distance from itself
            found["zeta"] = released.network_dispersion.clear
        if released.smoothness is not None:
            found["beta"] = released.smoothness.clear
        if seen.measurements is not None:
            found |= _measured(seen.measurements)
        found = {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}
        averages = {name: getattr(self, name).updated(value) for name, value in found.items()}
        swamped = tuple(name for name, value in found.items() if value is None)
        return replace(self, **averages, swamped=swamped, previous=current)

    def values(self) -> dict[str, float | None]:
        """The constants by name."""
        return {name: getattr(self, name).value for name in NAMES}

    def state(self) -> dict[str, Any]:
        """All of it in plain values and tensors."""
        return {"values": self.values(), "swamped": self.swamped, "previous": _stored(self.previous)}

    def loaded(self, state: Mapping[str, Any]) -> LearnedConstants:
        """As it was when `state` was taken."""
        averages = {name: replace(getattr(self, name), value=value) for name, value in state["values"].items()}
        return replace(self, **averages, swamped=tuple(state["swamped"]), previous=_restored(state["previous"]))


def _stored(interval: ReleasedInterval | None) -> dict[str, Any] | None:
    return None if interval is None else dict(vars(interval))


def _restored(state: Mapping[str, Any] | None) -> ReleasedInterval | None:
    if state is None:
        return None
    values: dict[str, Any] = {
        key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in state.items()
    }
    return ReleasedInterval(**values)


def _measured(measurements: Measurements) -> dict[str, float | None]:
    """beta, sigma, zeta_c (and zeta, from raw gradients): the largest of raw values, the mean of noisy ones.

    A maximum of noisy values would grow with the number of subnets, so released ones are averaged, those of little
    noise counting more.
    """
    found: dict[str, float | None] = {}
    for column, name in enumerate(("beta", "sigma", "zeta_c")):
        values, noise = measurements.values[:, column], measurements.noise_std[:, column]
        known = ~np.isnan(values)
        if not known.any():
            continue
        if not noise[known].any():
            found[name] = float(values[known].max())
            continue
        precision = 1 / noise[known] ** 2
        mean, deviation = float(precision @ values[known] / precision.sum()), float(precision.sum() ** -0.5)
        found[name] = mean if mean > _CLEAR * deviation else None
    if measurements.gradients is not None and len(measurements.weights) > 1:
        found["zeta"] = gradient_dispersion(measurements.gradients, measurements.weights)
    return found
