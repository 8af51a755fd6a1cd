"""Small networks for tests."""

import json

import networkx as nx

from h2fdp.network import CLOUD, Aggregator, Subnet, write
from h2fdp.network.files import cloud_trust, head, named_devices, trust_values
from h2fdp.network.links import link_values


def placed(name, trust, distance_m, power_dbm, *rest, **more):
    """A subnet whose devices are so far away, and send with so much power."""
    return Subnet(name, trust, {"distance_m": distance_m, "power_dbm": power_dbm}, *rest, **more)


def stored(topology, path):
    """Stores a network as YAML, or as a graph in the form that networkx writes, by the suffix of the path."""
    if path.suffix == ".yaml":
        write(topology, path)
        return path
    graph = nx.Graph(**_dotted(head(topology, state_trust=True)))
    cloud = "the cloud" if any(subnet.name == CLOUD for subnet in topology.subnets) else CLOUD
    graph.add_node(cloud, kind="cloud", **cloud_trust(topology))
    for server in topology.servers():
        graph.add_node(server.name, kind="edge", **trust_values(server))
        graph.add_edge(cloud if server.parent is None else server.parent, server.name, **link_values(server.link))
        for device in [] if isinstance(server, Aggregator) else named_devices(server):
            name = device.pop("name")
            graph.add_node(name, kind="device")
            graph.add_edge(server.name, name, **device)
    if path.suffix == ".graphml":
        nx.write_graphml(graph, path)
    else:
        path.write_text(json.dumps(nx.node_link_data(graph), indent=1))
    return path


def _dotted(values, prefix=""):
    flat = {}
    for key, value in values.items():
        flat |= _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
