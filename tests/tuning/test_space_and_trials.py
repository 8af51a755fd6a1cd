"""Draws from ranges, the front of trials, early ends, and the noise that a budget asks for."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp import Experiment
from h2fdp.privacy.accounting.selection import TrialNumbers, budget_of_best
from h2fdp.run.forecast import planned_accounts
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.tuning.plan import read_plan
from h2fdp.tuning.price import share_of, with_facts, within
from h2fdp.tuning.results import Trial, front_of
from h2fdp.tuning.search import early_end
from tests.tuning.searches import BASE, search


def trial(number, accuracy, state="done", **costs):
    return Trial(number, {}, state, accuracy, {"joules": 1.0, "seconds": 1.0, "bytes": 1.0} | costs)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(points):
    trials = [trial(n, a / 4, joules=float(j), seconds=float(s)) for n, (a, j, s) in enumerate(points)]
    front = {each.number for each in front_of(trials, ("joules", "seconds"))}
    for number, (accuracy, joules, seconds) in enumerate(points):
        beaten = any(
            a >= accuracy and j <= joules and s <= seconds and (a, j, s) != (accuracy, joules, seconds)
            for a, j, s in points
        )
        assert (number in front) == (not beaten)


def test_a_trial_ends_over_a_limit_or_behind_at_a_check():
    row = {"interval": 3, "energy_j": 1.0, "validation_accuracy": 0.5}

    def reason(**changes):
        return early_end({"energy_j": 10.0}, 3, (0.5, 0.7), row | changes)

    assert reason() == ""
    assert reason(validation_accuracy=0.49) == "pruned"
    assert reason(interval=6) == "pruned"
    assert reason(interval=9, validation_accuracy=0.0) == ""  # nothing is asked for there
    assert reason(interval=4, validation_accuracy=0.0) == ""
    assert reason(energy_j=10.1) == "over a limit"
    assert reason(validation_accuracy=None) == ""


RANGES = """training.intervals: {uniform: [2, 5]}
    training.batch_size: {log: [1, 100]}
    training.step_size: {log: [0.01, 1]}
    training.momentum: {uniform: [0.0, 0.5]}
    "training.local_steps, training.aggregate_every": [[1, 1], [4, 2]]"""


def test_draws_lie_in_their_ranges(tmp_path):
    base = BASE.replace("batch_size: 8, ", "").replace("intervals: 4, local_steps: 1, aggregate_every: 1, ", "")
    path = search(tmp_path, RANGES, "", base)
    path.write_text(path.read_text().replace(", training.batch_size: [8]", ""))
    space = read_plan(path, (), SharedInputs()).space
    drawn = [space.values(space.draw(seed)) for seed in range(200)]
    assert {each["training.intervals"] for each in drawn} == {2, 3, 4, 5}
    assert {(each["training.local_steps"], each["training.aggregate_every"]) for each in drawn} == {(1, 1), (4, 2)}
    assert all(isinstance(each["training.batch_size"], int) for each in drawn)
    assert all(1 <= each["training.batch_size"] <= 100 for each in drawn)
    below = np.mean([each["training.step_size"] <= 0.1 for each in drawn])  # half of the logarithmic scale
    assert below == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(200))
    assert all(0 <= each["training.momentum"] <= 0.5 for each in drawn)
    assert space.draw(3) == space.draw(3) != space.draw(4)


@pytest.fixture(scope="module")
def prepared():
    experiment = Experiment(
        data={"name": "digits", "validation": 0.1}, method="h2fdp", intervals=3, local_steps=1, aggregate_every=1,
        clip_scope="record", clip_norm=1.0, calibration="accounted", epsilon=2.0,
    )  # fmt: skip
    return experiment.prepare()


def test_the_noise_of_a_trial_takes_its_budget_and_is_stated_as_an_epsilon(prepared, tmp_path):
    budget = budget_of_best(TrialNumbers.of_mean(10), 2.0, 1e-5)
    held = within(prepared, budget.bounds)
    taken = {
        observer: max(share_of(each.composition, budget.bounds) for each in planned_accounts(held).classes(observer))
        for observer in held.observers
    }
    assert all(share <= 1 for share in taken.values())
    assert max(taken.values()) > 0.99
    assert held.target == held.config.privacy.epsilon < 1.5  # of the 2 that all of the search may take
    with_facts(tmp_path / "facts" / "x.json", None, prepared)
    facts = json.loads((tmp_path / "facts" / "x.json").read_text())
    assert facts["validation_records"] == len(prepared.data.validation) == 143
