"""The command that writes a page, and the intervals of what it shows."""

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from h2fdp.cli.main import app
from h2fdp.reports.sweep_numbers import CONFIDENCE, means_with_intervals


def call(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_says_what_it_wrote(spoilt):
    run = spoilt("open")
    done = call(run)
    assert (done.exit_code, done.output.strip()) == (0, str(run / "report.html"))
    assert call(run, "--out", run / "a/b/c.html").exit_code == 0  # folders are made
    assert (run / "a/b/c.html").is_file()


def test_the_interval_is_scipys():
    values = np.random.default_rng(1).normal(0.8, 0.1, size=(7, 4))
    found = means_with_intervals(values)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(CONFIDENCE)
    np.testing.assert_allclose([found.low, found.high], theirs, rtol=1e-12)


@pytest.mark.parametrize("runs", [2, 5])
def test_the_mean_is_covered_in_95_of_100_cases(runs):
    """10,000 samples: five standard errors of the share; fails once in two million. Intervals of two thirds or one and
    a half of the width are told apart."""
    found = means_with_intervals(np.random.default_rng(runs).normal(size=(runs, 10_000)))

    def covered(width):
        low, high = (found.mean + width * (end - found.mean) for end in (found.low, found.high))
        return np.mean((low <= 0) & (high >= 0))

    allowed = 5 * np.sqrt(0.95 * 0.05 / 10_000)
    assert abs(covered(1) - CONFIDENCE) < allowed
    assert abs(covered(2 / 3) - CONFIDENCE) > allowed
    assert abs(covered(3 / 2) - CONFIDENCE) > allowed


def test_what_a_run_does_not_know_is_left_out():
    values = np.array([[1.0, np.nan, 3.0], [2.0, np.nan, np.nan], [np.nan, np.nan, np.nan]])
    found = means_with_intervals(values)
    np.testing.assert_equal(found.mean, [1.5, np.nan, 3.0])
    np.testing.assert_equal(np.isnan(found.low), [False, True, True])
    assert found.high[0] == pytest.approx(1.5 + 12.706 * np.sqrt(0.5) / np.sqrt(2), abs=1e-3)
