"""What is written is read back equal, whatever the seed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.network import Radio, Topology, Wire, read, write
from h2fdp.network.channel import LogDistance, OverTheAir
from h2fdp.network.network import TRUSTS
from tests.networks import placed, stored

positive = st.floats(1e-6, 1e9)
decibels = st.floats(-300, 100)  # what a file may say
names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12).filter(
    lambda name: name.isprintable() and not any(each in name for each in ("{i}", "{parent}", "/")) and name != "cloud"
)
links = st.builds(Wire, (positive.map(lambda rate: rate * 1e6)) | st.just(float("inf")), decibels)
radios = st.builds(
    Radio,
    st.floats(1e-6, 1e6).map(lambda width: width * 1e6),
    decibels,
    st.sampled_from(["tdma", "ofdma", {"name": "ofdma", "shares": "equal"}])
    | st.builds(OverTheAir, truncate_db=st.floats(-100, 0)),
    st.sampled_from(["rayleigh", "none"]),
    st.floats(-100, 20),
    st.integers(1, 1024),
    st.builds(LogDistance, beta0_db=decibels, exponent=st.floats(0, 20)),
)


@st.composite
def topologies(draw):
    total = draw(st.integers(1, 4))
    sizes = [draw(st.integers(1, 4)) for _ in range(total)]
    taken = draw(st.lists(names, unique=True, min_size=total + sum(sizes), max_size=total + sum(sizes)))
    subnets = []
    for name, size in zip(taken, sizes, strict=False):
        own = tuple(taken.pop() for _ in range(size)) if draw(st.booleans()) else None
        lists = [draw(st.lists(kind, min_size=size, max_size=size)) for kind in (positive, decibels)]
        subnets.append(placed(name, draw(st.sampled_from(TRUSTS)), *lists, draw(links), own))
    of_steps = {name: draw(st.floats(0, 10)) for name in ("seconds_per_step", "joules_per_step")}
    odds = draw(st.just((None, 0.0)) | st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)))
    given = (draw(names), tuple(subnets), draw(radios))
    cloud = draw(st.sampled_from(["untrusted", "secure-sum"]))
    made = Topology(*given, trust_probability=odds[0], secure_sum_probability=odds[1], cloud_trust=cloud)
    return made.with_devices(**of_steps)


@pytest.mark.parametrize("suffix", ["yaml", "graphml", "json"])
@settings(max_examples=30, deadline=None)
@given(topology=topologies())
def test_any_topology(tmp_path_factory, suffix, topology):
    path = tmp_path_factory.mktemp("round") / f"net.{suffix}"
    assert read(stored(topology, path), seed=99) == topology


@pytest.mark.parametrize(
    "word", ["1e5", "no", "null", "-", "a: b", "#c", "{x}", "'", "\\", "é", "*a", "<<", "<b>&amp;"]
)
@pytest.mark.parametrize("suffix", ["yaml", "graphml", "json"])
def test_names_that_look_like_something_else(tmp_path, word, suffix):
    topology = Topology(word, (placed(word, True, [1.0], [2.0]),))
    assert read(stored(topology, tmp_path / f"net.{suffix}"), 1) == topology


def test_large_networks_are_written_by_their_rules(tmp_path):
    large = Topology.regular(edges=100, devices=1000, seed=5)
    write(large, tmp_path / "net.yaml")
    assert (tmp_path / "net.yaml").stat().st_size < 20_000
    assert read(tmp_path / "net.yaml", seed=99) == large


def test_trust_may_be_left_to_be_drawn(tmp_path):
    write(Topology.regular(edges=50, trust=0.5, seed=1), tmp_path / "net.yaml", state_trust=False)
    assert "trusted" not in (tmp_path / "net.yaml").read_text()
    assert read(tmp_path / "net.yaml", 1) == Topology.regular(edges=50, trust=0.5, seed=1)
    assert read(tmp_path / "net.yaml", 2) != read(tmp_path / "net.yaml", 1)
