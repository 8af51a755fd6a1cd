"""Losses by name, by every engine, against their formulas and numerical gradients."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms.fedavg import Plain
from h2fdp.training import Clipping, build_engine, evaluate
from h2fdp.training.batches import Batches
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.losses import LOSSES, CrossEntropy, Loss

RNG = np.random.default_rng(5)
SCORES, LABELS = RNG.normal(size=(6, 4)), RNG.integers(0, 4, 6)
TORCH = torch.from_numpy(SCORES), torch.from_numpy(LABELS)


def loss(value):
    return LOSSES.read(value).build()


def log_softmax(scores):
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def smoothed(scores, labels, share):
    targets = (1 - share) * np.eye(4)[labels] + share / 4
    return -(targets * log_softmax(scores)).sum(axis=1)


def hinge(scores, labels, margin):
    found = []
    for own, label in zip(scores, labels, strict=True):
        others = np.delete(own, label)
        found.append(max(0.0, margin + others.max() - own[label]))
    return np.array(found)


FORMULAS = {
    "cross-entropy": ("cross-entropy", lambda scores, labels: smoothed(scores, labels, 0.0)),
    "label-smoothing": (
        {"name": "label-smoothing", "smoothing": 0.3},
        lambda scores, labels: smoothed(scores, labels, 0.3),
    ),
    "hinge": ({"name": "hinge", "margin": 0.7}, lambda scores, labels: hinge(scores, labels, 0.7)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_loss_is_its_formula(name):
    value, formula = FORMULAS[name]
    for measure in ("each", "evaluated"):
        np.testing.assert_allclose(getattr(loss(value), measure)(*TORCH).numpy(), formula(SCORES, LABELS), rtol=1e-12)
    np.testing.assert_allclose(float(loss(value).mean(*TORCH)), formula(SCORES, LABELS).mean(), rtol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_gradient_in_the_scores_is_the_formulas_slope(name):
    value, formula = FORMULAS[name]
    shares = RNG.uniform(size=6)
    found = loss(value).score_gradient(TORCH[0][None], TORCH[1][None], torch.from_numpy(shares)[None])[0].numpy()
    step = 1e-6
    for row, column in np.ndindex(6, 4):
        moved = np.zeros_like(SCORES)
        moved[row, column] = step
        slope = shares @ (formula(SCORES + moved, LABELS) - formula(SCORES - moved, LABELS)) / (2 * step)
        assert found[row, column] == pytest.approx(slope, abs=1e-7)


def test_the_written_out_gradient_of_the_cross_entropy_is_autograds():
    shares = torch.from_numpy(RNG.uniform(size=(1, 6)))
    given = TORCH[0][None], TORCH[1][None], shares
    np.testing.assert_allclose(CrossEntropy().score_gradient(*given), Loss.score_gradient(CrossEntropy(), *given))


@pytest.mark.parametrize("name", ["label-smoothing", "hinge"])
@pytest.mark.parametrize("scope", ["batch", "record"])
@pytest.mark.parametrize("layers", [1, 2])
def test_engines_agree_on_a_loss(name, scope, layers):
    torch.manual_seed(1)
    module = nn.Linear(3, 4) if layers == 1 else nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
    size = sum(each.numel() for each in module.parameters())
    records = DeviceRecords(
        torch.randn(8, 3), torch.randint(0, 4, (8,)), np.array([0, 4, 8]), torch.ones(3), torch.zeros(3)
    )
    batches = Batches(np.arange(4).repeat(2).reshape(2, 2, 2) % 4, np.full((2, 2), 2))
    starts = torch.randn(2, size)
    updates = [
        build_engine(engine, module, Clipping(0.5, scope), Plain(), 4, loss=loss(FORMULAS[name][0]))
        .train(starts, records, np.array([0, 1]), batches, 0.3)
        .updates
        for engine in ("loop", "stacked")
    ]
    np.testing.assert_allclose(updates[0], updates[1], rtol=1e-4, atol=1e-6)
    plain = build_engine("loop", module, Clipping(0.5, scope), Plain(), 4)
    assert (plain.train(starts, records, np.array([0, 1]), batches, 0.3).updates - updates[0]).abs().max() > 1e-3


def experiment(given, **training):
    topology = Topology.regular(edges=2, devices=2)
    return Experiment(topology, "digits", method="hfl", intervals=2, local_steps=2, loss=given, **training)


@pytest.mark.run
def test_a_run_reports_the_loss_that_it_minimises(tmp_path):
    setup = experiment("hinge").prepare()
    run = experiment("hinge").run(tmp_path / "run")
    scores = evaluate(run.model, torch.cat([each.flatten() for each in run.model.parameters()]), test_set(setup))
    assert run.metrics["loss"].iloc[-1] != pytest.approx(scores.loss_whole, rel=1e-3)
    hinged = evaluate(
        run.model, torch.cat([each.flatten() for each in run.model.parameters()]), test_set(setup), loss("hinge")
    )
    assert run.metrics["loss"].iloc[-1] == pytest.approx(hinged.loss_whole, rel=1e-6)


def test_set(setup):
    from h2fdp.training.device_records import device_records

    return device_records(setup.data, setup.data.test)


test_set.__test__ = False


def squared(scores, labels):
    return (scores - torch.eye(scores.shape[-1])[labels]).square().sum(dim=-1)


def mixing(scores, labels):
    return (scores - scores.mean(dim=0)).sum(dim=-1)


@pytest.mark.run
def test_a_loss_of_the_users_own_trains(tmp_path):
    losses = experiment(squared, step_size=0.001).run(tmp_path / "run").metrics["loss"]
    assert losses.iloc[-1] < losses.iloc[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (mixing, "a record's loss depends on the other records"),
        (lambda scores, labels: scores, r"expected losses of shape \(2,\)"),
        (lambda scores: scores, "fails: TypeError: .* takes 1 positional argument but 2"),
    ],
)
def test_a_function_that_is_no_loss_is_refused(given, words):
    with pytest.raises(UserError, match=words):
        experiment(given).prepare()


def test_an_unknown_loss_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"training.loss: expected one of .* did you mean `hinge`"):
        experiment("hinges")
