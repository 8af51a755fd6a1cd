"""Edge servers under edge servers: what a deeper tree means, as values and in files."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.config import Document, parse
from h2fdp.errors import UserError
from h2fdp.network import Aggregator, Topology, Wire, from_document, read, write
from h2fdp.network.network import TRUSTS
from tests.networks import placed, stored


def topology(text, seed=1):
    return from_document(Document("a.yaml", parse(text, "a.yaml"), Path()), seed)


def subnet(name, parent=None):
    return placed(name, False, [5.0], [24.0], parent=parent)


def tree(subnets, aggregators=()):
    """A network from pairs of a name and its parent."""
    return Topology(
        "net",
        tuple(subnet(*each) for each in subnets),
        aggregators=tuple(Aggregator(name, False, parent=parent) for name, parent in aggregators),
    )


# cloud - north - (n1 - (a, b), c); cloud - d; cloud - south - e
UNEVEN = tree(
    [("a", "n1"), ("b", "n1"), ("c", "north"), ("d", None), ("e", "south")],
    [("north", None), ("n1", "north"), ("south", None)],
)


def test_aggregators_are_kept_in_the_order_of_the_tree():
    other = tree(
        [("a", "n1"), ("b", "n1"), ("c", "north"), ("d", None), ("e", "south")],
        [("south", None), ("north", None), ("n1", "north")],
    )
    assert other == UNEVEN
    assert [aggregator.name for aggregator in other.aggregators] == ["north", "n1", "south"]


@pytest.mark.parametrize(
    ("subnets", "aggregators", "message"),
    [
        ([("a", None)], [("n", None)], "n: an aggregator without children"),
        ([("a", "n")], [], 'a: expected a parent among the aggregators, found "n"'),
        ([("a", "n")], [("n", "m"), ("m", None)], "n: its parent comes after it; expected parents first"),
        ([("a", "n"), ("b", None), ("c", "n")], [("n", None)], 'expected the edge servers below "n" one after the'),
        ([("a", "a")], [("a", None)], 'two nodes have the name "a"'),
    ],
)
def test_a_tree_that_is_not_one_is_refused(subnets, aggregators, message):
    with pytest.raises(UserError) as caught:
        tree(subnets, aggregators)
    assert message in str(caught.value)


def test_a_file_has_edges_under_an_edge():
    read = topology("""
cloud: {link: {rate_mbps: 7}}
edges:
  - name: north
    trusted: true
    link: {rate_mbps: 9, power_dbm: 30}
    edges:
      - {name: a, trusted: false, devices: {count: 2}}
      - {name: n1, trusted: true, edges: [{name: b, trusted: true, devices: [{}]}]}
  - {name: c, trusted: false, devices: [{}]}
""")
    assert read.aggregators == (
        Aggregator("north", True, Wire(9e6, 30.0), None),
        Aggregator("n1", True, Wire(7e6, 38.0), "north"),
    )
    assert [(each.name, each.parent, each.size) for each in read.subnets] == [
        ("a", "north", 2),
        ("b", "n1", 1),
        ("c", None, 1),
    ]
    assert read.trust_probability is None


def test_templates_are_written_out_at_every_tier():
    read = topology("""
edges:
  - name: region-{i}
    repeat: 2
    edges:
      - name: "{parent}-edge-{i}"
        repeat: 3
        devices: [{name: "{parent}-cam"}, {}]
""")
    assert read.children(None) == ("region-1", "region-2")
    assert read.children("region-2") == ("region-2-edge-1", "region-2-edge-2", "region-2-edge-3")
    assert read.subnets[4].device_names() == ["region-2-edge-2-cam", "region-2-edge-2/2"]


def test_trust_of_an_aggregator_is_drawn_from_its_own_name():
    names = [f"n{number}" for number in range(40)]
    flat = topology("edges: [" + ", ".join(f"{{name: {name}, devices: [{{}}]}}" for name in names) + "]")
    deep = topology(
        "edges: [" + ", ".join(f"{{name: {n}, edges: [{{name: {n}-e, devices: [{{}}]}}]}}" for n in names) + "]"
    )
    assert [each.trusted for each in flat.subnets] == [each.trusted for each in deep.aggregators]
    assert {each.trusted for each in deep.aggregators} == {True, False}
    assert deep.trust_probability == 0.5


def test_no_network_has_more_than_twenty_tiers(tmp_path):
    deepest = Topology.deep([1] * 20 + [2])
    write(deepest, tmp_path / "net.yaml")
    assert read(tmp_path / "net.yaml", 1) == deepest
    with pytest.raises(UserError, match="at most 20 tiers of edge servers"):
        tree([("a", "n20")], [("n1", None), *((f"n{at}", f"n{at - 1}") for at in range(2, 21))])
    text = (tmp_path / "net.yaml").read_text()
    head, below = text.split("edges:\n", 1)
    indented = "".join(f"    {line}\n" for line in below.splitlines())
    with pytest.raises(UserError, match=r"edges: expected at most 20 tiers of edge servers, found 21"):
        topology(f"{head}edges:\n  - name: top\n    edges:\n{indented}")


def test_the_star_of_a_deep_tree_keeps_every_device_and_its_way_to_the_cloud():
    north = Aggregator("north", True, Wire(2e6, 30.0))  # 0.5 us and 0.5 uJ a bit
    lowest = (
        placed("a", False, [5.0, 6.0], [24.0, 24.0], Wire(1e6, 20.0), parent="north"),  # 1 us and 0.1 uJ a bit
        placed("b", True, [7.0], [24.0], Wire(float("inf"), 10.0), parent="north"),  # free
        placed("c", True, [8.0], [24.0], Wire(4e6, 33.0)),
    )
    (only,) = Topology("net", lowest, aggregators=(north,)).as_star().subnets
    assert only.device_names() == ["a/1", "a/2", "b/1", "c/1"]
    assert only.parent is None
    assert only.relays.names == ("a", "b", "c")
    seconds = np.array([wire.seconds(1) for wire in only.relays.links])
    assert seconds == pytest.approx([1.5e-6, 0.5e-6, 0.25e-6])
    joules = [wire.joules(1) for wire in only.relays.links]
    assert joules == pytest.approx([0.6e-6, 0.5e-6, 10**0.3 * 0.25e-6])
    assert only.relays.links[2] == Wire(4e6, 33.0)


LEAF = "devices: [{}]"


@pytest.mark.parametrize(("text", "line"), [
("edges:\n  - {name: n, edges: []}", "2: edges[0].edges: expected a list of at least one edge server, found an em"),
(f"edges:\n  - {{name: n, edges: [{{name: a, {LEAF}}}], {LEAF}}}", "2: edges[0]: expected `devices:` or `edges:`"),
("edges:\n  - name: n\n    edges:\n      - {name: a}",
     "4: edges[0].edges[0]: expected `devices:` or `edges:`, found neither"),
(f"edges:\n  - name: n\n    edges:\n      - name: m\n        edges: [{{name: a, trustd: true, {LEAF}}}]",
     "5: edges[0].edges[0].edges[0].trustd: unknown key; did you mean `trusted`?"),
(f"edges:\n  - name: n\n    edges:\n      - {{name: n, {LEAF}}}",
     '4: edges[0].edges[0].name: duplicate name "n" (first on line 2)'),
(f"edges:\n  - name: '{{parent}}-n'\n    edges:\n      - {{name: '{{parent}}-a', {LEAF}}}",
     "2: edges[0].name: {parent} stands for the edge server above, and above this one is the cloud alone"),
(f"edges:\n  - name: n\n    repeat: 2\n    edges:\n      - {{name: '{{parent}}-a', {LEAF}}}",
     '2: edges[0].name: expected {i} in a name of several nodes, as in "n-{i}"'),
(f"edges:\n  - name: n-{{i}}\n    repeat: 2\n    edges:\n      - {{name: '{{parent}}-a', repeat: 3, {LEAF}}}",
     '5: edges[0].edges[0].name: expected {i} in a name of several nodes, as in "{parent}-a-{i}"'),
(f"edges:\n  - {{name: 'n-{{i}}', repeat: 400, edges: [{{name: '{{parent}}-{{i}}', repeat: 400, {LEAF}}}]}}",
     "1: edges: expected at most 100,000 edge servers, found 160,400"),
])  # fmt: skip
def test_a_mistake_below_is_told_with_file_line_and_key(text, line):
    with pytest.raises(UserError) as caught:
        topology(text)
    (found,) = str(caught.value).splitlines()
    assert found.startswith(f"a.yaml:{line}")


@st.composite
def trees(draw, tiers=4):
    """Any tree of one to four tiers of edge servers, with any trust and links."""
    subnets, aggregators = [], []

    def grow(parent, tier):
        for _ in range(draw(st.integers(1, 3))):
            name = f"n{len(subnets) + len(aggregators)}"
            node = (name, draw(st.sampled_from(TRUSTS)))
            link = draw(st.sampled_from([Wire(), Wire(5e6, 30.0), Wire(float("inf"), 1.0)]))
            if tier < tiers and draw(st.booleans()):
                aggregators.append(Aggregator(*node, link, parent))
                grow(name, tier + 1)
            else:
                sizes = draw(st.lists(st.floats(1, 100), min_size=1, max_size=3))
                named = draw(st.booleans())
                names = tuple(f"{name}-cam-{at}" for at in range(len(sizes))) if named else None
                subnets.append(placed(*node, sizes, [24.0] * len(sizes), link, names, parent=parent))

    grow(None, 1)
    return Topology("net", tuple(subnets), aggregators=tuple(aggregators))


@settings(max_examples=40, deadline=None)
@given(network=trees())
def test_what_the_tree_says_agrees_with_networkx(network):
    graph = nx.DiGraph()
    for node in (*network.aggregators, *network.subnets):
        graph.add_edge("cloud" if node.parent is None else node.parent, node.name)
    assert nx.is_arborescence(graph)
    assert network.depth == nx.dag_longest_path_length(graph)
    lowest = {each.name: number for number, each in enumerate(network.subnets)}
    for name in graph.nodes - {"cloud"}:
        up = nx.shortest_path(graph, "cloud", name)
        assert network.path(name) == tuple(up[:0:-1])
        assert set(network.children(name)) == set(graph.successors(name))
        under = nx.descendants(graph, name) | {name}
        assert network.height(name) == 1 + nx.dag_longest_path_length(graph.subgraph(under))
        assert list(network.below(name)) == sorted(lowest[each] for each in under & lowest.keys())


@pytest.mark.parametrize("suffix", ["yaml", "graphml", "json"])
@settings(max_examples=30, deadline=None)
@given(network=trees())
def test_any_tree_is_read_back_as_it_was_written(tmp_path_factory, suffix, network):
    path = tmp_path_factory.mktemp("round") / f"net.{suffix}"
    assert read(stored(network, path), seed=99) == network
