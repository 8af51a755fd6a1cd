"""Devices that change their edge server: traces, and the rows that a network has for them."""

from dataclasses import replace

import pytest

from h2fdp import Experiment, Topology
from h2fdp.errors import UserError
from h2fdp.network import read, write
from h2fdp.network.mobility import Line, Mobility

STILL = Topology.regular(edges=3, devices=2)


def moving(lines):
    return replace(STILL, mobility=Mobility(lines))


def test_rows_of_a_trace_by_hand():
    """Rows of the file first, then a row for each device and distance; nowhere is no row."""
    tree = moving(
        [(2, "edge-1/2", "edge-3"), (3, "edge-1/2", None), (4, "edge-1/2", "edge-3", 7.0), (5, "edge-1/2", "edge-1")]
    )
    network = tree.with_rows()
    assert network.sizes.tolist() == [2, 2, 4]
    assert network.subnets[2].device_names() == ["edge-3/1", "edge-3/2", "edge-1/2", "edge-1/2"]
    own = float(STILL.subnets[0].column("distance_m")[1])
    assert network.subnets[2].column("distance_m").tolist()[2:] == [own, 7.0]
    assert network.membership.device.tolist() == [0, 1, 2, 3, 4, 5, 1, 1]
    assert [int(network.membership.rows_at(interval)[1]) for interval in range(6)] == [1, 6, -1, 7, 1, 1]
    assert network.membership.there(2).tolist() == [True, False, True, True, True, True, False, False]


def test_a_file_has_its_trace_inside_when_it_is_written(tmp_path):
    """A trace is read from beside the topology; the topology of a run directory needs no other file."""
    (tmp_path / "cars.csv").write_text(
        "interval,device,edge,distance_m\n2, edge-1/1, edge-2, 30\n3,edge-1/1,-,\n4,edge-1/1,edge-1,\n"
    )
    write(STILL, tmp_path / "still.yaml")
    (tmp_path / "tree.yaml").write_text((tmp_path / "still.yaml").read_text() + "mobility: {trace: cars.csv}\n")
    tree = read(tmp_path / "tree.yaml", seed=1)
    assert tree.mobility.lines == (
        Line(2, "edge-1/1", "edge-2", 30.0),
        Line(3, "edge-1/1", None),
        Line(4, "edge-1/1", "edge-1"),
    )
    (tmp_path / "alone").mkdir()
    write(tree, tmp_path / "alone" / "tree.yaml")
    assert read(tmp_path / "alone" / "tree.yaml", seed=2) == tree
    with pytest.raises(UserError, match=r"\.yaml or \.yml: networks are written as YAML"):
        write(tree, tmp_path / "tree.graphml")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("0,edge-1/1,edge-2", "interval"),
        ("two,edge-1/1,edge-2", "interval"),
        ("2,nobody,edge-2", "device"),
        ("2,edge-1/1,edge-9", "edge server"),
        ("2,edge-1/1,edge-2,near", "distance_m"),
        ("2,edge-1/1,edge-2,-4", "distance_m"),
        ("2,edge-1/1", "expected"),
        ("3,edge-2/1,edge-2", "second"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path, line, found):
    """File, line, what was expected."""
    (tmp_path / "cars.csv").write_text(f"interval,device,edge,distance_m\n3,edge-2/1,edge-1,\n{line}\n")
    write(STILL, tmp_path / "tree.yaml")
    (tmp_path / "tree.yaml").write_text((tmp_path / "tree.yaml").read_text() + "mobility: {trace: cars.csv}\n")
    with pytest.raises(UserError, match=found) as caught:
        read(tmp_path / "tree.yaml", seed=1)
    assert [problem.where for problem in caught.value.problems] == [f"{tmp_path / 'cars.csv'}:3"]


def test_a_trace_inside_a_topology_is_refused_with_its_line_too(tmp_path):
    write(STILL, path := tmp_path / "tree.yaml")
    lines = path.read_text().count("\n")
    trace = "mobility:\n  trace:\n    - [2, edge-1/1, edge-2]\n    - [two, edge-1/1, edge-2]\n"
    path.write_text(path.read_text() + trace)
    with pytest.raises(UserError, match="expected the number of an interval") as caught:
        read(path, seed=1)
    path.write_text(path.read_text().replace("[two, edge-1/1", "[3, nobody"))
    with pytest.raises(UserError, match="expected the name of a device") as later:
        read(path, seed=1)
    for each in (caught, later):
        assert [problem.where for problem in each.value.problems] == [f"{path}:{lines + 4}"]


@pytest.mark.parametrize("text", ["{}", "{trace: a.csv, stay: 0.5}", "{stay: 0.5}", "{trace: none.csv}", "{move: 1}"])
def test_a_section_that_says_nothing_is_refused(tmp_path, text):
    """A trace, whose file is there."""
    write(STILL, tmp_path / "tree.yaml")
    (tmp_path / "tree.yaml").write_text((tmp_path / "tree.yaml").read_text() + f"mobility: {text}\n")
    with pytest.raises(UserError):
        read(tmp_path / "tree.yaml", seed=1)


def test_a_trace_of_an_experiments_own_network_is_refused_by_the_whole_key():
    servers = [{"name": name, "devices": {"count": 1}} for name in "ab"]
    with pytest.raises(UserError) as caught:
        Experiment({"edges": servers, "mobility": {"trace": [[2, "a/1", "c"]]}}, "digits")
    assert [problem.key for problem in caught.value.problems] == ["topology.mobility.trace.1"]
