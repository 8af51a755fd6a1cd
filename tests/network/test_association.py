"""Which edge server devices join: by hand, against all associations that there are, and in files."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import entropy

from h2fdp import Topology
from h2fdp.errors import UserError
from h2fdp.network import Subnet, read, write
from h2fdp.network.association import AssociationSection, mean_divergence, transferred

AT_M = {"edge-1": [0.0, 0.0], "edge-2": [100.0, 0.0], "edge-3": [50.0, 80.0]}
X_M, Y_M = [30, 70, 0, 100, 40, 60], [30, 0, 3, 4, 80, 70]


def apart(**stated):
    tree = Topology.regular(edges=3, devices=2).with_devices(x_m=X_M, y_m=Y_M)
    return replace(tree, association=AssociationSection(**{"by": "nearest", "at_m": AT_M, **stated}))


def test_every_device_joins_the_nearest_edge_server():
    """By hand: the root of 1,800 from the first, 30 from the second; 3, 4; 10 and the root of 200 from the third."""
    joined = apart().associated()
    assert [subnet.device_names() for subnet in joined.subnets] == [
        ["edge-1/1", "edge-2/1"],
        ["edge-1/2", "edge-2/2"],
        ["edge-3/1", "edge-3/2"],
    ]
    far = np.concatenate([subnet.column("distance_m") for subnet in joined.subnets])
    assert far == pytest.approx([np.hypot(30, 30), 3, 30, 4, 10, np.hypot(10, 10)])
    assert joined.association.was == {"edge-1": [0, 2], "edge-2": [1, 3], "edge-3": [4, 5]}
    assert joined.as_filed().device_names() == apart().device_names()
    assert [subnet.trust for subnet in joined.subnets] == [subnet.trust for subnet in apart().subnets]


def test_an_association_that_is_the_files_changes_nothing_but_distances():
    tree = apart(at_m={"edge-1": [30.0, 40.0], "edge-2": [0.0, 3.0], "edge-3": [40.0, 80.0]})
    tree = tree.with_devices(x_m=[30, 30, 0, 0, 40, 40], y_m=[47, 45, 8, 9, 85, 77])
    joined = tree.associated()
    far = [7.0, 5.0, 5.0, 6.0, 5.0, 3.0]
    assert replace(joined, association=None) == replace(tree.with_devices(distance_m=far), association=None)
    assert joined.association.places.tolist() == list(range(6))


def test_an_edge_server_that_no_device_joins_leaves_the_network():
    joined = apart(at_m={**AT_M, "edge-2": [1e4, 0.0]}).associated()
    assert [subnet.name for subnet in joined.subnets] == ["edge-1", "edge-3"]
    assert joined.as_filed().sizes.tolist() == [2, 2, 2]


def moves(home, reached):
    for device, server in zip(*np.nonzero(reached), strict=True):
        if server != home[device] and np.count_nonzero(home == home[device]) > 1:
            yield np.where(np.arange(len(home)) == device, server, home)


@pytest.mark.parametrize("seed", range(8))
def test_no_transfer_improves_on_transfers_and_no_association_is_much_better(seed):
    """Eight devices, three edge servers: all 5,796 associations in which each edge server has a device. The value is
    the mean divergence of their labels, by SciPy."""
    rng = np.random.default_rng(seed)
    labels = rng.multinomial(30, rng.dirichlet([0.3] * 4, 8).mean(axis=0), 8) + rng.integers(0, 30, (8, 4))
    value, overall = mean_divergence(labels), labels.sum(axis=0)

    def by_scipy(home):
        return np.mean([entropy(labels[home == server].sum(axis=0), overall) for server in np.unique(home)])

    everywhere = np.full((8, 3), True)
    begun = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    found = transferred(begun, everywhere, value)
    assert value(found) == pytest.approx(by_scipy(found), rel=1e-9)
    assert all(by_scipy(other) >= by_scipy(found) * (1 - 1e-9) for other in moves(found, everywhere))
    every = [np.array(home) for home in product(range(3), repeat=8) if len(set(home)) == 3]
    assert len(every) == 5796
    least = min(map(value, every))
    assert least <= value(found) <= 0.5 * (value(begun) + least), "half of what there is to gain, at least"


def test_transfers_find_the_best_where_devices_do_not_depend_on_each_other():
    rng = np.random.default_rng(3)
    costs, reached = rng.uniform(1, 2, (8, 3)), rng.uniform(size=(8, 3)) < 0.8
    reached[:, 0] = True
    found = transferred(np.zeros(8, int), reached, lambda home: float(costs[np.arange(8), home].sum()))
    assert found.tolist() == np.argmin(np.where(reached, costs, 9), axis=1).tolist()


def test_files_have_both_forms(tmp_path):
    """What is to be done, and what was done."""
    for number, tree in enumerate([apart(by="data", within_m=90.0, labels="public"), apart().associated()]):
        path = tmp_path / f"{number}.yaml"
        write(tree, path)
        assert read(path, seed=7) == tree


PLACES = """
association: {by: nearest, at_m: {a: [0, 0], b: [9, 0]}}
devices: {x_m: {uniform: [0, 9]}, y_m: 1}
edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: true, devices: {count: 2}}]
"""


@pytest.mark.parametrize(
    ("written", "instead", "found"),
    [
        ("b: [9, 0]}", "c: [9, 0]}", r'association\.at_m: .*found "c"'),
        (", b: [9, 0]}", "}", r'association\.at_m: expected a place of "b"'),
        ("by: nearest, ", "by: chance, ", r"association\.by: expected"),
        (", at_m: {a: [0, 0], b: [9, 0]}", "", "expected `at_m:`"),
        ("association: {by: nearest, at_m: {a: [0, 0], b: [9, 0]}}", "", "expected association too"),
        (", y_m: 1", "", "expected y_m of every device"),
        ("association", "mobility: {stay: 1}\nassociation", "one of mobility and association"),
        ("at_m: {a: [0, 0], b: [9, 0]}", "was: {a: [0, 1], b: [2, 2]}", "each device once"),
    ],
)
def test_mistakes_are_refused(tmp_path, written, instead, found):
    assert written in PLACES
    (tmp_path / "tree.yaml").write_text(PLACES.replace(written, instead, 1))
    with pytest.raises(UserError, match=found):
        read(tmp_path / "tree.yaml", seed=1)


def test_a_device_that_reaches_no_edge_server_is_named():
    with pytest.raises(UserError, match=r"edge-1/1 is 42.426 m from the nearest edge server; .*found 40"):
        apart(within_m=40.0).associated()


def test_subnets_keep_what_their_devices_have():
    """Numbers of machines go along."""
    tree = apart().with_devices(cycles_per_record=np.arange(1.0, 7.0))
    joined = tree.associated()
    assert joined.subnets[0].column("cycles_per_record").tolist() == [1.0, 3.0]
    assert isinstance(joined.subnets[0], Subnet)
