"""FedNova in whole runs against NumPy, device by device: stragglers, drop-outs, weights, momentum, a proximal term.

What devices do in an interval is public, and taken from the plan: the numbers of their local steps. All else is written
anew here from Wang et al. (2020).
"""

import numpy as np
import pytest

from h2fdp import Experiment, Topology

FEATURES, CLASSES, ROUNDS, STEPS, ETA = 3, 3, 4, 6, 0.2
NAMES = ["edge-1/1", "edge-1/2", "edge-1/3", "edge-2/1", "edge-2/2", "edge-2/3"]
SIZES = [5, 8, 3, 6, 4, 9]
FAULTS = {"straggler": {"probability": 0.7, "fraction": [0.1, 0.9]}, "device_dropout": 0.2}


def records(seed, size):
    random = np.random.default_rng(seed)
    return random.standard_normal((size, FEATURES)).astype(np.float32), random.integers(0, CLASSES, size)


DATA = [records(10 + device, size) for device, size in enumerate(SIZES)]


def of_device(name):
    return DATA[NAMES.index(name)]


def gradient(w, device):
    """Of the mean cross-entropy of softmax regression; w is (classes, features)."""
    x, y = DATA[device]
    scores = x @ w.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return (shares - np.eye(CLASSES)[y]).T @ x / len(y)


def experiment(method="fednova", faults=FAULTS, **changes):
    training = {"intervals": ROUNDS, "local_steps": STEPS, "step_size": ETA, "step_decay": "none", "batch_size": 100}
    runtime = {"backend": "inline", "engine": changes.pop("engine", "stacked")}
    top = {key: changes.pop(key) for key in ("privacy",) if key in changes}
    return Experiment(
        topology=Topology.regular(edges=2, devices=3, trust=0.5, seed=1),
        data=of_device,
        test_data=records(99, 20),
        method=method,
        training={**training, **changes},
        faults=faults,
        runtime=runtime,
        seed=3,
        **top,
    )


def turnouts(asked):
    """For each interval and subnet (segments, s) local steps behind the uploads."""
    cloud = asked.prepare().cloud(None)
    for interval in range(ROUNDS):
        plan = cloud.plan(interval)
        cloud.skip(plan)
        yield {name: (part.rows, np.array(part.tasks.steps)) for name, part in plan.subnets.items()}


def outcome(asked, folder):
    run = asked.run(folder)
    start = asked.prepare().initial.numpy().reshape(CLASSES, FEATURES).astype(float)
    return start, run.model[1].weight.detach().numpy().astype(float)


def local_model(w, device, steps, momentum=0.0, mu=0.0):
    start, velocity = w, np.zeros_like(w)
    for _ in range(steps):
        velocity = momentum * velocity + gradient(w, device) + mu * (w - start)
        w = w - ETA * velocity
    return w


def norm_of_a(steps, momentum=0.0, mu=0.0):
    """||a_i||_1 as the paper prints it: Sec. 3.1 and Appendix for vanilla SGD, momentum, and the proximal term."""
    if momentum:
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return (1 - (1 - ETA * mu) ** steps) / (ETA * mu) if mu else float(steps)


def in_a_star(w, asked, by_size, **local):
    """x <- x - tau_eff sum_i p_i (x - x_i) / ||a_i||_1, over the devices that are heard of (Eq. 10)."""
    for interval in turnouts(asked):
        ((rows, steps),) = interval.values()
        done = {device: count for device, count in zip(rows.tolist(), steps[0].tolist(), strict=True) if count}
        mass = {device: SIZES[device] if by_size else 1 for device in done}
        p = {device: mass[device] / sum(mass.values()) for device in done}
        norm = {device: norm_of_a(count, **local) for device, count in done.items()}
        tau_eff = sum(p[device] * norm[device] for device in done)
        change = sum(
            p[device] * (w - local_model(w, device, count, **local)) / norm[device] for device, count in done.items()
        )
        w = w - tau_eff * change
    return w


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("weights", ["uniform", "by-size"])
@pytest.mark.parametrize("local", [{}, {"momentum": 0.6}, {"mu": 1.5}], ids=["plain", "momentum", "proximal"])
def test_fednova_does_what_its_paper_says(local, weights, engine, tmp_path):
    mu = local.get("mu", 0.0)
    method = {"extends": "fednova", "objective": {"name": "proximal", "mu": mu}} if mu else "fednova"
    asked = experiment(method, weights=weights, engine=engine, momentum=local.get("momentum", 0.0))
    start, model = outcome(asked, tmp_path / "run")
    np.testing.assert_allclose(model, in_a_star(start, asked, weights == "by-size", **local), rtol=2e-4, atol=2e-6)
    _, plain = outcome(experiment({"extends": "fedavg"}, weights=weights), tmp_path / "plain")
    assert np.abs(model - plain).max() > 1e-2


def in_a_tree(w, asked, by_size):
    """Every aggregator divides what its children upload by the gradients that are in it."""
    first = {"edge-1": 0, "edge-2": 3}
    for interval in turnouts(asked):
        uploads, counts, mass = [], [], []
        for name, (rows, steps) in interval.items():
            edge, gradients = w, 0.0
            for segment in steps.tolist():
                done = {first[name] + row: count for row, count in zip(rows.tolist(), segment, strict=True) if count}
                total = sum(SIZES[device] if by_size else 1 for device in done)
                rho = {device: (SIZES[device] if by_size else 1) / total for device in done}
                tau_eff = sum(rho[device] * count for device, count in done.items())
                edge = edge - tau_eff * sum(
                    rho[device] * (edge - local_model(edge, device, count)) / count for device, count in done.items()
                )
                gradients += tau_eff
            uploads.append(w - edge)
            counts.append(gradients)
            heard = [
                first[name] + row for row, any_step in zip(rows.tolist(), steps.any(axis=0), strict=True) if any_step
            ]
            mass.append(sum(SIZES[device] for device in heard) if by_size else 1)
        share = np.array(mass) / sum(mass)
        tau_eff = float(share @ counts)
        w = w - tau_eff * sum(p * each / count for p, each, count in zip(share, uploads, counts, strict=True))
    return w


@pytest.mark.parametrize("weights", ["uniform", "by-size"])
def test_in_a_tree_every_aggregator_normalises(weights, tmp_path):
    asked = experiment({"extends": "hfl", "aggregation": "fednova"}, weights=weights, aggregate_every=2)
    start, model = outcome(asked, tmp_path / "run")
    np.testing.assert_allclose(model, in_a_tree(start, asked, weights == "by-size"), rtol=2e-4, atol=2e-6)
