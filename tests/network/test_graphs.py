"""GraphML and node-link JSON: what they mean, and mistakes told by line and node."""

import json

import networkx as nx
import pytest

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


def test_problems_of_graphml_have_lines(tmp_path):
    text = "\n".join(nx.generate_graphml(graph(links={("a", "a1"): {"distance_m": -4.0}})))
    line = next(number for number, row in enumerate(text.splitlines(), 1) if 'source="a" target="a1"' in row)
    assert refusal(tmp_path, "n.graphml", text).startswith(f'n.graphml:{line}: node "a1".distance_m')


def test_problems_of_json_have_lines(tmp_path):
    text = json.dumps(nx.node_link_data(graph({"d": {"kind": "router"}})), indent=1)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "router" in row)
    assert refusal(tmp_path, "n.json", text).startswith(f'n.json:{line - 1}: node "d".kind')


@pytest.mark.parametrize("text", [
"",
"[" * 100_000,
'{"nodes": []}',
'{"nodes": [{"id": "a", "kind": ["edge"]}], "links": []}',
'{"nodes": [{"id": "a", "id": "b"}]}',
'{"nodes": [{"id": "a"}], "links": [{"source": "a", "target": "b"}]}',
'{"nodes": [{"id": "a"}, {"id": "a"}]}',
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


def test_entities_are_refused_with_their_line(tmp_path):
    assert "document type (DOCTYPE) is not allowed" in refusal(tmp_path, "n.graphml", BOMB)
