"""Whole runs whose devices join edge servers by distance, cost or data."""

import json
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.data.federated import FederatedData
from h2fdp.integrity import check
from h2fdp.network import Radio, read
from h2fdp.network.association import AssociationSection
from h2fdp.run import devices
from h2fdp.run.loop import start_run
from tests.networks import placed

AT_M = {"e0": [0.0, 0.0], "e1": [100.0, 0.0], "e2": [50.0, 80.0]}


def network(by=None, fading="none", **stated):
    """Eight devices, whose machines and places differ."""
    rng = np.random.default_rng(7)
    subnets = [placed(f"e{at}", at == 0, [50.0] * size, [9.0] * size) for at, size in enumerate((3, 3, 2))]
    tree = Topology("apart", tuple(subnets), Radio(access="ofdma", fading=fading, bandwidth_hz=2e5))
    tree = tree.with_devices(
        x_m=rng.uniform(0, 100, 8), y_m=rng.uniform(0, 80, 8), cycles_per_record=2e5, cpu_ghz=rng.uniform(0.5, 2, 8)
    )
    return tree if by is None else replace(tree, association=AssociationSection(by=by, at_m=AT_M, **stated))


def experiment(topology, **settings):
    defaults = {
        "method": "hfl",
        "intervals": 2,
        "local_steps": 4,
        "aggregate_every": 2,
        "batch_size": 20,
        "seed": 5,
        "model": "softmax",
        "training": "paper",
    }
    if settings.get("training") == "auto":
        defaults = {"seed": 5}
    data = {"name": "digits", "partition": {"labels_per_device": 2}}
    return Experiment(topology, data, **{**defaults, **settings})


PRIVATE = {"method": "h2fdp", "epsilon": 20.0, "calibration": "accounted", "accountant": "pld"}


def test_an_association_that_is_the_files_has_the_bits_of_the_file(tmp_path):
    at_m = {"e0": [0.0, 0.0], "e1": [1e4, 0.0], "e2": [0.0, 1e4]}
    far = [10.0, 20.0, 30.0, 40.0, 10.0, 20.0, 30.0, 40.0]
    tree = network().with_devices(x_m=np.array([0, 0, 0, 1e4, 1e4, 1e4, 0, 0]) + far, y_m=[0] * 6 + [1e4] * 2)
    columns = [{name: each.columns[name] for name in each.columns if name[1:] != "_m"} for each in tree.subnets]
    subnets = [replace(subnet, columns=own) for subnet, own in zip(tree.subnets, columns, strict=True)]
    without_places = replace(tree, subnets=tuple(subnets)).with_devices(distance_m=far)
    still = experiment(without_places, **PRIVATE).run(tmp_path / "still")
    tree = replace(tree, association=AssociationSection(by="nearest", at_m=at_m))
    joined = experiment(tree, **PRIVATE).run(tmp_path / "joined")
    for name in ("privacy.jsonl", "model.pt", "devices.parquet"):
        assert (still.directory / name).read_bytes() == (joined.directory / name).read_bytes(), name
    assert joined.metrics.drop(columns="wall_s").equals(still.metrics.drop(columns="wall_s"))


@pytest.mark.parametrize("by", ["nearest", "cost", "data"])
def test_devices_take_their_records_along(by):
    """By name: where the records are those of the file's network, whoever the device has joined."""
    still, joined = experiment(network()).prepare(), experiment(network(by)).prepare()
    assert joined.topology.device_names() != still.topology.device_names()

    def held(setup):
        assert isinstance(setup.data, FederatedData)
        records = (setup.data.device(number) for number in range(8))
        return {name: each.y.tolist() for name, each in zip(setup.drawn.device_names(), records, strict=True)}

    assert held(joined) == held(still)


@pytest.mark.parametrize("control", [{}, {"alpha2": 0.0}, {"alpha1": 0.0, "least_ghz": 0.2}], ids=str)
def test_by_cost_no_transfer_is_cheaper_as_runs_are_billed(monkeypatch, control):
    """What is weighed is the bill of the first interval of a run in that network; and of all 5,796 associations that
    leave no edge server empty, none is much cheaper."""
    seen = []
    weighing = devices._cost_of_joining
    monkeypatch.setattr(devices, "_cost_of_joining", lambda *given: seen.append(weighing(*given)) or seen[-1])
    setup = experiment(network("cost"), control=control).prepare()
    (value,) = seen
    home = np.empty(8, dtype=np.int64)
    owners = np.repeat(np.arange(setup.topology.edges), setup.topology.sizes)
    names = [list(AT_M).index(subnet.name) for subnet in setup.topology.subnets]
    home[:] = np.array(names)[owners[setup.drawn.association.places]]
    weights = setup.config.control.cost_weights
    bill = setup.bill.columns(setup.first_plan)
    assert value(home) == pytest.approx(weights[0] * bill["energy_j"] + weights[1] * bill["clock_s"], rel=1e-12)
    begun = experiment(network("nearest"), control=control).prepare()
    bill = begun.bill.columns(begun.first_plan)
    nearest = weights[0] * bill["energy_j"] + weights[1] * bill["clock_s"]
    for device, server in product(range(8), range(3)):
        other = home.copy()
        other[device] = server
        if len(set(other.tolist())) == len(set(home.tolist())):
            assert value(other) >= value(home) * (1 - 1e-9)
    every = [value(np.array(other)) for other in product(range(3), repeat=8) if len(set(other)) == 3]
    assert min(every) * (1 - 1e-9) <= value(home) <= nearest
    assert value(home) <= 1.1 * min(every)


def test_by_data_labels_below_edge_servers_are_nearer_to_those_of_all():
    """As near as those of any association that leaves no edge server empty."""

    def divergence(by):
        setup = experiment(network(by)).prepare()
        labels = [setup.data.device(number).y for number in range(8)]
        overall = np.bincount(np.concatenate(labels), minlength=10) / sum(map(len, labels))
        first, found = 0, []
        for size in setup.topology.sizes.tolist():
            own = np.bincount(np.concatenate(labels[first : first + size]), minlength=10) / 1
            own, first = own / own.sum(), first + size
            found.append(sum(p * np.log(p / q) for p, q in zip(own, overall, strict=True) if p))
        return np.mean(found)

    setup, every = experiment(network()).prepare(), []
    counts = np.array([np.bincount(setup.data.device(number).y, minlength=10) for number in range(8)])
    overall = counts.sum(axis=0) / counts.sum()
    for home in map(np.array, product(range(3), repeat=8)):
        if len(set(home.tolist())) == 3:
            below = np.array([counts[home == server].sum(axis=0) for server in range(3)])
            shares = below / below.sum(axis=1, keepdims=True)
            every.append(np.mean(np.sum(shares * np.log(np.where(shares > 0, shares / overall, 1)), axis=1)))
    assert min(every) * (1 - 1e-9) <= divergence("data") <= 1.05 * min(every)
    assert divergence("data") < divergence("nearest")


def test_a_run_directory_has_what_was_joined(tmp_path):
    """The network as it is, and which device was where; from there the run is made again, to the bit."""
    first = experiment(network("data", labels="public"), **PRIVATE).run(tmp_path / "first")
    assert not check(first.directory).problems
    written = read(first.directory / "topology.yaml", seed=5)
    assert written.association.was is not None
    assert any("records of each label" in note for note in first.summary["privacy"]["notes"])
    start_run(experiment(written, **PRIVATE).prepare(), tmp_path / "second")
    for name in ("privacy.jsonl", "model.pt", "devices.parquet"):
        assert (first.directory / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name
    rows = [json.loads(line) for line in (first.directory / "privacy.jsonl").read_text().splitlines()]
    assert {row["edge"] for row in rows if "edge" in row} <= {subnet.name for subnet in written.subnets}


@pytest.mark.parametrize(
    ("by", "settings", "found"),
    [
        ("data", PRIVATE, r"association\.labels: .*expected public"),
        ("cost", {"method": "fedavg"}, r"association\.by: a star"),
        (
            "cost",
            {**PRIVATE, "adjacency": "add-remove", "sampling": "poisson"},
            r"privacy\.adjacency: .*how many records",
        ),
        ("cost", {"method": "h2fdp", "training": "auto"}, "aggregate_every is chosen after"),
    ],
)
def test_what_does_not_go_with_it_is_refused(by, settings, found):
    with pytest.raises(UserError) as caught:
        experiment(network(by), **settings).prepare()
    assert re.search(found, str(caught.value)), caught.value
