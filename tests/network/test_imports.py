"""Networks of graphs without roles, and of the places of edge servers and users."""

import json
import math

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

from h2fdp.cli.topology import app
from h2fdp.errors import UserError
from h2fdp.network import imported, read

# As in the Internet Topology Zoo: labels that repeat, links in parallel, bits a second, a node without links.
GML = """graph [
  multigraph 1
  Network "Small"
  node [ id 0 label "West" Longitude -122.3 Latitude 47.6 ]
  node [ id 1 label "Middle" ]
  node [ id 2 label "East" ]
  node [ id 3 label "East" ]
  node [ id 4 label "Lost" ]
  edge [ source 0 target 1 LinkSpeedRaw 10000000.0 ]
  edge [ source 0 target 1 LinkSpeedRaw 40000000.0 ]
  edge [ source 1 target 2 LinkSpeed "20" LinkSpeedRaw 20000000.0 ]
  edge [ source 2 target 3 ]
]
"""


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def backbone(tmp_path):
    (tmp_path / "small.gml").write_text(GML)
    return tmp_path / "small.gml"


def rates(network):
    return {subnet.name: subnet.link.rate_bps for subnet in network.subnets}


@pytest.mark.parametrize("speed", ["0", "-5"])
def test_a_link_without_speed_is_refused_by_its_ends(backbone, speed):
    backbone.write_text(GML.replace("LinkSpeedRaw 20000000.0", f"LinkSpeedRaw {speed}"))
    with pytest.raises(UserError, match=r"link of Middle and East-2: expected a rate above 0 Mbps; found -?[05]"):
        imported([backbone], seed=1)


def test_a_message_takes_the_fastest_way_link_after_link(backbone):
    """Seconds of a megabit: 1/40 of the faster parallel link, 1/20, and 1/100 where nothing is stated."""
    network, note = imported([backbone], seed=1)
    left = "not used: Latitude, LinkSpeed, Longitude"
    assert note == f"the cloud sits at Middle; without a way to it and left out: Lost\n{left}"
    expected = {"West": 40e6, "Middle": math.inf, "East-2": 20e6, "East-3": 1e6 / (1 / 20 + 1 / 100)}
    assert rates(network) == pytest.approx(expected)
    assert network.sizes.tolist() == [5, 5, 5, 5]
    assert network.name == "small"
    distances = np.concatenate([subnet.column("distance_m") for subnet in network.subnets])
    assert 10 <= distances.min() < distances.max() <= 100


def test_what_a_graph_leaves_open_may_be_stated(backbone, tmp_path):
    out = tmp_path / "net.yaml"
    options = ["--cloud", "West", "--edges", "East-3", "--edges", "West", "--devices", 2, "--rate-mbps", 10]
    said = run("import", backbone, "--out", out, *options, "--trust", "trusted=0.3,secure-sum=0.2")
    assert "2 edge servers (trust drawn by each run), 4 devices\nthe cloud sits at West" in said
    assert max(map(len, said.removeprefix(str(out.parent)).splitlines())) <= 80
    network = read(out, 1)
    assert rates(network) == pytest.approx({"West": math.inf, "East-3": 1e6 / (1 / 40 + 1 / 20 + 1 / 10)})
    assert (network.trust_probability, network.secure_sum_probability) == (0.3, 0.2)
    with pytest.raises(UserError, match="--overwrite"):
        run("import", backbone, "--out", out)


WRITERS = {
    "graphml": lambda made: "\n".join(nx.generate_graphml(made)),
    "gml": lambda made: "\n".join(nx.generate_gml(made)),
    "json": lambda made: json.dumps(nx.node_link_data(made)),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_formats_give_equal_networks(tmp_path, suffix):
    path, made = tmp_path / f"net.{suffix}", nx.Graph()
    made.add_edges_from([("a", "b", {"LinkSpeedRaw": 5e6}), ("b", "c", {"LinkSpeedRaw": 8e6})])
    path.write_text(WRITERS[suffix](made))
    network, note = imported([path], seed=1)
    assert note == "the cloud sits at b"
    assert rates(network) == pytest.approx({"a": 5e6, "b": math.inf, "c": 8e6})


def test_mistakes_in_graphs_are_told(backbone, tmp_path):
    with pytest.raises(UserError, match=r'--cloud: expected the name of a node, as .*; found "North"'):
        imported([backbone], 1, cloud="North")
    (tmp_path / "bad.gml").write_text("graph [ node [ id 0 ")
    with pytest.raises(UserError, match=r"bad\.gml: not valid GML: "):
        imported([tmp_path / "bad.gml"], 1)
    roles = nx.Graph()
    roles.add_node("c", kind="cloud")
    nx.write_graphml(roles, tmp_path / "roles.graphml")
    with pytest.raises(UserError, match="--cloud: means nothing for a graph whose nodes have roles"):
        imported([tmp_path / "roles.graphml"], 1, cloud="c")
    nx.write_graphml(nx.path_graph(3), tmp_path / "plain.graphml")
    with pytest.raises(UserError, match="h2fdp topology import, for a graph without roles"):
        read(tmp_path / "plain.graphml", 1)


@pytest.mark.parametrize("header", ["graph [", "graph [ multigraph 0", 'Creator "a"\ngraph\n  ['])
def test_of_parallel_links_of_gml_the_fastest_counts_whether_the_file_allows_them_or_not(backbone, header):
    backbone.write_text(GML.replace("graph [\n  multigraph 1", header))
    assert rates(imported([backbone], 1)[0])["West"] == pytest.approx(40e6)


def tree():
    """A core, two regions, and three sites of each; trust and rates are on some."""
    made = nx.Graph()
    made.add_edge("core", "north", rate_mbps=1000)
    made.add_edge("core", "south", LinkSpeedRaw=2e8)
    for region, rate in (("north", 100), ("south", 20)):
        made.add_edges_from((region, f"{region}-{at}", {"rate_mbps": rate}) for at in range(3))
        for name in (region, *(f"{region}-{at}" for at in range(3))):
            made.nodes[name].update(trusted=region == "north", operator=region)
    return made


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_tree_keeps_its_tiers_with_trust_and_rate_of_each_link(tmp_path, suffix):
    (tmp_path / f"t.{suffix}").write_text(WRITERS[suffix](tree()))
    said = run("import", tmp_path / f"t.{suffix}", "--devices", 4, "--out", tmp_path / "net.yaml")
    assert "8 edge servers in 2 tiers, 4 trusted; 24 devices" in said
    assert "the cloud sits at core; a tree, with its 2 tiers" in said
    assert "not used: operator" in said
    network = read(tmp_path / "net.yaml", 1)
    assert {each.name: (each.trust, each.link.rate_bps) for each in network.servers()} == {
        **dict.fromkeys(("north-0", "north-1", "north-2"), ("trusted", 100000000.0)),
        **dict.fromkeys(("south-0", "south-1", "south-2"), ("untrusted", 20000000.0)),
        "north": ("trusted", 1e9),
        "south": ("untrusted", 2e8),
    }
    assert network.children("south") == ("south-0", "south-1", "south-2")
    flat = imported([tmp_path / f"t.{suffix}"], 1, edges=["north-0", "south-2"])[0]
    assert flat.depth == 1
    assert rates(flat) == pytest.approx({"north-0": 1e6 / (1 / 100 + 1 / 1000), "south-2": 1e6 / (1 / 20 + 1 / 200)})


def test_trust_that_some_state_is_written_for_all(tmp_path):
    half = tree()
    del half.nodes["south-1"]["trusted"]
    network, note = imported(half, seed=3)
    assert note.endswith("not used: operator\n1 of 8 edge servers state no trust: drawn under seed 3")
    assert network.trust_probability is None
    (tmp_path / "t.json").write_text(WRITERS["json"](half))
    run("import", tmp_path / "t.json", "--seed", 3, "--out", tmp_path / "net.yaml")
    again = read(tmp_path / "net.yaml", 1)
    assert [each.trust for each in again.servers()] == [each.trust for each in network.servers()]


def great_circle(first, second):
    """Metres, by the law of cosines."""
    (lat, lon), (other, east) = np.radians(first), np.radians(second)
    cosine = np.sin(lat) * np.sin(other) + np.cos(lat) * np.cos(other) * np.cos(lon - east)
    return 6_371_008.8 * np.arccos(np.clip(cosine, -1, 1))


@pytest.mark.parametrize("on_earth", [True, False])
def test_each_user_is_under_the_nearest_edge_server(tmp_path, on_earth):
    rng = np.random.default_rng(3)
    middle, spread, axes = ([-37.81, 144.96], 0.02, "LATITUDE,LONGITUDE") if on_earth else ([0, 0], 900.0, "x,y")
    servers, users = (np.round(middle + rng.uniform(-spread, spread, (count, 2)), 7) for count in (40, 60))
    rows = [f"s{at},{each[0]},{each[1]}" for at, each in enumerate(servers.tolist())]
    (tmp_path / "sites.csv").write_text(f"SITE_ID,{axes}\n" + "\n".join(rows))
    (tmp_path / "users.csv").write_text(f"{axes}\n" + "\n".join(f"{a},{b}" for a, b in users.tolist()))
    network, note = imported([tmp_path / "sites.csv", tmp_path / "users.csv"], seed=1)
    away = great_circle if on_earth else math.dist
    expected = {}
    for user in users.tolist():
        metres = [away(server, user) for server in servers.tolist()]
        expected.setdefault(f"s{int(np.argmin(metres))}", []).append(min(metres))
    assert {each.name: each.column("distance_m").tolist() for each in network.subnets} == {
        name: pytest.approx(metres, abs=2e-3) for name, metres in expected.items()
    }
    assert note == f"{40 - len(expected)} edge servers without users are left out"
    assert network.devices == 60


def test_a_great_circle_between_two_cities_and_a_user_inside_of_a_mast(tmp_path):
    (tmp_path / "s.csv").write_text("name,lat,lng\nLondon,51.5074,-0.1278\n")
    (tmp_path / "u.csv").write_text("name,lat,lng\nParis,48.8566,2.3522\nmast,51.5074,-0.1278\n")
    run("import", tmp_path / "s.csv", tmp_path / "u.csv", "--out", tmp_path / "net.yaml")
    network = read(tmp_path / "net.yaml", 1)
    assert network.device_names() == ["Paris", "mast"]
    assert network.subnets[0].column("distance_m").tolist() == pytest.approx([343_556, 1.0], rel=1e-4)


@pytest.mark.parametrize(
    ("servers", "users", "words"),
    [
        ("x,y\n1,2\n", "lat,lon\n1,2\n", r"u\.csv:1: expected the columns x and y, as edge servers have"),
        ("x,z\n1,2\n", "x,y\n1,2\n", r"s\.csv:1: expected the columns x and y, or lat and lon; found x, z"),
        ("lat,lon\n1,2\n\n91,x\n", "lat,lon\n1,2\n", r's\.csv:4: lat: expected a number from -90 to 90, found "91"'),
        ("lat,lon\n1,2\n1\n", "lat,lon\n1,2\n", r's\.csv:3: lon: expected a number from -180 to 180, found ""'),
        ("x,y\n1,2\n", "x,y\n", r"u\.csv:1: expected at least one line"),
        ("x,y,lat,lon\n1,2,3,4\n", "x,y\n1,2\n", r"s\.csv:1: expected either .*, found both"),
        ("ID,x,y\na,1,2\na,3,4\n", "x,y\n1,2\n", r"s\.csv:3: ID: expected a name of its own, found a, as in line 2"),
        ("name,x,y\n,1,2\n", "x,y\n1,2\n", r"s\.csv:2: name: expected a name of its own, found none"),
    ],
)
def test_mistakes_in_places_are_told_with_their_line(tmp_path, servers, users, words):
    (tmp_path / "s.csv").write_text(servers)
    (tmp_path / "u.csv").write_text(users)
    with pytest.raises(UserError, match=words):
        imported([tmp_path / "s.csv", tmp_path / "u.csv"], 1)


STATIONS = """id,lat,lon,operator,trust,rate_mbps,parent
hq,,,X,trusted,1000,
a,46.50,6.60,X,secure-sum,20,hq
b,46.60,6.60,X,,30,hq
c,46.50,6.80,Y,untrusted,,leased
leased,,,Z,,,
d,46.70,6.90,Y,false,unlimited,cloud
"""
PEOPLE = """lat,lon,CPU_GHz,cycles_per_record,age
46.5001,6.6,2,1e6,31
46.6,6.6001,1,1e6,7
46.5,6.79,3,1e6,8
46.7,6.9,3,2e6,8
"""


def test_columns_of_places_become_trust_links_tiers_and_processors_or_are_named(tmp_path):
    (tmp_path / "bs.csv").write_text(STATIONS)
    (tmp_path / "ue.csv").write_text(PEOPLE)
    said = run("import", tmp_path / "bs.csv", tmp_path / "ue.csv", "--out", tmp_path / "net.yaml", "--seed", 5)
    said = " ".join(said.split())
    assert "bs.csv: not used: operator (columns that are: trust, trusted, rate_mbps, power_dbm, parent)" in said
    assert "ue.csv: not used: age" in said
    assert "2 of 6 edge servers state no trust: drawn under seed 5" in said
    network = read(tmp_path / "net.yaml", 1)
    assert {name: network.children(name) for name in (None, "hq", "leased")} == {
        None: ("hq", "leased", "d"), "hq": ("a", "b"), "leased": ("c",)
    }  # fmt: skip
    found = {each.name: (each.trust, each.link.rate_bps / 1e6) for each in network.servers()}
    assert {name: found[name] for name in ("hq", "a", "c", "d")} == {
        "hq": ("trusted", 1000), "a": ("secure-sum", 20), "c": ("untrusted", 100), "d": ("untrusted", math.inf)
    }  # fmt: skip
    assert network.table.columns["cpu_ghz"].tolist() == [2, 1, 3, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("secure-sum", "sure"), r'bs\.csv:3: edges\[0\]\.edges\[0\]\.trust: expected one of .*, found "sure"'),
        (("20,hq", "-2,hq"), r"bs\.csv:3: edges\[0\]\.edges\[0\]\.link\.rate_mbps: expected a number above 0"),
        (("1000,", "1000,a"), r"bs\.csv:2: parent: expected at most 20 tiers up to the cloud, found more, or a circle"),
        (("leased,,,Z,,,\n", ""), r'bs\.csv:5: parent: expected an edge server with a line .*; found "leased"$'),
        (("30,hq", "30,hqq"), r'bs\.csv:4: parent: .*; found "hqq"; did you mean `hq`'),
        (("b,46.60,6.60", "b,,6.60"), r'bs\.csv:4: lat: expected a number from -90 to 90, found ""'),
    ],
)
def test_mistakes_in_columns_of_places_have_their_line(tmp_path, change, words):
    (tmp_path / "bs.csv").write_text(STATIONS.replace(*change))
    (tmp_path / "ue.csv").write_text(PEOPLE)
    with pytest.raises(UserError, match=words):
        imported([tmp_path / "bs.csv", tmp_path / "ue.csv"], 1)


OPERATED = """id;lat;lon;trust;operator;parent
a;46,5;6,6;1;X;X
b;46,6;6,6;0;Y;Y
c;46,5;6,8;yes;X;X
"""


def test_parents_of_whom_none_has_a_line_are_named_and_untrusted(tmp_path, capsys):
    """A typo in one parent is one of two new edge servers: it is never trusted, and the message names it."""
    (tmp_path / "bs.csv").write_text(OPERATED)
    (tmp_path / "ue.csv").write_text(PEOPLE.replace(",", "\t").replace(".", ","))
    network, said = imported([tmp_path / "bs.csv", tmp_path / "ue.csv"], seed=1)
    assert said.startswith("new edge servers above others, untrusted as no line states their trust: X, Y\n")
    assert "drawn" not in said
    assert {each.name: each.trust for each in network.servers()} == {
        "a": "trusted", "b": "untrusted", "c": "trusted", "X": "untrusted", "Y": "untrusted"
    }  # fmt: skip
    assert {name: network.children(name) for name in ("X", "Y")} == {"X": ("a", "c"), "Y": ("b",)}
    notes = " ".join(capsys.readouterr().err.split())
    assert "note: bs.csv: columns are separated by semicolons and have decimal commas" in notes
    assert "note: ue.csv: columns are separated by tabs and have decimal commas" in notes
    marks = imported([tmp_path / "bs.csv", tmp_path / "ue.csv"], seed=1)[0]
    (tmp_path / "bs.csv").write_text(OPERATED.replace(",", ".").replace(";", ","))
    (tmp_path / "ue.csv").write_text(PEOPLE)
    plain = imported([tmp_path / "bs.csv", tmp_path / "ue.csv"], seed=1)[0]
    assert plain.table.columns["distance_m"].tolist() == marks.table.columns["distance_m"].tolist()


def test_places_in_another_encoding_are_refused_with_what_would_be_right(tmp_path):
    (tmp_path / "bs.csv").write_bytes("name,x,y\nZürich,1,2\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"bs\.csv: cannot be read: .*the byte 0xfc; save the file as UTF-8"):
        imported([tmp_path / "bs.csv", tmp_path / "bs.csv"], 1)


def test_options_of_graphs_mean_nothing_for_places(tmp_path):
    with pytest.raises(UserError, match="--rate-mbps: means nothing for two CSV files"):
        imported([tmp_path / "s.csv", tmp_path / "u.csv"], 1, rate_mbps=10.0)
    with pytest.raises(UserError, match="found 3 files"):
        imported([tmp_path / "s.csv"] * 3, 1)
    with pytest.raises(UserError, match=r"s\.csv: expected two CSV files, .*; found this one alone"):
        imported([tmp_path / "s.csv"], 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cloud", "Mittle"), '--cloud: expected the name of a node, as Middle; found "Mittle"'),
        (("--edges", "East"), '--edges: expected the name of a node, as .*; found "East"'),  # there are two
        (("--trust", "2"), 'topology import: --trust: expected a number from 0 to 1, found "2"'),
    ],
)
def test_options_of_an_import_are_named(backbone, tmp_path, options, words):
    with pytest.raises(UserError, match=words):
        run("import", backbone, "--out", tmp_path / "o.yaml", *options)


def test_an_association_says_which_program_makes_it(tmp_path):
    edge = "{name: a, devices: {count: 2}}"
    (tmp_path / "o.yaml").write_text(f"edges: [{edge}]\nassociation: {{by: nearest, at_m: {{b: [0, 0]}}}}\n")
    with pytest.raises(UserError, match=r"o\.yaml:2: association: this key is gone; .*experiments\.parts\.association"):
        read(tmp_path / "o.yaml", 1)


def test_how_devices_move_is_part_of_a_summary(tmp_path):
    network = "edges:\n  - {name: a, devices: {count: 2}}\n  - {name: b, devices: {count: 1}}\n"
    (tmp_path / "n.yaml").write_text(f"{network}mobility: {{trace: [[3, a/1, b], [5, a/2, b], [6, a/1, '-']]}}\n")
    assert "mobility      2 devices move, a trace from interval 3 to 6" in run("check", tmp_path / "n.yaml")
    assert "3 devices; devices move" in run("show", tmp_path / "n.yaml")
