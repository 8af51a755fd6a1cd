"""The paper's theory in numbers: dispersion, convergence, the privacy gap, and estimates of the constants in them."""

from h2fdp.theory.convergence import BoundForm, ConvergenceBound, convergence_bound
from h2fdp.theory.denoising import Denoised, denoised_norm
from h2fdp.theory.dispersion import DispersionBounds, dispersion_bounds
from h2fdp.theory.estimation import gradient_dispersion, minibatch_deviation, secant_smoothness
from h2fdp.theory.privacy_gap import gap_scale, gap_weight, privacy_gap
from h2fdp.theory.released import ReleasedConstants, ReleasedInterval, released_constants
from h2fdp.theory.setting import LossConstants, PrivacyTerms, Timing, largest_first_step_size
from h2fdp.theory.smoothing import Smoothed

__all__ = [
    "BoundForm",
    "ConvergenceBound",
    "Denoised",
    "DispersionBounds",
    "LossConstants",
    "PrivacyTerms",
    "ReleasedConstants",
    "ReleasedInterval",
    "Smoothed",
    "Timing",
    "convergence_bound",
    "denoised_norm",
    "dispersion_bounds",
    "gap_scale",
    "gap_weight",
    "gradient_dispersion",
    "largest_first_step_size",
    "minibatch_deviation",
    "privacy_gap",
    "released_constants",
    "secant_smoothness",
]
