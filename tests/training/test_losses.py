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
from h2fdp.training.local_steps import Descent
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


LABELLED = RNG.integers(0, 2, (6, 4))  # several labels
SEQUENCES = RNG.normal(size=(6, 3, 4)), np.where(RNG.uniform(size=(6, 3)) < 0.3, -100, RNG.integers(0, 4, (6, 3)))
SEQUENCES[1][:, 0] = RNG.integers(0, 4, 6)  # each has a position of its own


def sigmoid_losses(scores, labels):
    probabilities = 1 / (1 + np.exp(-scores))
    return -(labels * np.log(probabilities) + (1 - labels) * np.log(1 - probabilities)).mean(axis=1)


def by_position_of(formula):
    """The mean of a loss of one class over the positions that are a record's own."""

    def formula_of_sequences(scores, labels):
        return np.array([formula(x[y >= 0], y[y >= 0]).mean() for x, y in zip(scores, labels, strict=True)])

    return formula_of_sequences


OTHERS = {  # task -> loss, formula, scores, labels
    "regression": ("squared", lambda s, y: (s[:, 0] - y) ** 2, RNG.normal(size=(6, 1)), RNG.normal(size=6)),
    "multilabel": ("sigmoid-cross-entropy", sigmoid_losses, SCORES, LABELLED),
    **{f"tokens, {name}": (value, by_position_of(formula), *SEQUENCES) for name, (value, formula) in FORMULAS.items()},
}


@pytest.mark.parametrize("task", OTHERS)
def test_losses_of_other_targets_are_their_formulas_and_so_are_their_slopes(task):
    value, formula, scores, labels = OTHERS[task]
    given = torch.from_numpy(scores), torch.from_numpy(labels)
    for measure in ("each", "evaluated"):
        np.testing.assert_allclose(getattr(loss(value), measure)(*given).numpy(), formula(scores, labels), rtol=1e-12)
    np.testing.assert_allclose(float(loss(value).mean(*given)), formula(scores, labels).mean(), rtol=1e-12)
    shares, step = RNG.uniform(size=6), 1e-6
    stacked = given[0][None], given[1][None], torch.from_numpy(shares)[None]
    found = loss(value).score_gradient(*stacked)[0].numpy()
    plain = loss(value).score_gradient(*stacked[:2])[0].numpy()
    for place in np.ndindex(*scores.shape):
        moved = np.zeros_like(scores)
        moved[place] = step
        slope = (formula(scores + moved, labels) - formula(scores - moved, labels)) / (2 * step)
        assert found[place] == pytest.approx(shares @ slope, abs=1e-7)
        assert plain[place] == pytest.approx(slope.sum(), abs=1e-7)


class Recurrent(nn.Module):
    """Scores of four classes at each of three positions; no chain of known layers."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(1, 5), nn.Linear(5, 4)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x[..., None]).cumsum(dim=1)))


TARGETS = {  # loss, model, labels of 40 records
    "regression": ("squared", nn.Sequential(nn.Linear(3, 1)), torch.randn(40)),
    "several layers": ("squared", nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)), torch.randn(40)),
    "multilabel": ("sigmoid-cross-entropy", nn.Sequential(nn.Linear(3, 4)), torch.randint(0, 2, (40, 4))),
    "tokens": ("cross-entropy", Recurrent(), torch.randint(0, 4, (40, 3)).index_fill(0, torch.arange(9), -100)),
}
TARGETS["tokens"][2][:, 0] = 1


@pytest.mark.parametrize("engine", ["loop", "stacked"])
@pytest.mark.parametrize("task", TARGETS)
def test_each_records_gradient_of_other_targets_is_clipped_by_itself(engine, task):
    """Against autograd, record by record, at a bound that cuts some of them."""
    value, module, labels = TARGETS[task]
    torch.manual_seed(3)
    size = sum(each.numel() for each in module.parameters())
    start, x = torch.randn(2, size), 2 * torch.randn(40, 3)
    held = DeviceRecords(x, labels, np.array([0, 15, 40]), ONE, ZERO)
    drawn = np.zeros((1, 2, 25), dtype=np.int64)
    drawn[0, 0, :15], drawn[0, 1] = np.arange(15), np.arange(25)
    batches = Batches(drawn, np.array([[15, 25]]), expected=np.array([15.0, 25.0]))
    norms, expected = [], []
    for row, records in enumerate((range(15), range(15, 40))):
        nn.utils.vector_to_parameters(start[row].clone(), module.parameters())
        total = torch.zeros(size)
        for record in records:
            found = loss(value).each(module(x[record : record + 1]), labels[record : record + 1]).sum()
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(found, list(module.parameters()))])
            norms.append(float(gradient.norm()))
            total += gradient * min(1.0, BOUND[task] / norms[-1])
        expected.append(total / len(records))
    assert min(norms) < BOUND[task] < max(norms), "some are cut"
    made = build_engine(engine, module, Clipping(BOUND[task], "record"), Descent(Plain()), 32, loss=loss(value))
    updates = made.train(start, held, np.arange(2), batches, 1.0).updates
    torch.testing.assert_close(updates, torch.stack(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clipping", [None, Clipping(0.5, "record")], ids=["plain", "clipped"])
@pytest.mark.parametrize("task", TARGETS)
def test_a_device_has_its_own_bits_whoever_shares_its_stack(task, clipping):
    value, module, labels = TARGETS[task]
    torch.manual_seed(6)
    start = torch.randn(5, sum(each.numel() for each in module.parameters()))
    held = DeviceRecords(2 * torch.randn(40, 3), labels, np.arange(0, 41, 8), ONE, ZERO)
    batches = Batches(np.tile(np.arange(7), (3, 5, 1)), np.full((3, 5), 7), expected=np.full(5, 7.0))
    made = build_engine("stacked", module, clipping, Descent(Plain()), 8, loss=loss(value))
    whole = made.train(start, held, np.arange(5), batches, 0.1).updates
    for part in (np.array([0, 1]), np.array([2, 3, 4]), np.array([3])):
        alone = made.train(start[part], held, part, batches.part(part), 0.1).updates
        assert alone.equal(whole[part])


BOUND = {"regression": 2.0, "several layers": 2.0, "multilabel": 0.6, "tokens": 2.0}

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
    made = build_engine(engine, module, Clipping(1.0, scope), Descent(Plain()), 44, loss=own)
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
    assert run.metrics["loss"].iloc[-1] != pytest.approx(scores.measures["loss"], rel=1e-3)
    hinged = evaluate(
        run.model, torch.cat([each.flatten() for each in run.model.parameters()]), test_set(setup), loss("hinge")
    )
    assert run.metrics["loss"].iloc[-1] == pytest.approx(hinged.measures["loss"], rel=1e-6)


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
