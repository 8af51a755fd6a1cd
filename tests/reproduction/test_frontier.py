"""The study of the frontier: what it tries and chooses, its sweeps, and what its tables say of hand-made runs."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.frontier import FILE, HALF, SEARCH_SEED, SEEDS, Study, best, grid_of, stored
from experiments.frontier_mechanisms import EPSILONS, MECHANISMS, PLAIN
from experiments.frontier_page import BEGIN, END, Mean, between, cheapest, difference, frontier_table, joules_table
from h2fdp.sweeps.study import SharedInputs, read_study

BY_NAME = {each.name: each for each in MECHANISMS}


def test_every_mechanism_is_tried_equally_often_at_every_epsilon():
    for mechanism in MECHANISMS:
        assert tuple(mechanism.trials) == (EPSILONS if mechanism.private else (PLAIN,))
        for epsilon, trials in mechanism.trials.items():
            few = not mechanism.keys
            assert len({str(trial) for trial in trials}) == (1 if few else 5 if epsilon == EPSILONS[0] else 4)
            assert {len(trial) for trial in trials} == {len(mechanism.keys)}
    assert SEARCH_SEED not in SEEDS


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


def test_a_table_replaces_the_rows_of_points_that_were_run_again(tmp_path):
    file = tmp_path / "runs.csv"
    made = [("a", 0.0, 1.0, 0.1), ("b", 0.0, 1.0, 0.2), ("a", 0.0, 3.0, 0.4), ("a", "secure-sum", 1.0, 0.5)]
    for name, trust, epsilon, accuracy in (*made, ("a", 0.0, 1.0, 0.3)):
        row = {"data_set": "d", "mechanism": name, "trust": trust, "epsilon": epsilon, "accuracy": accuracy}
        stored(file, pd.DataFrame([row]), f"run {name}")
    lines = file.read_text().splitlines()
    assert lines[:3] == ["# run a", "# run b", "data_set,mechanism,trust,epsilon,accuracy"]
    assert sorted(lines[3:]) == ["d,a,0,1,0.3", "d,a,0,3,0.4", "d,a,secure-sum,1,0.5", "d,b,0,1,0.2"]


def test_an_interval_is_that_of_students_test():
    values = [78.1, 79.4, 77.9, 78.6, 80.2]
    mean = Mean.of(values)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (mean.value - mean.half, mean.value + mean.half) == pytest.approx((low, high))
    assert str(Mean.of([78.14])) == "78.1"


def runs_of(**accuracies):
    rows = [
        (name.replace("_", "-"), trust, 1.0, seed, value)
        for name, by_trust in accuracies.items()
        for trust, values in by_trust.items()
        for seed, value in enumerate(values, 1)
    ]
    return pd.DataFrame(rows, columns=["mechanism", "trust", "epsilon", "seed", "accuracy"])


def test_trust_is_worth_the_difference_under_equal_seeds():
    runs = runs_of(per_record={"0": [0.70, 0.72, 0.74], "1": [0.75, 0.78, 0.79]})
    found = difference(runs, ("per-record", "1"), ("per-record", "0"), 1.0)
    assert found is not None
    low, high = stats.ttest_rel([75, 78, 79], [70, 72, 74]).confidence_interval(0.95)
    assert (found.value - found.half, found.value + found.half) == pytest.approx((low, high))
    assert difference(runs, ("paper", "1"), ("per-record", "0"), 1.0) is None


def test_a_row_of_the_frontier_has_a_mean_for_each_epsilon_that_was_run():
    lines = list(frontier_table(runs_of(per_record={"0": [0.70, 0.72]}, none={"any": [0.8]})))
    assert lines[2:] == ["| per record | none | 71.0 ± 12.7 |", "| no noise | - |  |"]
    assert not any("paper" in line for line in lines)


def test_joules_at_equal_accuracy_are_those_of_the_cheapest_trial_that_is_as_good():
    columns = ["mechanism", "trust", "epsilon", "validation_accuracy", "energy_j"]
    rows = [
        ("per-record", "0", 1.0, 0.78, 30.0),
        ("noise-inside", "0", 1.0, 0.77, 4.0),
        ("per-record", "1", 1.0, 0.79, 12.0),
        ("per-record", "1", 1.0, 0.77, 6.0),
        ("paper", "1", 1.0, 0.99, 1.0),
    ]
    trials = pd.DataFrame(rows, columns=columns)
    assert cheapest(trials, "1", 1.0, 0.78) == 12.0
    assert cheapest(trials, "1", 1.0, 0.80) is None
    assert list(joules_table(trials))[2:] == ["| 1 | 78.0 | 30.0 | not run | 12.0 |"]


def test_a_page_is_written_between_its_markers():
    page = f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    assert between(page, iter(["new"])) == f"before\n\n{BEGIN}\n\nnew\n\n{END}\n\nafter\n"
    assert between(between(page, iter(["new"])), iter(["new"])) == between(page, iter(["new"]))


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
