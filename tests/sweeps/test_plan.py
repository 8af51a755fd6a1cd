"""Reading a study: every run checked, every problem told at once and by its line, before anything is made."""

import numpy as np
import pandas as pd
import pytest
import yaml

from h2fdp import UserError, sweep
from h2fdp.sweeps.conduct import last_intervals, summary_of
from h2fdp.sweeps.plan import SharedInputs, read_sweep
from tests.sweeps.studies import BASE, TOPOLOGY, study


def read(path, *settings):
    return read_sweep(path, settings, SharedInputs())


def problems(path, *settings):
    with pytest.raises(UserError) as error:
        read(path, *settings)
    return [str(problem) for problem in error.value.problems]


def test_wrong_values_are_told_by_their_lines_all_at_once_and_nothing_is_made(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(f"{BASE}sweep:\n  seed: [1, -3]\n  privacy.epsilon:\n    - 1\n    - -1\n  training.stepsize: [1]\n")
    assert problems(path) == [
        f"{path}:12: training.stepsize: unknown key; did you mean `step_size`?",
        f"{path}:11: privacy.epsilon: expected a number from 1e-9 to 1e9, found -1",
        f"{path}:8: seed: expected a whole number of at least 0, found -3",
    ]
    with pytest.raises(UserError):
        sweep(path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_mistake_outside_of_the_sweep_says_which_runs_meet_it(tmp_path):
    base = BASE.replace("calibration: paper", "calibration: accounted")
    (told,) = problems(study(tmp_path, "{seed: [1], method: [h2fdp, hfl]}", base))
    assert "privacy.calibration: this method adds no noise; leave the key out" in told
    assert told.endswith("(in seed=1,method=hfl)")


def test_settings_change_the_study_and_those_of_sweep_its_grid(tmp_path):
    found = read(study(tmp_path), "training.intervals=7", "sweep.privacy.epsilon=[3]", "sweep.training.step_size=[1]")
    assert [run.point.name for run in found.runs] == [
        f"seed={seed},privacy.epsilon=3,training.step_size=1" for seed in (1, 2)
    ]
    assert {run.intervals for run in found.runs} == {7}


def test_a_swept_key_is_not_set_as_well(tmp_path):
    assert problems(study(tmp_path), "seed=3") == ["--set: seed: is part of the sweep; expected sweep.seed=[...]"]


def test_topologies_are_reached_into_and_found_beside_the_file(tmp_path):
    (tmp_path / "net.yaml").write_text("edges: [{name: a, devices: {count: 2}}]\ntrust: {probability: 0}\n")
    base = BASE.replace(TOPOLOGY, "net.yaml")
    path = study(tmp_path, "{topology.trust.probability: [0, 1]}", base)
    assert len({run.digest for run in read(path).runs}) == 2
    other = study(tmp_path, "{topology: [net.yaml]}", BASE, "other.yaml")
    assert len(read(other).runs) == 1


def test_the_written_study_stands_for_itself(tmp_path):
    (tmp_path / "net.yaml").write_text("edges: [{name: a, devices: {count: 2}}]\n")
    path = study(tmp_path, '{"topology, seed": [[net.yaml, 1], [net.yaml, 2]]}', BASE)
    found = read(path, "training.intervals=9")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "study.yaml").write_text(found.text())
    again = read(elsewhere / "study.yaml")
    assert [run.digest for run in again.runs] == [run.digest for run in found.runs]
    assert yaml.safe_load(found.text())["training"]["intervals"] == 9


def table(rows):
    return pd.DataFrame(rows, columns=["run", "method", "seed", "interval", "accuracy", "epsilon_edge"])


ROWS = [
    ("a1", "hfl", 1, 1, 0.2, None),
    ("a1", "hfl", 1, 2, 0.4, None),
    ("a2", "hfl", 2, 1, 0.4, None),
    ("a2", "hfl", 2, 2, 0.8, None),
    ("b1", "h2fdp", 1, 1, 0.1, 3.0),
    ("b1", "h2fdp", 1, 2, np.nan, 4.0),
    ("b2", "h2fdp", 2, 1, 0.3, 5.0),
]


def test_means_are_over_seeds_for_each_combination_and_interval():
    found = summary_of(table(ROWS), ["method", "seed"])
    assert found[["method", "interval", "n"]].to_numpy().tolist() == [
        ["hfl", 1, 2],
        ["hfl", 2, 2],
        ["h2fdp", 1, 2],
        ["h2fdp", 2, 1],
    ]
    # b2 is over after its first interval and stays there; what b1 does not know at its end is as it was.
    np.testing.assert_allclose(found["accuracy_mean"], [0.3, 0.6, 0.2, 0.2])
    np.testing.assert_allclose(found["epsilon_edge_mean"], [np.nan, np.nan, 4.0, 4.5])
    # Student: 12.70620 times half the difference of two runs
    np.testing.assert_allclose(
        found["accuracy_low"], [0.3 - 1.270620, 0.6 - 2.541241, 0.2 - 1.270620, 0.2 - 1.270620], rtol=1e-6
    )
    np.testing.assert_allclose(found["accuracy_high"], [1.570620, 3.141241, 1.470620, 1.470620], rtol=1e-6)
    assert found["epsilon_edge_low"].isna().tolist() == [True, True, False, False]


def test_what_was_set_in_each_interval_has_no_mean_after_a_run_has_ended_since_it_would_jump():
    rows = table(ROWS).assign(step_size=[4.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0])
    found = summary_of(rows, ["method", "seed"])
    np.testing.assert_allclose(found["step_size_mean"], [3.0, 2.0, 3.0, np.nan])


def test_nothing_finished_is_an_empty_table_with_its_columns():
    found = summary_of(table([]), ["method", "seed"])
    assert len(found) == 0
    assert {"method", "interval", "n", "accuracy_mean", "accuracy_low", "accuracy_high"} <= set(found.columns)
    assert len(last_intervals(found)) == 0
