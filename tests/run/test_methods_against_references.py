"""Whole runs of every method against a few lines of NumPy that follow its paper: softmax regression, full batches."""

import numpy as np
import pytest

from h2fdp import Experiment, Topology

DEVICES, FEATURES, CLASSES, ROUNDS, STEPS, ETA = 4, 3, 3, 4, 3, 0.2
SIZES = [5, 8, 3, 6]
WEIGHTS = np.array(SIZES) / sum(SIZES)


def records(seed, size):
    random = np.random.default_rng(seed)
    return random.standard_normal((size, FEATURES)).astype(np.float32), random.integers(0, CLASSES, size)


DATA = [records(10 + device, size) for device, size in enumerate(SIZES)]


def gradient(w, device):
    """Of the mean cross-entropy of softmax regression; w is (classes, features)."""
    x, y = DATA[device]
    scores = x @ w.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return (shares - np.eye(CLASSES)[y]).T @ x / len(y)


def trained(method, engine="stacked", **training):
    keys = {"intervals": ROUNDS, "local_steps": STEPS, "step_size": ETA, "step_decay": "none", "batch_size": 100}
    return Experiment(
        topology=Topology.regular(edges=2, devices=2, trust=0.0, seed=1),
        data=lambda name: DATA[(["edge-1/1", "edge-1/2", "edge-2/1", "edge-2/2"]).index(name)],
        test_data=records(99, 20),
        method=method,
        training={**keys, "weights": "by-size", **training},
        runtime={"backend": "inline", "engine": engine},
    )


def outcome(experiment, folder):
    run = experiment.run(folder)
    start = experiment.prepare().initial.numpy().reshape(CLASSES, FEATURES).astype(float)
    return start, run.model[1].weight.detach().numpy().astype(float), run


def rounds(w, local, server=None):
    """`local(w, device)` gives the device's model; `server(w, average update)` the next global model."""
    for _ in range(ROUNDS):
        average = sum(p * (w - local(w, device)) for device, p in enumerate(WEIGHTS))
        w = w - average if server is None else server(w, average)
    return w


def descended(w, device, steps=STEPS, momentum=0.0):
    velocity = np.zeros_like(w)
    for _ in range(steps):
        velocity = momentum * velocity + gradient(w, device)
        w = w - ETA * velocity
    return w


def fedavg(w):
    return rounds(w, descended)


def fedavgm(w):
    state = {"v": 0.0}

    def server(w, average):
        state["v"] = 0.9 * state["v"] + average
        return w - state["v"]

    return rounds(w, descended, server)


def fedopt(w, beta1, second_moment):
    """Reddi et al. (2021), Algorithm 2, with Delta_t the average change of the devices' models."""
    state = {"m": np.zeros_like(w), "v": np.full_like(w, 1e-6)}

    def server(w, average):
        pseudo_gradient = -average
        state["m"] = beta1 * state["m"] + (1 - beta1) * pseudo_gradient
        state["v"] = second_moment(state["v"], pseudo_gradient**2)
        return w + 0.01 * state["m"] / (np.sqrt(state["v"]) + 1e-3)

    return rounds(w, descended, server)


def fedyogi(w):
    return fedopt(w, 0.9, lambda v, square: v - 0.01 * square * np.sign(v - square))


def fedadam(w):
    return fedopt(w, 0.9, lambda v, square: 0.99 * v + 0.01 * square)


def fedadagrad(w):
    return fedopt(w, 0.0, lambda v, square: v + square)


def fedprox(w, mu=0.1):
    def local(w, device):
        start = w
        for _ in range(STEPS):
            w = w - ETA * (gradient(w, device) + mu * (w - start))
        return w

    return rounds(w, local)


def scaffold(w, momentum=0.0):
    """c_i is a mean of gradients, with momentum of as many as the steps are worth."""
    c, own = np.zeros_like(w), [np.zeros_like(w) for _ in DATA]
    worth = sum((1 - momentum**left) / (1 - momentum) for left in range(1, STEPS + 1))
    for _ in range(ROUNDS):
        moved, changed = [], []
        for device in range(DEVICES):
            y, velocity = w, 0.0
            for _ in range(STEPS):
                velocity = momentum * velocity + gradient(y, device) - own[device] + c
                y = y - ETA * velocity
            new = own[device] - c + (w - y) / (worth * ETA)
            moved.append(y - w)
            changed.append(new - own[device])
            own[device] = new
        w = w + sum(p * each for p, each in zip(WEIGHTS, moved, strict=True))
        c = c + sum(p * each for p, each in zip(WEIGHTS, changed, strict=True))
    return w


def feddyn(w, alpha=0.1):
    h, own = np.zeros_like(w), [np.zeros_like(w) for _ in DATA]
    for _ in range(ROUNDS):
        models = []
        for device in range(DEVICES):
            theta = w
            for _ in range(STEPS):
                theta = theta - ETA * (gradient(theta, device) - own[device] + alpha * (theta - w))
            own[device] = own[device] - alpha * (theta - w)
            models.append(theta)
        average = sum(p * each for p, each in zip(WEIGHTS, models, strict=True))
        h = h - alpha * (average - w)
        w = average - h / alpha
    return w


def pfedme(w, penalty=15.0, inner=0.05):
    for _ in range(ROUNDS):
        models = []
        for device in range(DEVICES):
            local = theta = w
            for _ in range(STEPS):
                for _ in range(5):
                    theta = theta - inner * (gradient(theta, device) + penalty * (theta - local))
                local = local - 0.02 * penalty * (local - theta)
            models.append(local)
        w = sum(p * each for p, each in zip(WEIGHTS, models, strict=True))
    return w


REFERENCES = {
    "fedavg": fedavg,
    "fedavgm": fedavgm,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "feddyn": feddyn,
    "pfedme": pfedme,
    "fedyogi": fedyogi,
    "fedadam": fedadam,
    "fedadagrad": fedadagrad,
}


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("name", REFERENCES)
def test_a_method_does_what_its_paper_says(name, engine, tmp_path):
    step = {"step_size": 0.02} if name == "pfedme" else {}
    start, model, _ = outcome(trained(name, engine, **step), tmp_path / "run")
    np.testing.assert_allclose(model, REFERENCES[name](start), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("name", ["fedavg", "fedavgm"])
def test_an_upcycled_round_goes_on_from_where_the_server_moved(name, tmp_path):
    start, model, _ = outcome(trained({"extends": name, "upcycle": 0.3}), tmp_path / "run")
    velocity = 0.0
    w = start
    for _ in range(ROUNDS):
        average = sum(p * (w - descended(w, device)) for device, p in enumerate(WEIGHTS))
        velocity = 0.9 * velocity + average if name == "fedavgm" else average
        odd = w - velocity
        w = odd + 0.3 * (odd - w)
    np.testing.assert_allclose(model, w, rtol=2e-4, atol=2e-6)


def test_scaffold_in_a_tree_counts_the_steps_of_all_segments(tmp_path):
    """Two subnets of two devices with one local aggregation: the variates see the whole interval."""
    axes = {"extends": "hfl", "objective": "scaffold", "server": "scaffold"}
    start, model, _ = outcome(trained(axes, local_steps=4, aggregate_every=2), tmp_path / "run")
    w, c, own = start, np.zeros_like(start), [np.zeros_like(start) for _ in DATA]
    subnets = [[0, 1], [2, 3]]
    for _ in range(ROUNDS):
        average, change = 0.0, 0.0
        for members in subnets:
            share = sum(SIZES[device] for device in members)
            rho = {device: SIZES[device] / share for device in members}
            edge, moved = w, dict.fromkeys(members, 0.0)
            for _ in range(2):
                models = {}
                for device in members:
                    y = edge
                    for _ in range(2):
                        y = y - ETA * (gradient(y, device) - own[device] + c)
                    moved[device] = moved[device] + edge - y
                    models[device] = y
                edge = sum(rho[device] * models[device] for device in members)
            average = average + share / sum(SIZES) * (w - edge)
            for device in members:
                new = own[device] - c + moved[device] / (4 * ETA)
                change = change + share / sum(SIZES) * rho[device] * (new - own[device])
                own[device] = new
        w, c = w - average, c + change
    np.testing.assert_allclose(model, w, rtol=2e-4, atol=2e-6)
