"""The network as the controller sees it: sizes, trust, and what messages cost each subnet on average."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from h2fdp.radio import MessageCosts
from h2fdp.schedules.problem import Counts, Floats, Prices


@dataclass(frozen=True)
class ControlledNetwork:
    """The network as problem P sees it.

    Attributes:
        names: of the N edge servers.
        sizes: (N,) s_c.
        limits: (N,) the most devices of each that may take part.
        trusted: (N,) 1 where the edge server adds the noise, 0 where its devices do.
    """

    names: list[str]
    sizes: Counts
    limits: Counts
    trusted: Floats

    def means(self, of_devices: Floats) -> Floats:
        """(N,) each subnet's mean of (I,) values."""
        return np.add.reduceat(of_devices, np.cumsum(self.sizes) - self.sizes) / self.sizes


def prices(network: ControlledNetwork, costs: MessageCosts, step_joules: float) -> Prices:
    """What P needs of the costs of messages (Sec. 11): means over each subnet's devices."""
    joules, seconds = network.means(costs.joules), network.means(costs.seconds)
    return Prices(
        local_joules=joules,
        local_seconds=seconds,
        global_joules=joules + network.means(costs.relay_joules),
        global_seconds=2 * (seconds + network.means(costs.relay_seconds) + costs.link_seconds),
        link_joules=costs.link_joules,
        step_joules=step_joules,
    )
