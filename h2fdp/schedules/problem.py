"""Problem P (H2FDP, Sec. 5): interval length and participation that balance energy, delay and the privacy gap.

Given tau, every term is a sum of functions of one s_c, each of the form `a s + k + b1 / s + b2 / s^2 + d s^2`, because
devices are drawn at random and s of them cost s times their subnet's mean; in a secure sum (ours; the paper has none)
each of them exchanges keys and shares with all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from h2fdp.costs import ExchangeSizes, MessageCosts
from h2fdp.costs.wires import beyond_edge, path_seconds
from h2fdp.network import Topology

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def _no_upper_tiers(tau: int) -> Counts:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class ControlledNetwork:
    """The network as problem P sees it.

    Attributes:
        names: of the N edge servers.
        sizes: (N,) s_c.
        limits: (N,) the most devices of each that may take part.
        trusted: (N,) 1 where one noise covers the sum, 0 where each upload has its own.
        topology: the tree, whose upper tiers may aggregate within an interval; None for one tier of edge servers.
        exchanges: (N,) what devices exchange for secure sums; None where they have none, or no device has.
    """

    names: list[str]
    sizes: Counts
    limits: Counts
    trusted: Floats
    topology: Topology | None = None
    exchanges: Sequence[ExchangeSizes | None] | None = None

    def of_exchanges(self, quantity: Callable[[ExchangeSizes], float]) -> Floats:
        """(N,) a quantity of what devices exchange for secure sums; 0 where they have none."""
        exchanges = [None] * len(self.names) if self.exchanges is None else self.exchanges
        return np.array([0.0 if each is None else quantity(each) for each in exchanges])

    @property
    def upper_tiers(self) -> list[tuple[Topology, int]]:
        """The tree and each height from 2 up to the tier below the cloud."""
        tree = self.topology
        return [] if tree is None else [(tree, height) for height in range(2, tree.depth + 1)]

    def means(self, of_devices: Floats) -> Floats:
        """(N,) each subnet's mean of (I,) values."""
        return np.add.reduceat(of_devices, np.cumsum(self.sizes) - self.sizes) / self.sizes


@dataclass(frozen=True)
class Prices:
    """What messages cost in the coming interval, (N,) each, means over a subnet's devices.

    Attributes:
        local_joules, local_seconds: of one device at a local aggregation.
        global_joules, global_seconds: of one device at a global aggregation; the seconds there and back, edge-cloud
            link included (Sec. 11).
        link_joules: of the subnet's own message to the cloud, its part of all wires on the way.
        step_joules: of one local step of one device, a single number.
        upper_seconds: (D - 1, N) of one device, there and back, at a local aggregation of height 2 .. D.
        upper_joules: (D - 1, N) of the wires that such an aggregation uses, the subnet's part.
        pair_joules, pair_seconds: of one device for every device in its secure sum, at each aggregation; None for 0.
    """

    local_joules: Floats
    local_seconds: Floats
    global_joules: Floats
    global_seconds: Floats
    link_joules: Floats
    step_joules: float = 0.0
    upper_seconds: Floats | None = None
    upper_joules: Floats | None = None
    pair_joules: Floats | None = None
    pair_seconds: Floats | None = None

    def pairs(self, of_joules: float, of_seconds: float) -> Floats:
        """(N,) joules and seconds of each pair of devices at one aggregation, weighed by these."""
        if self.pair_joules is None or self.pair_seconds is None:
            return np.zeros(len(self.local_joules))
        return np.asarray(of_joules * self.pair_joules + of_seconds * self.pair_seconds)

    def seconds(self, local: int, upper: Counts) -> Floats:
        """(N,) of one device in an interval of `local` local aggregations, of which `upper` (D - 1,) are higher."""
        at_edge = self.global_seconds + (local - int(upper.sum())) * self.local_seconds
        return at_edge if self.upper_seconds is None or not upper.size else at_edge + upper @ self.upper_seconds

    def wired_joules(self, upper: Counts) -> Floats:
        """(N,) of each subnet's wires in an interval of these higher local aggregations."""
        if self.upper_joules is None or not upper.size:
            return self.link_joules
        return np.asarray(self.link_joules + upper @ self.upper_joules)


def prices(network: ControlledNetwork, costs: MessageCosts, step_joules: float) -> Prices:
    """What P needs of the costs of messages (Sec. 11): means over each subnet's devices, and its part of the wires.

    Where aggregators stand between edge servers and the cloud, a message passes all wires on its way. The seconds of
    these add up; the energy of a wire that several subnets have in common is counted once, in equal parts.
    """
    joules, seconds = network.means(costs.joules), network.means(costs.seconds)
    down, sooner = network.means(costs.down_seconds), network.means(costs.sooner)
    # A device of s sends 2 k + (3 s - 2) h more than a message of its vector, and receives 2 (s - 1) (k + h).
    sent = network.of_exchanges(lambda sizes: 2 * sizes.key - 2 * sizes.share + sizes.vector - 1)
    passed = network.of_exchanges(lambda sizes: -4 * sizes.share + sizes.vector - 1)
    received = network.of_exchanges(lambda sizes: 2 * sizes.key + 2 * sizes.share)
    more = passed * seconds + received * sooner
    return Prices(
        local_joules=joules + sent * joules,
        local_seconds=seconds + more,
        global_joules=joules + sent * joules + network.means(costs.relay_joules),
        global_seconds=seconds + down + 2 * network.means(costs.relay_seconds) + 2 * costs.path_seconds + more,
        link_joules=costs.path_joules,
        step_joules=step_joules,
        upper_seconds=_upper_seconds(network, costs, seconds, down) + more,
        upper_joules=upper_wire_joules(network, costs),
        pair_joules=network.of_exchanges(lambda sizes: 3 * sizes.share) * joules,
        pair_seconds=network.of_exchanges(lambda sizes: 2 * sizes.key + 5 * sizes.share) * seconds - received * sooner,
    )


def _upper_seconds(network: ControlledNetwork, costs: MessageCosts, seconds: Floats, down: Floats) -> Floats:
    """(D - 1, N) of one device, there and back, at a local aggregation of each height from 2 on."""
    rows = [
        np.where(beyond_edge(tree, height), seconds + down + 2 * path_seconds(costs, tree, height), seconds)
        for tree, height in network.upper_tiers
    ]
    return np.array(rows).reshape(len(rows), len(seconds))


def upper_wire_joules(network: ControlledNetwork, costs: MessageCosts) -> Floats:
    """(D - 1, N) each subnet's part of the wires that a local aggregation of each height from 2 on uses."""
    rows = []
    for tree, height in network.upper_tiers:
        joules = np.where(beyond_edge(tree, height), costs.link_joules, 0.0)
        for aggregator, of_wire in zip(tree.aggregators, costs.upper_joules.tolist(), strict=True):
            if tree.height(aggregator.parent) <= height:
                below = tree.below(aggregator.name)
                joules[below.start : below.stop] += of_wire / len(below)
        rows.append(joules)
    return np.array(rows).reshape(len(rows), len(network.sizes))


@dataclass(frozen=True)
class ObjectiveTerms:
    """The three terms of the objective, unweighted or weighted alike; `total` is their sum."""

    energy: float
    delay: float
    gap: float

    @property
    def total(self) -> float:
        """The objective."""
        return self.energy + self.delay + self.gap


@dataclass(frozen=True)
class ControlProblem:
    """One instance of P.

    Attributes:
        remaining: T - t_k slots.
        tau_max: the longest interval considered, at most `remaining`.
        limits: (N,) s_c, the most devices that may take part.
        trusted: (N,) 1 where one noise covers the sum, 0 where each upload has its own.
        aggregations: tau -> K_l(tau), the local aggregations that really happen in an interval of that length.
        upper: tau -> (D - 1,) how many of these are of height 2 .. D; none by default.
        prices: of messages.
        gap_scale: (tau, K_l, active subnets) -> the factor of nu before its sum over subnets.
        edge_gap, device_gap: c2^2 and v2^2, the gap's weights of subnets with and without trust.
        alpha1, alpha2, alpha3: weights of energy, delay and gap; `alpha3` multiplies nu / phi.
        allow_idle: whether whole subnets may sit out.
        noise: tau -> (N,) each subnet's part, with `limits` devices, of the noise variance that an interval really
            adds; over the rest of the run it is the gap. None for nu, which the formula's constants make.
    """

    remaining: int
    tau_max: int
    limits: Counts
    trusted: Floats
    aggregations: Callable[[int], int]
    prices: Prices
    gap_scale: Callable[[int, int, int], float]
    edge_gap: float
    device_gap: float
    alpha1: float
    alpha2: float
    alpha3: float
    phi: float
    allow_idle: bool = False
    upper: Callable[[int], Counts] = _no_upper_tiers
    noise: Callable[[int], Floats] | None = None

    def coefficients(self, tau: int, active: int | None = None) -> Coefficients:
        """Each subnet's share of the objective as a function of its s, for one tau.

        Args:
            active: subnets that take part, which nu counts; all by default.
        """
        local, rest = self.aggregations(tau), self.remaining / tau
        prices, upper = self.prices, self.upper(tau)
        energy = rest * (prices.global_joules + local * prices.local_joules) + self.remaining * prices.step_joules
        delay = rest * prices.seconds(local, upper)
        over_s, over_s2 = self._gaps(tau, active or len(self.limits))
        return Coefficients(
            self.alpha1 * energy + self.alpha2 * delay,
            self.alpha1 * rest * prices.wired_joules(upper),
            self.alpha3 / self.phi * over_s,
            self.alpha3 / self.phi * over_s2,
            rest * (local + 1) * prices.pairs(self.alpha1, self.alpha2),
        )

    def _gaps(self, tau: int, active: int) -> tuple[Floats, Floats]:
        """(N,) each subnet's part of the gap times s, of noise on each upload, and times s^2, of one noise on the sum.

        Noise that is really added falls with the square of the active subnets, as nu does.
        """
        if self.noise is None:
            scale = self.gap_scale(tau, self.aggregations(tau), active)
            return scale * (1 - self.trusted) * self.device_gap, scale * self.trusted * self.edge_gap
        added = self.remaining / tau * self.noise(tau) * (len(self.limits) / active) ** 2
        return added * (1 - self.trusted) * self.limits, added * self.trusted * self.limits**2

    def terms(self, tau: int, participation: Counts) -> ObjectiveTerms:
        """The weighted terms at one point; `participation` (N,) holds 0 for subnets that sit out."""
        active = participation > 0
        local, rest, taking = self.aggregations(tau), self.remaining / tau, participation[active]
        prices, upper = self.prices, self.upper(tau)
        joules = prices.global_joules + local * prices.local_joules
        energy = rest * float((taking * joules[active] + prices.wired_joules(upper)[active]).sum())
        energy += self.remaining * prices.step_joules * float(taking.sum())
        delay = rest * float((taking * prices.seconds(local, upper)[active]).sum())
        energy += rest * (local + 1) * float((taking**2 * prices.pairs(1.0, 0.0)[active]).sum())
        delay += rest * (local + 1) * float((taking**2 * prices.pairs(0.0, 1.0)[active]).sum())
        if self.noise is None:
            trusted = self.trusted[active]
            weights = trusted * self.edge_gap / taking**2 + (1 - trusted) * self.device_gap / taking
            gap = self.gap_scale(tau, local, int(active.sum())) * float(weights.sum()) / self.phi
        else:
            over_s, over_s2 = self._gaps(tau, int(active.sum()))
            gap = float((over_s2[active] / taking**2 + over_s[active] / taking).sum()) / self.phi
        return ObjectiveTerms(self.alpha1 * energy, self.alpha2 * delay, self.alpha3 * gap)


@dataclass(frozen=True)
class Coefficients:
    """(N,) a, k, b1, b2, d of `a s + k + b1 / s + b2 / s^2 + d s^2`; convex in s, as b1, b2 and d are not negative."""

    linear: Floats
    fixed: Floats
    over_s: Floats
    over_s2: Floats
    squared: Floats

    def at(self, participation: Counts) -> Floats:
        """(N,) each subnet's share of the objective."""
        s = participation.astype(np.float64)
        return self.linear * s + self.fixed + (self.over_s + self.over_s2 / s) / s + self.squared * s**2

    def best(self, limits: Counts) -> Counts:
        """(N,) the s in 1..limits with the smallest share each, the smaller one of equals.

        A convex function falls until its first step that is no fall: that step is found by bisection.
        """
        low, high = np.ones_like(limits), limits.copy()
        while (low < high).any():
            middle = (low + high) // 2
            falls = self.at(middle + 1) < self.at(middle)
            open_ = low < high
            low = np.where(open_ & falls, middle + 1, low)
            high = np.where(open_ & ~falls, middle, high)
        return low
