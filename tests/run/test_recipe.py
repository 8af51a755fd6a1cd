"""`training: auto`: what is not stated is chosen from public facts; closed forms and brute force check the rule."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from scipy.optimize import brentq
from scipy.stats import norm
from torch import nn

import h2fdp
from h2fdp import Experiment, Topology
from h2fdp.data.federate import configured_data
from h2fdp.data.records import Records
from h2fdp.run.explain import changes, noise_in_scores
from h2fdp.run.forecast import noise_on_model, planned_work
from h2fdp.run.prepare import prepare
from h2fdp.run.preview import privacy_report
from h2fdp.run.recipe import FARTHEST, SCORES, probe_of

AUTO = {"extends": "auto"}
NETWORK = {"edges": [{"name": "e-{i}", "repeat": 4, "trusted": False, "devices": {"count": 5}}]}


def asked(training=None, model="auto", network=None, **settings):
    settings = {"calibration": "accounted", "data": "digits", "epsilon": 2.0, **settings}
    return Experiment(topology=network or NETWORK, model=model, training=AUTO | (training or {}), **settings)


def test_what_is_not_stated_is_chosen():
    setup = asked().prepare()
    training, model = setup.config.training, setup.config.model
    assert (training.intervals, training.local_steps, training.aggregate_every) == (30, 1, 1)
    assert (training.sampling_rate, training.batch_size) == (1.0, None)
    assert (training.clip_scope, training.step_decay, training.weights) == ("record", "linear", "by-size")
    assert (model.name, model.size, model.head) == ("public-features", 64, "centred")
    assert training.left_open == frozenset()
    assert [line[:6] for line in setup.chosen] == ["chosen", "30 int", "step_s", "releas"]
    assert all(len(line) <= 80 for line in setup.chosen)
    assert setup.chosen[0] == "chosen: model public-features (64 numbers for each image)"


def _layers(*trained):
    """A perceptron of which these layers train."""
    layers = [nn.Linear(64, 40), nn.Linear(40, 20), nn.Linear(20, 10)]
    for place, layer in enumerate(layers):
        layer.requires_grad_(place in trained)
    return nn.Sequential(nn.Flatten(), layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


@pytest.mark.parametrize(
    ("module", "linear"),
    [
        (_layers(2), True),
        (_layers(1), False),
        (_layers(0, 1, 2), False),
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh()), False),
    ],
)
def test_a_model_is_linear_where_its_scores_are_in_what_is_trained(module, linear):
    """A new head on a frozen backbone has the rule of softmax regression; a layer below another has not."""
    setup = asked({"step_size": 1.0}, model="softmax").prepare()
    assert probe_of(module, setup.data, setup.config).linear is linear


@pytest.mark.parametrize(
    ("settings", "training", "steps"),
    [
        ({}, {}, 5),
        ({"network": {"edges": [{"name": "a", "trusted": True, "devices": {"count": 20}}]}}, {}, 5),
        ({"epsilon": 1e6}, {}, 1),  # little noise
        ({"protects": "record"}, {}, 1),
        ({}, {"aggregate_every": 1}, 1),
        ({"method": {"extends": "h2fdp", "objective": "proximal"}}, {}, 1),
        ({"model": {"name": "mlp", "hidden": 8}}, {}, 1),
    ],
)
def test_where_noise_on_devices_is_loud_they_take_five_steps_for_one_upload(settings, training, steps):
    """Under the noise, clip norm, step size and account of one step: all of an interval's steps are one upload."""
    given = {"protects": "device", **settings}
    setup, one = (asked(each, **given).prepare() for each in (training, {**training, "local_steps": 1}))
    chosen, before = setup.config.training, one.config.training
    assert (chosen.local_steps, chosen.aggregate_every) == (steps, steps)
    for key in ("clip_norm", "step_size", "intervals"):
        assert getattr(chosen, key) == getattr(before, key)
    assert noise_on_model(setup).noise_std == pytest.approx(noise_on_model(one).noise_std)
    public = (privacy_report(each)["observers"]["public"]["pld"] for each in (setup, one))
    assert next(public) == pytest.approx(next(public))


def test_uploads_of_adamw_are_clipped_at_the_length_of_its_steps():
    """A step moves each of M parameters by about a step size, whatever gradients are long."""
    setup = asked({"optimizer": {"name": "adamw", "lr": 0.01}}, protects="device").prepare()
    assert setup.config.training.clip_norm == pytest.approx(0.01 * math.sqrt(setup.initial.numel()), rel=0.01)


@pytest.mark.parametrize("stated", [{"protects": "device"}, {"method": {"extends": "h2fdp", "privacy": "central"}}])
def test_shares_do_not_tell_how_many_records_a_protected_device_has(stated):
    trusted = {"edges": [{**NETWORK["edges"][0], "trusted": True}]}
    assert asked(network=trusted, **stated).prepare().config.training.weights == "uniform"


def test_under_a_budget_its_plan_decides_how_many_of_the_intervals_are_made():
    _, most, step = asked(control={"enabled": True, "turns": 0.5, "joules": 0.2}).prepare().chosen
    assert most.startswith("at most 60 intervals of 1 local step")
    assert step.endswith(" (linear) if all are made; the budget's plan decides how many")
    assert max(len(most), len(step)) <= 80


@pytest.mark.parametrize("adjacency", ["null-record", "add-remove"])
def test_no_value_of_a_devices_record_has_a_part_in_the_choice(adjacency):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 6)).astype(np.float32)
    y, test = (x[:, 0] > 0).astype(int), (x[:50] + 1, (x[:50, 1] > 0).astype(int))

    def written(records):
        given = {"data": records, "test_data": test, "partition": "iid", "adjacency": adjacency}
        return asked(**given).prepare().config.model_dump_json(exclude={"data"})

    assert written((x, y)) == written((1 - 100 * x[::-1], 1 - y))
    assert written((x, y)) != written((x[:200], y[:200]))  # but the numbers of records have


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intervals", 7),
        ("local_steps", 3),
        ("sampling_rate", 0.5),
        ("clip_norm", 0.3),
        ("clip_scope", "batch"),
        ("weights", "uniform"),
    ],
)
def test_what_is_stated_stays(key, value):
    training = asked({key: value}).prepare().config.training
    assert getattr(training, key) == value
    others = {"intervals": 30, "clip_scope": "record", "step_decay": "linear", "weights": "by-size"}
    others.pop(key, None)
    assert {name: getattr(training, name) for name in others} == others


@pytest.mark.parametrize(("model", "decay"), [("softmax", "linear"), ("mlp", "none")])
def test_steps_of_curved_models_stay_on_a_way_of_the_same_length(model, decay):
    """Of ways as long, the first step is 2 / (T + 1) where steps fall, 1 / T where they stay."""
    setup = asked(model=model).prepare()
    training = setup.config.training
    assert training.step_decay == decay
    whole = noise_on_model(setup)
    first = {"linear": 2 / (training.intervals + 1), "none": 1 / training.intervals}[decay]
    assert training.step_size == pytest.approx(first * whole.way, rel=1e-6)


def mu_of(epsilon, delta):
    """Sensitivity over deviation of the Gaussian mechanism at exactly (epsilon, delta): Balle and Wang 2018, Th. 8."""

    def gap(mu):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(gap, 1e-6, 50)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_noise_moves_the_scores_by_what_the_rule_says_in_closed_form(epsilon):
    setup = asked(
        model="softmax", epsilon=epsilon, accountant="pld", data={"name": "digits", "partition": "iid"}
    ).prepare()
    training, sizes = setup.config.training, setup.data.sizes
    steps = training.step_size * (1 - np.arange(30) / 30)  # falls in equal parts towards 0
    by_device = training.clip_norm / sizes / mu_of(epsilon, 1e-5)  # of a mean gradient, in one step with all the budget
    shares = sizes / sizes.sum()
    deviation = steps.sum() * math.sqrt((shares**2 * by_device**2).sum())  # shares of the budget fall as steps do
    inputs = setup.data.test.x[:128].astype(np.float64) * setup.data.scaling.scale + setup.data.scaling.shift
    moved = deviation * math.sqrt((inputs.reshape(128, -1) ** 2).sum(1).mean())
    way = steps.sum() * training.clip_norm * math.sqrt((inputs.reshape(128, -1) ** 2).sum(1).mean())
    if way < 0.98 * FARTHEST[True]:
        assert moved == pytest.approx(
            SCORES[True], rel=0.08
        )  # four random directions; pld is 0.3 % off the closed form
    assert noise_in_scores(setup) == pytest.approx(moved, rel=0.08)


class Bent(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 9), nn.Linear(9, 10)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x.flatten(1))))


def test_the_reach_of_noise_is_the_length_of_the_scores_gradients():
    setup = asked(model=Bent).prepare()
    module = setup.blueprint.module()
    stored = setup.data.test.x[:128].astype(np.float32) * setup.data.scaling.scale + setup.data.scaling.shift
    squares = []
    for record in torch.from_numpy(stored).float():
        for score in module(record[None])[0]:
            gradients = torch.autograd.grad(score, list(module.parameters()), retain_graph=True)
            squares.append(sum(float(each.square().sum()) for each in gradients))
    exact = math.sqrt(np.mean(squares))
    probe = probe_of(module, setup.data, setup.config)
    assert probe.reach == pytest.approx(exact, rel=0.2)  # four directions
    assert not probe.linear
    before = [each.clone() for each in module.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))


@pytest.mark.parametrize("model", ["auto", "softmax"])
def test_no_private_record_has_a_part_in_the_choice(model):
    experiment = asked(model=model)
    source = configured_data(experiment.config.data)

    def other(*asked):
        data = source(*asked)
        rng = np.random.default_rng(5)
        x = rng.integers(0, 17, size=data.train.x.shape).astype(data.train.x.dtype)
        return replace(data, train=Records(x, rng.permutation(data.train.y)))

    one, two = (
        prepare(experiment.config, experiment.topology, data_source=each).config.training for each in (source, other)
    )
    assert one == two


def test_shares_by_size_would_tell_whether_a_record_is_there():
    assert asked(adjacency="add-remove").prepare().config.training.weights == "uniform"


def test_a_run_is_written_out_and_has_the_same_bits_from_what_is_written(tmp_path):
    first = asked({"intervals": 3}, noise_key="seed").run(tmp_path / "first")
    written = yaml.safe_load((tmp_path / "first" / "config.yaml").read_text())
    assert "extends" not in written["training"]
    assert written["model"]["name"] == "public-features"
    again = Experiment.from_file(tmp_path / "first" / "config.yaml")
    assert again.config.training.left_open == frozenset()
    second = again.run(tmp_path / "second")
    assert first.summary["model_sha256"] == second.summary["model_sha256"]
    assert any("public" in note and "CC BY" in note for note in first.summary["privacy"]["notes"])


def test_without_noise_steps_fit_the_scale_of_the_inputs():
    setup = asked(method="hfl", calibration=None).prepare()
    assert setup.config.training.step_size == pytest.approx(80 / 1.01, rel=0.1)  # features of length 1, and a constant
    assert setup.config.training.local_steps == 20


def test_a_budget_in_one_line_is_kept_to(tmp_path):
    run = asked(control={"joules": 0.2}, network=Topology.regular(4, 3, trust=0.5, seed=2)).run(tmp_path / "run")
    assert 0.1 < run.summary["energy_j"] <= 0.2
    assert all(run.privacy.epsilon(observer=each) <= 2.0 for each in ("edge", "peer", "cloud", "public"))


def test_what_pays_names_features_record_clipping_and_rounds_where_they_would_pay():
    setup = asked({"extends": "paper"}, model="softmax", epsilon=1.0).prepare()
    found = changes(setup)
    assert [each["sections"] for each in found] == [("training",), ("training", "model")]
    assert noise_in_scores(setup) > 20
    assert all(each["scores"] == pytest.approx(SCORES[True], rel=0.1) for each in found)
    best = " ".join(found[-1]["chosen"])
    assert all(word in best for word in ("public-features", "record clipping", "30 intervals", "1 local step"))
    assert found[-1]["energy_j"] < planned_work(setup).costs["energy_j"] / 3


def table():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(900, 5)) * [1, 1, 300, 0.01, 0] + [0, 40, 1000, 0, 7]
    y = (x[:, 2] - 1000 + 300 * x[:, 0] > 0).astype(np.int64)
    return x.astype(np.float32), y


def test_tables_are_standardised_by_public_test_records(tmp_path):
    x, y = table()
    run = asked({}, data=(x[:700], y[:700]), test_data=(x[700:], y[700:]), partition="iid", epsilon=8.0).run(
        tmp_path / "run"
    )
    assert run.summary["accuracy"] > 0.9
    np.testing.assert_allclose(run.summary["standardized_by"]["mean"], x[700:].mean(0), rtol=1e-5)
    np.testing.assert_allclose(run.summary["standardized_by"]["deviation"], x[700:].std(0), rtol=1e-4)
    scores = h2fdp.load_model(tmp_path / "run")(torch.from_numpy(x[700:]))
    assert float((scores.argmax(1).numpy() == y[700:]).mean()) == pytest.approx(run.summary["accuracy"], abs=1e-6)
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"]
    assert (written["name"], written["standardize"]) == ("logistic", True)


def test_one_training_record_moves_no_other_input():
    x, y = table()
    other = x.copy()
    other[3] = 1e4
    one, two = (
        asked(data=(each[:700], y[:700]), test_data=(x[700:], y[700:]), partition="iid").prepare().data.train.x
        for each in (x, other)
    )
    changed = np.flatnonzero((one != two).any(1))
    assert len(changed) == 1


def little(epsilon, x, **settings):
    """20,000 records under four edge servers with one noise each; `x` says nothing about labels."""
    y = np.arange(len(x)) % 3
    given = {"data": (x, y), "test_data": (x[:50], y[:50]), "partition": "iid", "accountant": "pld"}
    return asked(network=Topology.regular(4, 2, trust=1), epsilon=epsilon, **(given | settings))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 50.0])
def test_the_less_noise_the_more_intervals_of_linear_models_up_to_sixty(epsilon):
    setup = little(epsilon, np.random.default_rng(1).normal(size=(20_000, 3)).astype(np.float32)).prepare()
    noise = FARTHEST[True] * math.sqrt(4) / (20_000 * mu_of(epsilon, 1e-5))  # of the way, in scores
    in_scores = FARTHEST[True] * noise_on_model(setup).per_step / setup.config.training.clip_norm
    assert in_scores == pytest.approx(noise, rel=0.02)
    assert setup.config.training.intervals == {0.5: 30, 2.0: round(30 * math.sqrt(2 / noise)), 50.0: 60}[epsilon]
    assert 30 < round(30 * math.sqrt(2 / noise)) < 60 or epsilon != 2.0


BUDGET = {"joules": 1.0}


@pytest.mark.parametrize(
    ("epsilon", "size", "control"),
    [(0.1, 256, {}), (0.5, 384, {}), (2.0, 768, {}), (0.1, 384, BUDGET), (2.0, 384, BUDGET)],
)
def test_the_less_noise_the_more_features_images_have(epsilon, size, control, monkeypatch):
    """But for a budget, which longer messages would spend on fewer turns."""

    class Asked(Exception):
        """Features are not computed here."""

    def with_features(_, features, **_meanwhile):
        raise Asked(features.size)

    monkeypatch.setattr("h2fdp.run.prepare.with_features", with_features)
    with pytest.raises(Asked, match=f"^{size}$"):
        little(epsilon, np.zeros((20_000, 1, 28, 28), dtype=np.uint8), control=control).prepare()
