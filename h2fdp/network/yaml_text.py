"""A topology in the words of a topology file: the values by their keys, and these as YAML."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from h2fdp.config.parsing import plain_scalar
from h2fdp.network.channel import ACCESSES, FADINGS, PATH_LOSSES
from h2fdp.network.devices import Floats
from h2fdp.network.network import Aggregator, Link, Subnet
from h2fdp.network.schema import UNLIMITED
from h2fdp.network.topology import Topology
from h2fdp.network.trust import TrustSection

MOST_EXPLICIT_DEVICES = 1_000  # in a larger network, distances that follow a rule are written as the rule
_SPELT = {"None": "null", "inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
_WORD = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)


def yaml_text(topology: Topology, state_trust: bool = True) -> str:
    """The topology as a YAML file, an edge server on each line, or a named device.

    >>> print(yaml_text(Topology.regular(edges=1, devices=2, trust=1.0, name="small")).splitlines()[-1])
      - {name: edge-1, trusted: true, devices: {count: 2, distance_m: [45.792, 29.859], power_dbm: 24}}
    """
    default, explicit = common_link(topology), topology.devices <= MOST_EXPLICIT_DEVICES
    nodes = {server.name: server for server in topology.servers()}

    def written(name: str, indent: str) -> Iterator[str]:
        """An edge server and all below it."""
        node = nodes[name]
        values = {"name": name, **(trust_values(node) if state_trust else {})}
        values |= {} if node.link == default else {"link": link_values(node.link)}
        if isinstance(node, Subnet) and node.names is None:
            yield f"{indent}- {flow(values | {'devices': _devices(node, explicit)})}"
            return
        for key, value in values.items():
            yield f"{indent}{'-' if key == 'name' else ' '} {key}: {flow(value)}"
        if isinstance(node, Subnet):
            yield f"{indent}  devices:"
            yield from (f"{indent}    - {flow(device)}" for device in named_devices(node))
            return
        yield f"{indent}  edges:"
        for child in topology.children(name):
            yield from written(child, indent + "  ")

    lines = [f"{key}: {flow(value)}" for key, value in head(topology, state_trust).items()]
    lines += [f"cloud: {flow({'link': link_values(default), **cloud_trust(topology)})}", "edges:"]
    for name in topology.children(None):
        lines += written(name, "  ")
    return "\n".join(lines) + "\n"


def head(topology: Topology, state_trust: bool) -> dict[str, Any]:
    """Everything about the network but its nodes, in the file's keys and units."""
    radio = topology.radio
    values: dict[str, Any] = {
        "name": topology.name,
        "radio": {
            "bandwidth_mhz": mega(radio.bandwidth_hz),
            "noise_dbm_per_hz": radio.noise_dbm_per_hz,
            "access": ACCESSES.stated(radio.access),
            "fading": FADINGS.stated(radio.fading),
            "fading_floor_db": radio.fading_floor_db,
            "bits_per_parameter": radio.bits_per_parameter,
            "pathloss": PATH_LOSSES.stated(radio.pathloss),
        },
    }
    probability = topology.trust_probability
    if probability is not None or not state_trust:
        trusted = TrustSection().bounds[0] if probability is None else probability
        secure = topology.secure_sum_probability
        values["trust"] = {"trusted": trusted, "secure-sum": secure} if secure else {"probability": trusted}
    if topology.mobility is not None:
        wire = topology.mobility.handover
        values["mobility"] = topology.mobility.values() | ({} if wire is None else {"handover": link_values(wire)})
    if topology.association is not None:
        values["association"] = topology.association.values()
    if topology.adversaries is not None:
        values["adversaries"] = topology.adversaries.values()
    return values


def trust_values(server: Subnet | Aggregator) -> dict[str, Any]:
    """The trust in an edge server, in the file's keys."""
    plain = server.trust in ("trusted", "untrusted")
    return {"trusted": server.trusted} if plain else {"trust": server.trust}


def cloud_trust(topology: Topology) -> dict[str, Any]:
    """The trust in the cloud, in the file's keys, where it is not the default."""
    return {} if topology.cloud_trust == "untrusted" else {"trust": topology.cloud_trust}


def common_link(topology: Topology) -> Link:
    """The link that most edge servers have; only others are written at their edge server."""
    links = [each.link for each in topology.subnets] + [each.link for each in topology.aggregators]
    return Counter(links).most_common(1)[0][0]


def link_values(link: Link) -> dict[str, Any]:
    """A link in the file's keys and units."""
    return {"rate_mbps": UNLIMITED if math.isinf(link.rate_bps) else mega(link.rate_bps), "power_dbm": link.power_dbm}


def mega(value: float) -> float:
    """A value in millions, such that a million times it is the value to the last bit where a float can do that."""
    quotient = value / 1e6
    near = (quotient, math.nextafter(quotient, math.inf), math.nextafter(quotient, 0.0))
    return min(
        (candidate for candidate in near if candidate * 1e6 == value),
        key=lambda candidate: len(repr(candidate)),
        default=quotient,
    )


def flow(value: Any) -> str:
    """A value on one line of YAML, read back by our own rules of what a plain word means.

    >>> flow({"name": "1e5", "distance_m": [40.0, 75.5], "trusted": True})
    '{name: "1e5", distance_m: [40, 75.5], trusted: true}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _WORD.fullmatch(value) and plain_scalar(value) == value
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value).removesuffix(".0")
    return _SPELT.get(text, text)


def _devices(subnet: Subnet, explicit: bool) -> dict[str, Any]:
    rules = {} if explicit else subnet.rules
    return {"count": subnet.size} | {
        name: {"uniform": [rules[name].lowest, rules[name].highest], "seed": rules[name].seed}
        if name in rules
        else _one_or_all(values)
        for name, values in subnet.columns.items()
    }


def _one_or_all(values: Floats) -> Any:
    """One number when all are equal."""
    return float(values[0]) if np.all(values == values[0]) else values.tolist()


def named_devices(subnet: Subnet) -> list[dict[str, Any]]:
    """The name and the numbers of each device."""
    rows = zip(*(values.tolist() for values in subnet.columns.values()), strict=True)
    return [
        {"name": name, **dict(zip(subnet.columns, numbers, strict=True))}
        for name, numbers in zip(subnet.device_names(), rows, strict=True)
    ]
