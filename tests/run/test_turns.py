"""`control.turns`: runs that are planned as a whole, with edge servers in turns."""

import json
import re

import numpy as np
import pytest

import h2fdp
from h2fdp import Topology, UserError
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.reports.decisions import reason
from tests.noise_keys import keys_are, known
from tests.run.test_wishes import experiment as wished
from tests.run.test_wishes import planned

EVEN = Topology.regular(edges=4, devices=3, trust=0, seed=4)
TARGET = {"accuracy": 0.9}


def experiment(control, **settings):
    defaults = {"topology": EVEN, "aggregate_every": 4, "intervals": 12, "local_steps": 2}
    return wished({"turns": 0.5, "tau_max": 4, **control}, **{**defaults, **settings})


NETWORKS = {
    "one tier": {},
    "trusted": {"topology": Topology.regular(edges=4, devices=3, trust=1, seed=4), "aggregate_every": 1},
    "secure sums": {
        "topology": Topology.regular(edges=4, devices=3, trust=0, secure_sum=1, seed=2),
        "aggregate_every": 2,
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_plan_is_kept_costs_what_it_says_and_everybody_has_equal_turns(name):
    setup = experiment(TARGET, **NETWORKS[name]).prepare()
    plan, seen = setup.schedule().plan, list(planned(setup))
    assert len(seen) == plan.intervals
    taken = np.sum([each.decision.participation > 0 for each, _ in seen], axis=0)
    assert set(taken.tolist()) == {plan.turns}
    for each, cost in seen:
        weighed = each.decision.reasons["weighed"]
        assert weighed["joules"] == pytest.approx(cost["energy_j"], rel=1e-9)
        assert weighed["seconds"] == pytest.approx(cost["delay_s"], rel=1e-9)
    assert plan.costs["joules"] == pytest.approx(
        sum(cost["energy_j"] for _, cost in seen), rel=0.3
    )  # at mean costs, by channel


def test_calibrated_noise_against_the_way_is_what_the_plans_were_compared_by():
    """Plans of other lengths, each calibrated by itself: by rdp without sampling accounts grow with the releases."""

    def ratio(tau_max):
        setup = experiment({**TARGET, "tau_max": tau_max}, sampling_rate=1.0).prepare()
        facts = {each.name: each for each in setup.blueprint.facts}
        added = gone = 0.0
        for plan, _ in planned(setup):
            added += noise_and_gradients(plan, facts, setup.noise)[0]
            gone += plan.decision.step_size * plan.decision.local_steps
        return setup.schedule().plan, added / gone**2

    (short, a), (long, b) = ratio(2), ratio(6)
    assert (short.intervals, long.intervals) == (12, 4)
    assert b / a == pytest.approx((long.noise / short.noise) ** 2, rel=0.02)


def test_the_account_is_used_and_not_exceeded():
    setup = experiment(TARGET, accountant="pld", epsilon=1.0).prepare()
    accounts = h2fdp.run.forecast.planned_accounts(setup)
    accountant = h2fdp.privacy.accounting.ACCOUNTANTS["pld"]
    found = [
        accountant.epsilon(each.composition, 1e-5)
        for observer in setup.target_observers
        for each in accounts.classes(observer)
    ]
    assert max(found) <= 1.0
    assert min(found) > 0.97, "all devices have equal turns"


def test_a_run_goes_on_to_the_same_bits_and_says_why(tmp_path):
    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    wanted = {**TARGET, "trust": "weighed"}
    settings = {"topology": Topology.regular(edges=4, devices=3, trust=0.5, seed=4), "checkpoint_every": 1}
    with keys_are(known):
        whole = experiment(wanted, **settings).run(tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            experiment(wanted, **settings).run(tmp_path / "cut", on_interval=stop)
        again = h2fdp.resume(tmp_path / "cut")
    assert whole.metrics["loss"].tolist() == again.metrics["loss"].tolist()
    assert h2fdp.check(whole.directory).whole
    rows = [json.loads(line) for line in (whole.directory / "control.jsonl").read_text().splitlines()]
    assert all(row["trust"] == "not used" and row["runner_up"]["joules"] > 0 for row in rows)
    said = reason(rows[0])
    assert "edge servers in turns" in said
    words = re.search(r"the run: (\d+) intervals of (\d+) steps? for (\S+) J and (\S+) s at noise", said)
    intervals, tau, joules, seconds = map(float, words.groups())
    assert (intervals, tau) == (rows[0]["constants"]["K"], rows[0]["tau"])
    assert joules * rows[0]["multipliers"]["joule"] == pytest.approx(rows[0]["terms"]["energy"], rel=1e-3)
    assert seconds * rows[0]["multipliers"]["second"] == pytest.approx(rows[0]["terms"]["delay"], rel=1e-3)
    assert f"next best {rows[0]['runner_up']['intervals']} intervals of" in said


@pytest.mark.parametrize(
    ("control", "settings", "words"),
    [
        ({}, {}, "turns and trust: weighed need joules"),
        ({**TARGET, "slots": 9}, {}, "expected no slots"),
        ({"turns": None, "trust": "weighed"}, {}, "turns and trust: weighed need joules"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_its_key(control, settings, words):
    with pytest.raises(UserError) as refused:
        experiment(control, **settings)
    assert words in str(refused.value)
