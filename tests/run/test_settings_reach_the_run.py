"""Each training key changes the part of the run that it names."""

import numpy as np
import pytest

from h2fdp import Experiment, Topology
from h2fdp.schedules import AggregationTimes

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)


def prepared(**settings):
    return Experiment(topology=NETWORK, data="digits", **{"intervals": 3, "local_steps": 6, **settings}).prepare()


def test_weights_by_size_reach_the_plan():
    uneven = {"name": "digits", "partition": {"dirichlet": 0.3}}
    run = Experiment(topology=NETWORK, data=uneven, weights="by-size", intervals=2, participation=0.7).prepare()
    plan = run.cloud(None).plan(0)
    for number, part in enumerate(plan.subnets.values()):
        held = run.data.sizes[3 * number : 3 * number + 3][part.rows]
        assert len(part.rows) == 2
        np.testing.assert_allclose(part.shares, held / held.sum())
    masses = [run.data.sizes[3 * c : 3 * c + 3][part.rows].sum() for c, part in enumerate(plan.subnets.values())]
    np.testing.assert_allclose(plan.weights, np.array(masses) / sum(masses))


def test_subnets_draw_their_participants_independently():
    cloud = prepared(participation=0.4, intervals=40).cloud(None)
    draws = [[part.rows.tolist() for part in cloud.plan(k).subnets.values()] for k in range(40)]
    assert any(one != other for one, other in draws)


def test_clipping_scope_and_norm():
    clipping = prepared(clip_scope="record", clip_norm=0.3).blueprint.clipping
    assert (clipping.scope, clipping.norm) == ("record", 0.3)


@pytest.mark.parametrize("method", ["h2fdp", "hfl"])
def test_sampling_follows_privacy_unless_it_is_said(method):
    assert prepared(method=method).blueprint.sampling == ("poisson" if method == "h2fdp" else "fixed")
    assert prepared(method=method, sampling="fixed").blueprint.sampling == "fixed"


def test_sampling_rates_are_each_devices_own():
    run = prepared(batch_size=4)
    np.testing.assert_allclose(run.blueprint.rates, 4 / run.data.sizes)
    np.testing.assert_allclose(prepared(sampling_rate=0.05).blueprint.rates, 0.05)


def test_the_rate_of_fixed_batches_is_the_one_really_drawn():
    run = prepared(sampling="fixed", sampling_rate=1e-5)
    np.testing.assert_allclose(run.blueprint.rates, 1 / run.data.sizes)


def test_the_rhythm_of_local_aggregations():
    assert prepared(aggregate_every=2).aggregation_times == AggregationTimes(every=2)
    assert prepared(aggregations_per_interval=3).aggregation_times == AggregationTimes(per_interval=3)
    assert prepared(method="fedavg").aggregation_times == AggregationTimes()


def test_a_star_is_known_to_be_the_clouds_own():
    star = prepared(method={"extends": "hfl-dp", "topology": "star"})
    releases = list(star.cloud(None).releases(star.cloud(None).plan(0)))
    edge, cloud = (
        {(row.sensitivity, row.noise_std) for row in releases if row.observer == each} for each in ("edge", "cloud")
    )
    assert edge == cloud


def test_a_validation_split_is_scored_beside_the_test_data(tmp_path):
    run = Experiment(
        topology=NETWORK, data={"name": "digits", "validation": 0.2}, method="hfl", intervals=2, local_steps=2
    ).run(tmp_path / "run")
    assert run.metrics["validation_accuracy"].between(0.01, 1).all()
    assert run.metrics["validation_loss"].gt(0).all()


def test_a_star_of_synthetic_data_runs_again_from_its_directory(tmp_path):
    first = Experiment(
        topology=NETWORK, data="synthetic", model="logistic", method="fedavg", intervals=2, local_steps=2
    ).run(tmp_path / "first")
    again = Experiment.from_file(tmp_path / "first" / "config.yaml").run(tmp_path / "again")
    assert first.summary["data_fingerprint"] == again.summary["data_fingerprint"]
    assert first.metrics["loss"].equals(again.metrics["loss"])


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
