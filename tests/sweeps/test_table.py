"""The tables of a sweep, from values worked out by hand."""

import numpy as np
import pandas as pd

from h2fdp.sweeps.conduct import last_intervals, summary_of


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
    np.testing.assert_allclose(found["accuracy_mean"], [0.3, 0.6, 0.2, np.nan])
    np.testing.assert_allclose(found["epsilon_edge_mean"], [np.nan, np.nan, 4.0, 4.0])
    # Student: 12.70620 times half the difference of two runs
    np.testing.assert_allclose(
        found["accuracy_low"], [0.3 - 1.270620, 0.6 - 2.541241, 0.2 - 1.270620, np.nan], rtol=1e-6
    )
    np.testing.assert_allclose(found["accuracy_high"], [1.570620, 3.141241, 1.470620, np.nan], rtol=1e-6)
    assert found["epsilon_edge_low"].isna().tolist() == [True, True, False, True]


def test_nothing_finished_is_an_empty_table_with_its_columns():
    found = summary_of(table([]), ["method", "seed"])
    assert len(found) == 0
    assert {"method", "interval", "n", "accuracy_mean", "accuracy_low", "accuracy_high"} <= set(found.columns)
    assert len(last_intervals(found)) == 0
