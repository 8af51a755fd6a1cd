"""Path loss: how much weaker a signal arrives, by distance; `radio.pathloss` of a topology file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect, Options, Positive
from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind

Floats = NDArray[np.float64]
# Wide bounds: beyond them lie slips of sign, unit or zeros, told here with line and key.
Decibels = Annotated[float, Field(ge=-300, le=100), Expect("a number from -300 to 100")]
Exponent = Annotated[float, Field(ge=0, le=20), Expect("a number from 0 to 20")]


class PathLoss(ABC):
    """The gain of each device's channel, the same in every interval; a subclass defines `gain_db`."""

    @abstractmethod
    def gain_db(self, distance_m: Floats, stream: np.random.Generator) -> Floats:
        """(s,) gains in dB, negative for a loss.

        Args:
            distance_m: (s,) from the devices of one access point to it.
            stream: for what the model draws, such as shadowing. It is the access point's own and restarts at every
                call, so that a run sees the same channels whenever it asks.
        """


PATH_LOSSES: Choices[Options] = Choices(
    OwnKind("a path loss, derived from `h2fdp.topology.PathLoss`", ("gain_db",)), unnamed="log-distance"
)


@PATH_LOSSES.register
class LogDistance(PathLoss, Options):
    """beta_0 - 10 alpha log10(d / d_0) dB (H2FDP, Appendix D).

    Attributes:
        beta0_db: beta_0, the gain at the reference distance.
        exponent: alpha, how fast the gain falls with the distance.
        reference_m: d_0, the reference distance, m.

    >>> LogDistance().gain_db(np.array([1.0, 10.0, 100.0]), np.random.default_rng()).tolist()
    [-30.0, -67.5, -105.0]
    """

    name: Literal["log-distance"] = "log-distance"
    beta0_db: Decibels = -30.0
    exponent: Exponent = 3.75
    reference_m: Positive = 1.0

    def gain_db(self, distance_m: Floats, stream: np.random.Generator) -> Floats:
        """(s,) gains in dB."""
        return self.beta0_db - 10 * self.exponent * np.log10(distance_m / self.reference_m)
