"""The study of the frontier: what it tries and chooses, its sweeps, and what its tables say of hand-made runs."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.frontier import FILE, HALF, SEARCH_SEED, Study, best, grid_of
from experiments.frontier_mechanisms import MECHANISMS
from experiments.frontier_page import Mean
from h2fdp.sweeps.study import SharedInputs, read_study

BY_NAME = {each.name: each for each in MECHANISMS}


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.name)
def test_a_sweep_has_the_runs_of_its_points_and_every_account_is_by_pld(mechanism):
    epsilon, trials = next(iter(mechanism.trials.items()))
    points = [(trust, epsilon, trial) for trust in mechanism.networks for trial in trials[:2]]
    shared = SharedInputs()
    study = read_study(FILE, [*mechanism.settings, *grid_of(mechanism, points, (7, 8))], shared)
    assert len(study.runs) == 2 * len(points)  # of two seeds
    for planned in study.runs:
        config, topology = shared.experiment(study.document, planned.settings)
        values = planned.point.values
        assert config.seed in (7, 8)
        if mechanism.keys:
            assert config.training.intervals == values["training.intervals"]
        assert config.privacy.calibration == ("accounted" if mechanism.private else "paper")
        assert (config.privacy.accountant, config.privacy.delta) == ("pld", 1e-5)
        if mechanism.private:
            assert config.privacy.epsilon == epsilon
        if mechanism.by_trust:
            share = {0.0: [0], 0.5: range(1, 10), 1.0: [10]}[values["topology.trust.probability"]]
            assert sum(subnet.trust == "trusted" for subnet in topology.subnets) in share
        if mechanism.name == "secure-sum":
            assert {subnet.trust for subnet in topology.subnets} == {"secure-sum"}


def trials_of(*rows):
    columns = ["trust", "epsilon", "setting", "validation_accuracy"]
    return pd.DataFrame(rows, columns=columns)


def test_the_best_validation_accuracy_chooses_and_of_equal_ones_the_first():
    table = trials_of((0.0, 1.0, "a", 0.7), (0.0, 1.0, "b", 0.8), (0.0, 1.0, "c", 0.8), (0.0, 3.0, "a", 0.9))
    assert best(table, 0.0, 1.0) == "b"
    assert best(table, 0.0, 3.0) == "a"


def test_between_the_ends_it_is_the_better_of_what_was_best_at_either():
    rows = [(0.0, 1.0, "a", 0.70), (0.0, 1.0, "b", 0.60), (0.0, 1.0, "c", 0.69)]
    rows += [(1.0, 1.0, "a", 0.71), (1.0, 1.0, "b", 0.80), (1.0, 1.0, "c", 0.79)]
    assert best(trials_of(*rows), HALF, 1.0) == "a"  # c has the best mean, but was best at neither end
    assert best(trials_of(*rows[:1], (0.0, 1.0, "b", 0.62), *rows[2:]), HALF, 1.0) == "b"


def test_an_interval_is_that_of_students_test():
    values = [78.1, 79.4, 77.9, 78.6, 80.2]
    mean = Mean.of(values)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (mean.value - mean.half, mean.value + mean.half) == pytest.approx((low, high))
    assert str(Mean.of([78.14])) == "78.1"


@pytest.mark.run
def test_the_study_searches_on_validation_data_and_ends_on_test_data(tmp_path):
    """Two trials on digits; the second command finds everything done, and says the same."""
    small = replace(BY_NAME["per-record"], trials={8.0: ((2, 0.001), (2, 1.0))}, networks=(0.0, 1.0))
    studies = [Study(small, "digits", tmp_path, seeds=(1, 2), jobs=1) for _ in range(2)]
    trials = studies[0].search()
    assert len(trials) == 4
    assert set(trials["seed"]) == {SEARCH_SEED}
    assert trials["validation_accuracy"].notna().all()
    runs = studies[0].final(trials)
    assert len(runs) == 4
    assert set(runs["setting"]) == {best(trials, 0.0, 8.0), best(trials, 1.0, 8.0)}
    assert runs["validation_accuracy"].isna().all()
    assert (runs["accounted"] <= 8.0).all()
    assert (runs["accounted"] > 7.9).all()
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")}
    pd.testing.assert_frame_equal(studies[1].final(studies[1].search()), runs)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("summary.json")} == made
    assert np.isfinite(runs["energy_j"]).all()
    assert not math.isnan(runs["clock_s"].sum())
