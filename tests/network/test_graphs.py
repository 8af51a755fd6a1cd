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


def test_more_tiers_than_a_network_may_have_are_told_by_node(stored):
    chain = {f"s{number}": {"kind": "edge"} for number in range(1, 30)}
    links = {(f"s{number}", f"s{number + 1}"): {} for number in range(1, 29)}
    found = mistakes(stored, {**chain, "d": {"kind": "device"}}, {("c", "s1"): {}, **links, ("s29", "d"): {}})
    assert found == ['node "s21": expected at most 20 tiers of edge servers; this one is below them']


def test_trust_that_a_graph_leaves_open_is_drawn(stored):
    assert stored(graph(**{"trust.probability": 1.0})).subnets[1].trusted
    assert not stored(graph(**{"trust.probability": 0.0})).subnets[1].trusted


def test_a_graph_states_and_draws_all_levels_of_trust(stored):
    assert stored(graph({"a": {"kind": "edge", "trust": "secure-sum"}})).subnets[0].trust == "secure-sum"
    assert stored(graph(**{"trust.secure-sum": 1.0})).subnets[1].trust == "secure-sum"


def test_attributes_of_the_whole_have_dotted_keys(stored):
    network = stored(graph(name="net", **{"radio.bandwidth_mhz": 2.0, "compute.joules_per_step": 1}))
    assert (network.name, network.radio.bandwidth_hz, network.compute.joules_per_step) == ("net", 2e6, 1.0)


def test_other_programs_attributes_are_theirs(stored):
    assert stored(graph({"a": {"kind": "edge", "x": 3.5, "label": "Library", "colour": "red"}})).edges == 2


@pytest.mark.parametrize(("nodes", "links", "expected"), [
    ({}, {("a", "b1"): {}}, 'node "b1": two parents'),
    ({}, {("c", "a1"): {}}, 'node "a1": a device linked to the cloud "c"; expected an edge server'),
    ({}, {("a", "b"): {}}, "the links form a cycle"),
    ({"d": {"kind": "edge"}, "d1": {"kind": "device"}}, {("a", "d"): {}, ("d", "d1"): {}},
     'node "a": devices and edge servers below it; expected one of both'),
    ({"d": {"kind": "edge"}, "e": {"kind": "edge"}}, {("d", "e"): {}}, 'node "d": no link to the cloud or to an edge'),
    ({}, {("a1", "a2"): {}}, "linked to the device"),
    ({"d": {"kind": "cloud"}}, {}, 'node "d": a second cloud (the first is "c")'),
    ({"d": {"kind": "device"}}, {}, 'node "d": no link to an edge server'),
    ({"d": {"kind": "edge"}}, {}, 'node "d": no link to the cloud'),
    ({"d": {"kind": "edge"}}, {("c", "d"): {}}, 'node "d".devices: expected a list of at least one device'),
    ({"d": {"kind": "router"}}, {}, 'node "d".kind: expected one of cloud, edge, device, found "router"'),
    ({"d": {}}, {}, 'node "d".kind: expected one of cloud, edge, device, found nothing'),
    ({"c": {"kind": "edge"}}, {}, "expected one node of kind cloud, found none"),
    ({"cloud": {"kind": "device"}}, {("a", "cloud"): {}}, 'node "cloud".name: the name "cloud" is reserved'),
    ({}, {("a", "a1"): {"distance_m": -4.0}}, 'node "a1".distance_m: expected a finite number above 0'),
    ({}, {("a", "a1"): {"distance_m": float("nan")}}, 'node "a1".distance_m: expected a finite number above 0'),
    ({}, {("a", "a1"): {"distance": 4.0}}, 'node "a1".distance: unknown key; did you mean `distance_m`?'),
    ({}, {("c", "a"): {"rate_mbps": -1.0}}, 'node "a".link.rate_mbps: expected a number above 0'),
    ({"b": {"kind": "edge", "trusted": "perhaps"}}, {}, 'node "b".trusted: expected true or false, found "perhaps"'),
    ({"a1": {"kind": "device", "trusted": True}}, {}, 'node "a1".trusted: unknown key'),
])  # fmt: skip
def test_what_is_not_our_tree_is_told_by_node(stored, nodes, links, expected):
    assert any(line.startswith(expected) or expected in line for line in mistakes(stored, nodes, links))


ROUTERS = {name: {} for name in NODES}  # a graph of another program, which knows no kinds
CHAIN = {"d": {"kind": "edge"}, "e": {"kind": "edge"}, "e1": {"kind": "device"}}
BELOW_D = {("d", "e"): {}, ("e", "e1"): {}}


@pytest.mark.parametrize(("nodes", "links", "expected"), [
    (ROUTERS, {}, "no node has the attribute `kind`; expected one of cloud, edge, device on each"),
    ({"c": {"kind": "edge"}}, {}, "expected one node of kind cloud, found none"),
    ({"c": {"kind": "Cloud"}}, {}, 'node "c".kind: expected one of cloud, edge, device, found "Cloud"'),
    (CHAIN, BELOW_D,
     'node "d": no link to the cloud or to an edge server on the way there'),
    (CHAIN | {"c2": {"kind": "cloud"}}, BELOW_D | {("c2", "d"): {}}, 'node "c2": a second cloud (the first is "c")'),
    (CHAIN | {"r": {"kind": "router"}}, BELOW_D | {("c", "r"): {}, ("r", "d"): {}},
     'node "r".kind: expected one of cloud, edge, device, found "router"'),
    ({"d": {"kind": "edge"}}, {("d", "c"): {}, ("d", "b1"): {}}, 'node "b1": two parents ("b" and "d"); expected one'),
])  # fmt: skip
def test_what_only_follows_from_a_mistake_is_not_told(stored, nodes, links, expected):
    assert mistakes(stored, nodes, links) == [expected]


def test_a_node_that_is_not_in_the_list_is_told_once(tmp_path):
    made = nx.node_link_data(graph({"d": {"kind": "edge"}}, {("c", "d"): {}, ("d", "d1"): {}, ("d1", "b"): {}}))
    made["nodes"] = [node for node in made["nodes"] if node["id"] != "d1"]
    (tmp_path / "net.json").write_text(json.dumps(made))
    with pytest.raises(UserError, match='node "d1": a link leads to this node') as caught:
        read(tmp_path / "net.json", 1)
    assert len(caught.value.problems) == 1


def test_a_probability_beyond_one(stored):
    assert mistakes(stored, **{"trust.probability": 1.2}) == [
        "trust.probability: expected a number from 0 to 1, found 1.2"
    ]


def test_all_problems_of_a_sort_come_at_once(stored):
    assert len(mistakes(stored, {"d": {"kind": "router"}, "e": {"kind": "cloud"}})) == 2
    assert len(mistakes(stored, links={("a", "a1"): {"distance_m": -4.0}}, **{"trust.probability": 1.2})) == 2


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


def test_links_may_be_called_edges(tmp_path):
    data = nx.node_link_data(graph())
    links = data.pop("links", None) or data.pop("edges")
    for key in ("links", "edges"):
        (tmp_path / "n.json").write_text(json.dumps({**data, key: links}))
        assert read(tmp_path / "n.json", 1).devices == 3


def test_numbers_are_names_too(tmp_path):
    data = nx.node_link_data(nx.convert_node_labels_to_integers(graph()))
    (tmp_path / "n.json").write_text(json.dumps(data))
    assert [subnet.name for subnet in read(tmp_path / "n.json", 1).subnets] == ["1", "2"]


@pytest.mark.parametrize("text", [
    "", "{", "[" * 100_000, "[]", "3", "{}", '{"nodes": []}', '{"nodes": 3}', '{"nodes": [3]}', '{"nodes": [{}]}',
    '{"nodes": [{"id": "a", "kind": ["edge"]}], "links": []}', '{"nodes": [{"id": {}}]}', '{"nodes": [{"id": null}]}',
    '{"nodes": [{"id": "a", "id": "b"}]}', '{"nodes": [{"id": "a"}], "links": [{"source": "a"}]}',
    '{"nodes": [{"id": "a"}], "links": [{"source": "a", "target": "b"}]}', '{"nodes": [{"id": "\\ud800"}]}',
    '{"nodes": [{"id": "a"}, {"id": "a"}]}', '{"nodes": [' + "9" * 5000 + "]}", "{'a': 1}", '{"a": 1,}',
])  # fmt: skip
def test_what_is_not_node_link_json_is_refused(tmp_path, text):
    assert refusal(tmp_path, "n.json", text).startswith("n.json")


def test_json_may_escape_characters_beyond_16_bits(tmp_path):
    data = nx.node_link_data(nx.relabel_nodes(graph(), {"a": "\U0001f600", "b": "back\\slash"}))
    (tmp_path / "n.json").write_text(json.dumps(data).replace("/", "\\/"))
    assert [subnet.name for subnet in read(tmp_path / "n.json", 1).subnets] == ["\U0001f600", "back\\slash"]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><graphml>&b;</graphml>'
HEAD = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'


@pytest.mark.parametrize("text", [
    "", "not xml", "<graphml>", "<a/>", "<graphml/>", "<x:graphml/>", HEAD.replace("xmlns\"", "other\"") + "</graphml>",
    BOMB, "<a>" * 100_000, HEAD + "<graph/></graphml>",
    '<!DOCTYPE x SYSTEM "file:///etc/passwd"><graphml/>',
    HEAD + '<graph edgedefault="undirected"><node/></graph></graphml>',
    HEAD + '<graph edgedefault="undirected"><node id="a"/><node id="a"/></graph></graphml>',
    HEAD + '<graph edgedefault="undirected"><node id="a"><data key="k">1</data></node></graph></graphml>',
    HEAD + '<graph edgedefault="undirected"><node id="a"/><edge source="a"/></graph></graphml>',
    HEAD + '<key id="k" for="node" attr.name="trusted" attr.type="boolean"/><graph edgedefault="undirected">'
           '<node id="a"><data key="k">perhaps</data></node></graph></graphml>',
])  # fmt: skip
def test_what_is_not_graphml_is_refused(tmp_path, text):
    assert refusal(tmp_path, "n.graphml", text).startswith("n.graphml")


def test_entities_are_refused_with_their_line(tmp_path):
    assert "document type (DOCTYPE) is not allowed" in refusal(tmp_path, "n.graphml", BOMB)


def test_words_that_were_declared_as_texts_are_numbers_where_numbers_are_meant(tmp_path):
    nx.write_graphml(graph(links={("a", "a1"): {"distance_m": "7"}}), tmp_path / "n.xml")
    assert read(tmp_path / "n.xml", 1).subnets[0].column("distance_m")[0] == 7.0


def test_a_word_that_is_not_of_its_keys_type_is_told_by_node(tmp_path):
    data = graph()
    nx.set_node_attributes(data, {"a": True}, "trusted")
    nx.write_graphml(data, tmp_path / "n.graphml")
    text = (tmp_path / "n.graphml").read_text().replace(">True<", ">maybe<")
    (line,) = [number for number, each in enumerate(text.splitlines(), 1) if '<node id="a">' in each]
    message = f'n.graphml:{line}: node "a".trusted: expected true or false, found "maybe"'
    assert refusal(tmp_path, "n.graphml", text) == message
