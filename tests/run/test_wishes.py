"""`control.budget`, `control.target` and devices by channel, in planned and in whole runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.protocol import InProcessNodes
from h2fdp.protocol.planned_uploads import noise_and_gradients
from h2fdp.run.controller_preview import first_decision
from h2fdp.topology import Radio, Subnet
from tests.noise_keys import keys_are, known

INSIDE = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}
DISTANCES = {"A": [20.0, 60.0, 90.0], "B": [30.0, 50.0], "C": [80.0, 80.0, 15.0, 40.0]}


def network(**trust):
    subnets = (
        Subnet(name, trust.get(name, "untrusted") == "trusted", np.array(each), np.full(len(each), 24.0))
        for name, each in DISTANCES.items()
    )
    return Topology("t", tuple(subnets), Radio())


def experiment(control, **settings):
    defaults = {
        "topology": network(A="trusted"),
        "method": INSIDE,
        "intervals": 8,
        "local_steps": 4,
        "aggregate_every": {"trusted": 1, "untrusted": 4},
        "sampling_rate": 0.2,
        "clip_norm": 1.0,
        "step_size": 0.2,
        "step_decay": "linear",
        "calibration": "accounted",
        "accountant": "rdp",
        "epsilon": 2.0,
        "seed": 5,
        "control": {"enabled": True, "tau_max": 4, **control},
    }
    return Experiment(data={"name": "digits", "partition": "iid"}, **{**defaults, **settings})


def planned(setup):
    """(plan, cost) of each interval, without training."""
    cloud = setup.cloud(InProcessNodes({}))
    for interval in range(setup.config.training.intervals):
        if cloud.ended:
            return
        plan = cloud.plan(interval)
        yield plan, setup.interval_costs(plan)
        cloud.skip(plan)


NETWORKS = {
    "one tier": {},
    "secure sums": {
        "topology": Topology.regular(edges=3, devices=4, trust=0.3, secure_sum=0.7, seed=2),
        "aggregate_every": 2,
    },
    "star": {"method": {"extends": "pedpfl"}, "aggregate_every": None, "aggregations_per_interval": 0},
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("devices", ["random", "channel"])
def test_what_is_weighed_is_what_the_interval_costs_and_adds(name, devices):
    """Joules and seconds of the very devices, by the meter; noise by the planner, for devices of nearly equal data."""
    setup = experiment({"devices": devices, "budget": {"joules": 0.05, "seconds": 9}}, **NETWORKS[name]).prepare()
    seen = list(planned(setup))
    assert len(seen) > 2
    facts = {each.name: each for each in setup.blueprint.facts}
    for plan, cost in seen:
        weighed = plan.decision.reasons["weighed"]
        assert weighed["joules"] == pytest.approx(cost["energy_j"], rel=1e-9)
        assert weighed["seconds"] == pytest.approx(cost["delay_s"], rel=1e-9)
        added, _ = noise_and_gradients(plan, facts, setup.noise)
        assert weighed["noise"] == pytest.approx(added / (setup.factor * plan.decision.step_size) ** 2, rel=0.1)


@pytest.mark.parametrize("budget", [{"joules": 0.02}, {"seconds": 0.2}, {"joules": 0.03, "seconds": 0.15}])
def test_a_budget_is_used_and_never_exceeded(budget):
    setup = experiment({"budget": budget}).prepare()
    costs = [cost for _, cost in planned(setup)]
    spent = {"joules": sum(each["energy_j"] for each in costs), "seconds": sum(each["delay_s"] for each in costs)}
    shares = [spent[key] / most for key, most in budget.items()]
    assert max(shares) <= 1
    assert max(shares) > 0.7


@pytest.mark.parametrize("control", [{"budget": {"joules": 0.04}}, {"target": {"accuracy": 0.9}}])
def test_the_run_decides_what_its_noise_was_calibrated_to(control):
    """To the bit, though noise on steps is the same for every tau: ties fall alike before and after calibration."""
    setup = experiment({"devices": "channel", **control}, topology=network(), aggregate_every=4).prepare()
    assert setup.factor != 1
    before = replace(setup, noise=setup.uncalibrated, factor=1.0, reserve=None)
    foreseen, done = ([(p.decision.local_steps, p.participants) for p, _ in planned(each)] for each in (before, setup))
    assert foreseen == done
    assert len({tau for tau, _ in done[:-1]} | {4}) == 1, "of equal noises the cheapest"


def test_a_budget_that_pays_for_no_interval_is_refused():
    with pytest.raises(UserError, match=r"control\.budget"):
        experiment({"budget": {"joules": 1e-6}}).prepare()


def test_cheap_channels_cost_less_than_random_ones_at_equal_participation():
    def joules(devices):
        wanted = {"devices": devices, "fairness": 0.2, "target": {"accuracy": 0.9}}
        plans = list(planned(experiment(wanted, participation=0.5).prepare()))
        assert {plan.participants for plan, _ in plans} == {5}
        return sum(cost["energy_j"] for _, cost in plans)

    assert joules("channel") < 0.95 * joules("random")


def test_a_run_keeps_budget_and_epsilon_says_why_and_goes_on_to_the_same_bits(tmp_path):
    wanted = {"devices": "channel", "budget": {"joules": 0.04, "epsilon": 1.5}}

    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    with keys_are(known):
        settings = {"epsilon": 1.5, "accountant": "pld", "checkpoint_every": 1}
        whole = experiment(wanted, **settings).run(tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            experiment(wanted, **settings).run(tmp_path / "cut", on_interval=stop)
        again = h2fdp.resume(tmp_path / "cut")
    assert whole.metrics["energy_j"].iloc[-1] <= 0.04
    assert whole.metrics["loss"].tolist() == again.metrics["loss"].tolist()
    assert max(whole.privacy.epsilon(each, accountant="pld") or 0 for each in ("edge", "cloud")) <= 1.5
    rows = [json.loads(line) for line in (whole.directory / "control.jsonl").read_text().splitlines()]
    assert all({"joules", "seconds", "noise", "tau"} <= set(row["runner_up"]) for row in rows)
    assert all(row["left"]["joules"] <= 0.04 and row["multipliers"]["joule"] >= 0 for row in rows)


def test_a_target_ends_the_run_when_it_is_reached(tmp_path):
    made = experiment({"target": {"accuracy": 0.12}}, step_size=1.0, epsilon=50.0)
    assert made.config.training.until.accuracy == 0.12
    done = made.run(tmp_path / "run")
    assert done.metrics["accuracy"].iloc[-1] >= 0.12
    assert len(done.metrics) < 8


def test_the_first_decision_is_that_of_the_run():
    made = experiment({"devices": "channel", "budget": {"joules": 0.05}})
    plan, (begun, _) = first_decision(made.prepare()), next(planned(made.prepare()))
    assert (plan.tau, list(plan.participation.values())) == (
        begun.decision.local_steps,
        begun.decision.participation.tolist(),
    )
    assert plan.objective == pytest.approx(sum(plan.terms.__dict__.values()))
    assert min(min(row) for row in plan.map.objective) >= plan.objective * (1 - 1e-12)


@pytest.mark.parametrize(
    ("control", "settings", "words"),
    [
        ({"budget": {}}, {}, "expected joules, seconds, or both"),
        ({"budget": {"joules": 1}, "target": {"accuracy": 0.5}}, {}, "budget or target, found both"),
        ({"budget": {"joules": 1}, "alpha1": 2}, {}, "find the weights; expected no alpha1"),
        ({"target": {"accuracy": 0.5}, "channel": "expected"}, {}, "need channel: known"),
        ({"devices": "channel", "estimates": "private"}, {}, "control.estimates"),
        ({"devices": "channel", "allow_idle": True}, {}, "control.allow_idle"),
        ({"budget": {"joules": 1, "epsilon": 1}}, {}, "control.budget.epsilon"),
        ({"target": {"accuracy": 0.5}}, {"until": {"accuracy": 0.6}}, "training.until"),
        ({}, {"calibration": "paper", "aggregate_every": 4}, "expected privacy.calibration accounted"),
        ({}, {}, "the controller that is told its weights supports one number"),
    ],
)
def test_what_cannot_be_wished_for_is_refused_with_its_key(control, settings, words):
    with pytest.raises(UserError) as refused:
        experiment(control, **settings)
    assert words in str(refused.value)
