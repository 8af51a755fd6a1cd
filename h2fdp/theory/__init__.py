"""The papers' theory in numbers: how far models drift, where training ends, how long intervals should be; estimates."""

from h2fdp.theory.ali_dpfl import (
    OptimumForm,
    StronglyConvexLosses,
    ali_bound,
    ali_bound_of_rounds,
    ali_optimum,
    iterations_in_reach,
)
from h2fdp.theory.ali_dpfl_first import ali_first_bound, ali_first_drift, ali_first_optimum
from h2fdp.theory.convergence import BoundForm, ConvergenceBound, convergence_bound
from h2fdp.theory.denoising import Denoised, denoised_norm
from h2fdp.theory.dispersion import DispersionBounds, dispersion_bounds
from h2fdp.theory.dp_sgd import DpSgdNoise, least_batch
from h2fdp.theory.estimation import gradient_dispersion, minibatch_deviation, secant_smoothness
from h2fdp.theory.privacy_gap import gap_scale, gap_weight, privacy_gap
from h2fdp.theory.released import ReleasedConstants, ReleasedInterval, released_constants
from h2fdp.theory.resource_budget import (
    BudgetPrices,
    DriftConstants,
    affordable_local_steps,
    controller_objective,
    drift_bound,
    loss_bound,
)
from h2fdp.theory.setting import LossConstants, PrivacyTerms, Timing, largest_first_step_size
from h2fdp.theory.smoothing import Smoothed

__all__ = [
    "BoundForm",
    "BudgetPrices",
    "ConvergenceBound",
    "Denoised",
    "DispersionBounds",
    "DpSgdNoise",
    "DriftConstants",
    "LossConstants",
    "OptimumForm",
    "PrivacyTerms",
    "ReleasedConstants",
    "ReleasedInterval",
    "Smoothed",
    "StronglyConvexLosses",
    "Timing",
    "affordable_local_steps",
    "ali_bound",
    "ali_bound_of_rounds",
    "ali_first_bound",
    "ali_first_drift",
    "ali_first_optimum",
    "ali_optimum",
    "controller_objective",
    "convergence_bound",
    "denoised_norm",
    "dispersion_bounds",
    "drift_bound",
    "gap_scale",
    "gap_weight",
    "gradient_dispersion",
    "iterations_in_reach",
    "largest_first_step_size",
    "least_batch",
    "loss_bound",
    "minibatch_deviation",
    "privacy_gap",
    "released_constants",
    "secant_smoothness",
]
