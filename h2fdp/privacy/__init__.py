"""Who adds which noise, what each release may leak, and the ledger of everything that left a boundary of trust."""

from h2fdp.privacy.accounts import Accounts
from h2fdp.privacy.budget_filter import BudgetFilter
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.mechanism import add_gaussian_noise
from h2fdp.privacy.noise_levels import NoiseLevels
from h2fdp.privacy.noise_placement import NOISE_PLACEMENTS, NoisePlacement, NoiseSource
from h2fdp.privacy.releases import OBSERVERS, Observer, Release, Sampling, SubnetReleases, releases_of
from h2fdp.privacy.sensitivity import accumulated_gradient_sensitivity

__all__ = [
    "NOISE_PLACEMENTS",
    "OBSERVERS",
    "Accounts",
    "BudgetFilter",
    "NoiseLevels",
    "NoisePlacement",
    "NoiseSource",
    "Observer",
    "PaperCalibration",
    "Release",
    "Sampling",
    "SubnetReleases",
    "accumulated_gradient_sensitivity",
    "add_gaussian_noise",
    "releases_of",
]
