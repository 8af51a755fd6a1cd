"""What a topology file means."""

from pathlib import Path

import pytest

from h2fdp.config import Document, parse
from h2fdp.errors import UserError
from h2fdp.network import Radio, Wire, from_document, read

FILES = sorted((Path(__file__).parents[2] / "topologies").glob("*.yaml"))


def topology(text, seed=1):
    return from_document(Document("a.yaml", parse(text, "a.yaml"), Path()), seed)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_of_the_collection_is_read_and_says_what_it_is_for(file):
    assert read(file, seed=1).name == file.stem
    assert file.read_text().startswith("# ")


@pytest.mark.slow
def test_the_collection_has_the_networks_of_the_paper():
    shapes = {file.stem: read(file, 1).sizes.tolist() for file in FILES}
    assert shapes["paper"] == [5] * 10
    assert shapes["star"] == [50]
    assert [shapes[f"config1-{edges}"] for edges in (2, 4, 6, 8, 10)] == [[5] * edges for edges in (2, 4, 6, 8, 10)]
    assert [shapes[f"config2-{size}"] for size in (5, 10, 15, 20, 25)] == [[size] * 2 for size in (5, 10, 15, 20, 25)]
    assert len(shapes["metro"]) == 100
    assert len(set(shapes["metro"])) > 10
    assert shapes["campus"] == [2] + [5] * 8
    assert shapes["campus-three-tier"] == [2] + [5] * 7 + [3]
    assert shapes["clinics"] == [8] * 2 + [6] * 3 + [3] * 4


def test_defaults_are_the_papers():
    small = topology("edges: [{name: a, trusted: true, devices: [{}]}]")
    assert small.radio == Radio()
    assert sorted(small.table.columns) == ["distance_m", "power_dbm"]
    assert small.subnets[0].link == Wire(100e6, 38.0)
    assert small.subnets[0].column("distance_m").tolist() == [50.0]
    assert small.subnets[0].column("power_dbm").tolist() == [24.0]
    assert small.trust_probability is None


def test_units_of_the_file_become_si_units():
    small = topology("""
radio: {bandwidth_mhz: 2.5, noise_dbm_per_hz: -170, access: ofdma, fading: none, fading_floor_db: -30,
        bits_per_parameter: 16, pathloss: {beta0_db: -20, exponent: 2}}
devices: {seconds_per_step: 0.5, joules_per_step: 2}
edges: [{name: a, devices: [{}], link: {rate_mbps: 10, power_dbm: 30}}]
""")
    assert small.radio == Radio(2.5e6, -170, "ofdma", "none", -30, 16, {"beta0_db": -20, "exponent": 2})
    assert small.subnets[0].column("seconds_per_step").tolist() == [0.5]
    assert small.subnets[0].column("joules_per_step").tolist() == [2]
    assert small.subnets[0].link == Wire(10e6, 30)


def test_a_template_is_written_out_from_one():
    halls = topology("edges: [{name: 'hall-{i}', repeat: 3, devices: [{name: 'cam-{i}'}, {}]}]")
    assert [subnet.name for subnet in halls.subnets] == ["hall-1", "hall-2", "hall-3"]
    assert halls.subnets[2].device_names() == ["cam-3", "hall-3/2"]


def test_drawn_distances_are_uniform_in_their_range():
    # mean of 100,000 uniforms on [10, 100]: standard error 0.082, so 0.4 fails once in a million
    drawn = topology("edges: [{name: a, devices: {count: 100000, distance_m: {uniform: [10, 100]}}}]").subnets[0]
    assert drawn.column("distance_m").min() >= 10
    assert drawn.column("distance_m").max() <= 100
    assert abs(drawn.column("distance_m").mean() - 55) < 0.4


def test_an_edge_servers_draws_do_not_depend_on_its_neighbours():
    text = "{name: NAME, devices: {count: {uniform: [1, 9]}, distance_m: {uniform: [10, 100]}}}"
    entries = [text.replace("NAME", name) for name in ("a", "b", "c")]
    first, second = topology(f"edges: [{', '.join(entries)}]"), topology(f"edges: [{', '.join(entries[::-1])}]")
    assert first.subnets == second.subnets[::-1]


def test_settings_reach_into_a_document():
    document = Document("a.yaml", parse("edges: [{name: a, devices: {count: 2}}]", "a.yaml"), Path())
    document.set("trust.probability", 1.0, "--set")
    document.set("edges[0].devices.count", 4, "--set")
    changed = from_document(document, 1)
    assert changed.subnets[0].trusted
    assert changed.devices == 4


def test_a_probability_that_decides_nothing_is_a_mistake_when_set_from_outside():
    document = Document("a.yaml", parse("edges: [{name: a, trusted: true, devices: {count: 2}}]", "a.yaml"), Path())
    document.set("trust.probability", 1.0, "--set")
    with pytest.raises(UserError, match=r"--set: trust\.probability: has no effect"):
        from_document(document, 1)


@pytest.mark.slow
def test_a_million_devices_stay_arrays():
    large = topology("edges: [{name: 'e-{i}', repeat: 10000, devices: {count: 100, distance_m: {uniform: [1, 9]}}}]")
    assert large.devices == 1_000_000
    assert sum(values.nbytes for subnet in large.subnets for values in subnet.columns.values()) == 16_000_000
    assert all(subnet.names is None for subnet in large.subnets)
