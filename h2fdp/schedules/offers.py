"""What an interval would cost and how much noise it would bring, for every number of devices that could take part.

Devices are offered in an order: each further device of a subnet adds its own messages, and lessens the noise on the
subnet's average. Both are exact for the devices that take part, not means over the subnet as in problem P.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from h2fdp.radio import MessageCosts
from h2fdp.radio.wires import beyond_edge, path_seconds
from h2fdp.schedules.problem import ControlledNetwork, Counts, Floats, upper_wire_joules


@dataclass(frozen=True)
class Rhythm:
    """The aggregations of an interval of tau slots.

    Attributes:
        tau: its length.
        local: (N,) K_l(tau), the local aggregations of each subnet.
        upper: (D - 1,) how many of these are of height 2 .. D.
    """

    tau: int
    local: Counts
    upper: Counts


@dataclass(frozen=True)
class DeviceCosts:
    """Of one interval, by device and subnet.

    Attributes:
        joules, seconds: (I,) of a device that takes part, beside the pairs.
        wires: (N,) joules of a subnet's wires.
        pair_joules, pair_seconds: (I,) of a device for every device in its secure sums.
    """

    joules: Floats
    seconds: Floats
    wires: Floats
    pair_joules: Floats
    pair_seconds: Floats


def device_costs(network: ControlledNetwork, costs: MessageCosts, step_joules: float, rhythm: Rhythm) -> DeviceCosts:
    """Energy and delay of an interval (H2FDP, Sec. 11), as `radio.interval_cost` adds them up."""
    sizes, joules, seconds = network.sizes, costs.joules, costs.seconds
    sent = np.repeat(network.of_exchanges(lambda each: 2 * each.key - 2 * each.share + each.vector - 1), sizes)
    more = np.repeat(network.of_exchanges(lambda each: -4 * each.share + each.vector - 1), sizes) * seconds
    received = np.repeat(
        network.of_exchanges(lambda each: 2 * each.key + 2 * each.share), sizes
    )  # for each other device
    more = more + received * costs.sooner
    shares = np.repeat(network.of_exchanges(lambda each: 3 * each.share), sizes)
    exchanged = np.repeat(network.of_exchanges(lambda each: 2 * each.key + 5 * each.share), sizes)
    local = np.repeat(rhythm.local, sizes)
    uploads = local + 1
    on_air = seconds + costs.down_seconds
    delay = on_air + 2 * costs.relay_seconds + 2 * np.repeat(costs.path_seconds, sizes) + more
    delay = delay + (local - int(rhythm.upper.sum())) * (seconds + more)
    wires = costs.path_joules + rhythm.upper @ upper_wire_joules(network, costs)
    for (tree, height), times in zip(network.upper_tiers, rhythm.upper.tolist(), strict=True):
        there = on_air + 2 * np.repeat(path_seconds(costs, tree, height), sizes)
        delay = delay + times * (np.where(np.repeat(beyond_edge(tree, height), sizes), there, seconds) + more)
    return DeviceCosts(
        joules=uploads * (1 + sent) * joules + costs.relay_joules + rhythm.tau * step_joules,
        seconds=delay,
        wires=np.asarray(wires),
        pair_joules=uploads * shares * joules,
        pair_seconds=uploads * exchanged * seconds - uploads * received * costs.sooner,
    )


@dataclass(frozen=True)
class Offers:
    """(N, S) tables: what a subnet costs and brings with s = 1 .. S devices; infinite noise beyond its limit.

    Attributes:
        tau: of the interval.
        joules, seconds: of the subnet, with its wires.
        noise: its part of the noise variance on the global model, at a step size of 1.
    """

    tau: int
    joules: Floats
    seconds: Floats
    noise: Floats

    def chosen(self, per_joule: float, per_second: float) -> Counts:
        """(N,) the participation that minimises noise + per_joule * joules + per_second * seconds; of equals, least."""
        price = self.noise + per_joule * self.joules + per_second * self.seconds
        return np.asarray(price.argmin(axis=1) + 1, dtype=np.int64)

    def totals(self, participation: Counts) -> tuple[float, float, float]:
        """Joules, seconds and noise of the whole network."""
        subnets = np.arange(len(participation))
        found = (table[subnets, participation - 1].sum() for table in (self.joules, self.seconds, self.noise))
        joules, seconds, noise = (float(each) for each in found)
        return joules, seconds, noise


def offers(
    network: ControlledNetwork,
    costs: MessageCosts,
    step_joules: float,
    rhythm: Rhythm,
    order: Counts,
    noise: Callable[[int], Floats],
) -> Offers:
    """The tables of one interval.

    Args:
        order: (I,) the devices of each subnet in the order in which they are offered, as numbers over the network.
        noise: tau -> (N,) a subnet's part of the noise variance with as many devices as `network.limits`.
    """
    most, sizes = int(network.limits.max()), network.sizes
    each = device_costs(network, costs, step_joules, rhythm)
    starts = np.cumsum(sizes) - sizes
    places = starts[:, None] + np.minimum(np.arange(most), sizes[:, None] - 1)  # beyond the limit noise is infinite
    counts = np.arange(1, most + 1)

    def summed(of_devices: Floats, of_pairs: Floats) -> Floats:
        return np.asarray(
            np.cumsum(of_devices[order][places], axis=1) + counts * np.cumsum(of_pairs[order][places], axis=1)
        )

    limits = network.limits[:, None]
    power = 1 + network.trusted[:, None]  # one noise on a sum falls with s^2, one on each upload with s
    brought = noise(rhythm.tau)[:, None] * (limits / counts) ** power
    return Offers(
        tau=rhythm.tau,
        joules=summed(each.joules, each.pair_joules) + each.wires[:, None],
        seconds=summed(each.seconds, each.pair_seconds),
        noise=np.where(counts <= limits, brought, np.inf),
    )
