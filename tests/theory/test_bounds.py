"""The formulas against the paper's equations, written out once more in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.control.convergence import LossConstants, Timing, convergence_bound, dispersion_bounds
from h2fdp.schedules.problem import PrivacyTerms, largest_first_step_size


def paper(beta, sigma, zeta, zeta_c, tau, k_l, k_g, gamma, m, q, g, eps, delta, c2, v2, p, s, gap):
    """B1^2, B2^2, Phi, (a1, a2, b) printed and corrected: Prop. 4.2 with B.1's sum, Eq. (33), the correction."""
    n = len(p)
    eta0 = gamma
    b1 = 0.0
    for c in range(n):
        b1 += 1 / n * (2 * sigma + zeta_c[c]) ** 2
    b1 *= ((1 + 2 * eta0 * beta) ** (tau - 1) + 1) ** 2
    total = 0.0
    for c in range(n):
        total += p[c] * c2**2 / s[c] ** 2 + (1 - p[c]) * v2**2 / s[c]
    phi = []
    for c in range(n):
        front = 2 * tau * g * q * math.sqrt(m * k_l * math.log(1 / delta)) / (eps * n)
        roots = math.sqrt(total) + n * math.sqrt(p[c] * c2**2 / s[c] ** 2 + (1 - p[c]) * v2**2 / s[c])
        inner = front * roots + 2 * b1 + 2 * sigma + zeta
        phi.append(inner * ((1 + 2 * eta0 * beta) ** (tau - 1) + 1) + 2 * b1 + 2 * sigma + zeta)
    b2 = (1 + eta0 * beta) ** (2 * (tau - 1)) * sum(x**2 for x in phi) / n
    b = 4 * tau * (k_l**3 + 1) * m * q**2 * g**2 * math.log(1 / delta) / (n**2 * eps**2) * total
    printed = (
        2 * gamma * gap / (tau * math.sqrt(k_g + 1)),
        beta * gamma / math.sqrt(k_g + 1) * (beta * tau * (b1 + b2) + g**2 + tau * sigma**2),
        b,
    )
    corrected = (
        2 * gap / (gamma * tau * math.sqrt(k_g)),
        beta * gamma * (1 + math.log(k_g)) / math.sqrt(k_g) * (beta * tau * (b1 + b2) + tau * g**2 + tau * sigma**2),
        2 * b,
    )
    return b1, b2, phi, printed, corrected


positive = st.floats(0.01, 100)
level = st.floats(0, 10)


@st.composite
def cases(draw):
    subnets = draw(st.integers(1, 5))
    each = lambda what: draw(st.lists(what, min_size=subnets, max_size=subnets))  # noqa: E731
    tau, k_g, beta = draw(st.integers(1, 30)), draw(st.integers(1, 300)), draw(positive)
    return {
        "beta": beta,
        "sigma": draw(level),
        "zeta": draw(level),
        "zeta_c": each(level),
        "tau": tau,
        "k_l": draw(st.integers(0, tau - 1)),
        "k_g": k_g,
        "gamma": draw(st.floats(0.1, 1)) * min(1 / tau, 1 / k_g) / beta,
        "m": draw(st.integers(1, 10_000)),
        "q": draw(st.floats(0.001, 1)),
        "g": draw(positive),
        "eps": draw(positive),
        "delta": draw(st.floats(1e-9, 0.5)),
        "c2": draw(positive),
        "v2": draw(positive),
        "p": each(st.sampled_from([0.0, 1.0, 0.3])),
        "s": each(st.integers(1, 50)),
        "gap": draw(level),
    }


def arguments(case):
    constants = LossConstants(case["beta"], case["sigma"], case["zeta"], np.array(case["zeta_c"]))
    timing = Timing(case["tau"], case["k_l"], case["k_g"], case["gamma"])
    terms = PrivacyTerms(case["m"], case["q"], case["g"], case["eps"], case["delta"], case["c2"], case["v2"])
    return constants, timing, terms, np.array(case["p"]), np.array(case["s"])


def parts(form, case):
    bound = convergence_bound(form, case["gap"], *arguments(case))
    return bound.start, bound.drift, bound.privacy


def total(form, case):
    return convergence_bound(form, case["gap"], *arguments(case)).total


@given(cases())
def test_dispersion_is_the_papers(case):
    b1, b2, phi, _, _ = paper(**case)
    bounds = dispersion_bounds(*arguments(case))
    assert bounds.within == pytest.approx(b1)
    assert bounds.between == pytest.approx(b2)
    assert bounds.subnet_drift == pytest.approx(phi)
    assert bounds.within_subnets(0.01) == pytest.approx(0.01 * case["tau"] * b1)
    assert bounds.between_subnets(0.01) == pytest.approx(0.01 * case["tau"] * b2)


@given(cases())
def test_both_forms_are_the_papers_part_by_part(case):
    *_, printed, corrected = paper(**case)
    assert parts("printed", case) == pytest.approx(printed)
    assert parts("corrected", case) == pytest.approx(corrected)
    assert total("printed", case) == pytest.approx(sum(printed))


@given(positive, st.integers(1, 10_000), st.integers(1, 10_000))
def test_the_largest_step_size_is_allowed_whatever_the_rounding(smoothness, tau, intervals):
    first = largest_first_step_size(smoothness, tau, intervals)
    assert first == pytest.approx(min(1 / tau, 1 / intervals) / smoothness)
    constants = LossConstants(smoothness, 0.0, 0.0, np.zeros(1))
    terms = PrivacyTerms(1, 0.1, 1.0, math.inf, 1e-5)
    dispersion_bounds(constants, Timing(tau, 0, intervals, first), terms, np.zeros(1), np.ones(1))
