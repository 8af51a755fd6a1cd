"""Canaries are spread, guessed and scored as the audit's theory assumes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from h2fdp.audit.canaries import CanaryDesign, CanaryEffect, TurningEffect, log_likelihood_ratio
from h2fdp.audit.run_audit import guess
from h2fdp.streams import Streams


def test_canaries_are_spread_evenly_and_each_is_in_by_a_fair_coin():
    design = CanaryDesign.drawn(Streams(1), "dirac", 4000, devices=np.array([2, 3, 7]))
    owners, counts = np.unique(design.owners, return_counts=True)
    assert owners.tolist() == [2, 3, 7]
    assert counts.max() - counts.min() <= 1
    assert abs(design.included.mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)
    assert [len(each) for each in design.coordinates(9)] == [0, 0, 1334, 1333, 0, 0, 0, 1333, 0]
    assert sorted(np.concatenate(design.coordinates(9))) == list(range(4000))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.data())
def test_the_largest_are_guessed_in_and_the_smallest_out(scores, data):
    guesses = data.draw(st.integers(1, len(scores)))
    called = guess(np.array(scores), guesses)
    assert np.sum(called == -1) == guesses // 2
    assert np.sum(called == 1) == guesses - guesses // 2
    ranked = np.array(scores)
    assert max(ranked[called == -1], default=-9) <= min(ranked[called == 0], default=9)
    assert max(ranked[called == 0], default=-9) <= min(ranked[called == 1])


def test_the_score_is_the_ratio_of_the_mixtures_density_to_the_gaussians():
    x, shift, noise, steps, rate = np.linspace(-3, 6, 7), 0.7, 1.3, 4, 0.3
    inside = sum(binom.pmf(k, steps, rate) * norm.pdf(x, shift * k, noise) for k in range(steps + 1))
    expected = np.log(inside / norm.pdf(x, 0, noise))
    np.testing.assert_allclose(log_likelihood_ratio(x, shift, noise, steps, rate), expected, rtol=1e-12)


@pytest.mark.parametrize("segments", [(3,), (2, 1), (2, 2)])
def test_the_score_of_a_turning_canary_is_that_of_its_law(segments):
    """By hand: the first draw of a segment turns that step and all later ones; without a draw all go down."""
    rate, length, noise, unit = 0.3, 2.0, 1.7, 0.4
    inside = {0: 1.0}
    for m in segments:
        turned = {m - j: rate * (1 - rate) ** j for j in range(m)} | {0: (1 - rate) ** m}
        sums = [(a + b, p * q) for a, p in inside.items() for b, q in turned.items()]
        inside = {at: sum(chance for place, chance in sums if place == at) for at, _ in sums}
    x = np.linspace(-5, 5, 9)

    def density(steps):
        return norm.pdf(x, unit * length * (2 * steps - sum(segments)), noise)

    expected = sum(chance * density(at) for at, chance in inside.items()) / density(0)
    found = TurningEffect(own=length, others=length).score(x, unit, noise, segments, rate)
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scope", ["batch", "record"])
@pytest.mark.parametrize("kind", ["dirac", "dominating"])
@pytest.mark.parametrize(("records", "rate", "canaries"), [(3, 0.5, 1), (20, 0.1, 4)])
def test_the_expected_effect_agrees_with_simulated_batches(kind, scope, records, rate, canaries):
    """The first canary is in; the others are there with q / 2; dirac data gradients vanish, so nothing is clipped.

    Clipped records are divided by the number that is expected.
    """
    random, drawn, idle = np.random.default_rng(1), [], []
    for _ in range(4000):
        data = random.binomial(records, rate)
        others = np.flatnonzero(random.random(canaries - 1) < rate / 2) + 1
        for first, kept in ((True, drawn), (False, idle)):
            present = [0, *others] if first else list(others)
            total = np.zeros(canaries)
            if kind == "dominating" and scope == "batch":
                total -= data * 1e3
            total[present] += 1e9 if kind == "dominating" and scope == "batch" else 2.0
            gradient = total / (max(data + len(present), 1) if scope == "batch" else rate * records)
            kept.append(
                (gradient * min(1.0, 2.0 / max(np.linalg.norm(gradient), 1e-9)) if scope == "batch" else gradient)[0]
            )
    effect = CanaryEffect.expected(kind, scope, 2.0, records, rate, canaries)
    assert effect.shift == pytest.approx(np.mean(drawn) - np.mean(idle), abs=0.25)
    assert effect.baseline == pytest.approx(np.mean(idle), abs=0.15)
