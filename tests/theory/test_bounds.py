"""The formulas against the paper's equations, written out once more in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from experiments.convergence import LossConstants, Timing, convergence_bound, dispersion_bounds
from h2fdp.errors import UserError
from h2fdp.schedules.privacy_gap import PrivacyTerms, largest_first_step_size


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


@pytest.mark.slow
@given(
    cases(), st.sampled_from(["sigma", "zeta", "g", "gap", "c2", "v2", "m"]), st.sampled_from(["printed", "corrected"])
)
def test_bounds_grow_with_noise_dispersion_and_distance(case, name, form):
    assert total(form, case | {name: 2 * case[name]}) >= total(form, case) * (1 - 1e-12)


@given(cases(), st.sampled_from(["printed", "corrected"]))
def test_bounds_fall_with_more_devices_and_a_looser_target(case, form):
    now = total(form, case) * (1 + 1e-12)
    assert total(form, case | {"s": [2 * s for s in case["s"]]}) <= now
    assert total(form, case | {"eps": 2 * case["eps"]}) <= now


@given(cases())
def test_the_corrected_bound_is_above_the_printed_one_where_the_step_size_is_at_most_1(case):
    assume(case["gamma"] <= 1)
    assert total("corrected", case) >= total("printed", case)


@given(cases())
def test_without_noise_no_privacy_part_and_only_dispersion_between_subnets(case):
    bound = convergence_bound("corrected", case["gap"], *arguments(case | {"eps": math.inf}))
    assert bound.privacy == 0.0
    alone = case | {"eps": math.inf, "sigma": 0.0, "zeta": 0.0, "zeta_c": [0.0] * len(case["p"])}
    bounds = dispersion_bounds(*arguments(alone))
    assert bounds.within == bounds.between == 0.0


@given(cases())
def test_one_local_step_leaves_no_room_for_drift_to_compound(case):
    case |= {"tau": 1, "k_l": 0, "gamma": 1 / case["beta"] / case["k_g"]}
    assert dispersion_bounds(*arguments(case)).within == pytest.approx(
        4 * np.mean([(2 * case["sigma"] + z) ** 2 for z in case["zeta_c"]])
    )


CASE = {
    "beta": 2.0,
    "sigma": 0.1,
    "zeta": 0.2,
    "zeta_c": [0.1, 0.3],
    "tau": 5,
    "k_l": 2,
    "k_g": 10,
    "gamma": 0.05,
    "m": 10,
    "q": 0.1,
    "g": 1.0,
    "eps": 1.0,
    "delta": 1e-5,
    "c2": 1.0,
    "v2": 1.0,
    "p": [0.0, 1.0],
    "s": [5, 5],
    "gap": 1.0,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": 0.0}, "smoothness: expected a finite number above 0, found 0.0"),
        ({"beta": math.nan}, "smoothness: expected a finite number above 0, found nan"),
        ({"sigma": -1.0}, "minibatch_deviation: expected numbers of at least 0, found -1.0"),
        ({"zeta_c": [0.1, -0.3]}, "subnet_dispersion: expected numbers of at least 0, found -0.3"),
        ({"k_g": math.nan}, "intervals: expected a whole number of at least 1, found nan"),
        ({"tau": 0}, "local_steps: expected a whole number of at least 1, found 0"),
        ({"k_l": 5}, "local_aggregations: expected fewer than the 5 local steps, found 5"),
        ({"k_g": 0}, "intervals: expected a whole number of at least 1, found 0"),
        (
            {"gamma": 0.06},
            "first_step_size: expected at most min(1/local_steps, 1/intervals)/smoothness = 0.05, found 0.06",
        ),
        ({"m": 0}, "parameters: expected a whole number of at least 1, found 0"),
        ({"q": 0.0}, "sampling_rate: expected a share above 0 and at most 1, found 0.0"),
        ({"g": -1.0}, "clip_norm: expected a finite number above 0, found -1.0"),
        ({"eps": 0.0}, "epsilon: expected a number above 0, found 0.0"),
        ({"delta": 1.0}, "delta: expected a number between 0 and 1, found 1.0"),
        ({"p": [0.0, 1.5]}, "trust: expected a probability between 0 and 1, found 1.5"),
        ({"p": [0.0]}, "trust: expected one value for each of 2 subnets, found shape (1,)"),
        ({"s": [5, 0]}, "sizes: expected at least one device in each subnet, found 0"),
        ({"s": [5, 5, 5]}, "sizes: expected one value for each of 2 subnets, found shape (3,)"),
        ({"gap": -1.0}, "loss_above_best: expected a finite number of at least 0, found -1.0"),
    ],
)
def test_what_the_theory_does_not_cover_is_named(change, message):
    with pytest.raises(UserError) as error:
        convergence_bound("corrected", (CASE | change)["gap"], *arguments(CASE | change))
    assert str(error.value) == message


@given(positive, st.integers(1, 10_000), st.integers(1, 10_000))
def test_the_largest_step_size_is_allowed_whatever_the_rounding(smoothness, tau, intervals):
    first = largest_first_step_size(smoothness, tau, intervals)
    assert first == pytest.approx(min(1 / tau, 1 / intervals) / smoothness)
    constants = LossConstants(smoothness, 0.0, 0.0, np.zeros(1))
    terms = PrivacyTerms(1, 0.1, 1.0, math.inf, 1e-5)
    dispersion_bounds(constants, Timing(tau, 0, intervals, first), terms, np.zeros(1), np.ones(1))
