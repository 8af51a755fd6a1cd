"""Who adds which noise, what each release may leak, and the ledger of everything that left a boundary of trust."""

from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.budget_filter import BudgetFilter
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.mechanism import add_gaussian_noise
from h2fdp.privacy.mechanisms.central import Central
from h2fdp.privacy.mechanisms.device_side import AsTheyAre, DeviceNoise, DeviceSide, NoisyUpdate
from h2fdp.privacy.mechanisms.dp_sgd import DpSgd
from h2fdp.privacy.mechanisms.gradient_sums import GradientSums
from h2fdp.privacy.mechanisms.hierarchical import EveryDevice, Nowhere, WhereTrustEnds
from h2fdp.privacy.mechanisms.mechanism import Made, Mechanism, Setting
from h2fdp.privacy.mechanisms.objective import Objective
from h2fdp.privacy.mechanisms.output import Output
from h2fdp.privacy.mechanisms.placement import Placement, Request
from h2fdp.privacy.mechanisms.upload import SubnetInterval
from h2fdp.privacy.noise_placement import NOISE_PLACEMENTS, PlacementOptions, PlacementSection, placement_of
from h2fdp.privacy.releases import (
    OBSERVERS,
    Observer,
    Release,
    Sampling,
    TierVector,
    Upload,
    observers,
    releases_of,
    tier_name,
    views,
)
from h2fdp.privacy.sensitivity import accumulated_gradient_sensitivity
from h2fdp.privacy.trust_model import TRUST_MODELS, TrustModel
from h2fdp.privacy.words import ADDED_BY, AggregationKind, NoiseSource, ReleaseKind, Tier

__all__ = [
    "ADDED_BY",
    "NOISE_PLACEMENTS",
    "OBSERVERS",
    "TRUST_MODELS",
    "Accounts",
    "AggregationKind",
    "AsTheyAre",
    "BudgetFilter",
    "Central",
    "DeviceNoise",
    "DeviceSide",
    "DpSgd",
    "EveryDevice",
    "GradientSums",
    "Made",
    "Mechanism",
    "NoiseSource",
    "NoisyUpdate",
    "Nowhere",
    "Objective",
    "Observer",
    "Output",
    "PaperCalibration",
    "Placement",
    "PlacementOptions",
    "PlacementSection",
    "Release",
    "ReleaseKind",
    "Request",
    "Sampling",
    "Setting",
    "SubnetInterval",
    "Tier",
    "TierVector",
    "TrustModel",
    "Upload",
    "WhereTrustEnds",
    "accumulated_gradient_sensitivity",
    "add_gaussian_noise",
    "observers",
    "placement_of",
    "releases_of",
    "tier_name",
    "views",
]
