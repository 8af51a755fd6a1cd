"""The papers' theory in numbers: how far models drift, where training ends, how long intervals should be."""

from h2fdp.theory.ali_dpfl import (
    DpSgdNoise,
    OptimumForm,
    StronglyConvexLosses,
    ali_bound,
    ali_bound_of_rounds,
    ali_first_bound,
    ali_first_drift,
    ali_first_optimum,
    ali_optimum,
    iterations_in_reach,
    least_batch,
)
from h2fdp.theory.convergence import BoundForm, ConvergenceBound, convergence_bound
from h2fdp.theory.dispersion import DispersionBounds, dispersion_bounds
from h2fdp.theory.privacy_gap import gap_scale, gap_weight, privacy_gap
from h2fdp.theory.resource_budget import (
    BudgetPrices,
    DriftConstants,
    affordable_local_steps,
    controller_objective,
    drift_bound,
    loss_bound,
)
from h2fdp.theory.setting import LossConstants, PrivacyTerms, Timing, largest_first_step_size

__all__ = [
    "BoundForm",
    "BudgetPrices",
    "ConvergenceBound",
    "DispersionBounds",
    "DpSgdNoise",
    "DriftConstants",
    "LossConstants",
    "OptimumForm",
    "PrivacyTerms",
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
    "dispersion_bounds",
    "drift_bound",
    "gap_scale",
    "gap_weight",
    "iterations_in_reach",
    "largest_first_step_size",
    "least_batch",
    "loss_bound",
    "privacy_gap",
]
