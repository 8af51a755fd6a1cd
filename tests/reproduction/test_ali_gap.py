"""The study of what ALI-DPFL's program does otherwise: its grid is a valid one, and its page says what its runs say."""

from pathlib import Path

import pandas as pd

from experiments.ali_gap import (
    FILE,
    READINGS,
    SCHEDULES,
    SWEEPS,
)
from h2fdp.experiment.file import named_document, parse_setting
from h2fdp.sweeps.study import SharedInputs, study_of


def runs(**accuracies):
    rows = [(name, seed, value) for name, values in accuracies.items() for seed, value in enumerate(values, 1)]
    return pd.DataFrame(rows, columns=["reading", "seed", "accuracy"])


def test_every_reading_is_a_run_that_could_be_made():
    found = {}
    for name, settings in SWEEPS.items():
        study = study_of(named_document(Path(FILE)), [parse_setting(each) for each in settings], SharedInputs())
        for planned in study.runs:
            found.setdefault(planned.point.values["name"], []).append((name, planned.point.values["seed"]))
    assert found.keys() == READINGS.keys() | SCHEDULES.keys()
    assert all(len(set(each)) == len(each) for each in found.values()), "no run is made twice"
    assert all(sorted(seed for _, seed in each) == [1, 2, 3, 4, 5] for each in found.values())
