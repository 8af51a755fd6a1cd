"""`control.joules`, `.seconds` and `.accuracy`, in planned and in whole runs."""

import json
from dataclasses import replace

import numpy as np
import pytest

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.data.public_features import with_features
from h2fdp.network import Radio
from h2fdp.protocol import InProcessNodes
from tests.networks import placed
from tests.noise_keys import keys_are, known

INSIDE = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}
DISTANCES = {"A": [20.0, 60.0, 90.0], "B": [30.0, 50.0], "C": [80.0, 80.0, 15.0, 40.0]}


def network(**trust):
    subnets = (
        placed(name, trust.get(name, "untrusted") == "trusted", np.array(each), np.full(len(each), 24.0))
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
        yield plan, setup.bill.columns(plan)
        cloud.skip(plan)


@pytest.mark.parametrize("budget", [{"seconds": 0.1}, {"joules": 0.03, "seconds": 0.1}])
def test_a_budget_is_used_and_never_exceeded(budget):
    setup = experiment({**budget, "tau_max": 12}).prepare()
    costs = [cost for _, cost in planned(setup)]
    spent = {"joules": sum(each["energy_j"] for each in costs), "seconds": sum(each["delay_s"] for each in costs)}
    shares = [spent[key] / most for key, most in budget.items()]
    assert max(shares) <= 1
    assert max(shares) > 0.7


@pytest.mark.parametrize("control", [{"joules": 0.04}, {"accuracy": 0.9}])
def test_the_run_decides_what_its_noise_was_calibrated_to(control):
    """To the bit."""
    setup = experiment(control, topology=network(), aggregate_every=4).prepare()
    assert setup.factor != 1
    before = replace(setup, noise=setup.uncalibrated, factor=1.0, reserve=None)
    foreseen, done = ([(p.decision.local_steps, p.participants) for p, _ in planned(each)] for each in (before, setup))
    assert foreseen == done


def test_a_run_keeps_budget_and_epsilon_says_why_and_goes_on_to_the_same_bits(tmp_path):
    wanted = {"tau_max": 12, "joules": 0.04}

    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    with keys_are(known):
        settings = {"epsilon": 1.5, "checkpoint_every": 1}
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
    made = experiment({"accuracy": 0.12}, step_size=1.0, epsilon=50.0)
    assert made.config.training.until == {"accuracy": 0.12}
    done = made.run(tmp_path / "run")
    assert done.metrics["accuracy"].iloc[-1] >= 0.12
    assert len(done.metrics) < 8


@pytest.mark.parametrize(
    ("control", "settings", "words"),
    [
        ({"joules": -1}, {}, "control.joules: expected a finite number above 0, found -1"),
        ({"joules": 1, "accuracy": 0.5}, {}, "(joules, seconds, gco2) or an accuracy, found both"),
        ({"joules": 1, "alpha1": 2}, {}, "finds these weights; expected no alpha1"),
        ({"accuracy": 0.5, "channel": "expected"}, {}, "needs channel: known"),
        ({}, {"calibration": "paper", "aggregate_every": 4}, "expected privacy.calibration accounted"),
    ],
)
def test_what_cannot_be_wished_for_is_refused_with_its_key(control, settings, words):
    with pytest.raises(UserError) as refused:
        experiment(control, **settings)
    assert words in str(refused.value)


def pictures(**control):
    given = {"training": "auto", "model": "auto", "method": "h2fdp", "epsilon": 1.0, "control": control}
    return Experiment(network(A="trusted"), data={"name": "digits", "partition": "iid"}, **given)


def test_a_budget_that_pays_for_no_plan_is_refused_before_features_are_computed(monkeypatch):
    """In the same words as by the whole preparation."""
    with monkeypatch.context() as late:
        late.setattr("h2fdp.run.prepare._refuse_small_budget", lambda *_: None)
        with pytest.raises(UserError) as whole:
            pictures(joules=1e-6).prepare()
    monkeypatch.setattr("h2fdp.run.prepare.with_features", only_blank)
    with pytest.raises(UserError) as early:
        pictures(joules=1e-6).prepare()
    assert str(early.value) == str(whole.value)
    assert "control.joules: the cheapest plan is expected to cost" in str(early.value)


def only_blank(*arguments, computed=True, **settings):
    assert not computed, "features are computed"
    return with_features(*arguments, computed=computed, **settings)


def test_a_budget_that_is_just_enough_is_not_refused_early():
    with pytest.raises(UserError) as refused:
        pictures(joules=1e-6).prepare()
    least = float(str(refused.value).split("to cost ")[1].split(" J")[0])
    assert pictures(joules=1.001 * least).prepare().schedule().plan.costs["joules"] <= 1.001 * least
    with pytest.raises(UserError):
        pictures(joules=0.999 * least).prepare()


def test_what_to_change_is_a_table_at_equal_epsilon_of_the_same_training():
    """One noise in place of five devices' falls by the root of five; in sums a peer knows its own share of it."""
    edges = [{"name": "e{i}", "repeat": 4, "trusted": False, "devices": {"count": 5}}]
    chosen = {"extends": "auto", "model": "auto", "calibration": "accounted", "accountant": "pld", "epsilon": 1.0}
    made = Experiment({"edges": edges}, data={"name": "digits", "partition": "iid"}, **chosen)
    explained = h2fdp.explain(made).facts
    rows = {row["setting"]: row for row in explained["equal"]}
    now = rows["as it is"]["scores"]
    assert now == explained["noise_on_model"]["scores"]
    expected = {"all edge servers trusted": 5**-0.5, "secure sums": 4**-0.5, "one sum (relay: 1)": 19**-0.5}
    expected |= {"twice the records": 0.5}
    for setting, factor in expected.items():
        assert rows[setting]["scores"] / now == pytest.approx(factor, rel=0.005)
    assert rows["one sum (relay: 1)"]["energy_j"] > rows["as it is"]["energy_j"]
    assert 0.5 < rows["epsilon 2"]["scores"] / now < 0.6
    assert sum("pays most" in line for line in explained["lines"]) == 1


SUMS = ("secure sums", "one sum (relay: 1)")
CENTRAL = {"extends": "hfl", "privacy": "central"}
LOWEST = [{"name": "e{i}", "repeat": 2, "devices": {"count": 3}}]


@pytest.mark.parametrize(
    ("method", "edges", "rows"),
    [
        ("h2fdp", LOWEST, ("all edge servers trusted", *SUMS, "epsilon 8", "twice the records")),
        (
            "h2fdp",
            [{"name": "top", "edges": LOWEST}],
            ("all edge servers trusted", *SUMS, "epsilon 8", "twice the records"),
        ),
        ("hfl-dp", LOWEST, ("epsilon 8", "twice the records")),  # all devices add noise
        ("pedpfl", LOWEST, ("epsilon 8", "twice the records")),  # a star
        (CENTRAL, LOWEST, ("epsilon 8",)),  # secure sums at edge servers that would see raw updates are refused
        (
            {"extends": "h2fdp", "aggregation": "median"},
            LOWEST,
            ("all edge servers trusted", "epsilon 8", "twice the records"),
        ),
        ("h2fdp-adaptive", LOWEST, None),  # no account is known before the run
    ],
)
def test_each_row_at_equal_epsilon_can_be_stated_and_changes_something(method, edges, rows):
    """Trust is drawn here, and no edge server is trusted."""
    chosen = {"training": {"extends": "auto", "intervals": 5}, "epsilon": 4.0, "seed": 3, "model": "softmax"}
    chosen |= {"calibration": "accounted", "accountant": "pld"}
    made = Experiment({"edges": edges}, data={"name": "digits", "partition": "iid"}, method=method, **chosen)
    found = [row["setting"] for row in h2fdp.explain(made).facts["equal"]]
    assert found == ([] if rows is None else ["as it is", *rows])
