"""The study of the frontier: what it tries and chooses, its sweeps, and what its tables say of hand-made runs."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from experiments.frontier.mechanisms import MECHANISMS
from experiments.frontier.runs import FILE, SEARCH_SEED, Study, best, grid_of
from h2fdp.sweeps.plan import SharedInputs, read_sweep

BY_NAME = {each.name: each for each in MECHANISMS}


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.name)
def test_a_sweep_has_the_runs_of_its_points_and_every_account_is_by_pld(mechanism):
    epsilon, trials = next(iter(mechanism.trials.items()))
    points = [(trust, epsilon, trial) for trust in mechanism.networks for trial in trials[:2]]
    shared = SharedInputs()
    study = read_sweep(FILE, [*mechanism.settings, *grid_of(mechanism, points, (7, 8))], shared)
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
