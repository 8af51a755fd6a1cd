"""A network on which private training ends further from a stationary point than the corrected Theorem 4.3 says.

All devices share one loss on one parameter, F'(w) = beta w cut to [-G/3, G]: smooth, with bounded gradients, without
dispersion; training starts at its minimum. The noise of local aggregations makes the gradients on its way those of a
smeared loss, whose minimum is elsewhere, and averaging over any number of subnets does not help. The bound pays for
that in B2^2 only, which vanishes against G^2 in units of length so large that beta is small (see `dispersion_bounds`),
and in part (b), which vanishes with the number of subnets.

    python -m experiments.control.counterexample        # a minute: what was measured, and the bound in two units
"""

import math

import numpy as np
from scipy.stats import norm

from experiments.control.convergence import LossConstants, Timing, convergence_bound
from h2fdp.schedules.problem import PrivacyTerms

SUBNETS = 3_000_000  # of one device
LOCAL_STEPS, INTERVALS, AGGREGATED = 50, 400, (12, 25, 38)
NOISE = PrivacyTerms(1, 0.5, clip_norm=1.0, epsilon=1.0, delta=math.exp(-16.0 / 3), c2=2.0, v2=2.0)
SEEDS = 20

# The protocol in units where beta = G = 1; a squared gradient is the same in any unit of length.
# ruff: noqa: E731
step_size = lambda k: 1 / (INTERVALS * math.sqrt(k + 1))
gradient = lambda models: np.clip(models, -1 / 3, 1)


def noise_std(k, releases):
    """(15) for one device, with Delta = 2 eta tau G (17)."""
    sensitivity = 2 * step_size(k) * LOCAL_STEPS
    return (
        NOISE.c2 * NOISE.sampling_rate * sensitivity * math.sqrt(releases * math.log(1 / NOISE.delta)) / NOISE.epsilon
    )


def local_std(k):
    return noise_std(k, INTERVALS * len(AGGREGATED))


def interval(models, k, noise):
    """The subnets' models after interval k, without the noise of the global aggregation."""
    for slot in range(1, LOCAL_STEPS + 1):
        models = models - step_size(k) * gradient(models)
        if slot in AGGREGATED:
            models = models + local_std(k) * noise()
    return models


def few_for_all(start, k, rng, representatives=200):
    """The mean over all subnets without its own chance: noises in equal shares of the normal distribution."""
    shares = norm.ppf((np.arange(representatives) + 0.5) / representatives)
    models = np.repeat(np.asarray(start)[:, None], representatives, axis=1)
    return interval(models, k, noise=lambda: rng.permutation(shares)).mean(axis=1)


def mean_squared_gradient():
    """(SEEDS,) over the intervals; the global model keeps the chance that the mean of so many noises leaves it."""
    rng = np.random.default_rng(0)
    models, squares = np.zeros(SEEDS), []
    for k in range(INTERVALS):
        squares.append(gradient(models) ** 2)
        energy = len(AGGREGATED) * local_std(k) ** 2 + noise_std(k, INTERVALS) ** 2
        models = few_for_all(models, k, rng) + math.sqrt(energy / SUBNETS) * rng.normal(size=SEEDS)
    return np.mean(squares, axis=0)


def bound(smoothness):
    constants = LossConstants(smoothness, 0.0, 0.0, subnet_dispersion=np.zeros(SUBNETS))
    timing = Timing(LOCAL_STEPS, len(AGGREGATED), INTERVALS, 1 / (smoothness * INTERVALS))
    one_each = np.ones(SUBNETS)
    return convergence_bound("corrected", 0.0, constants, timing, NOISE, trust=0 * one_each, sizes=one_each)


def few_stand_for_all(start, k):
    """(by all subnets, by few of them) the mean model after interval k, less the chance of the mean itself."""
    rng = np.random.default_rng(1)

    def centred():
        noises = rng.normal(size=SUBNETS)
        return noises - noises.mean()

    return interval(np.full(SUBNETS, start), k, noise=centred).mean(), few_for_all([start], k, rng)[0]


def main():
    measured = mean_squared_gradient()
    error = measured.std() / math.sqrt(SEEDS)
    print(f"mean squared gradient  {measured.mean():.4f} +- {error:.4f}")
    for smoothness in (1e-9, 1.0):
        print(f"bound at beta = {smoothness:g}  {bound(smoothness).total:.4f}")
    for start, k in ((0.0, 0), (0.3, 100)):
        print("mean model by all subnets, by few: {:.5f} {:.5f}".format(*few_stand_for_all(start, k)))


if __name__ == "__main__":
    main()
