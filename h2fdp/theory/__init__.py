"""The papers' theory in numbers, as far as schedules use it: how far models drift, how long intervals should be."""

from h2fdp.theory.ali_dpfl import (
    DpSgdNoise,
    OptimumForm,
    ali_first_bound,
    ali_first_optimum,
    ali_optimum,
    iterations_in_reach,
    least_batch,
)
from h2fdp.theory.privacy_gap import PrivacyTerms, gap_scale, largest_first_step_size
from h2fdp.theory.resource_budget import (
    BudgetPrices,
    DriftConstants,
    affordable_local_steps,
    controller_objective,
    drift_bound,
    loss_bound,
)

__all__ = [
    "BudgetPrices",
    "DpSgdNoise",
    "DriftConstants",
    "OptimumForm",
    "PrivacyTerms",
    "affordable_local_steps",
    "ali_first_bound",
    "ali_first_optimum",
    "ali_optimum",
    "controller_objective",
    "drift_bound",
    "gap_scale",
    "iterations_in_reach",
    "largest_first_step_size",
    "least_batch",
    "loss_bound",
]
