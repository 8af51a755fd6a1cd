"""GraphML, GML, node-link JSON and graphs of Python: what they mean, and mistakes told by node."""

import json

import networkx as nx
import numpy as np
import pytest

from h2fdp import Experiment
from h2fdp.errors import UserError
from h2fdp.network import read

NODES = {
    "c": {"kind": "cloud"},
    "a": {"kind": "edge", "trusted": True},
    "b": {"kind": "edge"},
    "a1": {"kind": "device"},
    "a2": {"kind": "device"},
    "b1": {"kind": "device"},
}
LINKS = {
    ("c", "a"): {"rate_mbps": 10.0, "power_dbm": 30.0},
    ("b", "c"): {},
    ("a", "a1"): {"distance_m": 5.0},
    ("a2", "a"): {"power_dbm": 20.0},
    ("b", "b1"): {},
}


def graph(nodes=None, links=None, **attributes):
    made = nx.Graph(**attributes)
    made.add_nodes_from({**NODES, **(nodes or {})}.items())
    made.add_edges_from((*ends, attributes) for ends, attributes in {**LINKS, **(links or {})}.items())
    return made


@pytest.fixture(params=["graphml", "json"])
def stored(request, tmp_path):
    """Stores a graph in one of the formats, as networkx writes it, and reads it as a topology."""
    path = tmp_path / f"net.{request.param}"

    def store(made, seed=1):
        if request.param == "graphml":
            nx.write_graphml(made, path)
        else:
            path.write_text(json.dumps(nx.node_link_data(made), indent=1))
        return read(path, seed)

    return store


def mistakes(stored, *arguments, **attributes):
    with pytest.raises(UserError) as caught:
        stored(graph(*arguments, **attributes))
    return [line.split(": ", 1)[1] for line in str(caught.value).splitlines()]


def test_a_graph_of_python_is_a_topology():
    made = graph({"a": {"kind": "edge", "trusted": np.True_}})
    experiment = Experiment(topology=made, intervals=1)
    assert [subnet.device_names() for subnet in experiment.topology.subnets] == [["a1", "a2"], ["b1"]]
    assert experiment.topology.subnets[0].trusted
    assert Experiment(topology=nx.DiGraph(made), intervals=1).topology.device_names() == ["a1", "a2", "b1"]
    with pytest.raises(UserError, match=r"graph: no node has the attribute `kind`.*h2fdp\.network\.imported"):
        Experiment(topology=nx.path_graph(3))
    with pytest.raises(UserError, match=r"topology: expected a Topology, .* or a graph of networkx, found list"):
        Experiment(topology=[1, 2])


def test_defaults_of_graphml_count(tmp_path):
    """networkx leaves them to the reader; a boolean one says `false`."""
    text = "\n".join(nx.generate_graphml(graph({"a": {"kind": "edge", "trusted": True}})))
    key = 'attr.name="trusted" attr.type="boolean"'
    text = text.replace(f"{key} />", f"{key}><default>false</default></key>")
    (tmp_path / "n.graphml").write_text(text)
    network = read(tmp_path / "n.graphml", 1)
    assert [subnet.trust for subnet in network.subnets] == ["trusted", "untrusted"]
    assert network.trust_probability is None


def test_gml_may_be_a_topology(tmp_path):
    nx.write_gml(graph(), tmp_path / "n.gml")
    nodes = [data.get("label", name) for name, data in nx.read_gml(tmp_path / "n.gml", label="id").nodes(data=True)]
    assert nodes == list(NODES)
    assert read(tmp_path / "n.gml", 1).sizes.tolist() == [2, 1]


def test_a_graph_is_a_network(stored):
    network = stored(graph())
    assert [subnet.name for subnet in network.subnets] == ["a", "b"]
    assert [subnet.device_names() for subnet in network.subnets] == [["a1", "a2"], ["b1"]]
    assert network.subnets[0].trusted
    assert network.subnets[0].link.rate_bps == 10e6
    assert network.subnets[0].column("distance_m").tolist() == [5.0, 50.0]
    assert network.subnets[0].column("power_dbm").tolist() == [24.0, 20.0]


def test_the_server_on_the_way_to_the_cloud_is_the_one_above(stored):
    deep = nx.Graph()
    for name, kind in {"a": "edge", "a1": "device", "n": "edge", "b": "edge", "b1": "device", "c": "cloud"}.items():
        deep.add_node(name, kind=kind)
    deep.add_edges_from([("a", "a1"), ("b", "b1"), ("c", "n", {"rate_mbps": 10.0}), ("b", "n"), ("a", "n")])
    network = stored(deep)
    assert [(aggregator.name, aggregator.parent) for aggregator in network.aggregators] == [("n", None)]
    assert network.aggregators[0].link.rate_bps == 10e6
    assert network.children("n") == ("a", "b")


def test_a_mistake_of_a_deep_graph_is_told_by_node(stored):
    nodes = {"d": {"kind": "edge"}, "e": {"kind": "edge", "trusted": 3}, "e1": {"kind": "device"}}
    links = {("c", "d"): {}, ("d", "e"): {"rate_mbps": -1.0}, ("e", "e1"): {"distance_m": -1.0}}
    assert [line.split(" expected")[0] for line in mistakes(stored, nodes, links)] == [
        'node "e".trusted:', 'node "e".link.rate_mbps:', 'node "e1".distance_m:'
    ]  # fmt: skip


def test_trust_that_a_graph_leaves_open_is_drawn(stored):
    assert stored(graph(**{"trust.probability": 1.0})).subnets[1].trusted
    assert not stored(graph(**{"trust.probability": 0.0})).subnets[1].trusted


def test_attributes_of_the_whole_have_dotted_keys(stored):
    network = stored(graph(name="net", **{"radio.bandwidth_mhz": 2.0, "devices.joules_per_step": 1}))
    assert (network.name, network.radio.bandwidth_hz, network.table.columns["joules_per_step"][0]) == ("net", 2e6, 1.0)


def test_a_graph_has_the_optional_parts_of_a_topology_file(stored, tmp_path):
    (tmp_path / "grid.csv").write_text("hour,de\n0,400\n12,200\n")
    network = stored(graph(**{"carbon.trace": "grid.csv"}))
    assert (network.carbon.lines, network.carbon.places) == (((0.0, 400.0), (12.0, 200.0)), {"a": "de", "b": "de"})


@pytest.mark.parametrize(("nodes", "links", "expected"), [
({}, {("a", "b1"): {}}, 'node "b1": two parents'),
({}, {("a", "b"): {}}, "the links form a cycle"),
({"d": {"kind": "edge"}, "d1": {"kind": "device"}}, {("a", "d"): {}, ("d", "d1"): {}},
     'node "a": devices and edge servers below it; expected one of both'),
({"d": {"kind": "cloud"}}, {}, 'node "d": a second cloud (the first is "c")'),
({"d": {"kind": "router"}}, {}, 'node "d".kind: expected one of cloud, edge, device, found "router"'),
({}, {("a", "a1"): {"distance_m": -4.0}}, 'node "a1".distance_m: expected a finite number above 0'),
({}, {("a", "a1"): {"distance": 4.0}}, 'node "a1".distance: unknown key; did you mean `distance_m`?'),
])  # fmt: skip
def test_what_is_not_our_tree_is_told_by_node(stored, nodes, links, expected):
    assert any(line.startswith(expected) or expected in line for line in mistakes(stored, nodes, links))


def refusal(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        read(tmp_path / name, 1)
    return str(caught.value).removeprefix(f"{tmp_path}/")


@pytest.mark.parametrize("text", [
"",
"[" * 100_000,
'{"nodes": []}',
'{"nodes": [{"id": "a", "kind": ["edge"]}], "links": []}',
'{"nodes": [{"id": "a", "id": "b"}]}',
'{"nodes": [{"id": "a"}], "links": [{"source": "a", "target": "b"}]}',
'{"nodes": [{"id": "a"}, {"id": "a"}]}',
'{"nodes": [{"id": "c", "kind": "cloud"}, {"id": "a", "kind": "edge", "trusted": false, "trusted": true}]}',
])  # fmt: skip
def test_what_is_not_node_link_json_is_refused(tmp_path, text):
    assert refusal(tmp_path, "n.json", text).startswith("n.json")


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><graphml>&b;</graphml>'
HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'


@pytest.mark.parametrize("text", [
"",
"not xml",
"<a/>",
BOMB,
'<!DOCTYPE x SYSTEM "file:///etc/passwd"><graphml/>',
HEAD + '<graph edgedefault="undirected"><node id="a"/><node id="a"/></graph></graphml>',
HEAD + '<key id="k" for="node" attr.name="trusted" attr.type="boolean"/><graph edgedefault="undirected">'
           '<node id="a"><data key="k">perhaps</data></node></graph></graphml>',
])  # fmt: skip
def test_what_is_not_graphml_is_refused(tmp_path, text):
    assert refusal(tmp_path, "n.graphml", text).startswith("n.graphml")


def test_entities_are_refused(tmp_path):
    assert "document type (DOCTYPE) is not allowed" in refusal(tmp_path, "n.graphml", BOMB)
