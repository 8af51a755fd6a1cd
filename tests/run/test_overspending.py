"""Schedules that try to overspend: whatever they decide, are told, or survive, no observer ends above the target.

Runs are planned, entered in the accounts and written to a ledger as a run does it, without training.
"""

import contextlib
import json
from collections import Counter, defaultdict
from dataclasses import asdict

import dp_accounting
import numpy as np
import pytest

import h2fdp
from h2fdp import Experiment
from h2fdp.errors import UserError
from h2fdp.privacy import Accounts
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.budget_filter import Reserve
from h2fdp.privacy.releases import Release, rows_in
from h2fdp.protocol import InProcessNodes
from h2fdp.records.directory import _version
from h2fdp.run import loop, recorders
from h2fdp.run.forecast import noise_choice, planned_accounts
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.loop import resume_run
from h2fdp.run.privacy import releases_of_ledger
from h2fdp.schedules import Decision, OwnSchedule
from tests.noise_keys import keys_are, known

BUDGET = "experiments.resource_budget:ResourceBudgetSchedule"


EPSILON, DELTA, INTERVALS = 1.0, 1e-5, 3
NETWORK = h2fdp.Topology.regular(edges=2, devices=2, trust=0.5, seed=1)


class Adversary(OwnSchedule):
    """Foreseen as one that takes most, it then takes any number of steps and devices, and noise of any size.

    Its draws stand for what it read in releases.
    """

    varies_tau = True
    luck = None

    def __init__(self, scales_noise=False, reads_releases=True):
        self.scales_noise, self._made = scales_noise, {}
        if reads_releases is not None:
            self.reads_releases = reads_releases

    def longest_interval(self, horizon):
        return 4

    def choose(self, interval, slot):
        if (interval, slot) not in self._made:
            sizes = self.context.sizes
            if self.luck is None:
                return Decision(2, 0.1, sizes)
            most = self.luck.random() < 0.5
            taking = sizes if most else self.luck.integers(0, sizes + 1)
            factor = float(self.luck.choice([0.01, 0.5, 1.0, 3.0])) if self.scales_noise else 1.0
            tau = 4 if most else int(self.luck.integers(1, 5))
            self._made[interval, slot] = Decision(tau, 0.1, taking, noise_factor=factor)
        return self._made[interval, slot]

    def forget(self):
        self._made.clear()


def made(schedule, network=NETWORK, **settings):
    target = {"epsilon": EPSILON, "delta": DELTA, "calibration": "accounted", "accountant": "pld"}
    plan = {"intervals": INTERVALS, "local_steps": 2, "aggregate_every": 2, "batch_size": 8, "sampling": "fixed"}
    method = {"privacy": "hierarchical", "schedule": schedule}
    return Experiment(topology=network, data="digits", method=method, **{**plan, **target, **settings})


def prepared(schedule, **settings):
    return made(schedule, **settings).prepare()


def ledger_of(setup, schedule, luck, kills=0.3):
    """The releases of one run that is killed at random: it repeats its draws, or loses an interval and draws afresh."""
    schedule.forget()
    live, ledger, begun = LiveAccounts(setup), [], setup
    cloud = setup.cloud(InProcessNodes({}))
    interval = 0
    while interval < INTERVALS:
        plan = cloud.plan(interval, noise_choice(setup, live.accounts))
        releases = list(cloud.releases(plan))
        if live.admit(plan, releases) is not None:
            break
        ledger += releases
        if luck.random() < kills:  # after the ledger was written, before anything else was
            stored, state = json.loads(json.dumps([asdict(each) for each in ledger])), live.state()
            rows = [Release(**each) for each in stored]
            done = len(rows) - len(releases)
            live = LiveAccounts(begun)
            live.load(state)
            live.enter(rows[:done])
            live.enter_lost(rows[done:])  # the environment is another one
            slot = cloud.next_slot
            cloud = begun.drawing(f"again-{luck.integers(1 << 30)}").cloud(InProcessNodes({}))
            cloud.next_slot = slot
            schedule.forget()
            if luck.random() < 0.5:
                continue
        cloud.skip(plan)
        interval += 1
    return ledger


@pytest.mark.run
@pytest.mark.parametrize(
    "settings", [{"budget": {"cloud": 50.0}}, *({"participation": 0.5, "seed": seed} for seed in (4, 7))]
)
def test_fresh_draws_keep_to_the_target(tmp_path, monkeypatch, settings):
    """Also beside a stated budget, and where nothing was lost, but other devices take part than were planned for."""
    original = _version
    rhythm = {"intervals": 8, "local_steps": 1, "aggregate_every": 1, "checkpoint_every": 1}

    def stop(row):
        if row["interval"] == 4:
            raise KeyboardInterrupt

    def gone(step, interval):
        if (step, interval) == ("released", 6) and "budget" in settings:
            raise RuntimeError("gone")

    network = h2fdp.Topology.regular(edges=2, devices=4, trust=0.0, seed=1)
    with pytest.raises(KeyboardInterrupt):
        made("fixed", network, **rhythm, **settings).run(tmp_path / "run", on_interval=stop)
    for number, listener in enumerate([gone, recorders.listener]):
        found = {"torch": f"other {number}"}
        monkeypatch.setattr(
            "h2fdp.records.directory._version", lambda library, found=found: found.get(library) or original(library)
        )
        monkeypatch.setattr(recorders, "listener", listener)
        with contextlib.suppress(RuntimeError):
            run = h2fdp.resume(tmp_path / "run", fresh_noise=True)
    assert run.summary["fresh_from"]
    assert all(each["verdict"] == "met" for each in run.summary["privacy"]["worst"].values())


def by_dp_accounting(ledger):
    """Epsilon of the worst device and observer, from the ledger's rows of single steps alone, by the public library."""
    held = defaultdict(Counter)
    for row in ledger:
        assert row.steps == 1
        event = dp_accounting.PoissonSampledDpEvent(
            row.sampling_rate, dp_accounting.GaussianDpEvent(row.noise_std / row.sensitivity)
        )
        for number in (each for part in rows_in(row.devices) for each in range(part.start, part.stop)):
            held[row.observer, row.edge, number][event] += 1
    found, accounts = [], list({frozenset(each.items()): each for each in held.values()}.values())
    for events in accounts:
        if any(events < other for other in accounts):
            continue  # whoever has all of these and more spends no less
        accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
        for event, count in events.items():
            accountant.compose(event, count)
        found.append(accountant.get_epsilon(DELTA))
    return max(found)


@pytest.mark.run
def test_under_fresh_draws_a_run_goes_on_until_its_epsilon_is_spent(tmp_path, monkeypatch):
    """Others take part than were planned for: some device soon has more releases than planned, and epsilon is left."""
    network = h2fdp.Topology.regular(edges=2, devices=4, trust=0.0, seed=1)
    rhythm = {"intervals": 20, "local_steps": 1, "aggregate_every": 1, "sampling": "poisson"}
    turns = {"participation": 0.75, "device_dropout": 0.2, "checkpoint_every": 4}
    experiment = made("fixed", network, **rhythm, **turns)
    crash(monkeypatch, tmp_path / "run", experiment, 10)
    monkeypatch.setattr("h2fdp.records.directory._version", lambda library: "another")
    # The name depends on the code. Under a fourth of all names nobody takes part more often than was planned.
    monkeypatch.setattr(loop, "name_of_attempt", lambda *found: "afresh")
    run = h2fdp.resume(tmp_path / "run", fresh_noise=True)
    assert run.summary["fresh_from"] == [9]
    assert run.summary["state"] == "budget spent"
    assert 15 < len(run.metrics) < 20
    spent = by_dp_accounting(releases_of_ledger(tmp_path / "run" / "privacy.jsonl", experiment.prepare().sizes))
    assert 0.95 * EPSILON < spent <= EPSILON
    assert max(each["pld"] for each in run.summary["privacy"]["worst"].values()) == pytest.approx(spent, rel=5e-3)


def interrupted(tmp_path, monkeypatch, **settings):
    """A run of few who take turns, which lost intervals and whose environment is another one now."""
    rhythm = {"intervals": 12, "local_steps": 1, "aggregate_every": 1, "sampling": "poisson", "checkpoint_every": 3}
    experiment = made("fixed", participation=0.5, device_dropout=0.2, **rhythm, **settings)
    crash(monkeypatch, tmp_path / "run", experiment, 5)
    monkeypatch.setattr("h2fdp.records.directory._version", lambda library: "another")
    return experiment


@pytest.mark.run
def test_a_trial_of_a_search_releases_no_more_than_was_planned(tmp_path, monkeypatch):
    """What the search pays is a bound on what its trials planned, not on their epsilon."""
    setup = interrupted(tmp_path, monkeypatch).prepare()
    path = tmp_path / "run"
    done = resume_run(Experiment.of_run(path).prepare, path, None, fresh_noise=True, keeps_to_plan=True)
    assert done.summary["state"] == "budget spent"
    reserve, rows = (
        Reserve(planned_accounts(setup), setup.observers),
        list(releases_of_ledger(path / "privacy.jsonl", setup.sizes)),
    )
    accounts = setup.empty_accounts()
    accounts.add(rows)
    assert reserve.exceeded(accounts, rows) is None


def worst(ledger, name):
    accounts = Accounts.of_ledger(ledger)
    held = [each.composition for observer in accounts.observers for each in accounts.classes(observer)]
    return max((ACCOUNTANTS[name].epsilon(each, DELTA) for each in held), default=0.0)


def spent_by(schedule, setup, runs, name="rdp"):
    luck, found = np.random.default_rng(19), []
    for number in range(runs):
        Adversary.luck = np.random.default_rng([7, number])
        found.append(worst(ledger_of(setup, schedule, luck), name))
    Adversary.luck = None
    return np.array(found)


@pytest.mark.parametrize(("scales_noise", "runs"), [(False, 40), (True, 60)])
def test_no_schedule_ends_above_epsilon_by_the_account_of_its_ledger_alone(scales_noise, runs):
    """Under the filter, with noise chosen for what is left, or with noise that the schedule scales as it likes."""
    schedule = Adversary(scales_noise)
    spent = spent_by(schedule, prepared(schedule), runs)
    assert spent.max() <= EPSILON
    assert np.quantile(spent, 0.75) > 0.5 * EPSILON, "nor is the target out of reach"


@pytest.mark.parametrize("stated", [False, None])
def test_a_schedule_that_hides_what_it_reads_gets_no_more_than_its_forecast_by_any_accountant(stated):
    schedule = Adversary(reads_releases=stated)
    setup = prepared(schedule, accountant="pld")
    assert setup.watched is None
    spent = spent_by(schedule, setup, 50, "rdp")
    assert spent.max() <= worst_planned(setup, "rdp")
    assert worst_planned(setup, "pld") <= EPSILON
    assert spent.max() > 0, "it may release what was planned"


def worst_planned(setup, name):
    accounts = planned_accounts(setup)
    held = [each.composition for observer in accounts.observers for each in accounts.classes(observer)]
    return max(ACCOUNTANTS[name].epsilon(each, DELTA) for each in held)


def test_noise_is_chosen_for_what_is_left():
    """A schedule that leaves an interval out gets less noise in the next, and ends at the target all the same."""
    schedule = Resting()
    setup = prepared(schedule)
    schedule.planning = False
    live, cloud, factors = LiveAccounts(setup), setup.cloud(InProcessNodes({})), []
    for interval in range(INTERVALS):
        plan = cloud.plan(interval, noise_choice(setup, live.accounts))
        assert live.admit(plan, list(cloud.releases(plan))) is None
        factors.append(plan.decision.noise_factor)
        cloud.skip(plan)
    assert factors[0] == pytest.approx(1, abs=0.01)
    assert factors[-1] == pytest.approx(0.5**0.5, abs=0.01), "two intervals' worth in one"
    assert 0.97 * EPSILON < live.accounts.worst("edge", DELTA) <= EPSILON


class Resting(Adversary):
    planning = True

    def choose(self, interval, slot):
        sizes = self.context.sizes
        return Decision(2, 0.1, sizes if self.planning or interval != 1 else 0 * sizes)


def crash(monkeypatch, folder, experiment, interval):
    """A run whose machine fails after the ledger's rows of an interval, counted from 0, are on disk."""

    def fail(step, at):
        if (step, at) == ("released", interval):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patch:
        patch.setattr(recorders, "listener", fail)
        with pytest.raises(RuntimeError):
            experiment.run(folder)


@pytest.mark.parametrize("schedule", ["fixed", "h2fdp"])
def test_a_run_that_lost_an_interval_ends_before_it_would_release_more_than_was_planned(
    schedule, tmp_path, monkeypatch
):
    """Elsewhere the lost interval is drawn afresh, and both count: the last one planned is not run."""
    everybody = {"alpha1": 0.0, "alpha2": 0.0, "tau_max": 2, "enabled": schedule == "h2fdp"}
    crash(monkeypatch, tmp_path / "run", made(schedule, intervals=4, control=everybody), 1)
    monkeypatch.setattr("h2fdp.records.directory._version", lambda library: "another")
    done = h2fdp.resume(tmp_path / "run", fresh_noise=True)
    assert done.summary["fresh_from"] == [1]
    assert done.summary["state"] == "budget spent"
    assert len(done.metrics) == 2
    told = done.summary["privacy"]["worst"]
    assert max(each["pld"] for each in told.values()) <= EPSILON
    assert all(each["left"] == pytest.approx(EPSILON - min(each["rdp"], each["pld"])) for each in told.values())


def stepping(**noise):
    """DP-SGD of which a target allows a number of steps."""
    method = {"extends": "fedavg-dp", "privacy": {"name": "dp-sgd", **noise}}
    rhythm = {"intervals": 6, "local_steps": 2, "batch_size": 8, "sampling": "poisson", "checkpoint_every": 2}
    rhythm |= {} if noise else {"calibration": "accounted"}
    return Experiment(topology=NETWORK, data="digits", method=method, epsilon=EPSILON, delta=DELTA, **rhythm)


@pytest.mark.run
@pytest.mark.parametrize("noise", [{}, {"noise_multiplier": 1.5}])
def test_steps_that_were_not_lost_are_released_once_under_fresh_draws(noise, tmp_path, monkeypatch):
    """A clean stop: the rest of the steps is made under fresh draws, and they are as many as the target allows."""

    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    experiment = stepping(**noise)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(tmp_path / "run", on_interval=stop)
    monkeypatch.setattr("h2fdp.records.directory._version", lambda library: "another")
    done = h2fdp.resume(tmp_path / "run")
    assert (done.summary["fresh_from"], done.summary["state"]) == ([3], "done")
    rows = list(releases_of_ledger(tmp_path / "run" / "privacy.jsonl", experiment.prepare().sizes))
    parts = [(row, part) for row in rows for part in rows_in(row.devices)]
    held = Counter((row.edge, row.observer, row.slot) for row, part in parts for _ in range(part.start, part.stop))
    assert set(held.values()) == {4}, "each slot once for each of the four devices"
    assert worst(rows, "pld" if not noise else "rdp") <= EPSILON


@pytest.mark.run
def test_lost_steps_are_released_again_only_where_the_account_ends_the_run(tmp_path, monkeypatch):
    for name, noise in {"counted": {"noise_multiplier": 1.5}, "accounted": {}}.items():
        crash(monkeypatch, tmp_path / name, stepping(**noise), 3)
    monkeypatch.setattr("h2fdp.records.directory._version", lambda library: "another")
    with pytest.raises(UserError, match="intervals from 3 on, which were released before, would be released a second"):
        h2fdp.resume(tmp_path / "counted", fresh_noise=True)
    with pytest.raises(UserError, match="intervals from 3 on would get fresh noise"):
        h2fdp.resume(tmp_path / "accounted")
    done = h2fdp.resume(tmp_path / "accounted", fresh_noise=True)
    assert (done.summary["fresh_from"], done.summary["state"]) == ([3], "budget spent")
    assert len(done.metrics) == 4
    rows = releases_of_ledger(tmp_path / "accounted" / "privacy.jsonl", stepping().prepare().sizes)
    assert by_dp_accounting(rows) <= EPSILON


def rows(run):
    return [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]


def test_a_run_is_held_by_the_accountant_that_its_noise_was_made_by():
    """`classic-rdp` is above `rdp`, which must not answer for it; `pld` is below."""
    planned = planned_accounts(prepared("fixed"))
    held = [each.composition for each in planned.classes("cloud")]
    by = {name: max(ACCOUNTANTS[name].epsilon(each, DELTA) for each in held) for name in ("pld", "rdp", "classic-rdp")}
    assert by["pld"] < by["rdp"] < by["classic-rdp"]
    for name, spent in by.items():
        assert planned.exceeds("cloud", 0.999 * spent, DELTA, ACCOUNTANTS[name])
        assert not planned.exceeds("cloud", 1.001 * spent, DELTA, ACCOUNTANTS[name])


def test_noise_that_is_chosen_step_by_step_is_the_same_after_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(Resting, "planning", False)
    named = {"name": f"{__name__}:Resting"}
    with keys_are(known):
        crash(monkeypatch, tmp_path / "cut", made(named), 2)
        whole, again = made(named).run(tmp_path / "whole"), h2fdp.resume(tmp_path / "cut")
    factors = [{each["noise_std"] for each in rows(run) if each["interval"] == 3} for run in (whole, again)]
    assert factors[0] == factors[1]
    assert whole.metrics["loss"].tolist() == again.metrics["loss"].tolist()
    assert again.privacy.epsilon("edge") <= EPSILON


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("experiments.ali_dpfl:AliDpfl", "no account covers the raw measurements"),
        ({"name": BUDGET, "units": 9, "step_cost": 1, "aggregation_cost": 1}, "no account covers"),
    ],
)
def test_raw_measurements_have_no_account(schedule, words):
    method = {"extends": "fedavg-dp", "privacy": "dp-sgd", "schedule": schedule}
    with pytest.raises(UserError, match=words):
        Experiment(topology=NETWORK, data="digits", method=method, intervals=3, calibration="accounted").prepare()


def test_a_schedule_that_spends_iterations_is_calibrated_to_all_of_them():
    """However ALI-DPFL cuts them into intervals, a device takes R_c steps of one type."""
    stated = {"name": "experiments.ali_dpfl:AliDpfl", "curvature": 1.0, "heterogeneity": 0.1}
    method = {"extends": "fedavg-dp", "privacy": "dp-sgd", "schedule": stated}
    made = Experiment(
        topology=NETWORK,
        data="digits",
        method=method,
        intervals=3,
        epsilon=EPSILON,
        delta=DELTA,
        calibration="accounted",
        accountant="pld",
    )
    setup = made.prepare()
    assert 0.99 * EPSILON < worst_planned(setup, "pld") <= EPSILON
