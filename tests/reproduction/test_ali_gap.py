"""The study of what ALI-DPFL's program does otherwise: its grid is a valid one, and its page says what its runs say."""

from pathlib import Path

import pandas as pd
import pytest

from experiments.ali_gap import (
    ADAPTIVE,
    FILE,
    READINGS,
    SCHEDULES,
    SWEEPS,
    conclusions,
    schedules_table,
    stored,
    table_of,
)
from h2fdp.errors import UserError
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


def test_gains_are_taken_seed_by_seed_and_the_words_follow_the_numbers():
    """Gains of 3 and 5 points: 4 on average, 12.71 times a standard error of 1."""
    found = runs(text=[0.40, 0.50], partition=[0.43, 0.55], divisor=[0.30], program=[0.60, 0.62], steps=[0.7, 0.7])
    table = list(table_of(found))
    assert table[2].endswith("| 45.0 ± 63.5 | 2 |  | 35.2 |")
    assert table[3].endswith("| 49.0 ± 76.2 | 2 | +4.0 ± 12.7 | 31.2 |")
    assert table[4].endswith("| 30.0 | 1 | -10.0 | 50.2 |")
    best, helps, reached, longer = conclusions(found)
    assert helps.startswith("- Shown to help by itself: ")
    assert "(+4.0 ± 12.7 points, seeds: 2): Dirichlet(1)" in best
    assert "No reading of a paper or of the program reaches 80.17 %. The best has 61.0 %: all five" in reached
    assert "70.0 %: the second version's text" in longer
    *_, reached = conclusions(runs(text=[0.4], program=[0.81]))
    assert reached.startswith("- 81.0 % is reached by: all five")


def test_schedules_are_compared_seed_by_seed():
    table = list(schedules_table(runs(**{ADAPTIVE: [0.6, 0.7], "program-1.75-tau-10": [0.5, 0.62]})))
    assert table[2] == "| `ali-dpfl` | 65.0 ± 63.5 | 2 |  | 82.02 |"
    assert table[3] == "| tau = 10 | 56.0 ± 76.2 | 2 | +9.0 ± 12.7 | 76.32 |"
    assert list(schedules_table(runs(text=[0.5]))) == []


def test_what_is_shown_to_help_is_told_by_intervals():
    told = list(conclusions(runs(text=[0.5, 0.51, 0.52], model=[0.6, 0.61, 0.62], inputs=[0.5, 0.6, 0.4])))
    assert "- Shown to help by itself: `fedavg-cnn` (582,026 parameters) instead of `ali-cnn-28`." in told
    assert "- Shown to help by itself: none of the five." in conclusions(runs(text=[0.5, 0.5], model=[0.4, 0.9]))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["modell,1,0.5"], r"gap\.csv:2: reading: expected one of text, .* found modell"),
        (["text,1,0.5", "text,1,0.6"], r"gap\.csv:3: another line has this point and seed"),
        (["text,1,word"], r"gap\.csv:2: accuracy: expected a number, found word"),
        (["model,1,0.5"], "expected runs of the reading text, with which others are compared; found none"),
    ],
)
def test_a_damaged_table_is_told_by_its_line(tmp_path, lines, words):
    file = tmp_path / "gap.csv"
    rows = [f"{line},79,fashion-mnist" for line in lines]
    file.write_text("\n".join(["reading,seed,accuracy,steps,data_set", *rows]) + "\n")
    with pytest.raises(UserError, match=words):
        stored(file)
