"""Noise and who adds it, bounds on what each release leaks, and the ledger of all that left a boundary of trust."""

from typing import Annotated

from h2fdp.privacy import correlated  # noqa: F401 - registers itself
from h2fdp.privacy.accounting import Sampling as Sampling
from h2fdp.privacy.accounts import Accounts as Accounts
from h2fdp.privacy.budget_filter import BudgetFilter as BudgetFilter
from h2fdp.privacy.laplace import Laplace as Laplace
from h2fdp.privacy.mechanisms import compression  # noqa: F401 - registers itself
from h2fdp.privacy.mechanisms.device_unit import CentralDp
from h2fdp.privacy.mechanisms.device_unit import DeviceDp as DeviceDp
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd
from h2fdp.privacy.mechanisms.hierarchical import HierarchicalDp as HierarchicalDp
from h2fdp.privacy.mechanisms.hierarchical import LocalDp as LocalDp
from h2fdp.privacy.mechanisms.hierarchical import NonPrivate as NonPrivate
from h2fdp.privacy.mechanisms.mechanism import AggregationCounts as AggregationCounts
from h2fdp.privacy.mechanisms.mechanism import GradientSumMechanism as GradientSumMechanism
from h2fdp.privacy.mechanisms.mechanism import Mechanism as Mechanism
from h2fdp.privacy.mechanisms.mechanism import MechanismContext as MechanismContext
from h2fdp.privacy.mechanisms.mechanism import Span as Span
from h2fdp.privacy.mechanisms.noise_placement import NOISE_PLACEMENTS
from h2fdp.privacy.mechanisms.noise_placement import NoisePlacement as NoisePlacement
from h2fdp.privacy.mechanisms.noise_placement import UploadClipping as UploadClipping
from h2fdp.privacy.mechanisms.noise_placement import noise_placement_of as noise_placement_of
from h2fdp.privacy.mechanisms.perturbations import ObjectivePerturbation, OutputPerturbation
from h2fdp.privacy.mechanisms.pipeline import Moment as Moment
from h2fdp.privacy.mechanisms.pipeline import Pipeline as Pipeline
from h2fdp.privacy.mechanisms.pipeline import Stage as Stage
from h2fdp.privacy.places import ADDED_BY as ADDED_BY
from h2fdp.privacy.places import OBSERVERS as OBSERVERS
from h2fdp.privacy.places import AggregationKind as AggregationKind
from h2fdp.privacy.places import Holder as Holder
from h2fdp.privacy.places import Observer as Observer
from h2fdp.privacy.places import Place as Place
from h2fdp.privacy.places import Tier as Tier
from h2fdp.privacy.places import Tolerance as Tolerance
from h2fdp.privacy.places import observers as observers
from h2fdp.privacy.places import observers_beside as observers_beside
from h2fdp.privacy.places import vectors_of_observers as vectors_of_observers
from h2fdp.privacy.releases import Release as Release
from h2fdp.privacy.releases import releases as releases
from h2fdp.privacy.vectors import add_gaussian_noise as add_gaussian_noise
from h2fdp.privacy.views import Merged as Merged
from h2fdp.privacy.views import Uploads as Uploads

for _placement in (
    NonPrivate,
    HierarchicalDp,
    LocalDp,
    DeviceDp,
    CentralDp,
    DpSgd,
    OutputPerturbation,
    ObjectivePerturbation,
):  # in the order of messages and pages
    NOISE_PLACEMENTS.register(_placement)

NoisePlacementSection = Annotated[NoisePlacement, NOISE_PLACEMENTS]
