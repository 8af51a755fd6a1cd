"""Numbers of a run by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import judge
from experiments.reproduction.measures import MEASURES, reachable
from experiments.reproduction.results import Results
from experiments.reproduction.verdict import Verdict


def rows(accuracy, **columns):
    count = len(accuracy)
    return pd.DataFrame({"interval": range(1, count + 1), "accuracy": accuracy, **columns})


def test_final_accuracy_is_the_mean_of_the_last_tenth_in_points():
    assert MEASURES["final accuracy"].of(rows([0.0] * 18 + [0.5, 0.7]), 0) == pytest.approx(60)
    assert MEASURES["final accuracy"].of(rows([0.2, 0.9]), 0) == pytest.approx(90)


def test_volatility_is_of_changes_so_a_steady_rise_has_none():
    assert MEASURES["volatility"].of(rows(np.linspace(0, 0.9, 20)), 0) == pytest.approx(0)
    zigzag = rows([0.9] * 10 + [0.5, 0.6] * 5)
    assert MEASURES["volatility"].of(zigzag, 0) == pytest.approx(100 * np.std([0.1, -0.1] * 4 + [0.1], ddof=1))


def test_cost_is_what_was_spent_when_the_mean_of_five_reaches_the_target():
    run = rows([0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5], energy_j=range(1, 10), delay_s=range(10, 100, 10))
    assert MEASURES["energy to target"].of(run, 30) == 7
    assert MEASURES["delay to target"].of(run, 50) == 90
    assert math.isnan(MEASURES["energy to target"].of(run, 51))


def test_a_target_beyond_reach_gives_way_to_what_all_runs_reach():
    runs = [rows([0.6] * 6), rows([0.8] * 6)]
    assert reachable(runs, 75) == pytest.approx(60)
    assert reachable(runs, 50) == 50


CLAIM = Claim.model_validate(
    {
        "id": "saves",
        "figure": "one",
        "source": "Sec. 1",
        "words": "a saves energy until the target, against b",
        "measure": "energy to target",
        "target": 75,
        "comparison": "saving",
        "points": [[{"method": "a"}, {"method": "b"}]],
        "paper": {"digits": 20},
    }
)


def results(most_of_a, most_of_b, most_of_c=0.1):
    """Three methods under two seeds, whose accuracy rises evenly; a spends half of what the others do."""
    values, tables = {}, []
    for method, most, joules in (("a", most_of_a, 1.0), ("b", most_of_b, 2.0), ("c", most_of_c, 2.0)):
        for seed in (1, 2):
            run = f"{method}{seed}"
            values[run] = {"method": method, "seed": seed}
            steps = np.arange(1, 101)
            rows = {"run": run, "interval": steps, "accuracy": most * np.minimum(1, steps / 80)}
            tables.append(pd.DataFrame(rows | {"energy_j": joules * steps}))
    return Results(values, pd.concat(tables))


def test_a_target_that_both_runs_reach_is_the_papers():
    judged = judge(CLAIM, "digits", results(0.8, 0.8))
    assert (judged.verdict, judged.target) == (Verdict.HOLDS, 75)
    assert judged.finding.size.value == pytest.approx(50)


def test_at_a_lower_target_a_claim_holds_in_direction_at_most():
    judged = judge(CLAIM, "digits", results(0.8, 0.6))
    assert judged.verdict is Verdict.IN_DIRECTION
    assert judged.target == pytest.approx(60)
