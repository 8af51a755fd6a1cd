"""ALI-DPFL's first version: every column of its tables is a valid sweep, and the page says what the runs say."""

import math

import pandas as pd
import pytest

from experiments.ali_first import COLUMNS, FILE, RULE, choices_of, constants_of, left_of, settings_of, table_of, word
from h2fdp.experiment.file import named_document, parse_setting
from h2fdp.sweeps.study import SharedInputs, study_of

SHARED = SharedInputs()


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_a_sweep_whose_budget_is_the_printed_one(name):
    column = COLUMNS[name]
    study = study_of(named_document(FILE), [parse_setting(each) for each in settings_of(column, [1, 2])], SHARED)
    rules = int(column.rounds < column.iterations)
    assert len(study.runs) == 2 * (len(column.fixed) + rules)
    config, _ = SHARED.experiment(study.document, study.runs[0].settings)
    assert config.training.intervals == column.rounds
    assert config.privacy.epsilon == column.epsilon


def test_rows_are_named_by_the_schedule_of_a_run():
    assert word({"name": "fixed"}, 3) == "tau = 3"
    assert word({"name": "x/experiments.ali_dpfl:AliDpflFirst", "nearness": 1.0}, 1) == RULE


def test_the_table_has_means_with_intervals_beside_the_papers_numbers_and_the_rules_lead_seed_by_seed():
    rows = [("III-2", "tau = 2", seed, value, 2.0, 316) for seed, value in ((1, 0.5), (2, 0.52))]
    rows += [("III-2", "ali-dpfl-v1", seed, value, 1.5, 237) for seed, value in ((1, 0.52), (2, 0.53))]
    runs = pd.DataFrame(rows, columns=["column", "schedule", "seed", "accuracy", "mean_tau", "steps"])
    _, _, adaptive, fixed = table_of(runs)
    assert adaptive == "| III, 2, 158, 317 | ali-dpfl-v1 | 52.5 ± 6.4 | 83.44 |  |  | 2 | 1.50 |"
    # leads of 2 and 1 points: 1.5 -+ 12.706 * 0.707 / sqrt(2) for Student's quantile of one degree of freedom
    lead = "+1.5 [-4.9, 7.9]: undecided"
    assert fixed == f"| III, 2, 158, 317 | tau = 2 | 51.0 ± 12.7 | 83.20 | {lead} | +0.24 | 2 | 2.00 |"
    *_, alone = table_of(runs[runs["seed"] == 1])
    assert alone == "| III, 2, 158, 317 | tau = 2 | 50.0 | 83.20 | +2.0 | +0.24 | 1 | 2.00 |"
    assert "III at 2 with" not in left_of(runs)
    assert "IV at 2.75 with R_s = 158 (" in left_of(runs)


def test_the_choice_by_measured_constants_uses_up_both_budgets():
    decisions = [{"constants": {"R_s": 158}}] + [
        {"constants": {"rho": rho, "beta": 0.37, "xi": 0.7}} for rho in (0.03, 0.05)
    ]
    rho, beta, xi = constants_of(decisions)
    assert (round(rho, 9), beta, xi) == (0.04, 0.37, 0.7)
    assert all(math.isnan(each) for each in constants_of(decisions[:1]))
    runs = pd.DataFrame([{"column": "IV-2.75", "schedule": RULE, "rho": rho, "beta": beta, "xi": xi}])
    first, second = choices_of(runs)
    assert first.endswith("rho = 0.04, beta = 0.37, xi = 0.7 in the mean.")
    assert "1 at 0.001" in second  # no tau but 1 has a bound
    assert "5 at 1, 5 at 10" in second  # 387 iterations in 79 rounds
