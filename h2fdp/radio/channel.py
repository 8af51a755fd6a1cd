"""The wireless channel between a device and its edge server: path loss, Rayleigh fading, Shannon's rate.

H2FDP, Appendix D: a device at distance d that sends with power p over bandwidth W has the signal-to-noise ratio
(SNR) p beta(d) |u|^2 / (N0 W); the rate is R = W log2(1 + SNR). |u|^2, the power of the fading, is drawn anew for each
interval and holds all through it (block fading).
"""

from __future__ import annotations

import numpy as np

from h2fdp.radio.models import fading_of
from h2fdp.streams import Streams
from h2fdp.topology import Radio, Topology
from h2fdp.topology.arrays import Floats

DBM_OF_A_WATT = 30.0
_LN2 = float(np.log(2.0))


def ratio(decibels: Floats | float) -> Floats:
    """10^(x/10); 0 or infinite beyond what a float holds.

    >>> ratio(np.array([-30.0, 0.0, 20.0])).tolist()
    [0.001, 1.0, 100.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        return np.power(10.0, np.asarray(decibels, dtype=np.float64) / 10)


def watts(power_dbm: Floats | float) -> Floats:
    """Power in watts from decibels above a milliwatt.

    >>> watts(np.array([30.0, 0.0])).tolist()
    [1.0, 0.001]
    """
    return ratio(np.asarray(power_dbm, dtype=np.float64) - DBM_OF_A_WATT)


def path_gain_db(distance_m: Floats, radio: Radio) -> Floats:
    """10 log10 beta = beta_0 - 10 alpha log10(d / d_0), the mean gain at each distance (H2FDP, Appendix D).

    >>> path_gain_db(np.array([1.0, 10.0, 100.0]), Radio()).tolist()
    [-30.0, -67.5, -105.0]
    """
    return radio.pathloss_db - 10 * radio.pathloss_exponent * np.log10(distance_m / radio.reference_m)


def mean_snr(power_dbm: Floats, distance_m: Floats, radio: Radio) -> Floats:
    """p beta / (N0 W), each device's signal-to-noise ratio over the whole bandwidth where |u|^2 = 1.

    It is added up in decibels: power and gain alone may be too small for a float where their ratio to the noise is not.
    """
    noise_dbm = radio.noise_dbm_per_hz + 10 * np.log10(radio.bandwidth_hz)
    return ratio(power_dbm + path_gain_db(distance_m, radio) - noise_dbm)


def rate_bps(snr: Floats, bandwidth_hz: float) -> Floats:
    """R = W log2(1 + SNR), in bits a second; accurate for the smallest ratios too.

    >>> rate_bps(np.array([1.0, 3.0]), bandwidth_hz=1e6).tolist()
    [1000000.0, 2000000.0]
    """
    return bandwidth_hz * np.log1p(snr) / _LN2


def fading_floor(radio: Radio) -> float:
    """The least power |u|^2 of the fading. The mean of 1/R would be infinite without one."""
    return float(ratio(radio.fading_floor_db))


def fading_power(topology: Topology, streams: Streams, interval: int) -> Floats:
    """(I,) |u|^2 of every device in one interval, in the order of the tree.

    Each access point has a stream of its own for each interval, so a draw depends on no other part of the network, and
    is the same in a tree and in its star.
    """
    fading, floor = fading_of(topology.radio.fading), fading_floor(topology.radio)
    names, sizes = topology.access_points
    return np.concatenate(
        [
            fading.draw(streams.open(name, "fading", interval), size, floor)
            for name, size in zip(names, sizes.tolist(), strict=True)
        ]
    )
