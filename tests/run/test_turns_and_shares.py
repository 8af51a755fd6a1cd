"""Turns of devices, and shares of the budget that fall: accounts by hand, noises that are really added, refusals."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from h2fdp import Experiment, UserError
from h2fdp.algorithms import ServerUpdate
from h2fdp.run.forecast import noise_on_model, planned_accounts
from h2fdp.schedules.aggregation_times import DeviceTurns
from tests.protocol.test_noise_boundaries import accepts
from tests.run.test_noise_as_wired import numbers

EPSILON, DELTA, INTERVALS, DEVICES = 0.3, 1e-5, 6, 4
PLAIN = {"intervals": INTERVALS, "local_steps": 1, "aggregate_every": 1, "sampling_rate": 1.0, "clip_scope": "record"}
FALLING = {"budget_decay": "linear", "step_decay": "linear"}


def mu_of(epsilon, delta):
    """Balle and Wang 2018, Theorem 8."""

    def gap(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(gap, 1e-6, 50)


def experiment(trust="untrusted", method="h2fdp", **settings):
    network = {"edges": [{"name": "e-{i}", "repeat": 2, "trust": trust, "devices": {"count": DEVICES}}]}
    given = {"data": {"name": "digits", "partition": "iid"}, "model": "softmax", "epsilon": EPSILON, "seed": 2}
    return Experiment(
        network, method=method, **given | {"accountant": "pld", "calibration": "accounted"} | PLAIN | settings
    )


def of_devices(run, observer):
    """(edge, device) -> for each release the interval and 1 / z^2, of the ledger."""
    found = {}
    for row in pd.read_json(run / "privacy.jsonl", lines=True).to_dict("records"):
        if row["observer"] == observer:
            for device in numbers(str(row["devices"])):
                cost = (row["sensitivity"] / row["noise_std"]) ** 2
                found.setdefault((row["edge"], device), []).append((row["interval"], cost))
    return found


@pytest.mark.parametrize(("trust", "observer"), [("untrusted", "edge"), ("trusted", "cloud"), ("secure-sum", "edge")])
@pytest.mark.parametrize("turns", [1, 2])
def test_shares_of_the_budget_fall_and_add_up_to_what_the_target_allows(trust, observer, turns, tmp_path):
    run = experiment(trust, device_turns=turns, **FALLING).run(tmp_path / "run")
    found = of_devices(run.directory, observer)
    assert len(found) == 2 * DEVICES
    kept = mu_of(EPSILON, DELTA) ** 2
    for (_, device), releases in found.items():
        intervals, costs = np.array(releases).T
        assert intervals.tolist() == list(range(1 + (device - 1) % turns, INTERVALS + 1, turns))
        falling = np.arange(len(costs), 0, -1)
        np.testing.assert_allclose(costs / costs.sum(), falling / falling.sum(), rtol=1e-6)
        # A peer who knows its own share of a sum is nearer than the edge server, and noise is made for it.
        honest = {"secure-sum": 1 - 1 / (DEVICES // turns)}.get(trust, 1.0)
        assert costs.sum() == pytest.approx(kept * honest, rel=0.02)
    everyone = ("peer", "cloud", "public", *(["edge"] if trust != "trusted" else []))
    assert max(run.privacy.epsilon(each) for each in everyone) == pytest.approx(EPSILON, rel=0.005)


class Recording(ServerUpdate):
    def __init__(self):
        self.averages = []

    def apply(self, model, uploaded):
        self.averages.append(uploaded.average.clone())
        return model - uploaded.average


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("trust", ["untrusted", "trusted"])
def test_the_noise_that_is_added_is_that_of_the_ledger(trust, turns, tmp_path):
    """Noise is so large that gradients, clipped at 0.01 of their usual length, do not show next to it."""
    server = Recording()
    method = {"extends": "h2fdp", "server": server}
    run = experiment(trust, method, device_turns=turns, clip_norm=0.01, epsilon=0.02, **FALLING).run(tmp_path / "run")
    rows = pd.read_json(run.directory / "privacy.jsonl", lines=True)
    server.averages = server.averages[-INTERVALS:]  # before these the part was tried out
    for interval, average in enumerate(server.averages, start=1):
        released = rows[(rows.interval == interval) & (rows.observer == ("edge" if trust == "untrusted" else "cloud"))]
        # Each edge server has half of the average; of an untrusted one each device has its part of that.
        if trust == "untrusted":
            counts = released.devices.map(lambda each: len(list(numbers(str(each)))))
            stated = math.sqrt((counts * (released.noise_std / counts.sum()) ** 2).sum())
        else:
            stated = math.sqrt((released.groupby("edge").noise_std.first() ** 2).sum()) / 2
        assert [accepts(average, factor * stated) for factor in (1, 2 / 3, 3 / 2)] == [True, False, False]


def test_no_sampled_release_is_cheaper_than_its_own_noise_says():
    """With batches that are drawn, divergences of each release add up one by one."""
    accounts = planned_accounts(experiment(sampling_rate=0.5, accountant="rdp", **FALLING).prepare())
    (held,) = {tuple(sorted(each.composition.items())) for each in accounts.classes("edge")}
    assert len({kind.noise_multiplier for kind, _ in held}) == INTERVALS
    assert all(count == 1 for _, count in held)
    assert 0.98 * EPSILON < accounts.worst("edge", DELTA) <= EPSILON


def test_falling_shares_leave_the_least_noise_in_a_model_of_falling_steps():
    """sum c_t^2 v_t under sum 1 / v_t = 1: (sum c_t)^2 at shares of c_t, K sum c_t^2 at equal ones."""
    equal, falling = (
        noise_on_model(experiment(step_decay="linear", budget_decay=each).prepare()) for each in ("none", "linear")
    )
    steps = np.arange(INTERVALS, 0, -1.0)
    expected = steps.sum() / math.sqrt(INTERVALS * (steps**2).sum())
    assert falling.noise_std / equal.noise_std == pytest.approx(expected, rel=0.005)
    assert falling.way == pytest.approx(equal.way)


def test_equal_shares_and_one_turn_are_what_a_run_has_without(tmp_path):
    kinds = {}, {"budget_decay": "none", "device_turns": 1}
    runs = [experiment(noise_key="seed", **keys).run(tmp_path / str(number)) for number, keys in enumerate(kinds)]
    first, second = ((run.directory / "privacy.jsonl").read_text() for run in runs)
    assert first == second
    assert runs[0].summary["accuracy"] == runs[1].summary["accuracy"]


def test_turns_cost_nobody_who_holds_the_noise_anything():
    """A device's own noise lasts for its turns: noise in the model is that of full rounds, at half the messages."""
    full, turns = (noise_on_model(experiment(step_decay="none", device_turns=each).prepare()) for each in (1, 2))
    assert turns.per_step == pytest.approx(full.per_step, rel=0.005)


@pytest.mark.parametrize(("every", "intervals"), [(1, 4), (3, 7), (4, 8)])
def test_turns_are_apart_as_they_say(every, intervals):
    turns = DeviceTurns(every, intervals)
    for device in range(9):
        taken = [k for k in range(intervals) if device in turns.rows(k, 9)]
        assert len(taken) <= turns.most
        assert all(after - before == turns.every for before, after in pairwise(taken))
    assert max(len([k for k in range(intervals) if d in turns.rows(k, 9)]) for d in range(9)) == turns.most


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"budget_decay": "linear", "method": "hfl", "calibration": "paper"}, "no noise is added"),
        ({"budget_decay": "linear", "calibration": "paper"}, "the formula counts releases under equal noise"),
        ({"budget_decay": "linear", "method": "fedavg-dp"}, "noises on steps are equal; expected none"),
        ({"device_turns": 2, "participation": 0.5}, "expected 1, or device_turns: 1"),
        ({"device_turns": 2, "method": {"extends": "h2fdp", "schedule": "h2fdp"}}, "expected 1, or schedule fixed"),
        (
            {
                "device_turns": 3,
                "trust": "secure-sum",
                "method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"colluding": 1}}},
            },
            "leaves no device whose share",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        experiment(**settings).prepare()
