"""Who adds which noise, what each release may leak, and the ledger of everything that left a boundary of trust."""

from typing import TYPE_CHECKING

from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.budget_filter import BudgetFilter
from h2fdp.privacy.laplace import Laplace
from h2fdp.privacy.mechanisms.dp_sgd import CentralDp, DpSgd
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp, LocalDp, NonPrivate
from h2fdp.privacy.mechanisms.mechanism import (
    AggregationCounts,
    GradientSumMechanism,
    Mechanism,
    MechanismContext,
    Span,
)
from h2fdp.privacy.mechanisms.noise_placement import (
    NOISE_PLACEMENTS,
    NoisePlacement,
    RequestedExperiment,
    UploadClipping,
    noise_placement_of,
)
from h2fdp.privacy.mechanisms.perturbations import ObjectivePerturbation, OutputPerturbation
from h2fdp.privacy.mechanisms.pipeline import Moment, Pipeline, Stage
from h2fdp.privacy.places import (
    ADDED_BY,
    OBSERVERS,
    AggregationKind,
    Holder,
    Observer,
    Place,
    Tier,
    Tolerance,
    levels_of_observers,
    observers,
    observers_beside,
)
from h2fdp.privacy.releases import Release, releases
from h2fdp.privacy.vectors import AdaptiveClipping, add_gaussian_noise
from h2fdp.privacy.views import Merged, Sampling, Uploads

for _placement in (
    NonPrivate,
    HierarchicalDp,
    LocalDp,
    CentralDp,
    DpSgd,
    OutputPerturbation,
    ObjectivePerturbation,
):  # in the order of messages and pages
    NOISE_PLACEMENTS.register(_placement)

if TYPE_CHECKING:
    NoisePlacementSection = NoisePlacement
else:
    NoisePlacementSection = NOISE_PLACEMENTS.section()

__all__ = [
    "ADDED_BY",
    "OBSERVERS",
    "Accounts",
    "AdaptiveClipping",
    "AggregationCounts",
    "AggregationKind",
    "BudgetFilter",
    "GradientSumMechanism",
    "HierarchicalDp",
    "Holder",
    "Laplace",
    "LocalDp",
    "Mechanism",
    "MechanismContext",
    "Merged",
    "Moment",
    "NoisePlacement",
    "NoisePlacementSection",
    "NonPrivate",
    "Observer",
    "Pipeline",
    "Place",
    "Release",
    "RequestedExperiment",
    "Sampling",
    "Span",
    "Stage",
    "Tier",
    "Tolerance",
    "UploadClipping",
    "Uploads",
    "add_gaussian_noise",
    "levels_of_observers",
    "noise_placement_of",
    "observers",
    "observers_beside",
    "releases",
]
