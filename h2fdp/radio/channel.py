"""The wireless channels between devices and their edge servers: path loss, fading, Shannon's rate.

H2FDP, Appendix D: a device at distance d that sends with power p over bandwidth W has the signal-to-noise ratio
(SNR) p beta(d) |u|^2 / (N0 W); the rate is R = W log2(1 + SNR). |u|^2, the power of the fading, is drawn for each
interval and holds all through it (block fading).
"""

from __future__ import annotations

import numpy as np

from h2fdp.streams import Streams
from h2fdp.topology import Topology
from h2fdp.topology.devices import Floats
from h2fdp.topology.radio import ratio

DBM_OF_A_WATT = 30.0
_LN2 = float(np.log(2.0))


def watts(power_dbm: Floats | float) -> Floats:
    """Power in watts from decibels above a milliwatt.

    >>> watts(np.array([30.0, 0.0])).tolist()
    [1.0, 0.001]
    """
    return ratio(np.asarray(power_dbm, dtype=np.float64) - DBM_OF_A_WATT)


def path_gain_db(topology: Topology, streams: Streams) -> Floats:
    """(I,) 10 log10 beta, the gain of every device's channel where |u|^2 = 1, in the order of the tree.

    What a path loss draws, it draws from a stream of each access point, the same in every interval.

    >>> from h2fdp.topology import Subnet
    >>> near = Topology("net", (Subnet("a", True, {"distance_m": [1.0, 10.0, 100.0]}),))
    >>> path_gain_db(near, Streams(1)).tolist()
    [-30.0, -67.5, -105.0]
    """
    distance_m = topology.table.columns["distance_m"]
    names, sizes = topology.access_points
    return np.concatenate(
        [
            topology.radio.gain_db(of_point, streams.open(name, "path loss"))
            for name, of_point in zip(names, np.split(distance_m, np.cumsum(sizes)[:-1]), strict=True)
        ]
    )


def mean_snr(topology: Topology, streams: Streams) -> Floats:
    """(I,) p beta / (N0 W), each device's signal-to-noise ratio over the whole bandwidth where |u|^2 = 1.

    It is added up in decibels: power and gain alone may be too small for a float where their ratio to the noise is not.
    """
    radio = topology.radio
    power_dbm = topology.table.columns["power_dbm"]
    noise_dbm = radio.noise_dbm_per_hz + 10 * np.log10(radio.bandwidth_hz)
    return ratio(power_dbm + path_gain_db(topology, streams) - noise_dbm)


def rate_bps(snr: Floats, bandwidth_hz: float) -> Floats:
    """R = W log2(1 + SNR), in bits a second; accurate for the smallest ratios too.

    >>> rate_bps(np.array([1.0, 3.0]), bandwidth_hz=1e6).tolist()
    [1000000.0, 2000000.0]
    """
    return bandwidth_hz * np.log1p(snr) / _LN2


def fading_power(topology: Topology, streams: Streams, interval: int) -> Floats:
    """(I,) |u|^2 of every device in one interval, in the order of the tree.

    Each access point has a stream of its own for each interval, so a draw depends on no other part of the network, and
    is the same in a tree and in its star.
    """
    names, sizes = topology.access_points
    return np.concatenate(
        [
            topology.radio.fading_power(streams.open(name, "fading", interval), size)
            for name, size in zip(names, sizes.tolist(), strict=True)
        ]
    )
