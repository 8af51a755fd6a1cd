"""Random waypoint against its known stationary law: where devices are, and how fast."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from experiments.parts import waypoint
from experiments.parts.waypoint import Waypoint, mean_distance
from h2fdp import Topology, UserError
from h2fdp.network import read, write
from h2fdp.network.mobility import Mobility
from h2fdp.streams import Streams

ROAD = Waypoint(edges={"a": [0.0, 0.0]}, area_m=[2000.0, 0.0], speed_m_s=[2.0, 20.0], interval_s=10.0)


def ways(walk, devices, intervals, seed=3):
    return np.stack([walk.way(intervals, Streams(seed).open("", "waypoint", each)) for each in range(devices)])


@pytest.mark.parametrize("interval", [0, 60])
def test_devices_on_a_road_are_where_legs_pass(interval):
    """Density 6 x (1 - x) of the place on a road without pauses, in every interval (Bettstetter et al. 2003):
    chi-square of ten bins, at an error rate of 1e-4."""
    found = ways(ROAD, 4000, interval + 1)[:, interval, 0] / 2000
    edges = np.linspace(0, 1, 11)
    expected = 4000 * np.diff(3 * edges**2 - 2 * edges**3)
    assert (((np.histogram(found, edges)[0] - expected) ** 2) / expected).sum() < 33.7  # 9 degrees of freedom
    assert not ways(ROAD, 5, 3)[:, :, 1].any()


@pytest.mark.parametrize(("pause_s", "interval"), [(0.0, 0), (0.0, 400), (100.0, 0), (100.0, 400)])
def test_the_mean_speed_is_that_of_the_stationary_law_from_the_first_interval_on(pause_s, interval):
    """E L / (E L E[1 / V] + pause), E L = a / 3 and E[1 / V] = ln 10 / 18: slow legs last longer, so it is less than
    the mean of 11 m/s that legs have, and does not fall as time goes on. Steps of 0.1 s; turns hardly matter."""
    walk = replace(ROAD, pause_s=pause_s, interval_s=0.1)
    found = ways(walk, 4000, interval + 2)
    speeds = np.abs(np.diff(found[:, interval : interval + 2, 0], axis=1)) / 0.1
    mean_leg, slowness = 2000 / 3, np.log(10) / 18
    expected = mean_leg / (mean_leg * slowness + pause_s)
    assert speeds.mean() == pytest.approx(expected, abs=4 * speeds.std() / 4000**0.5)


@pytest.mark.parametrize(("width", "height"), [(1.0, 1.0), (3.0, 0.5), (200.0, 1000.0), (1.0, 1e-3)])
def test_the_mean_distance_is_that_of_an_integral(width, height):
    """Over the differences of coordinates, whose densities are triangles."""

    def weighed(y, x):
        return np.hypot(x, y) * 2 * (width - x) / width**2 * 2 * (height - y) / height**2

    expected, _ = integrate.dblquad(weighed, 0, width, 0, height, epsabs=1e-10)
    assert mean_distance(width, height) == pytest.approx(expected, rel=1e-6)


TREE = Topology.regular(edges=2, devices=3)
SQUARE = Waypoint(edges={"edge-1": [200.0, 500.0], "edge-2": [900.0, 400.0]}, pause_s=20.0)


def test_devices_are_at_the_nearest_edge_server_at_their_distance():
    """Line by line, from the positions; distances are rounded up; a longer run begins as a shorter one does."""
    lines = Mobility(SQUARE.lines(TREE.subnets, 40, Streams(5))).lines
    assert Mobility(SQUARE.lines(TREE.subnets, 40, Streams(5, secret=b"key"))).lines == lines, "public"
    short = Mobility(SQUARE.lines(TREE.subnets, 10, Streams(5))).lines
    assert sorted(short) == sorted(line for line in lines if line.interval <= 10)
    network = replace(TREE, mobility=Mobility(lines)).with_rows()
    rows, homes = network.membership, np.repeat(np.arange(2), network.sizes)
    distances = network.table.columns["distance_m"]
    points = np.array(list(SQUARE.edges.values()))
    moves = 0
    for device in range(6):
        way = SQUARE.way(40, Streams(5).public.open("", "waypoint", device))
        for interval, position in enumerate(way):
            away = np.hypot(*(points - position).T)
            row = rows.rows_at(interval)[device]
            assert homes[row] == away.argmin()
            assert 0 <= distances[row] - away.min() < 10
            assert distances[row] % 10 == 0
    for interval in range(40):
        moves += sum(homes[last] != homes[now] for last, now in rows.moved(interval))
    assert moves > 3


def test_the_program_writes_a_trace_that_a_topology_names(tmp_path, monkeypatch):
    write(TREE, tmp_path / "net.yaml")
    table = tmp_path / "places.csv"
    table.write_text("name,x_m,y_m\nedge-1,200,500\nedge-2,900,400\n")
    words = ["waypoint", str(tmp_path / "net.yaml"), str(table), "--intervals", "40", "--pause", "20", "--seed", "5"]

    def run(*more, out="walk.csv"):
        monkeypatch.setattr("sys.argv", [*words, "--out", str(tmp_path / out), *more])
        waypoint.main()

    run()
    text = (tmp_path / "net.yaml").read_text()
    (tmp_path / "moving.yaml").write_text(text + "mobility: {trace: walk.csv}\n")
    lines = read(tmp_path / "moving.yaml", seed=5).mobility.lines
    assert sorted(lines) == sorted(Mobility(SQUARE.lines(TREE.subnets, 40, Streams(5))).lines)
    for wrong, found in (
        (("--speed", "0", "1"), "speed_m_s"),
        (("--area", "0", "0"), "area_m"),
        (("--intervals", "0"), "--intervals"),
    ):
        with pytest.raises(UserError, match=found):
            run(*wrong)
    table.write_text("name,x_m,y_m\nedge-1,200,500\nedge-9,900,400\n")
    with pytest.raises(UserError, match="expected a point for each of edge-1, edge-2; found edge-1, edge-9"):
        run()
    for key, stated in (("waypoint", "{edges: {edge-1: [0, 0]}}"), ("stay", "0.8")):
        (tmp_path / "moving.yaml").write_text(f"{text}mobility: {{{key}: {stated}}}\n")
        with pytest.raises(UserError, match=rf"mobility\.{key}: this key is gone; .*experiments\.parts\.waypoint"):
            read(tmp_path / "moving.yaml", seed=5)
