"""What the cloud learns of the losses: constants measured by devices, or read off what they release anyway."""

from h2fdp.estimation.device_estimates import gradient_dispersion, minibatch_deviation, secant_smoothness
from h2fdp.estimation.feedback import DeviceSecants, IntervalObservation, Measurements
from h2fdp.estimation.loss_constants import (
    Denoised,
    ReleasedConstants,
    ReleasedInterval,
    Smoothed,
    denoised_norm,
    released_constants,
)

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
