"""Pictures and trees of text: trust shows without colour."""

from pathlib import Path

import pytest

from h2fdp.network import Topology, draw, read
from h2fdp.network.summary import ASCII, listing

FOLDER = Path(__file__).parents[2] / "topologies"
SMALL = Topology.regular(edges=4, devices=3, trust=0.3, secure_sum=0.3)  # of all three levels
NETWORKS = [
    SMALL,
    Topology.regular(edges=1, devices=1),
    SMALL.as_star(),
    Topology.regular(edges=300, devices=3, trust=0.3, secure_sum=0.3),
    Topology.deep((2, 2, 3, 4)),
    Topology.deep((10, 50, 2)),
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


def test_in_a_tree_of_text_each_server_stands_below_the_one_above():
    lines = [line.text.rstrip() for line in listing(read(FOLDER / "campus-three-tier.yaml", 1))]
    assert lines[:3] == [
        "cloud",
        "├── ■ north             trusted",
        "│   ├── ■ library       trusted    2 devices  40–75 m",
    ]
    assert lines[-1] == "└── ○ gate              untrusted  3 devices  20 m"
