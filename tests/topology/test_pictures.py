"""Pictures and trees of text: trust shows without colour."""

from pathlib import Path

import numpy as np
import pytest

from h2fdp.errors import UserError
from h2fdp.topology import Topology, draw, read
from h2fdp.topology.picture import STYLES
from h2fdp.topology.summary import ASCII, listing
from h2fdp.topology.trust import TRUSTS
from h2fdp.topology.wheel import arcs, parts

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
    for part in ("marker", "fill", "line", "hatch", "colour", "device"):
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
    for lines in (listing(network), listing(network, ASCII)):
        assert max(len(line.text.rstrip()) for line in lines) <= 80
        assert len(lines) <= 41
    assert all(line.text.isascii() for line in listing(network, ASCII))


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


def test_the_rings_of_a_large_tree_lie_inside_each_other_and_span_what_is_below():
    network = Topology.deep((4, 6, 5, 7))
    rings = {arc.name: arc for arc in arcs(network)}
    for name, arc in rings.items():
        below = network.below(name)
        assert arc.starts - arc.stops == pytest.approx(2 * np.pi * len(below) / network.edges)
        assert 0 < arc.inner < arc.outer < 1
        parent = network.path(name)[1:2]
        assert not parent or rings[parent[0]].outer < arc.inner
    beside = [part.numbers for part in parts(network)]
    assert sorted(np.concatenate(beside).tolist()) == list(range(network.edges))
    assert all(len({network.subnets[at].parent for at in numbers}) == 1 for numbers in beside)
