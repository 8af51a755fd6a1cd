"""Costs until a target that not every run reaches."""

import numpy as np
import pandas as pd
import pytest

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import judge
from experiments.reproduction.results import Results
from experiments.reproduction.verdict import Verdict

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
