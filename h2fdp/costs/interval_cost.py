"""The cost of an interval: energy and delay as the paper sums them, and the time that a clock would show.

H2FDP, Appendix D. With S the devices of subnet c that take part, e and t the cost of one message of a device, ebar and
tbar that of one from the edge server to the cloud:

    each local aggregation     E_Loc = sum_S e                D_Loc = sum_S t
    the global aggregation     E_Glob = sum_S e + ebar        D_Glob = 2 sum_S (t + tbar)

The paper counts ebar alone in E_Glob; devices do send at a global aggregation, so they are counted. In a star each
message of a device travels on to the cloud separately: e_relay takes ebar's place and t_relay that of tbar.

Below the cloud, edge servers may stand under aggregators, in any number of tiers (ours; the paper has two). An
aggregation above the edge servers costs what the global one costs, up to where it happens: with the wires v on the way,

    E = sum_S e + sum_v ebar_v (each wire once)        D = 2 sum_S (t + sum_v tbar_v)

Energy and delay add up everybody's. The clock runs while subnets work side by side, and so do their access points:

    clock = max_a [ steps * max_S t_step + aggregations * (uplink_a + max_S t) ] + max_c 2 tbar_c

Where an access bills parts of the channel (`Access.billed`), e and t of an upload are those over the device's part.
Over the air t is the same for all, and so is uplink_a (:mod:`h2fdp.costs.device_costs`).

uplink_a counts from when the slowest device has done its steps: faster ones send before, as soon as the channel is
theirs. S are the active devices of access point a (the edge server; in a star, that of the tree), and max_S t is its
broadcast at the rate of the slowest of them. In a deeper tree every aggregation waits for the slowest below it; see
:mod:`h2fdp.costs.traffic`. uplink_a is sum_S t when devices take turns (`tdma`). When s of them share
the bandwidth (`ofdma`) it is the longest of Q M / R, R = W/s log2(1 + s SNR).

Where devices fail, S is at each aggregation those whose uploads arrive, energy has every step that was computed, and
the slots of the interval pass for all: no node waits for a device that dropped out, nor less for a slow one.

Where devices choose their power, t of what comes down to them is that at their own power
(:mod:`h2fdp.costs.messages`).

Where aggregators do not wait, energy and bytes count what has arrived, whether or not an average has taken it
(:func:`with_waiting`); delay counts averages.

With `idle_w`, a device that takes part also spends that power from the start of the interval to its end, while it waits
for others; one that does not sleeps, and spends nothing.

Secure sums exchange more than vectors, see :mod:`h2fdp.costs.traffic`. Whatever a device sends costs joules as
its other messages do; delay adds up what it sends and what it receives; the clock has keys and shares up, everybody's
keys down to the slowest, each device's shares down, and the shares that remove the masks up.

In a secure sum over the whole network (a star whose devices share it) the relays pass keys and shares on, and add up
the masked vectors of their devices: one vector takes each relay's wire, whether or not the sum is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from h2fdp.costs.device_costs import StepCosts
from h2fdp.costs.messages import DrawnCosts, watts
from h2fdp.costs.traffic import (
    Active,
    ExchangeSizes,
    SumQuantity,
    Tasks,
    Wires,
    beyond_edge,
)
from h2fdp.network import Topology
from h2fdp.network.channel import gathered
from h2fdp.network.devices import Floats, Integers


@dataclass(frozen=True, eq=False)
class IntervalCost:
    """The cost of one interval, and whose it is. Nodes that take no part have 0.

    Attributes:
        energy_j, delay_s: of the whole network, as the paper sums them; energy with that of computation.
        clock_s: from the interval's start to its end, with the time of computation.
        compute_energy_j: (N,) all local steps of a subnet.
        device_energy_j: (I,) what a device itself spends: all its messages and steps. The rest of `energy_j` is that of
            the wires, `wired_energy_j`.
        wired_energy_j: (N,) the messages from a subnet's edge server to the node above, or its devices' relays.
        relayed_energy_j: (I,) in a star, what of `wired_energy_j` a device's relay spends on its messages.
        aggregator_energy_j: (A,) the messages from each aggregator to the node above.
        device_delay_s: (I,) a device's terms of `delay_s`.
        bytes: of all messages that `energy_j` pays for: what devices, relays and edge servers send up.
    """

    energy_j: float
    delay_s: float
    clock_s: float
    compute_energy_j: Floats
    wired_energy_j: Floats
    aggregator_energy_j: Floats
    device_energy_j: Floats
    relayed_energy_j: Floats
    device_delay_s: Floats
    bytes: float


def interval_cost(
    costs: DrawnCosts,
    topology: Topology,
    tasks: Mapping[int, Tasks],
    heights: Sequence[int] | None = None,
    sums: ExchangeSizes | None = None,
    summing: Collection[str | None] = (),
    began_s: float = 0.0,
    ways_s: Floats | None = None,
) -> IntervalCost:
    """The cost of an interval.

    Args:
        costs: of one message in this interval.
        topology: the network that they are of.
        tasks: of the subnets that take part, by their numbers, from 0 in the order of the network. A subnet without
            active devices costs nothing.
        heights: of the aggregation after each segment, the same for all subnets; the cloud's, which is last, counts as
            `topology.height(None)`. None where all others happen at the lowest edge servers.
        sums: what is exchanged for secure sums; None where there are none.
        summing: aggregators, or the cloud (None), that hold secure sums of what their children send. Energy and clock
            have them, and `delay_s`, which counts models there and back, has not.
        began_s: the moment of the simulated clock at which it begins, for links that ask for it.
        ways_s: (I,) half the seconds there and back of each device's last message over the links, where aggregators do
            not wait and so messages are sent at other moments; None where they wait.
    """
    active = Active.of(topology, tasks, sums)
    joules, seconds = costs.joules[active.rows], costs.seconds[active.rows]
    there_and_back = seconds + costs.down_seconds[active.rows]
    local, last, relays = active.local, active.last, topology.subnets[0].relays is not None  # instead of edge servers
    step = _steps(active, costs, topology)
    upper_sums = {} if sums is None else dict.fromkeys(summing, sums)
    wires, sent_before, longer = _climbed(active, costs, step, topology, heights, upper_sums, began_s)
    at_edge, round_trips_below = _local_delays(active, costs, topology, heights, wires.paths)
    if ways_s is not None:
        wire_seconds = ways_s[active.rows]
    elif relays:
        wire_seconds = wires.way_s[_points(active, topology)]
    else:
        wire_seconds = active.each(wires.paths[-1][active.subnets])

    link_joules, relayed = costs.link_joules[active.subnets], _relayed(active, topology)
    local_wired = link_joules * sent_before[active.subnets]
    wired = link_joules * (wires.sent - sent_before)[active.subnets]
    of_relays = relayed * costs.relay_joules[active.rows]
    wired = wired + active.totals(of_relays)
    local_energy = active.totals(local * joules) + local_wired
    local_delay = active.totals(at_edge * seconds) + active.totals(round_trips_below)
    sent, round_trips = active.totals(last * joules), active.totals(last * (there_and_back + 2 * wire_seconds))
    of_steps = step.joules * active.steps
    alike = not np.ndim(step.joules)  # multiplied once for all devices, as one number always was
    compute_energy = step.joules * active.totals(active.steps) if alike else active.totals(of_steps)
    aggregator_energy = costs.upper_links.joules * wires.upper_sent
    device_energy = joules * (local + last) + of_steps
    sent_up = (local + last).sum() + (relayed.sum() if relays else 0.0)
    wired_up = wires.upper_sent.sum() + (0.0 if relays else wires.sent.sum())
    device_delay = at_edge * seconds + round_trips_below + last * (there_and_back + 2 * wire_seconds)
    if topology.radio.billed:
        more_joules = watts(costs.power_dbm[active.rows]) * longer
        local_energy, sent = local_energy + active.totals(more_joules[0]), sent + active.totals(more_joules[1])
        local_delay, round_trips = local_delay + active.totals(longer[0]), round_trips + active.totals(longer[1])
        device_energy, device_delay = device_energy + more_joules.sum(axis=0), device_delay + longer.sum(axis=0)
    if active.sums is not None:
        up, down = (active.of_sums(each) for each in ("sent_more", "received_more"))
        up_last, down_last = (active.of_sums(each, -1) for each in ("sent_more", "received_more"))
        sooner, sent_up = costs.sooner[active.rows], sent_up + up.sum()
        seconds = seconds + costs.relay_seconds[active.rows]  # keys and shares take the wire of a relay, too
        device_energy, device_delay = device_energy + up * joules, device_delay + (up + down) * seconds - down * sooner
        local_energy = local_energy + active.totals((up - up_last) * joules)
        sent = sent + active.totals(up_last * joules)
        earlier = (up - up_last + down - down_last) * seconds - (down - down_last) * sooner
        local_delay = local_delay + active.totals(earlier)
        round_trips = round_trips + active.totals((up_last + down_last) * seconds - down_last * sooner)

    clock_s = float(wires.clock.max(initial=0.0))
    if "idle_w" in topology.table.columns:
        waiting = topology.table.columns["idle_w"][active.rows] * clock_s
        local_energy, device_energy = local_energy + active.totals(waiting), device_energy + waiting

    def by_subnet(values: Floats) -> Floats:
        return _spread(values, active.subnets, topology.edges)

    return IntervalCost(
        energy_j=float((local_energy + sent + wired + compute_energy).sum() + aggregator_energy.sum()),
        delay_s=float((local_delay + round_trips).sum()),
        clock_s=clock_s,
        compute_energy_j=by_subnet(compute_energy),
        wired_energy_j=by_subnet(local_wired + wired),
        aggregator_energy_j=aggregator_energy,
        device_energy_j=_spread(device_energy, active.rows, topology.devices),
        relayed_energy_j=_spread(of_relays, active.rows, topology.devices),
        device_delay_s=_spread(device_delay, active.rows, topology.devices),
        bytes=float(sent_up * costs.upload_bits + wired_up * costs.uplink_bits) / 8,
    )


def with_waiting(
    cost: IntervalCost, costs: DrawnCosts, topology: Topology, uploads: Floats, steps: Floats
) -> IntervalCost:
    """The cost where uploads have arrived that no average has taken, with their energy and bytes.

    Args:
        uploads: (I,) so many more of each device; below 0 where they were billed before.
        steps: (I,) local steps behind these.
    """
    in_star = topology.subnets[0].relays is not None  # each travels on to the cloud
    messages, relays, of_steps = costs.joules * uploads, costs.relay_joules * uploads, costs.step.joules * steps
    sent, wired, computed = (np.add.reduceat(each, topology.firsts) for each in (messages + relays, relays, of_steps))
    return replace(
        cost,
        energy_j=cost.energy_j + float((sent + computed).sum()),
        compute_energy_j=cost.compute_energy_j + computed,
        wired_energy_j=cost.wired_energy_j + wired,
        relayed_energy_j=cost.relayed_energy_j + relays,
        device_energy_j=cost.device_energy_j + messages + of_steps,
        bytes=cost.bytes + float(uploads.sum()) * (costs.upload_bits + in_star * costs.uplink_bits) / 8,
    )


def _local_delays(
    active: Active, costs: DrawnCosts, topology: Topology, heights: Sequence[int] | None, paths: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """(K,) local aggregations at its edge server that each device's upload arrives at, and (K,) the seconds of its
    round trips at those above, which take these `paths`, see `Wires`."""
    at_edge, round_trips, of_links = active.local, np.zeros(len(active.rows)), iter(paths)
    for sends, height in zip(active.occasions(), (heights or (1,))[:-1], strict=False):
        if height > 1:
            above = sends & active.each(beyond_edge(topology, height)[active.subnets])
            wires = active.each(next(of_links)[active.subnets])
            at_edge = at_edge - above
            there_and_back = (costs.seconds + costs.down_seconds)[active.rows]
            round_trips += above * (there_and_back + 2 * wires)
    return at_edge, round_trips


def _relayed(active: Active, topology: Topology) -> Floats:
    """(K,) messages that a relay in a star passes on of each device's: all, but of masked vectors a part of one."""
    if active.sums is None:
        return active.last
    vectors, points = active.last * active.vector_sizes + active.of_sums("unopened"), _points(active, topology)
    arrived = gathered(np.add, (vectors > 0).astype(np.float64), points, len(topology.access_points[1]))
    times: Floats = active.of_sums("set_up") + active.of_sums("unmasking") + vectors / np.maximum(arrived[points], 1.0)
    return times


def _steps(active: Active, costs: DrawnCosts, topology: Topology) -> StepCosts:
    """The cost of local steps to the active devices, at frequencies that they choose by the uploads that are
    planned."""
    step = costs.step.of(active.rows)
    if step.rule is None:
        return step
    points, count = _points(active, topology), len(topology.access_points[1])
    seconds, snr, down = (each[active.rows] for each in (costs.seconds, costs.snr, costs.down_seconds))
    leads = gathered(np.maximum, np.asarray(step.seconds), points, count)[points] - step.seconds
    waits, planned = np.zeros(len(active.rows)), active.each(active.aggregations)
    for number in range(int(planned.max(initial=0))):
        steps = planned > number
        at, messages = points[steps], seconds[steps] * active.vector_sizes[steps]
        waits[steps] += topology.radio.waits(messages, snr[steps], at, count, leads[steps])
        waits[steps] += gathered(np.maximum, down[steps], at, count)[at]
    return step.paced(active.each(active.slots), waits)


def _points(active: Active, topology: Topology) -> Integers:
    """(K,) each active device's access point."""
    _, sizes = topology.access_points
    points: Integers = np.repeat(np.arange(len(sizes)), sizes)[active.rows]
    return points


def _climbed(
    active: Active,
    costs: DrawnCosts,
    step: StepCosts,
    topology: Topology,
    heights: Sequence[int] | None,
    sums: Mapping[str | None, ExchangeSizes],
    began_s: float,
) -> tuple[Wires, Floats, Floats]:
    """The wires after the interval, (P,) the messages of each access point before the global aggregation, and
    (2, K) seconds of each device's uploads to local aggregations, and to the last, beyond those that messages take.
    """
    _, sizes = topology.access_points
    points = _points(active, topology)
    star = topology.subnets[0].relays is not None
    vector = float(active.vector_sizes[0]) if star and active.sums is not None else 1.0
    wires = Wires(topology, costs, began_s, (1 + vector) / 2, sums)
    on_air, slots = np.zeros(len(sizes)), np.zeros(len(sizes))
    uploads, once = np.zeros(0, dtype=bool), np.zeros(len(sizes))

    step_seconds = np.zeros(len(sizes))
    np.maximum.at(step_seconds, points, step.seconds)
    leads = step_seconds[points] - step.seconds  # (K,) of each step, against the slowest of the access point
    lead = np.zeros(0)
    longer, more = np.zeros((2, len(active.rows))), np.zeros(0)  # at local aggregations, at the last
    segments, aggregations = [each.segments for each in active.tasks], active.each(active.aggregations)

    def busy() -> Floats:
        return step_seconds * slots + on_air

    for number, sends in enumerate(active.occasions()):
        lengths = [float(each[number]) if number < len(each) else 0.0 for each in segments]
        slots_now = active.each(np.array(lengths))
        before, lead = lead, leads[sends] * slots_now[sends]
        if not (np.array_equal(sends, uploads) and np.array_equal(lead, before)):  # mostly as at the aggregation before
            sizes_there = active.vector_sizes[sends]
            uploads = sends
            once, more = _on_air(costs, topology, points[sends], active.rows[sends], sizes_there, lead)
        on_air += once
        longer[(aggregations[sends] == number + 1).astype(np.int64), sends] += more
        if active.sums is not None:
            on_air += _sums_on_air(costs, topology, points, active, number)
        slots[points] += slots_now
        wires.arrive(points if any(each.always for each in active.tasks) else points[sends])
        if heights is not None and number < len(heights) - 1 and heights[number] > 1:
            wires.aggregate(heights[number], busy())
            on_air, slots = np.zeros(len(sizes)), np.zeros(len(sizes))
    sent = wires.sent.copy()
    wires.aggregate(topology.height(None), busy())
    return wires, sent, longer


def _on_air(
    costs: DrawnCosts,
    topology: Topology,
    points: Integers,
    rows: Integers,
    messages: Floats,
    lead: Floats,
) -> tuple[Floats, Floats]:
    """(A,) seconds of one aggregation at each access point, up and down again, of these devices (K,) at `points`, and
    (K,) by which each upload takes longer over its part of the channel than over the whole; 0 where that is not billed.

    Args:
        messages: (K,) that each upload takes.
        lead: (K,) seconds before the slowest device's last step, from which the time is counted.
    """
    sizes, radio = topology.access_points[1], topology.radio
    seconds, snr, longer = costs.seconds[rows] * messages, costs.snr[rows], np.zeros(len(rows))
    if radio.billed:
        over_parts = radio.waits(seconds, snr, points, len(sizes), lead)
        uplink, longer = gathered(np.maximum, over_parts - lead, points, len(sizes)), over_parts - seconds
    else:
        uplink = radio.uplink_seconds(seconds, snr, points, len(sizes), lead)
    return uplink + gathered(np.maximum, costs.down_seconds[rows], points, len(sizes)), longer


def _sums_on_air(costs: DrawnCosts, topology: Topology, points: Integers, active: Active, number: int) -> Floats:
    """(A,) seconds at each access point of what a secure sum exchanges in addition to opened vectors and models."""
    count = len(topology.access_points[1])
    up = costs.seconds[active.rows], costs.snr[active.rows]
    down = costs.down_seconds[active.rows], costs.down_snr[active.rows]
    wire, spent = costs.relay_seconds[active.rows], np.zeros(count)
    ways: Sequence[tuple[SumQuantity, tuple[Floats, Floats]]] = (
        ("set_up", up),
        ("others_shares", down),
        ("unopened", up),
        ("unmasking", up),
    )
    for quantity, (seconds, snr) in ways:
        messages = active.of_sums(quantity, number)
        sends = messages > 0
        times = seconds[sends] * messages[sends]
        spent += topology.radio.uplink_seconds(times, snr[sends], points[sends], count)
        together = np.maximum if quantity == "unopened" else np.add  # a relay adds vectors up
        spent += gathered(together, wire * messages, points, count)
    keys = active.of_sums("others_keys", number)
    return spent + gathered(np.maximum, (down[0] + wire) * keys, points, count)


def _spread(values: Floats, at: Integers, length: int) -> Floats:
    """(length,) the values at their places, and 0 elsewhere."""
    spread = np.zeros(length)
    spread[at] = values
    return spread
