"""Whole runs in networks of four tiers with uneven heights: calibration, budgets, ledgers and estimates at depth."""

import json

import numpy as np
import pytest

from h2fdp import Experiment, Topology
from h2fdp.network import Aggregator
from h2fdp.run.forecast import planned_accounts
from h2fdp.run.preview import privacy_report
from tests.networks import placed
from tests.run.test_noise_as_wired import numbers

# cloud - north (T) - n1 (T) - a (T, 2 devices), b (1); north - c (T, 1); cloud - south - d (T, 2); cloud - alone (1)
TREE = Topology(
    "uneven",
    tuple(
        placed(name, name in "acd", [9.0] * size, [9.0] * size, parent=parent)
        for name, size, parent in (
            ("a", 2, "n1"),
            ("b", 1, "n1"),
            ("c", 1, "north"),
            ("d", 2, "south"),
            ("alone", 1, None),
        )
    ),
    aggregators=(Aggregator("north", True), Aggregator("n1", True, parent="north"), Aggregator("south", False)),
)
OBSERVERS = ("edge", "tier-2", "tier-3", "peer", "cloud", "public")
# Edge servers above a device that are not in its trusted chain, and whether another device has its broadcasts.
OUTSIDE = {"a": (), "b": ("edge", "tier-2", "tier-3"), "c": (), "d": ("tier-2",), "alone": ("edge",)}
EVERYWHERE = {"a": ("edge", "tier-2", "tier-3"), "b": ("edge", "tier-2", "tier-3"), "c": ("edge", "tier-3")}
EVERYWHERE |= {"d": ("edge", "tier-2"), "alone": ("edge",)}
RHYTHM = [1, 2, 4]


def control(alpha, **settings):
    """Energy and delay that weigh so much: long intervals of few devices, or short ones of all."""
    return {"enabled": True, "alpha1": alpha, "alpha2": alpha, "tau_max": 8, **settings}


def experiment(tree=TREE, privacy="hierarchical", **settings):
    method = settings.pop("method", {"extends": "h2fdp", "privacy": privacy})
    defaults = {
        "intervals": 2,
        "local_steps": 8,
        "aggregate_every": RHYTHM,
        "batch_size": 4,
        "epsilon": 4.0,
        "seed": 2,
        "clip_norm": 0.7,
    }
    return Experiment(topology=tree, data="digits", method=method, **{**defaults, **settings})


def rows_of(run):
    """(slot, edge server, device, observer) -> each row that is about it."""
    found = {}
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        for device in numbers(row["devices"]):
            found.setdefault((row["slot"], row["edge"], device, row["observer"]), []).append(row)
    return found


def seen_by(edge, outside):
    return (*outside[edge], *(() if edge == "alone" else ("peer",)), "cloud", "public")


def test_every_observer_of_every_tier_has_a_row_for_each_step_of_dp_sgd(tmp_path):
    privacy = {"name": "dp-sgd", "noise_multiplier": 0.9}
    found = rows_of(experiment(privacy=privacy, epsilon=100.0, intervals=1).run(tmp_path / "run"))
    expected = {
        (slot, edge.name, device, observer)
        for slot in range(1, 9)
        for edge in TREE.subnets
        for device in range(1, edge.size + 1)
        for observer in seen_by(edge.name, EVERYWHERE)
    }
    assert found.keys() == expected
    for (row,) in found.values():
        assert (row["kind"], row["sensitivity"], row["noise_std"], row["steps"]) == ("step", 0.7, 0.9 * 0.7, 1)


ACCOUNTED = {"calibration": "accounted", "accountant": "rdp", "epsilon": 2.0}


@pytest.mark.parametrize("privacy", ["hierarchical", "local", "dp-sgd", "output"])
def test_accounted_calibration_meets_the_target_of_the_worst_observer(privacy):
    report = privacy_report(experiment(privacy=privacy, **ACCOUNTED).prepare())
    assert tuple(report["observers"]) == OBSERVERS
    assert 1.97 < max(each["rdp"] for each in report["observers"].values()) <= 2.0


FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.4}, "edge_outage": {"probability": 0.2}}


@pytest.mark.parametrize("settings", [{}, {"privacy": "local", "weights": "by-size"}, {"privacy": "output"}], ids=str)
def test_metrics_ledger_plan_and_summary_agree(tmp_path, settings):
    made = experiment(**settings, accountant="pld", participation=0.6, faults=FAULTS, intervals=3)
    planned, run = planned_accounts(made.prepare()), made.run(tmp_path / "run")
    for observer in OBSERVERS:
        expected = run.privacy.epsilon(observer=observer, accountant="rdp")
        assert run.metrics[f"epsilon_{observer}"].iloc[-1] == run.privacy.epsilon(observer=observer) < expected
        assert planned.worst(observer, 1e-5) == pytest.approx(expected)
        assert run.summary["privacy"]["worst"][observer]["rdp"] == pytest.approx(expected)


# Server rules and what devices remember do not see how many aggregators a vector passes.
METHODS = [{"extends": "hfl", **axes} for axes in ({"objective": "scaffold", "server": "scaffold"}, {"server": "adam"})]


def one_below_another(tiers):
    """Two edge servers, each below as many others as make so many tiers."""
    subnets, aggregators = [], []
    for name, size in (("a", 2), ("b", 1)):
        parent = None
        for tier in range(tiers - 1):
            aggregators.append(Aggregator(f"{name}-{tier}", False, parent=parent))
            parent = f"{name}-{tier}"
        subnets.append(placed(name, False, [9.0] * size, [9.0] * size, parent=parent))
    return Topology("t", tuple(subnets), aggregators=tuple(aggregators))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_an_edge_server_above_a_single_one_changes_nothing(tmp_path, method):
    settings = {"method": method, "clip_norm": None, "participation": 0.6, "intervals": 3, "faults": FAULTS}
    settings |= {"model": {"name": "mlp", "hidden": 4}, "local_steps": 4, "aggregate_every": 1, "step_size": 0.5}
    flat = experiment(one_below_another(1), **settings).run(tmp_path / "flat")
    deep = experiment(one_below_another(3), **settings | {"aggregate_every": [1, 1, 2]}).run(tmp_path / "deep")
    one, other = flat.model.state_dict(), deep.model.state_dict()
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-4, atol=1e-5)
    assert not flat.metrics["loss"].diff().iloc[1:].eq(0).all()
