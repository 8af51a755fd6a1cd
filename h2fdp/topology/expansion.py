"""From a checked topology file to the network itself: templates written out, trust, counts and distances drawn.

Every draw comes from a stream keyed by the edge server's name, so it does not move when the file is rearranged, and
trust is U(seed, name) < probability with one U: raising the probability never un-trusts an edge server.
"""

from __future__ import annotations

import numpy as np

from h2fdp.streams import Streams
from h2fdp.topology.arrays import Floats
from h2fdp.topology.naming import instance
from h2fdp.topology.network import Compute, DistanceRule, Link, Radio, Subnet, Topology
from h2fdp.topology.schema import (
    DEFAULT_TRUST_PROBABILITY,
    DevicesSection,
    EdgeSection,
    LinkSection,
    RadioSection,
    TopologyFile,
    UniformCount,
    UniformDistance,
)

DRAWN_DECIMALS = 3  # drawn distances are whole millimetres, so files as drawn stay legible


def expand(file: TopologyFile, seed: int) -> Topology:
    """The network that a file describes under a seed."""
    stated = None if file.trust is None else file.trust.probability
    probability = DEFAULT_TRUST_PROBABILITY if stated is None else stated
    streams = Streams(seed)
    subnets = tuple(
        _subnet(edge, number, file.cloud.link, probability, streams)
        for edge in file.edges
        for number in range(1, edge.repeat + 1)
    )
    all_state_trust = all(edge.trusted is not None for edge in file.edges)
    return Topology(
        name=file.name,
        subnets=subnets,
        radio=_radio(file.radio),
        compute=Compute(file.compute.seconds_per_step, file.compute.joules_per_step),
        trust_probability=stated if all_state_trust else probability,
    )


def draw_trust(name: str, probability: float, streams: Streams) -> bool:
    """Whether an edge server is trusted (H2FDP, Eq. 27)."""
    return bool(streams.open(name, "trust").random() < probability)


def draw_distances(name: str, rule: UniformDistance, size: int, streams: Streams) -> Floats:
    """(size,) distances in metres; the first ones are the same for every size."""
    stream = streams if rule.seed is None else Streams(rule.seed)
    lowest, highest = rule.uniform
    drawn = lowest + (highest - lowest) * stream.open(name, "distance").random(size)
    return np.clip(np.round(drawn, DRAWN_DECIMALS), lowest, highest)


def _subnet(edge: EdgeSection, number: int, default_link: LinkSection, probability: float, streams: Streams) -> Subnet:
    name = instance(edge.name, number)
    trusted = draw_trust(name, probability, streams) if edge.trusted is None else edge.trusted
    link = _link(default_link if edge.link is None else edge.link)
    host = None if edge.host is None else instance(edge.host, number)
    if not isinstance(edge.devices, DevicesSection):
        return _subnet_of_list(edge, number, name, trusted, link, host, streams)
    devices = edge.devices
    size = devices.count if isinstance(devices.count, int) else _draw_count(name, devices.count, streams)
    rule = None
    if isinstance(devices.distance_m, UniformDistance):
        distances = draw_distances(name, devices.distance_m, size, streams)
        lowest, highest = devices.distance_m.uniform
        own_seed = devices.distance_m.seed
        rule = DistanceRule(lowest, highest, streams.seed if own_seed is None else own_seed)
    else:
        distances = np.broadcast_to(np.asarray(devices.distance_m, dtype=np.float64), size)
    power = np.broadcast_to(np.asarray(devices.power_dbm, dtype=np.float64), size)
    return Subnet(name, trusted, distances, power, link, host, None, rule)


def _subnet_of_list(
    edge: EdgeSection, number: int, name: str, trusted: bool, link: Link, host: str | None, streams: Streams
) -> Subnet:
    assert isinstance(edge.devices, list)
    defaults = [f"{name}/{position}" for position in range(1, len(edge.devices) + 1)]
    names = tuple(
        default if device.name is None else instance(device.name, number)
        for device, default in zip(edge.devices, defaults, strict=True)
    )
    distances = np.array(
        [
            draw_distances(name, device.distance_m, position + 1, streams)[position]
            if isinstance(device.distance_m, UniformDistance)
            else device.distance_m
            for position, device in enumerate(edge.devices)
        ]
    )
    power = np.array([device.power_dbm for device in edge.devices], dtype=np.float64)
    return Subnet(name, trusted, distances, power, link, host, None if list(names) == defaults else names)


def _draw_count(name: str, rule: UniformCount, streams: Streams) -> int:
    lowest, highest = rule.uniform
    return int(streams.open(name, "count").integers(lowest, highest, endpoint=True))


def _link(section: LinkSection) -> Link:
    return Link(rate_bps=section.rate_mbps * 1e6, power_dbm=section.power_dbm)


def _radio(section: RadioSection) -> Radio:
    return Radio(
        bandwidth_hz=section.bandwidth_mhz * 1e6,
        noise_dbm_per_hz=section.noise_dbm_per_hz,
        access=section.access,
        fading=section.fading,
        fading_floor_db=section.fading_floor_db,
        bits_per_parameter=section.bits_per_parameter,
        pathloss_db=section.pathloss.beta0_db,
        pathloss_exponent=section.pathloss.exponent,
        reference_m=section.pathloss.reference_m,
    )
