"""Who adds which noise, what each release may leak, and the ledger of everything that left a boundary of trust."""

from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.mechanism import add_gaussian_noise
from h2fdp.privacy.noise_levels import NoiseLevels
from h2fdp.privacy.noise_placement import NOISE_PLACEMENTS, NoisePlacement, NoiseSource
from h2fdp.privacy.releases import Observer, Release, SubnetReleases, releases_of
from h2fdp.privacy.sensitivity import accumulated_gradient_sensitivity

__all__ = [
    "NOISE_PLACEMENTS",
    "NoiseLevels",
    "NoisePlacement",
    "NoiseSource",
    "Observer",
    "PaperCalibration",
    "Release",
    "SubnetReleases",
    "accumulated_gradient_sensitivity",
    "add_gaussian_noise",
    "releases_of",
]
