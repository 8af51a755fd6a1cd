"""MOON against the equations of its paper, by autograd on explicit weights."""

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError

ROUNDS, STEPS, ETA, MU, TEMPERATURE = 3, 4, 0.2, 2.0, 0.5


def records(name):
    rng = np.random.default_rng(len(name) + ord(name[-1]))
    x = rng.normal(size=(6, 3)).astype("float32")
    return x, (x[:, 0] + x[:, 1] > 0).astype(int)


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def experiment(engine="stacked", privacy="none", **training):
    method = {"extends": "moon", "objective": {"name": "moon", "mu": MU}, "privacy": privacy}
    given = {
        "intervals": ROUNDS,
        "local_steps": STEPS,
        "sampling_rate": 1.0,
        "batch_size": None,
        "step_size": ETA,
        "step_decay": "none",
    }
    return Experiment(
        Topology.regular(edges=1, devices=2),
        records,
        Net,
        method,
        test_data=records("test"),
        training=given | training,
        runtime={"engine": engine},
    )


def features(w, x):
    return torch.tanh(x @ w[:12].view(4, 3).T + w[12:16])


def loss(w, received, last, x, y):
    z, near, far = features(w, x), features(received, x), features(last, x)
    scores = z @ w[16:24].view(2, 4).T + w[24:26]
    supervised = torch.nn.functional.cross_entropy(scores, y)

    def sim(one, other):
        return (one * other).sum(dim=1) / (one.norm(dim=1) * other.norm(dim=1)) / TEMPERATURE

    a, b = torch.exp(sim(z, near)), torch.exp(sim(z, far))
    return supervised + MU * -torch.log(a / (a + b)).mean()


def reference(start, names):
    """Algorithm 1 of Li et al. (2021): w_i^{t-1} is where device i ended last; at first, the model that it got."""
    w = torch.from_numpy(start).double()
    last = dict.fromkeys(names)
    for _ in range(ROUNDS):
        models = []
        for name in names:
            x, y = (torch.from_numpy(each) for each in records(name))
            local, before = w, w if last[name] is None else last[name]
            for _ in range(STEPS):
                leaf = local.clone().requires_grad_()
                (gradient,) = torch.autograd.grad(loss(leaf, w, before, x.double(), y), leaf)
                local = local - ETA * gradient
            last[name] = local
            models.append(local)
        w = sum(models) / len(models)
    return w.numpy()


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_moon_does_what_its_paper_says(engine, tmp_path):
    made = experiment(engine)
    names = [made.topology.subnets[0].device_name(row) for row in range(2)]
    start = made.prepare().initial.numpy().copy()
    run = made.run(tmp_path / "run")
    state = torch.load(run.directory / "model.pt", weights_only=True)
    found = torch.cat([each.flatten() for each in state.values()]).numpy()
    np.testing.assert_allclose(found, reference(start, names), rtol=2e-4, atol=2e-6)


def test_the_last_local_model_has_no_guarantee():
    with pytest.raises(UserError, match="a device keeps its last local models"):
        experiment(privacy="local", clip_norm=1.0)
