"""Distributed gradient descent under a resource budget: its bounds, and how many local steps the budget asks for.

Lecture notes after Wang et al. 2019, "Adaptive Federated Learning in Resource Constrained Edge Computing Systems".
v_[k](t) is centralised gradient descent that starts each interval k of tau steps where the global model stands. Every
function is vectorised over its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from experiments.programs import require, require_between
from h2fdp.errors import UserError
from h2fdp.schedules import MeasuringDevices
from h2fdp.schedules.loss_constants import SHORTEST_SECANT

Numbers = np.ndarray | float
_LEAST_SMOOTHNESS = 1e-5  # of a device that moved at all


@dataclass(frozen=True)
class DriftConstants:
    """What makes local steps drift apart, in numbers.

    Attributes:
        lipschitz: rho, of each device's loss.
        smoothness: beta, the Lipschitz constant of each device's gradient.
        divergence: delta, the weighted mean of the devices' largest distances from the global gradient.

    Raises:
        UserError: a constant that is negative or not finite.
    """

    lipschitz: float
    smoothness: float
    divergence: float

    def __post_init__(self) -> None:
        for name in ("lipschitz", "smoothness", "divergence"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number of at least 0")


@dataclass(frozen=True)
class BudgetPrices:
    """One resource: how much there is, and what steps and aggregations take of it, all in one unit.

    Attributes:
        total: R.
        step_cost: c, of a local step of all devices.
        aggregation_cost: b, of a global aggregation.

    Raises:
        UserError: a negative price, or nothing to spend.
    """

    total: float
    step_cost: float
    aggregation_cost: float

    def __post_init__(self) -> None:
        require(0 < self.total < math.inf, "total", self.total, "a finite number above 0")
        for name in ("step_cost", "aggregation_cost"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number of at least 0")

    def iterations(self, local_steps: Numbers) -> np.ndarray:
        """T(tau) = (R - c - b) tau / (c tau + b), infinite where nothing costs anything.

        >>> BudgetPrices(total=103.0, step_cost=1.0, aggregation_cost=2.0).iterations(np.array([2, 8]))
        array([50., 80.])
        """
        tau = np.asarray(local_steps, float)
        with np.errstate(divide="ignore"):
            return np.asarray(
                (self.total - self.step_cost - self.aggregation_cost)
                * (tau / (self.step_cost * tau + self.aggregation_cost))
            )


def drift_bound(steps: Numbers, step_size: float, constants: DriftConstants) -> np.ndarray:
    """h(x) = (delta / beta) ((eta beta + 1)^x - 1) - eta delta x (Theorem 1): a distance, 0 after 0 and 1 steps.

    The global model is never further than h(t - (k-1) tau) from v_[k](t), for t in interval k. For delta the maximum of
    the divergence over the points v_[k](t) that are visited is enough. Its limit is 0 at beta = 0.

    Args:
        steps: x, whole numbers of at least 0.

    Raises:
        UserError: x below 0, a step size that is none.

    >>> drift_bound(np.array([0, 1, 2, 3]), 0.5, DriftConstants(lipschitz=1.0, smoothness=2.0, divergence=4.0))
    array([0., 0., 2., 8.])
    """
    require_between(steps, 0, math.inf, "steps", "at least 0 steps")
    require(0 < step_size < math.inf, "step_size", step_size, "a finite number above 0")
    taken, rate = np.asarray(steps, float), step_size * constants.smoothness
    if rate == 0 or constants.divergence == 0:
        return np.zeros_like(taken)
    with np.errstate(over="ignore"):
        growth = np.expm1(taken * math.log1p(rate))
    return np.where(taken <= 1, 0.0, np.maximum(step_size * constants.divergence * (growth / rate - taken), 0.0))


def loss_bound(
    iterations: Numbers,
    local_steps: Numbers,
    step_size: float,
    constants: DriftConstants,
    nearness: float,
    least_gap: float,
) -> np.ndarray:
    """1 / (T (omega eta (1 - beta eta / 2) - rho h(tau) / (tau eps^2))), Theorem 2: a bound on F(w(T)) - F(w*).

    It holds for eta <= 1/beta where both F(v_[k](t)) and F(w(T)) are at least eps above F(w*). Infinite where the
    bracket is not positive: there the theorem says nothing.

    Args:
        iterations: T; broadcasts against `local_steps`, tau.
        nearness: omega = min_k 1 / ||v_[k]((k-1) tau) - w*||^2.
        least_gap: eps.

    Raises:
        UserError: tau below 1, a number that is not above 0.

    >>> alike = DriftConstants(lipschitz=1.0, smoothness=1.0, divergence=0.0)
    >>> loss_bound(np.array([10, 20]), 5, 0.5, alike, nearness=2.0, least_gap=0.1)
    array([0.13333333, 0.06666667])
    """
    require_between(local_steps, 1, math.inf, "local_steps", "at least one local step")
    for name, value in (("nearness", nearness), ("least_gap", least_gap)):
        require(0 < value < math.inf, name, value, "a finite number above 0")
    tau = np.asarray(local_steps, float)
    progress = nearness * step_size * (1 - constants.smoothness * step_size / 2)
    with np.errstate(divide="ignore", over="ignore"):
        bracket = progress - _lost(tau, step_size, constants) / tau / least_gap / least_gap
        return np.where(bracket > 0, 1 / (np.asarray(iterations, float) * np.maximum(bracket, 0.0)), np.inf)


def controller_objective(
    local_steps: Numbers,
    iterations: Numbers,
    step_size: float,
    constants: DriftConstants,
    control_parameter: float,
) -> np.ndarray:
    """[1 + sqrt(max(0, 1 + 4 T^2 phi rho eta h(tau) / tau))] / (2 T eta phi) + rho h(tau): what the controller weighs.

    Args:
        local_steps: tau; broadcasts against `iterations`, T(tau). Infinite where T is not above 0.
        control_parameter: phi, instead of the unknown omega (1 - beta eta / 2).

    >>> alike = DriftConstants(lipschitz=1.0, smoothness=1.0, divergence=0.0)
    >>> controller_objective(np.array([1, 2]), np.array([50.0, 0.0]), 0.1, alike, control_parameter=0.5)
    array([0.4, inf])
    """
    require_between(local_steps, 1, math.inf, "local_steps", "at least one local step")
    require(0 < control_parameter < math.inf, "control_parameter", control_parameter, "a finite number above 0")
    tau, total = np.asarray(local_steps, float), np.asarray(iterations, float)
    lost, rate = _lost(tau, step_size, constants), step_size * control_parameter
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        # Both terms divided by 2 T eta phi one by one: T may be infinite.
        alone = 1 / (2 * rate * total)
        value = alone + np.sqrt(alone**2 + lost / (rate * tau)) + lost
    return np.where(total > 0, value, np.inf)


def affordable_local_steps(
    longest: int, budgets: Sequence[BudgetPrices], step_size: float, constants: DriftConstants, control_parameter: float
) -> int:
    """The tau in 1 .. longest at which `controller_objective` is least, T(tau) as the tightest budget has it.

    The smallest of several that are equally good; 1 where no budget leaves an iteration.

    Raises:
        UserError: as the functions above.

    >>> apart = DriftConstants(lipschitz=1.0, smoothness=1.0, divergence=1.0)
    >>> prices = BudgetPrices(1000.0, step_cost=1.0, aggregation_cost=10.0)
    >>> affordable_local_steps(100, [prices], 0.01, apart, control_parameter=0.025)
    31
    """
    taus = np.arange(1, longest + 1)
    iterations = np.min([budget.iterations(taus) for budget in budgets], axis=0)
    return 1 + int(np.argmin(controller_objective(taus, iterations, step_size, constants, control_parameter)))


def _lost(local_steps: np.ndarray, step_size: float, constants: DriftConstants) -> np.ndarray:
    """rho h(tau): what the drift of an interval costs the loss, 0 where the loss is flat."""
    if constants.lipschitz == 0:
        return np.zeros_like(local_steps)
    return constants.lipschitz * drift_bound(local_steps, step_size, constants)


def stated_drift(lipschitz: float | None, smoothness: float | None, divergence: float | None) -> DriftConstants | None:
    """The constants that the operator states; None has devices measure them.

    Raises:
        UserError: some are stated and others are not.
    """
    if lipschitz is None and smoothness is None and divergence is None:
        return None
    if lipschitz is None or smoothness is None or divergence is None:
        raise UserError("expected all of lipschitz, smoothness and divergence, or none of them")
    return DriftConstants(lipschitz, smoothness, divergence)


@dataclass(frozen=True)
class DeviceSecants:
    """What n devices measure between w_i, where each ended the interval, and w, the model that followed.

    Each takes both losses and gradients on one mini-batch of its own, without noise and without clipping.

    Attributes:
        weights: (n,) p_i, summing to 1.
        distance: (n,) ||w_i - w||.
        last_step: (n,) the length of the last local step, ||w_i - w_i before it||.
        loss_local: (n,) F_i(w_i).
        loss_before: (n,) F_i at w_i before its last step.
        loss: (n,) F_i(w).
        gradient_change: (n,) ||grad F_i(w_i) - grad F_i(w)||.
        divergence: (n,) ||grad F_i(w) - grad F(w)||, F the weighted mean of these devices.
    """

    weights: np.ndarray
    distance: np.ndarray
    last_step: np.ndarray
    loss_local: np.ndarray
    loss_before: np.ndarray
    loss: np.ndarray
    gradient_change: np.ndarray
    divergence: np.ndarray

    @classmethod
    def of(cls, measured: Mapping[str, np.ndarray]) -> DeviceSecants:
        """From what devices sent, see `measure_secants`."""
        gradients = torch.from_numpy(measured["gradient"]).double()
        divergence = gradients - torch.from_numpy(measured["weights"]) @ gradients
        others = {name: values for name, values in measured.items() if name != "gradient"}
        return cls(**others, divergence=divergence.norm(dim=1).numpy())


def measure_secants(devices: MeasuringDevices) -> dict[str, np.ndarray]:
    """The numbers of `DeviceSecants` that a device knows by itself, and `gradient` (s, M), grad F_i(w)."""
    model, ends, last_steps = devices.model, devices.ends, devices.last_steps
    here = model.expand(len(ends), -1)
    at_end, at_model = devices.gradients(ends), devices.gradients(here)
    return {
        "distance": (ends - model).double().norm(dim=1).cpu().numpy(),
        "last_step": last_steps.double().norm(dim=1).cpu().numpy(),
        "loss_local": np.array(devices.losses(ends)),
        "loss_before": np.array(devices.losses(ends + last_steps)),
        "loss": np.array(devices.losses(here)),
        "gradient_change": (at_end - at_model).double().norm(dim=1).cpu().numpy(),
        "gradient": at_model.cpu().numpy(),
    }


def drift_constants(seen: DeviceSecants) -> DriftConstants | None:
    """rho, beta and delta (or xi), the weighted means over devices; None where a measurement is no number.

    rho_i = |F_i(w_i) - F_i(w)| / ||w_i - w||, beta_i = ||grad F_i(w_i) - grad F_i(w)|| / ||w_i - w|| and at least 1e-5,
    both 0 within 1e-10 of w; delta_i = ||grad F_i(w) - grad F(w)||.
    """
    lipschitz = secants(np.abs(seen.loss_local - seen.loss), seen.distance)
    smoothness = secants(seen.gradient_change, seen.distance)
    floored = np.where(seen.distance <= SHORTEST_SECANT, 0.0, np.maximum(smoothness, _LEAST_SMOOTHNESS))
    means = [float(seen.weights @ values) for values in (lipschitz, floored, seen.divergence)]
    return DriftConstants(*means) if all(map(math.isfinite, means)) else None


def mean_loss(seen: DeviceSecants) -> float:
    """F(w), as the mini-batches have it."""
    return float(seen.weights @ seen.loss)


def secants(changes: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """(n,) changes / distances, 0 within 1e-10."""
    still = distances <= SHORTEST_SECANT
    return np.asarray(np.where(still, 0.0, changes / np.where(still, 1.0, distances)))
