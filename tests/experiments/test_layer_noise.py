"""Noise of another scale in each layer: `experiments/parts/layer_noise.py`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from experiments.parts.layer_noise import Perceptron, ScaledLayers
from h2fdp import Experiment, Topology
from h2fdp.models.construct import ParameterLayout
from h2fdp.run.preview import privacy_report
from tests.protocol.test_noise_boundaries import carries
from tests.protocol.test_noise_of_placements import order

PART = f"{Path(__file__).parents[2] / 'experiments' / 'parts' / 'layer_noise'}:Perceptron"
BODY, HEAD = 0.25, 3.0


def experiment(body, head, **settings):
    usual = {"intervals": 2, "local_steps": 2, "aggregate_every": 1, "batch_size": 8, "clip_norm": 1.0, "epsilon": 4.0}
    usual |= {"calibration": "accounted", "accountant": "rdp", "seed": 3, "step_size": 0.5}
    model = {"name": PART, "hidden": 400, "body": body, "head": head}
    tree = Topology.regular(edges=2, devices=2, trust=0.5, seed=1)
    return Experiment(topology=tree, data="digits", model=model, **{**usual, **settings})


def by_layer(run, vector):
    """The parameters w of the two layers that a trained vector v stands for."""
    module = run.blueprint.module()
    ParameterLayout(module).load(module, vector)
    weights = {name: scale * module.module.get_parameter(name).detach() for name, scale in module.scales.items()}
    return [torch.cat([weights[f"{layer}.weight"].flatten(), weights[f"{layer}.bias"]]) for layer in (1, 3)]


def test_each_layer_carries_its_scale_of_the_noise_that_a_device_adds():
    run = experiment(BODY, HEAD).prepare()
    number = next(at for at, each in enumerate(run.blueprint.facts) if each.adds_noise == "device")
    upload = run.blueprint.device_group(number).train(run.initial, order(0.3, rows=np.arange(2))).updates[0]
    for noise, scale in zip(by_layer(run, upload), (BODY, HEAD), strict=True):
        assert carries(noise, 0.3 * scale)


def test_the_account_and_the_noise_multiplier_are_those_of_any_scale():
    reports = [privacy_report(experiment(body, head).prepare()) for body, head in ((1.0, 1.0), (BODY, HEAD))]
    assert reports[0] == reports[1]


def test_steps_and_clipping_are_those_of_a_loop_by_hand():
    """w moves by eta s^2 g times min(1, C / |s g|), g the mean gradient of the batch."""
    module, plain = (
        Perceptron(hidden=5, body=BODY, head=HEAD),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 10)),
    )
    scales = [BODY, BODY, HEAD, HEAD]
    with torch.no_grad():
        for own, inner, scale in zip(plain.parameters(), module.parameters(), scales, strict=True):
            own.copy_(inner * scale)
    records, labels = torch.randn(20, 64), torch.arange(20) % 10
    for each in (module, plain):
        nn.functional.cross_entropy(each(records), labels).backward()
    length = (
        sum(float((scale * each.grad).square().sum()) for scale, each in zip(scales, plain.parameters(), strict=True))
        ** 0.5
    )
    assert torch.cat([each.grad.flatten() for each in module.parameters()]).norm().item() == pytest.approx(
        length, rel=1e-5
    )
    cut = min(1.0, 0.1 / length)
    for own, inner, scale in zip(plain.parameters(), module.parameters(), scales, strict=True):
        moved = scale * (inner - 0.5 * cut * inner.grad)
        torch.testing.assert_close(moved, own - 0.5 * scale**2 * cut * own.grad)


@pytest.mark.run
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_it_trains_under_any_engine(engine, tmp_path):
    run = experiment(0.5, 2.0, engine=engine, intervals=3).run(tmp_path / engine)
    assert run.privacy.epsilon("public") <= 4.0
    assert all(torch.isfinite(each).all() for each in run.model.parameters())


@pytest.mark.parametrize(("scales", "said"), [({"1.": 0.0}, "above 0"), ({"2.": 1.0}, "one of 1.weight")])
def test_scales_of_nothing_are_refused(scales, said):
    with pytest.raises(ValueError, match=said):
        ScaledLayers(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), scales)
