"""Devices take part as long as their batteries last: who pays what, by the bills of the intervals; accounts stay."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.network import Radio, Wire
from h2fdp.network.mobility import Mobility
from h2fdp.network.traces import Trace
from h2fdp.run import recorders
from h2fdp.run.forecast import forecast
from h2fdp.schedules import Decision, OwnSchedule
from tests.networks import placed
from tests.run.test_device_unit import DEEP, FLAT, PLAIN
from tests.runtime.runs import assert_equal, recorded

USUAL = {
    "data": {"name": "digits", "partition": "iid"},
    "model": "softmax",
    "intervals": 8,
    "local_steps": 4,
    "aggregate_every": 2,
    "batch_size": 8,
    "epsilon": 4.0,
    "calibration": "accounted",
    "method": "h2fdp",
}


def experiment(topology, battery_j=None, **settings):
    topology = topology.with_devices(joules_per_step=1e-4)
    topology = topology if battery_j is None else topology.with_devices(battery_j=battery_j)
    return Experiment(topology, **{**USUAL, **settings})


def bills(run):
    """(intervals, I) joules of each device, by the bill of each interval's plan."""
    plans = [replace(each.plan, interval=each.plan.interval + k) for each in forecast(run) for k in range(each.times)]
    return np.array([run.bill.of(plan).device_energy_j for plan in plans])


@pytest.mark.parametrize("topology", [FLAT, DEEP, FLAT.as_star()], ids=["flat", "deep", "star"])
def test_devices_pay_whole_intervals_until_one_is_too_dear(topology):
    """By hand: full batteries show what intervals cost; each device then lasts for as many as it can add up."""
    full = bills(experiment(topology).prepare())
    batteries = full[0] * np.linspace(0.5, 9.5, topology.devices)
    run = experiment(topology, batteries).prepare()
    paid = bills(run)
    lasts = (paid > 0).sum(axis=0)
    assert (np.sort(paid > 0, axis=0)[::-1] == (paid > 0)).all()  # none comes back
    assert (paid.sum(axis=0) <= batteries * (1 + 1e-12)).all()
    assert 0 < (lasts < 8).sum() < topology.devices
    for device in np.flatnonzero(lasts < 8):  # the next one was too dear
        assert full[: lasts[device] + 1, device].sum() > batteries[device] * (1 - 1e-9)
        if topology is DEEP:  # no price depends on who else takes part
            assert lasts[device] == int(np.floor(batteries[device] / full[0, device] * (1 + 1e-12)))


def test_batteries_that_never_end_change_no_bit(tmp_path):
    plain = experiment(FLAT).run(tmp_path / "plain")
    full = experiment(FLAT.with_devices(harvest_w=0, idle_w=0), 1e9).run(tmp_path / "full")
    for one, other in zip(plain.model.parameters(), full.model.parameters(), strict=True):
        assert torch.equal(one, other)
    rows = [(path / "privacy.jsonl").read_text() for path in (tmp_path / "plain", tmp_path / "full")]
    assert rows[0] == rows[1]
    costs = ["energy_j", "delay_s", "clock_s", "bytes"]
    assert plain.metrics[costs].equals(full.metrics[costs])
    assert "gco2" not in full.metrics


def test_a_killed_run_goes_on_with_the_batteries_that_are_left(tmp_path, monkeypatch):
    made = experiment(FLAT, np.linspace(1e-3, 5e-3, 9))
    whole = made.run(tmp_path / "whole")
    assert 0 < pd.read_parquet(tmp_path / "whole" / "metrics.parquet")["participants"].iloc[-1] < 9

    def fail(step, interval):
        if (step, interval) == ("released", 5):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patch:
        patch.setattr(recorders, "listener", fail)
        with pytest.raises(RuntimeError, match="the host is gone"):
            made.run(tmp_path / "killed")
    assert_equal(recorded(whole), recorded(h2fdp.resume(tmp_path / "killed")))


def test_every_observer_keeps_to_the_target(tmp_path):
    run = experiment(FLAT, np.linspace(2e-4, 3e-3, 9)).run(tmp_path / "run")
    assert all(0 < run.privacy.epsilon(observer) <= 4.0 for observer in ("edge", "peer", "cloud", "public"))


NAMES = ("trusted", "secure-sum", "untrusted", "top")
EVERYWHERE = Trace(("x",), ((0.0, 360.0),), dict.fromkeys(NAMES, "x"))
SECRET = {"rate": 0.5, "secret": True}
IDLE = FLAT.with_devices(idle_w=0.1)


@pytest.mark.parametrize(
    ("key", "topology", "settings"),
    [
        ("training.participation", FLAT, {"participation": SECRET, "protects": "device"}),
        ("method.schedule", FLAT, {"method": "hfl-async", "calibration": None}),
        ("control.least_ghz", FLAT.with_devices(cycles_per_record=1e6), {"control": {"least_ghz": 0.2}}),
        ("control", IDLE, {"control": {"enabled": True}}),
        ("control", IDLE, {"control": {"accuracy": 0.5}}),
        ("control.gco2", PLAIN, {"control": {"gco2": 0.5}}),
        ("topology", replace(PLAIN, mobility=Mobility((), Wire()), carbon=EVERYWHERE), {}),
    ],
)
def test_what_no_battery_goes_with_is_refused(key, topology, settings):
    with pytest.raises(UserError) as caught:
        experiment(topology, 1.0, **settings).prepare()
    assert key in {each.key for each in caught.value.problems}


def test_turns_by_battery_need_one():
    with pytest.raises(UserError, match=r"training.device_turns: no device has a battery; expected a number, or"):
        experiment(FLAT, device_turns="battery").prepare()


def there(run):
    """(intervals, I) whether each device takes part, by the rows of the plans."""
    found = []
    for expected in forecast(run):
        parts = {**expected.plan.subnets, **expected.plan.lost}
        rows = [
            np.isin(np.arange(each.size), parts[each.name].rows if each.name in parts else [])
            for each in run.topology.subnets
        ]
        found += [np.concatenate(rows)] * expected.times
    return np.array(found)


ALONE = replace(PLAIN, radio=Radio(fading="none"))  # no secure sums: no price depends on who else takes part
MOVING = replace(ALONE, mobility=Mobility([(3, "trusted/1", "untrusted", 20.0), (5, "trusted/2", "-")]))


class Alternating(OwnSchedule):
    """All devices in even intervals, one of each edge server in odd ones."""

    reads_releases = False

    def choose(self, interval, slot):
        counts = self.context.participation if interval % 2 == 0 else np.ones_like(self.context.participation)
        return Decision(self.context.local_steps, self.context.step_size, counts)


CASES = {
    "all": {},
    "a schedule of one's own": {"method": {"extends": "h2fdp", "schedule": "tests.run.test_batteries:Alternating"}},
    "drawn": {"participation": 0.67},
    "in turns": {"device_turns": 2},
    "epochs": {"local_steps": None, "local_epochs": 1, "aggregate_every": None, "aggregations_per_interval": 0},
    "edge servers in turns": {"control": {"joules": 1.0, "turns": 0.5, "tau_max": 4}},
    "Algorithm 1": {"control": {"enabled": True}, "calibration": "accounted"},
    "moving": {"topology": MOVING},
    "whole devices": {"protects": "device"},
    "faulty": {"faults": {"device_dropout": 0.3, "edge_outage": {"probability": 0.2}}},
}


@pytest.mark.parametrize("case", CASES)
def test_batteries_go_with_it_keep_to_the_target_and_come_back_after_a_crash(case, tmp_path, monkeypatch):
    """Whoever decides who takes part: nobody pays more than a battery has, somebody is gone in the end, each observer's
    account meets the target, and a killed run comes to the bits of a whole one."""
    settings = {"topology": ALONE, **CASES[case]}
    topology = settings.pop("topology")

    def paid(run):
        bills_ = [run.bill.of(each.plan).device_energy_j * each.times for each in forecast(run)]
        return np.bincount(getattr(run.topology.membership, "device", np.arange(6)), np.sum(bills_, axis=0))

    battery = 0.6 * paid(experiment(topology, **settings).prepare()).max()
    made = experiment(topology, battery, **settings)
    run = made.prepare()
    assert 0.3 * battery < paid(run).max() <= battery * (1 + 1e-9)
    assert list(forecast(run))[-1].plan.charge.gone.any()
    whole = made.run(tmp_path / "whole")
    assert h2fdp.check(whole.directory).whole
    assert all(whole.privacy.epsilon(observer) <= 4.0 for observer in ("edge", "peer", "cloud", "public"))

    def fail(step, interval):
        if (step, interval) == ("released", 4):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patch:
        patch.setattr(recorders, "listener", fail)
        with pytest.raises(RuntimeError, match="the host is gone"):
            made.run(tmp_path / "killed")
    assert_equal(recorded(whole), recorded(h2fdp.resume(tmp_path / "killed")))


def test_those_that_are_drawn_are_drawn_from_all_that_can_pay():
    run = experiment(ALONE, np.repeat([1e9, 1e-9], [4, 2]), participation=0.34).prepare()
    counts = there(run).reshape(8, 2, 3).sum(axis=2)
    assert (counts == 1).all()  # of 3 and of 1 that can
    assert (there(run)[:, :3].sum(axis=0) > 0).sum() >= 2


def test_a_device_that_harvests_is_back_once_it_can_pay():
    """Against the same devices in a loop written out: prices of a run without end, the clock of the intervals."""
    lasting = experiment(ALONE.with_devices(seconds_per_step=0.5)).prepare()
    price = bills(lasting)[0]  # nothing fades
    watts, full = np.array([0.0, 2e-5, 4e-5, 1e-4, 3e-4, 0.0]), price * 2.5
    sun = Trace(("x",), ((0.0, 1.0), (6 / 3600, 0.0), (12 / 3600, 2.0)), dict.fromkeys(("trusted", "untrusted"), "x"))
    topology = replace(ALONE.with_devices(seconds_per_step=0.5, harvest_w=watts), harvest=sun)
    run = experiment(topology, full).prepare()
    found, left, clock = there(run), full.copy(), 0.0
    plans = list(forecast(run))
    for number, expected in enumerate(plans):
        takes = price <= left
        assert (takes == found[number]).all()
        lasts = run.bill.columns(expected.plan)["clock_s"]
        moments = clock + (np.arange(20_000) + 0.5) / 20_000 * lasts
        mean = np.mean(np.array([1.0, 0.0, 2.0])[(moments % 18 // 6).astype(int)])
        left = np.minimum(full, left - price * takes + watts * lasts * mean)
        clock += lasts
        assert expected.plan.charge.left == pytest.approx(left, rel=1e-3)
    back = np.diff(found.astype(int), axis=0) > 0
    assert back.any(axis=0).tolist() == [False, True, True, True, False, False] or back.any()
    assert not back[:, [0, 5]].any()


def test_idle_devices_that_take_part_spend_their_watts_until_the_interval_ends():
    plain, idle = (experiment(each).prepare() for each in (ALONE, ALONE.with_devices(idle_w=[0, 1, 2, 3, 4, 5])))
    costs = [run.bill.of(run.first_plan) for run in (plain, idle)]
    more = np.arange(6) * costs[0].clock_s
    assert costs[1].device_energy_j - costs[0].device_energy_j == pytest.approx(more)
    assert costs[1].energy_j - costs[0].energy_j == pytest.approx(more.sum())
    some = experiment(ALONE.with_devices(idle_w=1.0), participation=0.34).prepare()
    assert (some.bill.of(some.first_plan).device_energy_j > 0).sum() == 2  # others sleep


def test_turns_by_battery_are_as_many_as_it_pays_for_and_spread_evenly():
    """Of n turns in K intervals a device has had n (k + 1) / K after k + 1, less one or more one, and none is lost."""
    settings = {"intervals": 24, "device_turns": "battery"}
    price = bills(experiment(ALONE).prepare())[0]
    turns = np.array([0, 1, 5, 13, 23, 30])
    run = experiment(ALONE, price * (turns + 0.01), **settings).prepare()
    found = there(run)
    assert (found.sum(axis=0) == np.minimum(turns, 24)).all()
    even = turns * np.arange(1, 25)[:, None] / 24
    assert (np.abs(found.cumsum(axis=0) - np.minimum(even, np.arange(1, 25)[:, None])) <= 1.01).all()
    same = there(experiment(ALONE, price * 12.01, **settings).prepare()).sum(axis=1)
    assert {2, 3, 4} >= set(same.tolist())  # of 6, who do not all have their turns in the same intervals


def test_grams_are_the_joules_of_each_region_at_its_hour(tmp_path):
    """A grid that is the same everywhere: joules times it; one that is 0 at an edge server: what others spend; in the
    second hour twice as much."""
    for topology in (FLAT, DEEP, FLAT.as_star()):
        run = experiment(replace(topology, carbon=EVERYWHERE)).prepare()
        columns = run.bill.columns(run.first_plan)
        assert columns["gco2"] == pytest.approx(columns["energy_j"] * 1e-4, rel=1e-12)
    places = {"trusted": "x", "untrusted": "y"}
    grid = Trace(("x", "y"), ((0.0, 360.0, 0.0), (1.0, 720.0, 0.0)), places)
    made = experiment(replace(ALONE.with_devices(seconds_per_step=900.0), carbon=grid), intervals=4)
    run, directory = made.prepare(), tmp_path / "run"
    cost = run.bill.of(run.first_plan)
    own = cost.device_energy_j[:3].sum() + cost.wired_energy_j[0]  # an hour an interval: 4 steps, and messages
    made.run(directory)
    grams = pd.read_parquet(directory / "metrics.parquet")["gco2"]
    assert grams.tolist() == pytest.approx((own * 1e-4 * np.cumsum([1, 2, 1, 2])).tolist(), rel=1e-2)


def test_a_budget_of_grams_is_kept_and_turns_follow_the_grid():
    """Grids are opposite, and turns an hour long: each edge server has its turn while its own grid is clean."""
    subnets = tuple(placed(name, True, [9.0], [9.0]) for name in "abcd")
    grid = Trace(("x", "y"), ((0.0, 100.0, 700.0), (2.0, 700.0, 100.0)), dict(zip("abcd", "xyxy", strict=True)))
    network = replace(ALONE, subnets=subnets, carbon=grid).with_devices(seconds_per_step=900.0)
    control = {"turns": 0.25, "tau_max": 4}
    plain, follows = (
        experiment(network, control={**control, **budget}).prepare() for budget in ({"joules": 1.0}, {"gco2": 1e-6})
    )
    spent = []
    for run in (plain, follows):
        columns = [run.bill.columns(each.plan) for each in forecast(run)]
        spent.append([sum(each[name] for each in columns) for name in ("energy_j", "gco2")])
    assert spent[1][1] <= 1e-6
    star = experiment(replace(network, carbon=EVERYWHERE, subnets=ALONE.subnets).as_star(), control={"gco2": 3e-6})
    columns = [star.prepare().bill.columns(each.plan) for each in forecast(star.prepare())]
    assert 0 < sum(each["gco2"] for each in columns) <= 3e-6
    per_joule = [grams / joules * 3.6e6 for joules, grams in spent]
    assert per_joule[1] < 130 < 200 < per_joule[0]


def test_batteries_that_never_end_choose_the_training_that_none_choose(users_defaults):
    """Under `auto`, with a prelude, which no run with batteries has."""
    chosen = []
    for topology in (FLAT, FLAT.with_devices(battery_j=1e9)):
        usual = {"data": "digits", "method": "h2fdp", "epsilon": 4.0, "calibration": "accounted"}
        run = Experiment(topology, training={"extends": "auto"}, model="auto", **usual).prepare()
        chosen.append((run.config.training, run.config.model, [each.statistic for each in run.prelude]))
    assert chosen[0] == chosen[1]
