"""Networks, plans of an interval, and what they cost: by the package, and by the formulas written out."""

from dataclasses import replace
from math import log10
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from h2fdp.costs.interval_cost import interval_cost
from h2fdp.costs.messages import NetworkCosts
from h2fdp.costs.traffic import Tasks
from h2fdp.network import Radio, Topology, Wire
from h2fdp.streams import Streams
from tests.networks import placed

# One hertz, noise of a milliwatt, no path loss: a device of 10 log10(x) dBm has a signal-to-noise ratio of x.
PLAIN = Radio(bandwidth_hz=1.0, noise_dbm_per_hz=0.0, pathloss={"beta0_db": 0.0, "exponent": 0.0}, fading="none")
THREE = 10 * log10(3)  # R = log2(1 + 3) = 2 bits a second


class Failing(NamedTuple):
    """(segments, s) whether each upload arrives, and (s,) local steps of each device."""

    uploads: np.ndarray
    steps: np.ndarray


def tasks_of(subnets, rows, segments, failing=None, masked=False):
    """Tasks by the number of the subnet; where some devices fail, each upload stands for one step."""
    found = {}
    for number, active, lengths, some in zip(subnets, rows, segments, failing or [None] * len(rows), strict=True):
        planned = Tasks.planned(np.array(active, dtype=np.int64), tuple(lengths), masked)
        if some is not None:
            behind = some.uploads.astype(np.int64)
            planned = replace(planned, steps=behind, lost=some.steps - behind.sum(axis=0), whole=False)
        found[number] = planned
    return found


def cost(topology, subnets, rows, segments, bits=8, seed=1, interval=0, failing=None, masked=False, **more):
    radio = replace(topology.radio, bits_per_parameter=1)
    network = replace(topology, radio=radio)
    drawn = NetworkCosts(network, bits, Streams(seed)).drawn(interval)
    return interval_cost(drawn, network, tasks_of(subnets, rows, segments, failing, masked), **more)


def everybody(topology, segments, **options):
    rows = [range(size) for size in topology.sizes]
    return cost(topology, range(topology.edges), rows, [segments] * topology.edges, **options)


@st.composite
def trees(draw):
    rates = st.floats(1e3, 1e9) | st.just(float("inf"))
    subnets = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 4))
        lists = [draw(st.lists(kind, min_size=size, max_size=size)) for kind in (st.floats(1, 2e3), st.floats(0, 40))]
        subnets.append(placed(f"edge-{number}", True, *lists, Wire(draw(rates), draw(st.floats(0, 50)))))
    radio = Radio(
        bandwidth_hz=draw(st.floats(1e3, 1e8)),
        access=draw(st.sampled_from(["tdma", "ofdma"])),
        fading=draw(st.sampled_from(["rayleigh", "none"])),
        bits_per_parameter=1,
    )
    of_steps = {name: draw(st.floats(0, 10)) for name in ("seconds_per_step", "joules_per_step")}
    return Topology("net", tuple(subnets), radio).with_devices(**of_steps)


@st.composite
def plans(draw, networks=trees() | trees().map(Topology.as_star)):  # noqa: B008 - a value
    topology = draw(networks)
    subnets = draw(st.lists(st.integers(0, topology.edges - 1), unique=True))
    rows = [draw(st.lists(st.integers(0, topology.subnets[c].size - 1), unique=True)) for c in subnets]
    segments = [draw(st.lists(st.integers(1, 20), min_size=1, max_size=4)) for _ in subnets]
    return topology, subnets, rows, segments


@st.composite
def failures(draw, rows, segments):
    """For each subnet any uploads that arrive, and any steps, or None where nothing fails."""
    found = []
    for active, lengths in zip(rows, segments, strict=True):
        arrives = st.lists(st.booleans(), min_size=len(active), max_size=len(active))
        uploads = np.array([draw(arrives) for _ in lengths], dtype=bool).reshape(len(lengths), len(active))
        steps = np.array([draw(st.integers(0, sum(lengths))) for _ in active], dtype=np.int64)
        found.append(draw(st.sampled_from([None, Failing(uploads, steps)])))
    return found


def written_out(topology, subnets, rows, segments, bits, fading, failing=None):
    """H2FDP, Appendix D, in loops over devices, from powers and distances."""
    radio, columns = topology.radio, topology.table.columns
    step_s, step_j = (columns[name][0] for name in ("seconds_per_step", "joules_per_step"))
    local_energy, global_energy, local_delay, global_delay = ([0.0] * topology.edges for _ in range(4))
    of_devices, clocks, round_trips = [0.0] * topology.devices, [0.0], [0.0]
    of_compute = 0.0
    for c, active, lengths, some in zip(subnets, rows, segments, failing or [None] * len(rows), strict=True):
        if not active:
            continue
        subnet = topology.subnets[c]
        some = some or Failing(np.ones((len(lengths), len(active)), bool), np.full(len(active), sum(lengths)))
        first = sum(other.size for other in topology.subnets[:c])
        wire = bits / subnet.link.rate_bps
        if some.uploads.any():
            global_energy[c] += 10 ** (subnet.link.power_dbm / 10 - 3) * wire
        points, relays = access_points(subnet), subnet.relays
        times = {points[j]: [[] for _ in lengths] for j in active}
        for place, j in enumerate(active):
            local, last = int(some.uploads[:-1, place].sum()), int(some.uploads[-1, place])
            power = 10 ** (subnet.column("power_dbm")[j] / 10 - 3)
            loss = radio.pathloss
            gain = 10 ** (loss.beta0_db / 10) * subnet.column("distance_m")[j] ** -loss.exponent
            noise = 10 ** (radio.noise_dbm_per_hz / 10 - 3)

            def rate(width, signal=power * gain * fading[first + j], density=noise):
                return width * np.log1p(signal / (density * width)) / np.log(2)

            t = bits / rate(radio.bandwidth_hz)
            for number in np.flatnonzero(some.uploads[:, place]):
                neighbours = [
                    other for at, other in enumerate(active) if some.uploads[number, at] and points[other] == points[j]
                ]
                shared = bits / rate(radio.bandwidth_hz / len(neighbours))
                times[points[j]][number].append((t, shared))
            relay = 0.0 if relays is None else bits / relays.links[points[j]].rate_bps
            relay_energy = 0.0 if relays is None else 10 ** (relays.links[points[j]].power_dbm / 10 - 3) * relay
            local_energy[c] += local * power * t
            global_energy[c] += last * (power * t + relay_energy)
            local_delay[c] += local * t
            global_delay[c] += last * 2 * (t + relay + wire)
            of_devices[first + j] = (local + last) * power * t + some.steps[place] * step_j
            of_compute += some.steps[place] * step_j
            if local + last:
                round_trips.append(2 * (relay + wire))
        for point in times.values():
            clocks.append(sum(lengths) * step_s)
            for uploads in point:
                if uploads:
                    alone, shared = zip(*uploads, strict=True)
                    clocks[-1] += (sum(alone) if radio.access.name == "tdma" else max(shared)) + max(alone)
    return {
        "energy_j": sum(local_energy) + sum(global_energy) + of_compute,
        "delay_s": sum(local_delay) + sum(global_delay),
        "clock_s": max(clocks) + max(round_trips),
        "device_energy_j": of_devices,
    }


def access_points(subnet):
    """Each device's, by number."""
    sizes = [subnet.size] if subnet.relays is None else subnet.relays.sizes
    return [number for number, size in enumerate(sizes) for _ in range(size)]
