"""Pictures and trees of text: trust shows without colour."""

from pathlib import Path

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.network import Topology, draw, read
from h2fdp.network.drawing import MOST_NAMED, STYLES, arrange
from h2fdp.network.summary import ASCII, listing
from h2fdp.network.trust import TRUSTS

FOLDER = Path(__file__).parents[2] / "topologies"
SMALL = Topology.regular(edges=4, devices=3, trust=0.3, secure_sum=0.3)  # of all three levels
NETWORKS = [
    SMALL,
    Topology.regular(edges=1, devices=1),
    SMALL.as_star(),
    Topology.regular(edges=2, devices=25),
    Topology.regular(edges=3, devices=2),
    Topology.regular(edges=1, devices=2000),
    Topology.regular(edges=1000, devices=3),
    Topology.regular(edges=300, devices=3, trust=0.3, secure_sum=0.3),
    Topology.deep((4, 5, 5), trust=0.3, secure_sum=0.3),
    Topology.deep((1, 1, 1)),
    Topology.deep((2, 3, 2)),
    Topology.deep((2, 2, 3, 4)),
    Topology.deep((3, 4, 5, 9)),
    Topology.deep((10, 50, 2)),
    read(FOLDER / "campus-three-tier.yaml", 1),
]


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(tmp_path, suffix, magic):
    draw(SMALL, tmp_path / f"net.{suffix}")
    assert (tmp_path / f"net.{suffix}").read_bytes().startswith(magic)


@pytest.mark.parametrize(
    "network", [*NETWORKS, read(FOLDER / "metro.yaml", 1)], ids=lambda network: f"{network.edges}-{network.devices}"
)
def test_networks_of_every_shape_are_drawn(network):
    words = " ".join(text.get_text() for text in draw(network).legends[0].get_texts())
    for server in network.servers():
        assert f"{server.trust} edge server" in words


def test_trust_differs_in_shape_filling_and_line():
    for part in ("marker", "fill", "line", "colour", "device"):
        assert len({getattr(style, part) for style in STYLES}) == len(TRUSTS)


def test_a_name_with_dollars_is_no_formula():
    draw(Topology.regular(edges=2, devices=1, name="a $\\frac{ net"))


@pytest.mark.parametrize("path", ["net.gif", "net", "no/such/folder/net.png"])
def test_a_picture_that_cannot_be_written(tmp_path, path):
    with pytest.raises(UserError):
        draw(SMALL, tmp_path / path)


@pytest.mark.parametrize(
    "network",
    [*NETWORKS, read(FOLDER / "metro.yaml", 1), read(FOLDER / "campus.yaml", 1)],
    ids=lambda network: f"{network.edges}-{network.devices}",
)
def test_a_tree_of_text_fits_80_columns_and_25_lines_of_a_large_network(network):
    lines = [line.text.rstrip() for line in listing(network)]
    plain = [line.translate(ASCII) for line in lines]
    assert max(map(len, [*lines, *plain])) <= 80
    assert len(lines) <= 41
    assert all(line.isascii() for line in plain)


def test_every_line_of_an_edge_server_says_its_trust_by_symbol_and_word():
    for line in listing(SMALL)[1:]:
        for sign, trust in (("■", "trusted"), ("◆", "secure-sum"), ("○", "untrusted")):
            assert (sign in line.text) == (f" {trust} " in line.text) == (line.trust == trust)


def test_in_a_tree_of_text_each_server_stands_below_the_one_above():
    lines = [line.text.rstrip() for line in listing(read(FOLDER / "campus-three-tier.yaml", 1))]
    assert lines[:3] == [
        "cloud",
        "├── ■ north             trusted",
        "│   ├── ■ library       trusted    2 devices  40–75 m",
    ]
    assert lines[-1] == "└── ○ gate              untrusted  3 devices  20 m"


def test_edge_servers_stand_on_a_ring_by_trust_and_size_where_there_are_many():
    network = Topology.deep((4, 6, 5, 7), secure_sum=0.2)
    assert network.edges > MOST_NAMED
    places = arrange(network).servers
    angles = {each.name: np.arctan2(*places[each.name]) % (2 * np.pi) for each in network.subnets}
    around = sorted(network.subnets, key=lambda each: round(angles[each.name], 9))  # clockwise from the top
    assert [each.parent for each in around] == [each.parent for each in network.subnets]
    levels = [style.trust for style in STYLES]
    for parent in {each.parent for each in around}:
        kinds = [levels.index(each.trust) for each in around if each.parent == parent]
        assert kinds == sorted(kinds)
    for server in network.servers():
        at, above = places[server.name], places[server.parent]
        assert np.hypot(*above) < np.hypot(*at) <= 1 + 1e-9


def test_distances_are_to_scale():
    network = Topology.regular(edges=5, devices=7)
    layout = arrange(network)
    farthest = max(subnet.column("distance_m").max() for subnet in network.subnets)
    for subnet in network.subnets:
        away = np.hypot(*(layout.devices[subnet.name] - layout.servers[subnet.name]).T)
        assert (away - 0.22) / 0.78 == pytest.approx(subnet.column("distance_m") / farthest)
