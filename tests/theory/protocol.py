"""The protocol of Secs. 3-7 of the specification in plain NumPy, on quadratic losses: what Theorem 4.3 is about.

F_i(w) = (w - b_i)' A_i (w - b_i) / 2. Replicates (R) run side by side, each with its own noise.
"""

import math
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Quadratics:
    hessians: np.ndarray  # (I, M, M) A_i
    centres: np.ndarray  # (I, M) b_i
    subnet: np.ndarray  # (I,) which subnet device i is in, 0 .. N-1

    @property
    def shares(self):  # (N, I): rows average the devices of a subnet
        member = np.arange(self.subnet.max() + 1)[:, None] == self.subnet
        return member / member.sum(axis=1, keepdims=True)

    @property
    def sizes(self):
        return np.bincount(self.subnet)

    def gradients(self, models):  # (R, I, M) -> (R, I, M), device i at its own model
        return np.einsum("imn,rin->rim", self.hessians, models - self.centres)

    def global_loss_parts(self):  # F(w) = w'Aw/2 - w'r + const
        share = self.shares.mean(axis=0)
        pulls = np.einsum("imn,in->im", self.hessians, self.centres)
        return np.einsum("i,imn->mn", share, self.hessians), share @ pulls

    def best(self):
        hessian, pull = self.global_loss_parts()
        return np.linalg.solve(hessian, pull)

    def loss_above_best(self, model):
        hessian, _ = self.global_loss_parts()
        return 0.5 * (model - self.best()) @ hessian @ (model - self.best())

    def spread(self, models):
        """(2,) Z1 (28) and Z2 (29)."""
        of_subnets = self.shares @ models
        within = np.sum((models - of_subnets[:, self.subnet]) ** 2, axis=-1).mean(axis=0)
        between = np.sum((of_subnets - of_subnets.mean(axis=1, keepdims=True)) ** 2, axis=-1).mean()
        return np.array([(self.shares @ within).mean(), between])

    def dispersions(self, models):
        """Largest zeta, (N,) zeta_c over all models (R, I, M) that devices hold."""
        points = models.reshape(-1, models.shape[-1])
        pulls = np.einsum("imn,in->im", self.hessians, self.centres)
        own = np.einsum("imn,pn->pim", self.hessians, points) - pulls
        of_subnets = np.einsum("ci,pim->pcm", self.shares, own)
        between = np.linalg.norm(of_subnets - of_subnets.mean(axis=1, keepdims=True), axis=-1).max()
        within = np.linalg.norm(own - of_subnets[:, self.subnet], axis=-1).max(axis=0)
        return between, np.array([within[self.subnet == c].max() for c in range(len(self.shares))])


@dataclass(frozen=True)
class Setting:
    local_steps: int
    local_aggregations: int
    intervals: int
    first_step_size: float
    trusted: np.ndarray  # (N,) of 0 and 1
    deviation: float  # sigma: mini-batch noise, uniform on a sphere of that radius
    epsilon: float  # infinity: no noise
    clip_norm: float  # G, in the noise only: nothing is clipped, the largest gradient is reported
    sampling_rate: float = 0.1
    delta: float = 1e-5
    c2: float = 1.3
    v2: float = 1.1


@dataclass(frozen=True)
class Observed:
    squared_gradients: np.ndarray  # (K_g, R) of F at w(t_k)
    largest_gradient: float
    network_dispersion: float
    subnet_dispersion: np.ndarray
    within_subnets: float  # the largest Z1 / (eta_k tau) inside an interval, expectations over replicates
    between_subnets: float  # the largest Z2 / (eta_k tau)


def run(losses, setting, start, replicates, rng):
    tau, wanted = setting.local_steps, setting.local_aggregations
    aggregations = {round(j * tau / (wanted + 1)) for j in range(1, wanted + 1)} - {0, tau}
    devices, parameters = losses.centres.shape
    hessian, pull = losses.global_loss_parts()
    shape = (replicates, devices, parameters)
    model = np.tile(start, (replicates, 1))
    squared, largest, zeta, zeta_c, apart = [], 0.0, 0.0, np.zeros(len(losses.shares)), np.zeros(2)
    for k in range(setting.intervals):
        squared.append(np.sum((model @ hessian - pull) ** 2, axis=1))
        step_size = setting.first_step_size / math.sqrt(k + 1)
        models = np.repeat(model[:, None], devices, axis=1)
        for slot in range(1, tau + 1):
            between, within = losses.dispersions(models)
            zeta, zeta_c = max(zeta, between), np.maximum(zeta_c, within)
            gradients = losses.gradients(models)
            if setting.deviation:
                direction = rng.normal(size=shape)
                gradients += setting.deviation * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
            largest = max(largest, np.linalg.norm(gradients, axis=-1).max())
            models = models - step_size * gradients
            if slot in aggregations:
                of_subnets = losses.shares @ models + noise(losses, setting, step_size, "local", shape, rng)
                models = of_subnets[:, losses.subnet]
            if slot < tau:
                apart = np.maximum(apart, losses.spread(models) / (step_size * tau))
        of_subnets = losses.shares @ models + noise(losses, setting, step_size, "global", shape, rng)
        model = of_subnets.mean(axis=1)
    return Observed(np.array(squared), largest, zeta, zeta_c, *apart.tolist())


def noise(losses, setting, step_size, kind, shape, rng):
    """(R, N, M): one draw at a trusted edge, the average of its devices' draws at an untrusted one."""
    if math.isinf(setting.epsilon):
        return 0.0
    releases = setting.intervals * (setting.local_aggregations if kind == "local" else 1)
    sensitivity = 2 * step_size * setting.local_steps * setting.clip_norm
    std = setting.sampling_rate * sensitivity * math.sqrt(releases * math.log(1 / setting.delta)) / setting.epsilon
    at_devices = losses.shares @ (setting.v2 * std * rng.normal(size=shape))
    at_edges = setting.c2 * std / losses.sizes[:, None] * rng.normal(size=at_devices.shape)
    return np.where(setting.trusted[:, None] == 1, at_edges, at_devices)


def run_unclipped(losses, setting, start, replicates, seed):
    """A run whose noise belongs to a G that no gradient exceeds; for that, G and if need be epsilon are raised."""
    for attempt in range(1, 60):
        observed = run(losses, setting, start, replicates, np.random.default_rng(seed))
        if observed.largest_gradient <= setting.clip_norm * (1 + 1e-12):
            return observed, setting
        weaker = setting.epsilon * (2 if attempt % 3 == 0 else 1)
        # Without privacy G is in nothing that is run, so the largest gradient is the right G at once.
        slack = 1.0 if math.isinf(setting.epsilon) else 1.05
        setting = replace(setting, clip_norm=slack * observed.largest_gradient, epsilon=weaker)
    raise AssertionError("no clip norm settles")


def draw_losses(rng, parameters, sizes, smoothness, unlike):
    """Hessians with eigenvalues up to `smoothness`, some devices' with negative ones; the global loss has a minimum."""
    devices = sum(sizes)
    lowest = rng.choice([0.0, -0.3])
    eigenvalues = smoothness * rng.uniform(lowest, 1.0, (devices, parameters))
    eigenvalues[0, 0] = smoothness
    bases = np.linalg.qr(rng.normal(size=(devices, parameters, parameters)))[0]
    hessians = np.einsum("imk,ik,ink->imn", bases, eigenvalues, bases)
    centres = unlike * rng.normal(size=(devices, parameters))
    losses = Quadratics(hessians, centres, np.repeat(np.arange(len(sizes)), sizes))
    if np.linalg.eigvalsh(losses.global_loss_parts()[0]).min() < 1e-3 * smoothness:
        return draw_losses(rng, parameters, sizes, smoothness, unlike)
    return losses
