"""What the cloud learns of the losses: constants measured by devices, or read off what they release anyway."""

from h2fdp.estimation.device_estimates import gradient_dispersion, minibatch_deviation, secant_smoothness
from h2fdp.estimation.feedback import DeviceSecants, IntervalObservation, Measurements
from h2fdp.estimation.from_releases import (
    Denoised,
    ReleasedConstants,
    ReleasedInterval,
    denoised_norm,
    released_constants,
)
from h2fdp.estimation.loss_constants import Smoothed

__all__ = [
    "Denoised",
    "DeviceSecants",
    "IntervalObservation",
    "Measurements",
    "ReleasedConstants",
    "ReleasedInterval",
    "Smoothed",
    "denoised_norm",
    "gradient_dispersion",
    "minibatch_deviation",
    "released_constants",
    "secant_smoothness",
]
