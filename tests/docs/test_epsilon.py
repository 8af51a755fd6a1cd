"""The figures of the page on epsilon: of the definition, of the best test of two Gaussians, of the defaults."""

from math import exp

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tests.docs.reader import REPOSITORY

PAGE, DEFAULTS = ((REPOSITORY / "docs" / name).read_text() for name in ("epsilon.md", "defaults.md"))


def row(page, head):
    line = next(line for line in page.splitlines() if line.startswith(f"| {head} |"))
    return [cell.split()[0] for cell in line.strip("| ").split("|")][1:]


@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
def test_odds_and_guesses_are_those_of_epsilon(epsilon):
    def excess(mu):  # of the delta of one Gaussian mechanism (Balle and Wang 2018), over the page's
        return norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - 1e-5

    odds, most, gaussian = map(float, row(PAGE, epsilon))
    assert odds == pytest.approx(exp(epsilon), rel=0.01)
    assert most == pytest.approx(100 * exp(epsilon) / (1 + exp(epsilon)), abs=0.05)
    assert gaussian == pytest.approx(100 * norm.cdf(brentq(excess, 0.01, 10) / 2), abs=0.05)


@pytest.mark.parametrize("trusted", ["none", "all"])
def test_accuracies_are_those_of_the_defaults(trusted):
    reached = row(DEFAULTS.split("## What it reaches")[1], trusted)
    assert row(PAGE, trusted) == [reached[0], reached[2], reached[4]]
