"""Accounts in every run: live columns, summary, ledger and plan agree; budgets stop a run; a killed run over-counts."""

import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.privacy import OBSERVERS, Accounts
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.records.json_lines import write_sums
from h2fdp.run.forecast import planned_accounts
from h2fdp.run.preview import privacy_report
from h2fdp.run.privacy import RunPrivacy, releases_of_ledger
from h2fdp.runtime.lockstep import Lockstep
from tests.forks import in_a_child

MIXED = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)


def small(topology=MIXED, **settings):
    defaults = {"intervals": 5, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 4.0, "seed": 2}
    defaults |= {"calibration": "paper", "accountant": "rdp"}
    return Experiment(topology=topology, data="digits", **{**defaults, **settings})


FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.4}, "edge_outage": {"probability": 0.2}}


@pytest.mark.parametrize(
    "settings", [{}, {"participation": 0.4}, {"weights": "by-size"}, {"sampling": "fixed"}, {"faults": FAULTS}]
)
def test_metrics_ledger_plan_and_summary_agree(tmp_path, settings):
    experiment = small(**settings)
    run = experiment.run(tmp_path / "run")
    planned = planned_accounts(experiment.prepare())
    last = run.metrics.iloc[-1]
    for observer in OBSERVERS:
        expected = run.privacy.epsilon(observer=observer)
        assert last[f"epsilon_{observer}"] == pytest.approx(expected)
        assert planned.worst(observer, 1e-5) == pytest.approx(expected)
        assert run.summary["privacy"]["worst"][observer]["rdp"] == pytest.approx(expected)
    assert last["epsilon_claimed"] <= 4.0 * (1 + 1e-12)  # what never came up was not released
    assert last["epsilon_claimed"] == pytest.approx(4.0) or "faults" in settings
    assert run.metrics["epsilon_cloud"].dropna().is_monotonic_increasing


def test_a_device_under_a_trusted_edge_server_has_no_edge_account(tmp_path):
    run = small().run(tmp_path / "run")
    trusted = {subnet.name for subnet in MIXED.subnets if subnet.trusted}
    assert len(trusted) == 1
    for device, accounts in run.summary["privacy"]["devices"].items():
        assert ("edge" in accounts) is (device.split("/")[0] not in trusted)
        assert {"peer", "cloud", "public"} <= set(accounts)
    assert run.privacy.epsilon(observer="edge", device=next(iter(trusted)) + "/1") is None


def test_without_a_guarantee_there_are_no_epsilons(tmp_path):
    run = small(method="hfl").run(tmp_path / "run")
    assert run.metrics[["epsilon_claimed", "epsilon_edge", "epsilon_cloud"]].isna().all(axis=None)
    assert run.metrics.columns.name is None
    assert run.summary["privacy"] is None
    with pytest.raises(UserError, match="adds none"):
        privacy_report(small(method="hfl").prepare())


@pytest.mark.parametrize("observers", [["edge", "peer", "cloud", "public"], ["cloud"]])
def test_accounted_calibration_meets_the_target_of_the_observers_that_are_feared(tmp_path, observers):
    run = small(calibration="accounted", target_observers=observers, epsilon=2.0).run(tmp_path / "run")
    reached = max(run.privacy.epsilon(observer=observer) for observer in observers)
    assert 1.98 < reached <= 2.0


def test_accounted_calibration_by_pld_meets_its_own_target_and_epsilons_are_by_pld_then(tmp_path):
    run = small(calibration="accounted", accountant="pld", epsilon=2.0).run(tmp_path / "run")
    told = {observer: run.privacy.epsilon(observer=observer) for observer in OBSERVERS}
    assert 1.97 < max(told.values()) <= 2.0
    assert told == pytest.approx({name: each["pld"] for name, each in run.summary["privacy"]["worst"].items()})
    assert run.privacy.epsilon(observer="edge", accountant="rdp") > 2.0
    assert RunPrivacy(run.directory / "privacy.jsonl", 1e-5).epsilon("edge") == pytest.approx(told["edge"])


@pytest.mark.parametrize(
    ("accountant", "settings"),
    [
        ("pld", {}),
        ("pld", {"participation": 0.4, "faults": FAULTS}),
        ("rdp", {"weights": "by-size"}),
        ("classic-rdp", {"participation": 0.4, "faults": FAULTS}),
    ],
)
def test_the_epsilon_of_each_interval_is_by_the_accountant_that_the_run_is_held_to(tmp_path, accountant, settings):
    """Recomputed from the ledger's rows up to each interval, one account after the other, with nothing passed over."""
    run = small(calibration="accounted", accountant=accountant, epsilon=2.0, **settings).run(tmp_path / "run")
    rows = list(releases_of_ledger(run.directory / "privacy.jsonl", None))
    worst = run.summary["privacy"]["worst"]
    assert run.metrics.attrs == {"accountant": accountant}
    assert run.metrics.columns.name is None
    for observer in OBSERVERS:
        told = run.metrics[f"epsilon_{observer}"]
        for interval, epsilon in enumerate(told, start=1):
            accounts = Accounts.of_ledger(row for row in rows if row.interval <= interval)
            held = [ACCOUNTANTS[accountant].epsilon(each.composition, 1e-5) for each in accounts.classes(observer)]
            assert epsilon == pytest.approx(max(held), rel=1e-12) if held else math.isnan(epsilon)
        assert told.dropna().is_monotonic_increasing
        assert told.iloc[-1] == run.privacy.epsilon(observer=observer) == worst[observer][accountant] <= 2.0


@pytest.mark.parametrize("delta", [1e-16, 1e-40])
def test_calibration_by_pld_meets_its_target_at_any_delta(delta):
    found = privacy_report(small(calibration="accounted", accountant="pld", epsilon=2.0, delta=delta).prepare())
    assert 1.99 < found["observers"]["edge"]["pld"] <= 2.0
    for numbers in found["observers"].values():
        assert 0 < numbers["pld"] <= numbers["rdp"]
        assert numbers["verdict"] == "met"


def test_a_budget_stops_the_run_before_it_is_exceeded(tmp_path):
    free = small(intervals=8).run(tmp_path / "free").metrics["epsilon_cloud"]
    budget = float(free.iloc[5]) * 1.02
    run = small(intervals=8, budget={"cloud": budget}).run(tmp_path / "run")
    assert run.summary["state"] == "budget spent"
    assert run.summary["budget_spent_by"] == "cloud"
    assert 4 <= run.summary["intervals"] <= 6
    assert run.privacy.epsilon(observer="cloud") <= budget
    ledger = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    assert max(row["interval"] for row in ledger) == run.summary["intervals"]


@pytest.fixture(scope="module")
def one_interval(tmp_path_factory):
    """A run for tests that spoil a copy of its ledger."""
    return small(intervals=1).run(tmp_path_factory.mktemp("one") / "run").directory


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("devices", "99"),
        ("sensitivity", 0.0),
        ("noise_std", float("nan")),
        ("sampling_rate", 3),
        ("observer", "sky"),
        ("edge", "nowhere"),
    ],
)
def test_a_row_that_no_run_wrote_is_told_with_its_line_and_never_left_out(one_interval, tmp_path, key, value):
    run = h2fdp.Run(shutil.copytree(one_interval, tmp_path / "run"))
    ledger = run.directory / "privacy.jsonl"
    first, second, *rest = ledger.read_text().splitlines()
    ledger.write_text("\n".join([first, json.dumps({**json.loads(second), key: value}), *rest]) + "\n")
    write_sums(ledger)
    with pytest.raises(UserError, match=r"privacy\.jsonl:2"):
        _ = run.privacy


def test_fixed_batches_are_written_and_accounted_without_amplification(tmp_path):
    fixed = small(sampling="fixed", epsilon=0.05).run(tmp_path / "fixed")
    rows = [json.loads(line) for line in (fixed.directory / "privacy.jsonl").read_text().splitlines()]
    assert {row["sampling"] for row in rows} == {"fixed"}
    poisson = small(epsilon=0.05).run(tmp_path / "poisson")
    assert fixed.privacy.epsilon(observer="cloud") > 1.5 * poisson.privacy.epsilon(observer="cloud")


@pytest.mark.parametrize(
    ("trust", "observer", "pld", "coarse"),
    [
        (0, "edge", 0.784, 1.353),
        (0, "cloud", 0.325, None),
        (0, "peer", 0.367, None),
        (1, "cloud", 0.784, 1.353),
        (1, "public", 0.784, None),
    ],
)
def test_the_papers_own_setting_gives_the_reference_values(data_root, trust, observer, pld, coarse):
    settings = [f"topology.trust.probability={trust}"]
    file = Path(__file__).parents[2] / "experiments" / "fashion-mnist.yaml"
    found = privacy_report(Experiment.from_file(file, settings).prepare(data_root))["observers"][observer]
    assert found["claimed"] == pytest.approx(1.0)
    assert found["pld"] == pytest.approx(pld, abs=1e-3)
    assert found["verdict"] == "met"
    if coarse is not None:
        assert found["coarse"] == pytest.approx(coarse, abs=1e-3)


@pytest.mark.process
def test_a_run_killed_inside_an_interval_leaves_every_release_that_could_have_left(tmp_path):
    """SIGKILL when the third interval has run and nobody has heard of it."""
    original = Lockstep.call

    def killing(self, method, model, plans):
        uploads = original(self, method, model, plans)
        if any(plan.at[0].interval == 2 for plan in plans.values()):
            os.kill(os.getpid(), signal.SIGKILL)
        return uploads

    def run():
        Lockstep.call = killing
        small().run(tmp_path / "killed")

    assert in_a_child(run) == -signal.SIGKILL
    whole = small().run(tmp_path / "whole")
    left = (tmp_path / "killed" / "privacy.jsonl").read_text().splitlines()
    expected = [
        line
        for line in (whole.directory / "privacy.jsonl").read_text().splitlines()
        if json.loads(line)["interval"] <= 3
    ]
    assert left == expected
    partial = RunPrivacy(tmp_path / "killed").epsilon("cloud")
    assert partial == pytest.approx(whole.metrics["epsilon_cloud"].iloc[2])
    assert RunPrivacy(tmp_path / "killed").card()["observers"]["cloud"]["epsilon"] == partial


ALL_TRUSTED = {"edges": [{"name": "e{i}", "repeat": 2, "trusted": True, "devices": {"count": 2}}]}
SMALL = {"topology": ALL_TRUSTED, "model": "softmax", "extends": "paper", "intervals": 3, "local_steps": 1}


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-8, 1e-12), (1e-3, 1e-5), (1e5, 1e-12), (1e8, 1e-5)])
def test_extreme_targets_are_met(epsilon, delta, rate):
    target = {"epsilon": epsilon, "delta": delta, "calibration": "accounted", "accountant": "pld"}
    made = Experiment(sampling_rate=rate, **target, **SMALL)
    report = privacy_report(made.prepare())
    assert [report["observers"][each]["verdict"] for each in ("peer", "cloud", "public")] == ["met"] * 3
    assert 0.97 * epsilon < report["observers"]["cloud"]["pld"] <= epsilon


def test_a_delta_that_allows_to_publish_a_record_is_said_wherever_epsilon_is(tmp_path):
    made = Experiment(epsilon=3, delta=0.01, **SMALL)
    run = made.run(tmp_path / "run")
    smallest = int(made.prepare().data.sizes.min())
    said = f"privacy.delta: 0.01 allows a mechanism that publishes one of the {smallest} records of the smallest device"
    for notes in (privacy_report(made.prepare())["notes"], run.summary["notes"], run.privacy.notes):
        assert sum(note.startswith(said) for note in notes) == 1
    for delta, count in ((0.99 / smallest, 0), (1.01 / smallest, 1)):
        notes = RunPrivacy(tmp_path / "run", delta).notes
        assert sum(note.startswith("privacy.delta") for note in notes) == count


def test_a_delta_below_what_numbers_hold_is_refused_by_its_name():
    with pytest.raises(UserError, match=r"privacy\.delta: expected a number of at least 1e-300, and below 1"):
        Experiment(epsilon=1, delta=1e-310, **SMALL)
