"""Accounts in every run: live columns, summary, ledger and plan agree; budgets stop a run; a killed run over-counts."""

import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.cli.privacy import print_accounts
from h2fdp.cli.run import show_result
from h2fdp.integrity import check
from h2fdp.privacy import OBSERVERS, Accounts, Release
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.records.json_lines import write_sums
from h2fdp.reports.observers import verdict_rows
from h2fdp.reports.run_view import RunView
from h2fdp.run.forecast import planned_accounts
from h2fdp.run.loop import start_run
from h2fdp.run.privacy import RunPrivacy, releases_of_ledger
from h2fdp.run.privacy_report import privacy_report, who_decides
from h2fdp.run.recorders import RunCallbacks
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


def test_the_claim_grows_with_the_square_root_of_the_releases(tmp_path):
    claimed = small(intervals=4).run(tmp_path / "run").metrics["epsilon_claimed"]
    assert claimed.tolist() == pytest.approx([4.0 * (k / 4) ** 0.5 for k in range(1, 5)])


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
    with pytest.raises(UserError, match="adds no noise"):
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


@pytest.mark.parametrize("accountant", ["pld", "rdp", "classic-rdp"])
@pytest.mark.parametrize("settings", [{}, {"participation": 0.4, "faults": FAULTS}, {"weights": "by-size"}])
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


def test_accounts_that_take_long_are_left_out_but_for_five_intervals_and_the_end(tmp_path, monkeypatch, capsys):
    """A run that stops has its end, too, and leaves out the same intervals as the whole run when it is resumed."""
    monkeypatch.setattr("h2fdp.run.live_accounts._SHORT", 1)  # types of releases, so that two take long
    experiment = small(calibration="accounted", accountant="pld", intervals=24, checkpoint_every=5, noise_key="seed")
    whole = experiment.run(tmp_path / "whole").metrics
    assert capsys.readouterr().err.count("takes long, so epsilon is computed in at most five intervals") == 1
    assert whole.loc[whole["epsilon_cloud"].notna(), "interval"].tolist() == [4, 8, 12, 16, 20, 24]
    assert whole["epsilon_claimed"].notna().all()
    rows = []
    stopping = RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 13)
    stopped = start_run(experiment.prepare(), tmp_path / "run", stopping)
    assert stopped.metrics["epsilon_cloud"].iloc[-1] == stopped.privacy.epsilon("cloud")
    assert not check(tmp_path / "run").problems
    resumed = h2fdp.resume(tmp_path / "run").metrics
    assert resumed.drop(columns="wall_s").equals(whole.drop(columns="wall_s"))
    assert not check(tmp_path / "run").problems


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_a_target_that_is_met_is_met_before_and_after_the_run_and_said_so(tmp_path, capsys, accountant):
    """The formula read backwards claims less than the account: that is no verdict on the target."""
    experiment = small(
        calibration="accounted", accountant=accountant, epsilon=2.0, target_observers=["peer", "cloud", "public"]
    )
    report = privacy_report(experiment.prepare())
    summary = experiment.run(tmp_path / "run").summary
    show_result(summary, tmp_path / "run")
    assert report["target"] == summary["privacy"]["target"] == 2.0
    for found in (report["observers"], summary["privacy"]["worst"]):
        assert found["cloud"].get("claimed", 0) < found["cloud"][accountant] <= 2.0
        assert {name: each["verdict"] for name, each in found.items()} == {
            "edge": "not targeted",
            "peer": "met",
            "cloud": "met",
            "public": "met",
        }
    shown = " ".join(capsys.readouterr().out.split())
    told = ", ".join(f"{name} {summary['privacy']['worst'][name][accountant]:.3g}" for name in OBSERVERS)
    assert f"epsilon {told} (delta 1e-05, by {accountant}); target 2 met for peer, cloud, public" in shown
    assert "claimed" not in shown
    rows = {row[1]: row[5] for row in verdict_rows(RunView.read(tmp_path / "run", "run"))}
    assert rows == {"edge": "not targeted", "peer": "met", "cloud": "met", "public": "met"}


@pytest.mark.parametrize("delta", [1e-16, 1e-40])
def test_calibration_by_pld_meets_its_target_at_any_delta(delta):
    found = privacy_report(small(calibration="accounted", accountant="pld", epsilon=2.0, delta=delta).prepare())
    assert 1.99 < found["observers"]["edge"]["pld"] <= 2.0
    for numbers in found["observers"].values():
        assert 0 < numbers["pld"] <= numbers["rdp"]
        assert numbers["verdict"] == "met"


def gaussian(epsilon, delta):
    """The noise multiplier of one Gaussian release that has this epsilon at delta (Balle and Wang 2018, Theorem 8)."""

    def above(z):
        return norm.cdf(1 / (2 * z) - epsilon * z) - math.exp(epsilon) * norm.cdf(-1 / (2 * z) - epsilon * z) - delta

    return brentq(above, 0.01, 100.0)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({("second", "edge"): 2.4, ("first", "cloud"): 4.0}, "edge server {first} decides the noise: {second} alone"),
        ({("second", "edge"): 1.0, ("first", "cloud"): 2.4}, "observer edge decides the noise: cloud alone"),
        ({("second", "edge"): 1.05, ("first", "cloud"): 1.05}, None),
    ],
)
def test_who_decides_the_common_noise_and_who_alone_would_need_less(more, told):
    run = small(calibration="accounted", accountant="pld", epsilon=3.0).prepare()
    names = dict(zip(("first", "second"), run.sizes, strict=True))
    exact = gaussian(3.0, 1e-5) * 1.001
    accounts = run.empty_accounts()
    for (edge, observer), times in {("first", "edge"): 1.0, **more}.items():
        accounts.add([Release(1, 1, "global", names[edge], "1-3", observer, 1.0, exact * times, 1, 1.0, "poisson")])
    expected = None if told is None else f"{told.format(**names)} would need 2.4 times less"
    assert who_decides(run, accounts) == expected


def test_calibrating_for_an_observer_that_sees_nothing_is_refused():
    everyone_trusted = Topology.regular(edges=2, devices=2, trust=1.0)
    with pytest.raises(UserError, match="see none in this network"):
        small(everyone_trusted, calibration="accounted", target_observers=["edge"]).prepare()


def test_faults_that_leave_no_release_to_calibrate_are_named():
    with pytest.raises(UserError, match="faults: no upload arrives in any of the 3 planned intervals"):
        small(calibration="accounted", intervals=3, faults={"edge_outage": {"probability": 1}}).prepare()


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


def test_a_half_written_last_row_is_no_release(one_interval, tmp_path):
    run = h2fdp.Run(shutil.copytree(one_interval, tmp_path / "run"))
    before = run.privacy.epsilon(observer="cloud")
    with (run.directory / "privacy.jsonl").open("a") as file:
        file.write('{"interval": 6, "slot"')
    assert run.privacy.epsilon(observer="cloud") == before


def test_a_damaged_row_is_told_with_its_line(one_interval, tmp_path):
    run = h2fdp.Run(shutil.copytree(one_interval, tmp_path / "run"))
    ledger = run.directory / "privacy.jsonl"
    lines = ledger.read_text().splitlines()
    ledger.write_text("\n".join([lines[0], "{", *lines[2:]]) + "\n")
    with pytest.raises(UserError, match=r"privacy\.jsonl:2: the line was changed"):
        _ = run.privacy


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget": {"cloud": 1.0}}, r"privacy\.budget: .*needs a method that adds noise"),
        ({"calibration": "accounted"}, r"privacy\.calibration: this method adds no noise"),
    ],
    ids=["budget", "accounted calibration"],
)
def test_what_would_protect_nothing_is_refused_without_noise(settings, words):
    with pytest.raises(UserError, match=words):
        small(method="hfl", **settings).prepare()


@pytest.mark.parametrize("observer", ["edge", "cloud"])
def test_under_the_clouds_noise_no_budget_covers_observers_that_see_raw_updates(observer):
    method = {"extends": "fedavg", "privacy": "central"}
    with pytest.raises(
        UserError, match=rf"privacy\.budget\.{observer}: the observer {observer} is trusted and sees raw updates"
    ):
        small(method=method, aggregations_per_interval=0, aggregate_every=None, budget={observer: 1.0}).prepare()


def test_a_budget_that_forbids_the_first_interval_is_told_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match=r"privacy\.budget\.cloud: the first interval is epsilon .* for observer cloud"):
        small(budget={"cloud": 1e-6}).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("devices", "99"),
        ("devices", "0"),
        ("devices", "abc"),
        ("sensitivity", 0.0),
        ("noise_std", float("nan")),
        ("noise_std", "1"),
        ("steps", 0),
        ("steps", 2.5),
        ("sampling_rate", 3),
        ("sampling", "x"),
        ("observer", "sky"),
        ("edge", "nowhere"),
        ("interval", None),
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


def test_a_target_that_a_run_exceeded_is_said_not_to_be_met(tmp_path, capsys):
    summary = small(calibration="accounted", epsilon=2.0).run(tmp_path / "run").summary
    summary["privacy"]["worst"]["cloud"] |= {"rdp": 2.5, "pld": 2.2, "verdict": "open"}
    show_result(summary, tmp_path / "run")
    assert "(delta 1e-05, by rdp); target 2 not met for cloud" in " ".join(capsys.readouterr().out.split())


def test_what_is_claimed_is_shown_under_the_papers_noise_alone(capsys):
    for calibration in ("paper", "accounted"):
        print_accounts(privacy_report(small(calibration=calibration, intervals=2).prepare()))
        assert ("claimed" in capsys.readouterr().out) is (calibration == "paper")


@pytest.mark.process
def test_a_run_killed_inside_an_interval_leaves_every_release_that_could_have_left(tmp_path):
    """SIGKILL when the third interval has run and nobody has heard of it."""
    original = Lockstep.call

    def killing(self, method, model, plans):
        uploads = original(self, method, model, plans)
        if any(plan.interval == 2 for plan in plans.values()):
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


def test_the_report_before_a_run_is_what_the_run_then_says(tmp_path):
    experiment = small()
    report = privacy_report(experiment.prepare())
    run = experiment.run(tmp_path / "run")
    for observer, numbers in report["observers"].items():
        assert numbers["rdp"] == pytest.approx(run.privacy.epsilon(observer=observer))
        assert min(numbers["rdp"], numbers["pld"]) <= numbers["coarse"] * (1 + 1e-6)
        assert numbers["verdict"] in ("met", "open")
