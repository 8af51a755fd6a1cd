"""The study of what ALI-DPFL's program does otherwise: its grid is a valid one, and its page says what its runs say."""

from pathlib import Path

import pandas as pd

from experiments.ali_gap import FILE, READINGS, SWEEPS, conclusions, table_of
from h2fdp.experiment.file import named_document, parse_setting
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.study import study_of


def runs(**accuracies):
    rows = [(name, seed, value) for name, values in accuracies.items() for seed, value in enumerate(values, 1)]
    return pd.DataFrame(rows, columns=["reading", "seed", "accuracy"])


def test_every_reading_is_a_run_that_could_be_made():
    found = {}
    for name, settings in SWEEPS.items():
        study = study_of(named_document(Path(FILE)), [parse_setting(each) for each in settings], SharedInputs())
        for planned in study.runs:
            found.setdefault(planned.point.values["name"], []).append((name, planned.point.values["seed"]))
    assert found.keys() == READINGS.keys()
    assert all(len(set(each)) == len(each) for each in found.values()), "no run is made twice"
    assert all(sorted(seed for _, seed in each) == [1, 2, 3, 4, 5] for each in found.values())


def test_gains_are_taken_seed_by_seed_and_the_words_follow_the_numbers():
    """Gains of 3 and 5 points: 4 on average, 12.71 times a standard error of 1."""
    found = runs(text=[0.40, 0.50], partition=[0.43, 0.55], divisor=[0.30], program=[0.60, 0.62], steps=[0.7, 0.7])
    table = list(table_of(found))
    assert table[2].endswith("| 45.0 ± 63.5 | 2 |  | 35.2 |")
    assert table[3].endswith("| 49.0 ± 76.2 | 2 | +4.0 ± 12.7 | 31.2 |")
    assert table[4].endswith("| 30.0 | 1 | -10.0 | 50.2 |")
    best, reached, longer = conclusions(found)
    assert "(+4.0 points, seeds: 2): Dirichlet(1)" in best
    assert "No reading of a paper or of the program reaches 80.17 %. The best has 61.0 %: all five" in reached
    assert "70.0 %: the second version's text" in longer
    *_, reached = conclusions(runs(text=[0.4], program=[0.81]))
    assert reached.startswith("- 81.0 % is reached by: all five")
