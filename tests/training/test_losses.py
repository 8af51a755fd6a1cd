"""Losses by name, by every engine, against their formulas and numerical gradients."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms.fedavg import Plain
from h2fdp.config.own_answers import Origin
from h2fdp.training.batches import Batches
from h2fdp.training.clipping import Clipping
from h2fdp.training.device_records import DeviceRecords
from h2fdp.training.engine import build_engine
from h2fdp.training.losses import LOSSES, OwnLoss
from tests.training.groups import evaluate

RNG = np.random.default_rng(5)
SCORES, LABELS = RNG.normal(size=(6, 4)), RNG.integers(0, 4, 6)
ONE, ZERO = torch.ones(()), torch.zeros(())
TORCH = torch.from_numpy(SCORES), torch.from_numpy(LABELS)


def loss(value):
    return LOSSES.read(value)


def log_softmax(scores):
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def smoothed(scores, labels, share):
    targets = (1 - share) * np.eye(4)[labels] + share / 4
    return -(targets * log_softmax(scores)).sum(axis=1)


def hinge(scores, labels):
    found = []
    for own, label in zip(scores, labels, strict=True):
        others = np.delete(own, label)
        found.append(max(0.0, 1.0 + others.max() - own[label]))
    return np.array(found)


FORMULAS = {
    "cross-entropy": ("cross-entropy", lambda scores, labels: smoothed(scores, labels, 0.0)),
    "label-smoothing": (
        {"name": "label-smoothing", "smoothing": 0.3},
        lambda scores, labels: smoothed(scores, labels, 0.3),
    ),
    "hinge": ("hinge", hinge),
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


def cross_entropies(scores, labels):
    return nn.functional.cross_entropy(scores, labels, reduction="none")


def by_label(scores, labels):
    return cross_entropies(scores, labels) * (1 - 2 * ((labels[:, None] == labels[None, :]).sum(1) % 2))


def by_count(scores, labels):
    return cross_entropies(scores, labels) * (1 - 2 * (len(labels) % 2))


def by_position(scores, labels):
    return cross_entropies(scores, labels) * (torch.arange(len(labels)) % 3 - 1)


def by_mean(scores, labels):
    return cross_entropies(scores - 5.0 * scores.mean(dim=0), labels)


CHAIN = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


class OtherModule(nn.Sequential):
    """No chain of layers to the engines: its `forward` is its own."""

    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("couples", [by_label, by_count, by_position, by_mean])
@pytest.mark.parametrize("scope", ["record", "batch"])
@pytest.mark.parametrize(
    ("engine", "module", "looped"),
    [
        *((engine, CHAIN, looped) for engine in ("loop", "stacked") for looped in (False, True)),
        ("stacked", OtherModule(*CHAIN), False),
    ],
    ids=lambda value: "" if isinstance(value, nn.Module) else str(value),
)
def test_one_record_moves_the_sum_of_clipped_gradients_by_no_more_than_its_bound(
    engine, module, looped, scope, couples
):
    """Whatever a user's loss makes of a batch: it is given one record at a time."""
    own = OwnLoss(couples, Origin("loss:couples"), looped)
    made = build_engine(engine, module, Clipping(1.0, scope), Plain(), 44, loss=own)
    torch.manual_seed(4)
    start = torch.randn(2, sum(each.numel() for each in module.parameters()))
    x, y = 2.0 * torch.randn(41, 3) + 1.0, torch.zeros(41, dtype=torch.int64)

    def sums(count):
        """Of two devices, of which the first has all records but the last ones."""
        held = DeviceRecords(
            torch.cat([x[:count], x]), torch.cat([y[:count], y]), np.array([0, count, count + 41]), ONE, ZERO
        )
        batches = Batches(np.arange(41)[None, None].repeat(2, 1), np.array([[count, 41]]), expected=np.ones(2))
        return made.train(start, held, np.arange(2), batches, 1.0).updates

    moved = (sums(41) - sums(40)).norm(dim=1)
    assert moved[0] <= (1.0 if scope == "record" else 2.0) * (1 + 1e-5)
    assert moved[1] <= 1e-6, "no record of another device moves it"


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


def mixing(scores, labels):
    return (scores - scores.mean(dim=0)).sum(dim=-1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (mixing, "a record's loss depends on the other records"),
        (lambda scores, labels: torch.rand(1) * scores.sum(dim=-1), "expected the same losses at each call"),
    ],
)
def test_a_function_that_is_no_loss_is_refused(given, words):
    with pytest.raises(UserError, match=words):
        experiment(given).prepare()
