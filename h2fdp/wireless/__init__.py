"""The wireless channel of a network, as a topology file describes it: path loss, fading, access, and their models."""

from h2fdp.wireless.access import ACCESSES, Access, Ofdma, Tdma, gathered
from h2fdp.wireless.fading import FADINGS, Fading, NoFading, Rayleigh
from h2fdp.wireless.path_loss import PATH_LOSSES, LogDistance, PathLoss
from h2fdp.wireless.radio import Radio, RadioSection, ratio

__all__ = [
    "ACCESSES",
    "FADINGS",
    "PATH_LOSSES",
    "Access",
    "Fading",
    "LogDistance",
    "NoFading",
    "Ofdma",
    "PathLoss",
    "Radio",
    "RadioSection",
    "Rayleigh",
    "Tdma",
    "gathered",
    "ratio",
]
