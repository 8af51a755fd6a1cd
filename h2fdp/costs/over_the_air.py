"""Sums over the air: what devices spend whose signals add up on their way to an access point.

Every number of a vector is one use of the channel, and a channel of W hertz has W uses in a second: M numbers take
M / W seconds, however many devices send at once (Zhu, Wang and Huang, IEEE TWC 2020). For the sum, the access point has
to hear all of them alike, so each inverts its channel. With P_j the power that a device may send with, beta_j its mean
gain and theta the truncation, device j of access point a sends with

    p_j = P_a / (beta_j |u_j|^2) where |u_j|^2 >= theta, P_a = theta min_j beta_j P_j over all devices of a,

the most that none of them exceeds its P_j for. Where its fading is below theta, a device takes no part in the interval.
What comes down is digital and has the bits of any other message. The receiver's noise on the sum is not simulated, and
no account counts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from h2fdp.network import Radio
from h2fdp.network.devices import Floats, Integers


@dataclass(frozen=True, eq=False)
class AnalogSums:
    """The uploads of a network whose access is `over-the-air`.

    Attributes:
        truncation: theta.
        seconds: M / W.
        watts, power_dbm: (I,) P_j.
        mean_snr: (I,) the signal-to-noise ratio at P_j where |u|^2 = 1.
        heard: (I,) P_a over the noise, of each one's access point.
    """

    truncation: float
    seconds: float
    watts: Floats
    power_dbm: Floats
    mean_snr: Floats
    heard: Floats

    def sends(self, fading: Floats) -> np.ndarray:
        """(I,) whether each device takes part under these |u|^2."""
        return np.asarray(fading >= self.truncation)

    def sent(self, fading: Floats) -> dict[str, Any]:
        """(I,) `seconds` and `joules` of an upload, `snr` and `power_dbm`; all 0 or least where a device is silent."""
        share = np.where(self.sends(fading), self.heard / (self.mean_snr * fading), 0.0)
        with np.errstate(divide="ignore"):
            power_dbm = self.power_dbm + 10 * np.log10(share)
        seconds = np.full(len(share), self.seconds)
        return {
            "seconds": seconds,
            "joules": self.watts * share * seconds,
            "snr": np.where(share > 0, self.heard, 0.0),
            "power_dbm": power_dbm,
        }

    def mean_joules(self, radio: Radio) -> Floats:
        """(I,) of an upload that a device makes, by quadrature over the fading."""
        powers, weights = (np.array(each) for each in radio.quadrature(max(self.truncation, radio.fading_floor)))
        if self.truncation > radio.least_fading():
            powers, weights = powers[1:], weights[1:]  # the first point has all fading below the truncation
        inverse = float(weights @ (1 / powers)) / float(weights.sum())
        return self.watts * self.heard / self.mean_snr * inverse * self.seconds


def analog_sums(
    radio: Radio, parameters: int, watts: Floats, power_dbm: Floats, mean_snr: Floats, sizes: Integers
) -> AnalogSums | None:
    """Those of a network; None where its access is another one.

    Args:
        parameters: M.
        sizes: (A,) devices of each access point, in the order of the network.
    """
    if radio.truncation is None:
        return None
    weakest = np.minimum.reduceat(mean_snr, np.cumsum(sizes) - sizes)
    heard = radio.truncation * np.repeat(weakest, sizes)
    return AnalogSums(radio.truncation, parameters / radio.bandwidth_hz, watts, power_dbm, mean_snr, heard)
