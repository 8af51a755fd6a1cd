"""Each training key changes the part of the run that it names."""

import numpy as np
import pytest

from h2fdp import Experiment, Topology

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)


def prepared(**settings):
    return Experiment(topology=NETWORK, data="digits", **{"intervals": 3, "local_steps": 6, **settings}).prepare()


def test_subnets_draw_their_participants_independently():
    cloud = prepared(participation=0.4, intervals=40).cloud(None)
    draws = [[part.rows.tolist() for part in cloud.plan(k).subnets.values()] for k in range(40)]
    assert any(one != other for one, other in draws)


@pytest.mark.parametrize("method", ["h2fdp", "hfl"])
def test_sampling_follows_privacy_unless_it_is_said(method):
    assert prepared(method=method).blueprint.sampling == ("poisson" if method == "h2fdp" else "fixed")
    assert prepared(method=method, sampling="fixed").blueprint.sampling == "fixed"


def test_a_validation_split_is_scored_beside_the_test_data(tmp_path):
    run = Experiment(
        topology=NETWORK, data={"name": "digits", "validation": 0.2}, method="hfl", intervals=2, local_steps=2
    ).run(tmp_path / "run")
    assert run.metrics["validation_accuracy"].between(0.01, 1).all()
    assert run.metrics["validation_loss"].gt(0).all()


def test_evaluation_is_on_the_test_data(tmp_path):
    run = Experiment(topology=NETWORK, data="digits", method="hfl", intervals=1, local_steps=5)
    done = run.run(tmp_path / "run")
    module, test = done.model, run.prepare().data.test
    import torch

    scaling = run.prepare().data.scaling
    with torch.no_grad():
        output = module(torch.from_numpy(test.x.astype(np.float32) * scaling.scale + scaling.shift))
    accuracy = (output.argmax(dim=1).numpy() == test.y).mean()
    assert done.summary["accuracy"] == pytest.approx(accuracy, abs=0.01)
