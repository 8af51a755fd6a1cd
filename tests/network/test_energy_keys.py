"""Kinds of devices, and traces of the grid and of the sun: what is stated wins, what is written is read back, mistakes
have a file, a line and a key."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.errors import UserError
from h2fdp.network import Topology, read, write
from h2fdp.network.devices import KINDS
from h2fdp.network.network import COLUMNS
from h2fdp.network.traces import Trace

EDGES = "edges: [{name: a, trusted: true, devices: {count: 2, %s}}, {name: b, trusted: false, devices: {count: 1}}]\n"


def network(tmp_path, text, **files):
    for name, content in files.items():
        (tmp_path / f"{name}.csv").write_text(content)
    path = tmp_path / "net.yaml"
    path.write_text(text)
    return read(path, seed=1)


def mistake(tmp_path, text, **files):
    with pytest.raises(UserError) as caught:
        network(tmp_path, text, **files)
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_stated_keys_win_over_a_kind_and_a_kind_over_defaults(tmp_path):
    text = "devices: {kind: raspberry-pi-4, idle_w: 3}\n" + EDGES % "kind: esp32, cycles_per_record: 5, power_dbm: 7"
    a, b = network(tmp_path, text).subnets
    esp32, pi = KINDS["esp32"], KINDS["raspberry-pi-4"]
    assert a.columns["power_dbm"].tolist() == [7, 7]
    assert a.columns["cpu_ghz"].tolist() == [esp32["cpu_ghz"]] * 2
    assert a.columns["idle_w"].tolist() == [3, 3]  # stated for all
    assert b.columns["capacitance"].tolist() == [pi["capacitance"]]
    assert b.columns["power_dbm"].tolist() == [COLUMNS["power_dbm"].default]
    plain = network(tmp_path, EDGES % "kind: esp32")
    assert "cpu_ghz" not in plain.table.columns  # which means nothing without cycles
    assert plain.table.columns["idle_w"].tolist() == [esp32["idle_w"]] * 2 + [0]


def test_the_numbers_of_kinds_are_numbers_of_columns_and_draw_the_watts_that_were_published():
    for kind in KINDS.values():
        assert all(COLUMNS[name].allows(np.array([value])) for name, value in kind.items())

    def watts(kind):  # alpha f^3 / 2, above idling
        return KINDS[kind]["capacitance"] / 2 * (KINDS[kind]["cpu_ghz"] * 1e9) ** 3 + KINDS[kind]["idle_w"]

    assert watts("raspberry-pi-4") == pytest.approx(5.0)
    assert watts("jetson-orin-nano") == pytest.approx(15.0)
    assert watts("esp32") == pytest.approx(0.068 * 3.3)


GRID, SUN = "hour,de,fr\n0,400,50\n12,200,60\n", "hour,watts\n0,0\n12,1\n"


def test_a_network_with_traces_is_written_and_read_back(tmp_path):
    head = "carbon: {trace: grid.csv, regions: {a: de, b: fr}}\ndevices: {battery_j: 5, harvest_w: sun.csv}\n"
    made = network(tmp_path, head + EDGES % "harvest_w: 0.25", grid=GRID, sun=SUN)
    assert made.harvest.mean(["a", "b"], 13 * 3600, 60) == pytest.approx([1, 1])
    assert made.table.columns["harvest_w"].tolist() == [0.25, 0.25, 1]
    assert made.carbon.mean(["a", "b"], 0, 24 * 3600) == pytest.approx([300, 55])
    write(made, tmp_path / "again.yaml")
    assert read(tmp_path / "again.yaml", seed=9) == made
    star = made.as_star()
    assert (star.carbon, star.harvest) == (made.carbon, made.harvest)


def test_regions_follow_from_patterns_from_servers_above_and_from_names(tmp_path):
    text = """carbon: {trace: [[hour, de, fr, se], [0, 1, 2, 3]], regions: {"south-*": fr}}
edges:
  - {name: south-top, trusted: true, edges: [{name: south-1, devices: {count: 1}}, {name: x, devices: {count: 1}}]}
  - {name: se, devices: {count: 1}}
"""
    assert network(tmp_path, text).carbon.places == {"south-top": "fr", "south-1": "fr", "x": "fr", "se": "se"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devices: {kind: esp23}\n" + EDGES % "", "net.yaml:1: devices.kind: expected "),
        ("carbon: {trace: no.csv}\n" + EDGES % "", "net.yaml:1: carbon.trace: no.csv: cannot be read"),
        (
            "carbon: {trace: grid.csv}\n" + EDGES % "",
            '1: carbon.regions: expected for "a" one of the regions de, fr',
        ),
        ("carbon: {trace: grid.csv, regions: {a: it}}\n" + EDGES % "", "regions de, fr, found it"),
        (
            "carbon: {trace: bad.csv}\n" + EDGES % "",
            "net.yaml:1: carbon.trace: bad.csv:4: expected an hour after 6 and",
        ),
        ("carbon: {trace: [[time, x], [0, 1]]}\n" + EDGES % "", "expected the columns hour and one for each region"),
        ("carbon: {trace: [[hour, x], [1, 1]]}\n" + EDGES % "", "line 2: expected hour 0 and 1 numbers from 0 on"),
        (EDGES % "harvest_w: 2", "expected battery_j too, without which harvest_w means nothing"),
        (
            "harvest: {trace: grid.csv}\n" + EDGES % "battery_j: 2",
            "expected harvest_w too, without which harvest",
        ),
        (EDGES % "battery_j: 2, harvest_w: sun.csv", "net.yaml:1: edges[0].devices.harvest_w: expected "),
    ],
)
def test_mistakes_have_a_file_a_line_and_a_key(tmp_path, text, said):
    found = mistake(tmp_path, text, grid=GRID, bad="hour,de\n0,1\n6,2\n6,3\n")
    assert said in found, found


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_mean_is_that_of_many_moments(data):
    steps = data.draw(st.lists(st.floats(0.1, 9), min_size=1, max_size=5))
    values = data.draw(st.lists(st.floats(0, 500), min_size=len(steps), max_size=len(steps)))
    hours = np.concatenate([[0.0], np.cumsum(steps)[:-1]])
    trace = Trace(("x",), tuple(zip(hours.tolist(), values, strict=True)), {"a": "x"})
    period = hours[-1] + (hours[-1] - hours[-2] if len(hours) > 1 else 1.0)
    assert trace.period_s == pytest.approx(period * 3600)
    began, lasts = data.draw(st.floats(0, 30)), data.draw(st.floats(0.01, 30))
    moments = (began + (np.arange(20_000) + 0.5) / 20_000 * lasts) % period
    found = np.mean(np.array(values)[np.searchsorted(hours, moments, side="right") - 1])
    tolerance = 500 * (2 + lasts / period) * len(steps) / 20_000 + 1e-6
    assert trace.mean(["a"], began * 3600, lasts * 3600)[0] == pytest.approx(found, abs=tolerance)


def test_a_topology_without_traces_has_none():
    assert Topology.regular().carbon is None
