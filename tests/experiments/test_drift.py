"""Distributed gradient descent against its bounds, where every constant is known; the controller's search."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.resource_budget.drift import (
    BudgetPrices,
    DriftConstants,
    affordable_local_steps,
    drift_bound,
    loss_bound,
)
from tests.theory.protocol import Quadratics

INSTANCES = 60


class Descent:
    """A run of distributed gradient descent: K intervals of tau steps, and v_[k](t) beside them."""

    def __init__(self, losses, weights, start, local_steps, intervals, step_size):
        self.hessian = np.einsum("i,imn->mn", weights, losses.hessians)
        pull = np.einsum("i,imn,in->m", weights, losses.hessians, losses.centres)
        self.best = np.linalg.solve(self.hessian, pull)
        apart, starts, gaps, slopes = [], [], [], []  # by interval; after each of its steps
        self.divergences = np.zeros(len(weights))  # the largest ||grad F_i(v) - grad F(v)|| over the points visited
        model = start
        for _ in range(intervals):
            devices, central = np.tile(model, (len(weights), 1)), model
            starts.append(np.linalg.norm(model - self.best))
            for _ in range(local_steps):
                own = losses.gradients(np.tile(central, (1, len(weights), 1)))[0]
                whole = self.hessian @ (central - self.best)
                self.divergences = np.maximum(self.divergences, np.linalg.norm(own - whole, axis=-1))
                gaps.append(self.gap(central))
                devices = devices - step_size * losses.gradients(devices[None])[0]
                central = central - step_size * whole
                apart.append(np.linalg.norm(weights @ devices - central))
            model = weights @ devices
            gaps += [self.gap(central), self.gap(model)]
            slopes += [np.linalg.norm(self.hessian @ (point - self.best)) for point in (central, model)]
        self.apart = np.array(apart).reshape(intervals, local_steps)
        self.nearness = 1 / max(starts) ** 2
        self.least_gap = min(gaps)
        self.steepest = max(slopes)  # a convex function of the point: on a segment the largest is at an end
        self.model = model

    def gap(self, point):
        away = point - self.best
        return 0.5 * away @ self.hessian @ away


def convex_losses(rng, devices, parameters, smoothness, unlike):
    eigenvalues = smoothness * rng.uniform(0.0, 1.0, (devices, parameters))
    eigenvalues[0] = smoothness  # the whole is strongly convex
    bases = np.linalg.qr(rng.normal(size=(devices, parameters, parameters)))[0]
    hessians = np.einsum("imk,ik,ink->imn", bases, eigenvalues, bases)
    return Quadratics(hessians, unlike * rng.normal(size=(devices, parameters)), np.zeros(devices, int))


def random_descent(seed, unlike=None):
    rng = np.random.default_rng([seed, 7])
    devices, smoothness = int(rng.choice([1, 2, 5])), float(rng.choice([0.1, 1.0, 10.0]))
    spread = rng.choice([0.0, 1.0, 10.0]) if unlike is None else unlike
    losses = convex_losses(rng, devices, int(rng.choice([1, 2, 5])), smoothness, spread)
    weights = rng.dirichlet(np.ones(devices))
    eta = float(rng.choice([0.01, 0.3, 1.0])) / smoothness
    tau, intervals = int(rng.choice([1, 2, 5, 20])), int(rng.choice([1, 3, 10]))
    start = rng.normal(size=losses.centres.shape[1]) * rng.choice([0.5, 5.0])
    run = Descent(losses, weights, start, tau, intervals, eta)
    return run, tau, intervals, eta, DriftConstants(run.steepest, smoothness, float(weights @ run.divergences))


def test_the_global_model_is_never_further_from_centralised_descent_than_theorem_1_says():
    tightest = 0.0
    for seed in range(INSTANCES):
        run, tau, _, eta, of = random_descent(seed)
        bound = drift_bound(np.arange(1, tau + 1), eta, of)
        rounding = 1e-12 * (1 + np.linalg.norm(run.model))
        assert (run.apart <= bound + rounding).all(), seed
        if tau > 1 and of.divergence > 1e-9:
            tightest = max(tightest, float((run.apart / np.maximum(bound, 1e-300))[:, 1:].max()))
    assert 0.1 < tightest <= 1  # the bound is worth something on some of them


def test_the_loss_never_exceeds_theorem_2():
    checked = 0
    for seed in range(3 * INSTANCES):
        run, tau, intervals, eta, of = random_descent(seed, unlike=(0.0, 1e-3, 1e-2, 0.1)[seed % 4])
        if run.least_gap <= 1e-12:
            continue
        bound = float(loss_bound(tau * intervals, tau, eta, of, run.nearness, run.least_gap))
        assert run.gap(run.model) <= bound * (1 + 1e-9), seed
        checked += math.isfinite(bound) and tau > 1 and of.divergence > 0
    assert checked > 30


def objective_by_hand(tau, total, eta, of, phi):
    h = (
        0.0
        if of.smoothness == 0
        else of.divergence / of.smoothness * ((eta * of.smoothness + 1) ** tau - 1) - of.divergence * eta * tau
    )
    h = max(0.0, h)
    inside = max(0.0, 1 + 4 * total**2 * phi * of.lipschitz * eta * h / tau)
    return (1 + math.sqrt(inside)) / (2 * total * eta * phi) + of.lipschitz * h


smooth = st.builds(DriftConstants, st.floats(0, 10), st.floats(1e-2, 10), st.floats(0, 10))
budgets = st.builds(BudgetPrices, st.floats(10, 1e4), st.floats(0.01, 3), st.floats(0.01, 5))


@given(st.integers(1, 40), st.lists(budgets, min_size=1, max_size=3), st.floats(1e-2, 0.5), smooth, st.floats(1e-4, 1))
def test_the_controller_finds_the_least_of_its_objective_at_the_tightest_budget(longest, held, eta, of, phi):
    found = affordable_local_steps(longest, held, eta, of, phi)
    values = []
    for tau in range(1, longest + 1):
        left = min(
            (r.total - r.step_cost - r.aggregation_cost) * tau / (r.step_cost * tau + r.aggregation_cost) for r in held
        )
        values.append(objective_by_hand(tau, left, eta, of, phi))
    assert 1 <= found <= longest
    assert values[found - 1] == pytest.approx(min(values), rel=1e-6)
