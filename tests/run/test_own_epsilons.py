"""Devices that ask for an epsilon of their own: the least noise, with what they go, and where their numbers stand.

What observers learn, against each target, is in `tests/protocol/test_own_epsilons.py`, on random trees.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from h2fdp import Experiment, Topology, UserError, resume
from h2fdp.network import Aggregator
from h2fdp.network.adversaries import Adversaries, SignFlip
from h2fdp.network.mobility import Mobility
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.reports.results import own_targets
from h2fdp.reports.run_view import RunView
from h2fdp.run.forecast import forecast, planned_accounts
from h2fdp.run.live_accounts import LiveAccounts
from h2fdp.run.prelude import distance_of
from h2fdp.run.preview import privacy_report, without_effect
from h2fdp.schedules import Decision, OwnSchedule
from tests.networks import placed, stored

NEAR = [9.0] * 3
OWN = [0.5, 8.0, 2.0]  # under an epsilon of 4 for all others


def network(*trusts):
    subnets = (placed(f"{trust}-{at}", trust, NEAR, NEAR) for at, trust in enumerate(trusts))
    return Topology("wards", tuple(subnets)).with_devices(epsilon=np.resize(OWN, 3 * len(trusts)))


MIXED = network("trusted", "secure-sum", "untrusted")
PLAIN, TRUSTED, ALONE = network("trusted", "untrusted"), network("trusted", "trusted"), network("untrusted")
RELAYS = network("relay", "relay")
DEEP = replace(
    PLAIN,
    subnets=tuple(replace(each, parent="top") for each in PLAIN.subnets),
    aggregators=(Aggregator("top", "trusted"),),
)
USUAL = {
    "data": {"name": "digits", "partition": "iid"},
    "model": "softmax",
    "intervals": 3,
    "local_steps": 4,
    "aggregate_every": 2,
    "batch_size": 8,
    "clip_norm": 0.5,
    "epsilon": 4.0,
    "calibration": "accounted",
    "accountant": "pld",
}


def experiment(topology=MIXED, **settings):
    return Experiment(topology=topology, **{**USUAL, **settings})


def steps(**more):
    return {"aggregate_every": None, "aggregations_per_interval": 0, **more}


def method(privacy, **more):
    return {"method": {"extends": "h2fdp", "privacy": privacy, **more}}


class Reading(OwnSchedule):
    """What a run releases may decide anything."""

    def choose(self, interval, slot):
        return Decision(self.context.local_steps, self.context.step_size, self.context.participation)

    def observe(self, observed):
        pass


DEVICES = {"protects": "device"}
SECRET = {"topology": TRUSTED, "participation": {"rate": 0.4, "secret": True}, **DEVICES}
# Each feature of the house with targets of devices' own: right, or refused at this key.
RIGHT = {
    "batches": {},
    "whole devices": DEVICES,
    "all records in each step": {"batch_size": None, "sampling_rate": 1.0},
    "batches of a fixed size": {"sampling": "fixed"},
    "shares by size": {"weights": "by-size"},
    "another accountant": {"accountant": "rdp"},
    "missing records": {"adjacency": "add-remove"},
    "replaced records": {"adjacency": "replace"},
    "momentum": {"momentum": 0.9},
    "epochs": steps(local_epochs=1, local_steps=None),
    "noise on steps": {"topology": PLAIN, **method({"name": "hierarchical", "noise": "steps"})},
    "epochs of noisy steps": {
        "topology": ALONE,
        **method({"name": "local", "noise": "steps"}),
        **steps(local_epochs=1, local_steps=None),
    },
    "dp-sgd": {"topology": PLAIN, **method("dp-sgd"), **steps()},
    "no trust": {"method": "hfl-dp"},
    "laplace": {"topology": PLAIN, **method({"name": "hierarchical", "law": "laplace"})},
    "output perturbation": {"topology": PLAIN, **method("output"), **steps()},
    "central": {"topology": TRUSTED, **method("central"), **steps()},
    "a star": {"method": "fedavg-dp"},
    "one sum over the network": {"topology": RELAYS, **steps()},
    "a sum at the cloud": {"topology": replace(MIXED, cloud_trust="secure-sum"), **steps()},
    "two tiers": {"topology": DEEP},
    "integers": method({"name": "hierarchical", "secure_sum": {"rounding": 24}}),
    "tolerance": method({"name": "hierarchical", "secure_sum": {"colluding": 1, "dropouts": 1}}),
    "secret draws": {**SECRET, **steps()},
    "covered draws": {**SECRET, "topology": MIXED, "participation": {"rate": 0.4, "secret": True, "cover": True}},
    "turns": {"device_turns": 3, "aggregate_every": 4},
    "draws of devices": {"participation": 0.7},
    "falling shares": {"step_decay": "linear", "budget_decay": "linear"},
    "correlated noise": {"correlated": {"kind": "banded", "bands": 2}, "sampling_rate": 1.0, "batch_size": None},
    "faults": {"faults": {"device_dropout": 0.2, "straggler": {"probability": 0.3}}},
    "fednova": {"topology": PLAIN, **method("hierarchical", aggregation="fednova")},
    "a median": {"topology": ALONE, **method("hierarchical", aggregation="median")},
    "smaller messages": {"topology": ALONE, "compression": {"device": {"top_k": 0.5}}},
    "buffers": {"topology": PLAIN, "method": {"extends": "hfl-async", "privacy": "hierarchical"}},
    "a controller": {"topology": PLAIN, "control": {"enabled": True}, **steps()},
    "devices that lie": {"topology": replace(PLAIN, adversaries=Adversaries(SignFlip(), devices=("untrusted-1/1",)))},
    "devices that move": {
        "topology": replace(PLAIN, mobility=Mobility([(2, "trusted-0/1", "untrusted-1"), (3, "trusted-0/1", "-")])),
    },
    "a budget": {"budget": {"cloud": 3.0}},
    "one observer": {"target_observers": ["cloud"]},
    "epsilons near to 0": {"topology": PLAIN.with_devices(epsilon=np.resize([0.003, 0.01], 6))},
}
REFUSED = [
    ("privacy.calibration", {"calibration": "paper"}),
    ("privacy.calibration", {"calibration": "paper", **method({"name": "devices", "noise_multiplier": 1.0})}),
    ("method.schedule", {"method": {"extends": "h2fdp", "schedule": Reading()}}),
]


@pytest.mark.parametrize("feature", RIGHT)
def test_each_device_of_a_run_with_this_feature_ends_within_its_own_target(feature, tmp_path):
    settings = dict(RIGHT[feature])
    topology = settings.pop("topology", MIXED)
    run = experiment(topology, **settings).run(tmp_path / "run")
    targets = np.minimum(topology.table.columns["epsilon"], 4.0)
    known = set()
    for observer in settings.get("target_observers", ("edge", "peer", "cloud", "public")):
        for name, target in zip(run.privacy.names, targets, strict=True):
            if (epsilon := run.privacy.epsilon(observer, device=name)) is not None:
                assert 0 < epsilon <= target, (observer, name)
                known.add(name)
    assert len(known) >= len(targets) - ("lie" in feature)
    groups = run.privacy.card()["targets"]
    assert [each["target"] for each in groups] == sorted(set(targets))
    assert {each["verdict"] for each in groups} == {"met"}
    assert run.summary["privacy"]["targets"] == groups


@pytest.mark.parametrize(("key", "settings"), REFUSED)
def test_what_knows_one_epsilon_for_all_is_refused_at_its_key(key, settings):
    with pytest.raises(UserError, match="devices ask for an epsilon of their own") as caught:
        experiment(**settings).prepare()
    assert key in {each.key for each in caught.value.problems}


def weights_and_noise(setup):
    """(I,) each device's weight in the model, and the standard deviation of the noise of an interval."""
    plan, facts = setup.first_plan, {each.name: each for each in setup.blueprint.facts}
    of_devices = [
        share * part.weights[-1] for part, share in zip(plan.subnets.values(), plan.weights.tolist(), strict=True)
    ]
    return np.concatenate(of_devices), math.sqrt(noise_and_gradients(plan, facts, setup.noise)[0])


def least_noise(asked, groups):
    """The least root of a sum of squared noises, each of which is asked[j] a[j] for all of its devices, over weights a
    of sum 1: by a solver of the convex programme, from several beginnings."""
    count, noises, found = len(asked), len(groups), []
    rows = [(at, device) for at, group in enumerate(groups) for device in group]
    asked = asked / asked.min()

    def enough(x):
        return np.array([x[count + at] - asked[device] * x[device] for at, device in rows])

    conditions = [{"type": "eq", "fun": lambda x: x[:count].sum() - 1}, {"type": "ineq", "fun": enough}]
    for seed in range(4):
        weights = np.random.default_rng(seed).dirichlet(np.ones(count))
        begin = [*weights, *(max(asked[device] * weights[device] for device in group) for group in groups)]
        solved = optimize.minimize(
            lambda x: (x[count:] ** 2).sum(),
            begin,
            bounds=[(0, None)] * (count + noises),
            constraints=conditions,
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        found.append(math.sqrt(solved.fun))
    return min(found)


@pytest.mark.parametrize("trust", ["trusted", "secure-sum", "untrusted", "relay"])
@pytest.mark.parametrize("seed", range(5))
def test_no_weights_leave_less_noise_in_the_model(trust, seed):
    """All targets are met by noise at each noise's place of a device's weight times its reach times sqrt(intervals) /
    mu, by hand; a convex programme finds the weights of the least noise."""
    own = np.random.default_rng(seed).choice([0.2, 0.5, 1.0, 2.0, 4.0], 9)
    own[4] = 4.0
    topology = Topology("alike", tuple(placed(name, trust, NEAR, NEAR) for name in "abc")).with_devices(epsilon=own)
    settings = {"batch_size": None, "sampling_rate": 1.0, "local_steps": 1, **steps()}
    setup = experiment(topology, protects="device", **settings).prepare()
    reach = np.array([math.sqrt(3) * 0.5 / distance_of(each, 1e-5) for each in own])
    devices = np.arange(9)
    groups = {"untrusted": devices[:, None], "relay": [devices]}.get(trust, devices.reshape(3, 3))
    weights, noise = weights_and_noise(setup)
    assert weights.sum() == pytest.approx(1.0)
    sharing = {"secure-sum": 3, "relay": 9}.get(trust, math.inf)  # of whom a peer knows its own part
    least = least_noise(reach, groups) * reach.min() / math.sqrt(1 - 1 / sharing)
    assert least * (1 - 1e-6) < noise < least * 1.005


def test_equal_targets_change_no_bit():
    trusts = [placed(name, name, NEAR, NEAR) for name in ("trusted", "secure-sum", "untrusted")]
    plain = Topology("plain", tuple(trusts))
    one, other = (experiment(each).prepare() for each in (plain, plain.with_devices(epsilon=[4.0, 5.0, 1e9] * 3)))
    assert other.eases is None
    assert one.factor == other.factor
    for before, after in zip(one.first_plan.subnets.values(), other.first_plan.subnets.values(), strict=True):
        assert (before.weights == after.weights).all()
        assert (before.noise_std == after.noise_std).all()


def test_all_noises_stay_what_those_who_ask_for_least_need():
    """Devices that ask for more weigh less instead, so that the noise is nearly that of the run without them."""

    def noise(epsilon, own):
        topology = Topology("one", (placed("a", "trusted", NEAR * 10, NEAR * 10),)).with_devices(epsilon=own)
        return weights_and_noise(experiment(topology, epsilon=epsilon, **DEVICES).prepare())

    asked = [0.3] * 3 + [3.0] * 27
    weights, own = noise(3.0, asked)
    share = distance_of(0.3, 1e-5) / distance_of(3.0, 1e-5)
    assert weights[:3] == pytest.approx(share * weights[3], rel=2e-3)
    assert own == pytest.approx(noise(3.0, 3.0)[1] * 30 / (27 + 3 * share), rel=2e-3)
    assert own < noise(0.3, 0.3)[1] * (share + 0.02) * 30 / 27


def test_many_different_targets_are_met_each(tmp_path):
    own = np.random.default_rng(0).uniform(0.3, 4.0, 30)
    topology = Topology(
        "many", tuple(placed(name, name, [9.0] * 10, [9.0] * 10) for name in ("trusted", "secure-sum", "untrusted"))
    ).with_devices(epsilon=own)
    setup = experiment(topology).prepare()
    accounts, shares = planned_accounts(setup), []
    for observer in setup.observers:
        for each in accounts.classes(observer):
            target = setup.targets.of(each.devices)
            epsilon = max(privacy_of(each.composition), 1e-12)
            assert epsilon <= target
            shares.append(epsilon / target)
    assert max(shares) > 0.98
    assert len(privacy_report(setup)["targets"]) == 30


def privacy_of(composition):
    return ACCOUNTANTS["pld"].epsilon(composition, 1e-5)


@pytest.mark.parametrize("suffix", ["yaml", "graphml", "json"])
def test_targets_are_read_from_any_kind_of_file(suffix, tmp_path):
    read = Experiment(topology=str(stored(PLAIN, tmp_path / f"network.{suffix}")), **USUAL).topology
    assert (read.table.columns["epsilon"] == PLAIN.table.columns["epsilon"]).all()


@pytest.mark.parametrize("value", [0, -1, "none", 1e10, math.inf])
def test_what_is_no_epsilon_is_refused_at_its_key(value):
    with pytest.raises(UserError, match=r"devices.epsilon: expected a number from 1e-9 to 1e9"):
        Experiment({"edges": [{"name": "ward", "devices": {"count": 2, "epsilon": value}}]}, **USUAL)


def test_a_run_says_each_groups_epsilon_wherever_it_says_its_own(tmp_path):
    run = experiment(PLAIN).run(tmp_path / "run")
    devices, groups = run.summary["privacy"]["devices"], run.summary["privacy"]["targets"]
    assert [(each["target"], each["devices"]) for each in groups] == [(0.5, 2), (2.0, 2), (4.0, 2)]
    for each in groups:
        worst = {}
        for name, target in zip(run.privacy.names, np.resize(OWN, 6), strict=True):
            if min(target, 4.0) == each["target"]:
                for observer in devices[name]:
                    worst[observer] = max(worst.get(observer, 0.0), run.privacy.epsilon(observer, device=name))
        assert each["accounted"] == pytest.approx(worst)
    assert any(note.startswith("targets: ") for note in run.summary["privacy"]["notes"])
    (table,) = own_targets(RunView.read(tmp_path / "run", "run")).values()
    assert [row[0] for row in table.rows] == [0.5, 2.0, 4.0]
    assert {row[-1] for row in table.rows} == {"met"}
    assert privacy_report(experiment(PLAIN).prepare())["targets"] == groups


def test_a_run_that_repeats_lost_intervals_is_held_to_each_target(tmp_path):
    """Of a group whose own target an interval more would exceed, though not that of the run."""
    setup = experiment(PLAIN).prepare()
    live = LiveAccounts(setup)
    for each in forecast(setup):
        live.accounts.add_alike(each.releases(), times=each.times)
        first = [row for alike in each.releases() for row in alike.releases]
    live.enter_lost([])
    assert live._above_target() is None
    live.enter(row for row in first if row.devices == "1")
    assert live._above_target() is not None
    assert not any(live.accounts.exceeds(each, 4.0, 1e-5, ACCOUNTANTS["pld"]) for each in setup.observers)


def test_a_target_that_changed_is_refused_when_a_run_goes_on(tmp_path):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment(PLAIN).run(tmp_path / "run", on_interval=stop)
    file = tmp_path / "run" / "topology.yaml"
    text = file.read_text()
    assert "0.5" in text
    file.write_text(text.replace("0.5", "4.0"))
    with pytest.raises(UserError, match=r"topology\.yaml"):
        resume(tmp_path / "run")
    file.write_text(text)
    ended = resume(tmp_path / "run")
    assert {each["verdict"] for each in ended.summary["privacy"]["targets"]} == {"met"}


def test_epsilons_that_nothing_is_held_to_are_named():
    """A third of the devices ask for 8 under an epsilon of 4."""
    (line,) = without_effect(experiment().prepare())
    assert line == "devices.epsilon of 3 devices has no effect: they are held to the run's, 4"
    plain = {key: value for key, value in USUAL.items() if key not in ("calibration", "accountant")}
    told = without_effect(Experiment(topology=MIXED, **plain, method="hfl").prepare())
    assert any(line.startswith("devices.epsilon has no effect: no noise") for line in told)


def test_the_largest_account_that_is_stated_is_that_of_targeted_observers():
    """Peers, who are no target here, see more than the cloud."""
    rows = privacy_report(experiment(network("secure-sum", "secure-sum"), target_observers=["cloud"]).prepare())[
        "targets"
    ]
    for row in rows:
        assert row["largest"] == row["accounted"]["cloud"] <= row["target"]
        assert row["verdict"] == "met"
