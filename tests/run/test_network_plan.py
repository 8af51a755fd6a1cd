"""Networks planned without training: their noise, their costs, and whether accuracy depends on more than the noise."""

import math
import re

import numpy as np
import pytest

from h2fdp import Experiment, UserError
from h2fdp.data.federate import configured_data
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.run.forecast import forecast, planned_work
from h2fdp.run.network_plan import noise_of_way, plan_of, planned
from h2fdp.run.prelude import distance_of


def network(edges=4, devices=5, trust=0.5, **more):
    servers = [{"name": "e-{i}", "repeat": edges, "devices": {"count": devices, "distance_m": 50.0}}]
    return {"trust": {"trusted": trust, "exact": True}, "edges": servers, **more}


AUTO = {"training": {"extends": "auto"}, "calibration": "accounted", "accountant": "pld", "model": "auto"}


def experiment_of(**settings):
    if isinstance(settings.get("training"), dict):
        settings["training"] = {"extends": "auto"} | settings["training"]
    return Experiment(**({"data": "digits"} | AUTO | settings))


def plan(experiment):
    return plan_of(planned(experiment.config, experiment.topology, configured_data(experiment.config.data)))


def _without(settings, key):
    return {name: each for name, each in settings.items() if name != key}


@pytest.mark.parametrize(
    "settings",
    [
        {"data": "digits", "epsilon": 2.0},
        {"data": "digits", "epsilon": 60.0, "trust": 1.0},
        {"data": {"name": "digits", "partition": {"dirichlet": 0.3}}, "model": "mlp", "epsilon": 5.0},
        {"data": {"name": "digits", "test": 0.2}, "model": "softmax", "method": "hfl-dp", "epsilon": 5.0},
        {"data": "digits", "epsilon": 2.0, "training": {"extends": "paper", "intervals": 4}},
    ],
)
def test_it_is_the_plan_of_the_run(settings):
    experiment = experiment_of(topology=network(trust=settings.get("trust", 0.5)), **_without(settings, "trust"))
    found, run = plan(experiment), experiment.prepare()
    costs = planned_work(run).costs
    assert found.noise == pytest.approx(noise_of_way(run), rel=1e-9)
    assert (found.joules, found.seconds, found.bytes) == (costs["energy_j"], costs["clock_s"], costs["bytes"])
    assert (found.intervals, found.records) == (run.config.training.intervals, run.data.sizes.sum())
    assert (found.edges, found.devices) == (4, 20)


@pytest.mark.parametrize(("edges", "devices", "trust", "adders"), [(4, 5, 0.0, 20), (4, 5, 1.0, 4), (4, 5, 0.5, 12)])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_noise_has_a_closed_form(edges, devices, trust, adders, epsilon):
    """x = 6000 sqrt(N) / (n mu) of N nodes that add noise; accounts are within 0.2 % of exact ones."""
    found = plan(experiment_of(topology=network(edges, devices, trust), model="softmax", epsilon=epsilon))
    right = 6_000 * math.sqrt(adders) / (found.records * distance_of(epsilon, 1e-5))
    assert found.noise == pytest.approx(right, rel=3e-3)
    assert not found.depends


def test_models_of_equal_noise_have_one_law():
    """A network without trust at the epsilon that makes up for it: the same training, and noise of the same deviation
    in the average of each interval, to the accuracy of accounts."""
    two = experiment_of(topology=network(trust=1.0), model="softmax", epsilon=2.0)
    other = gaussian_epsilon(distance_of(2.0, 1e-5) * math.sqrt(20 / 4), 1e-5)
    shape = network(edges=2, devices=10, trust=0.0)
    data = {"name": "digits", "partition": {"dirichlet": 0.2}}
    one = experiment_of(topology=shape, data=data, model="softmax", epsilon=other)
    assert plan(one).noise == pytest.approx(plan(two).noise, rel=3e-3)
    setups = [each.prepare() for each in (one, two)]
    first, second = (
        {k: v for k, v in each.config.training.model_dump().items() if k != "step_size"} for each in setups
    )
    assert first == second
    sizes = [each.config.training.step_size for each in setups]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.01)
    deviations = []
    for setup, size in zip(setups, sizes, strict=True):
        facts = {each.name: each for each in setup.blueprint.facts}
        plans = [each.plan for each in forecast(setup)]
        deviations.append([noise_and_gradients(each, facts, setup.noise)[0] ** 0.5 / size for each in plans])
    assert np.allclose(*deviations, rtol=3e-3)


ROWS = {
    "local steps": ({"training": {"extends": "auto", "local_steps": 3}}, {}, "take 3 local steps"),
    "epochs": (
        {"training": {"local_epochs": 1, "batch_size": 8}},
        {},
        "local steps between messages|means of a device",
    ),
    "batches": ({"training": {"extends": "auto", "batch_size": 8}}, {}, "stated size"),
    "participation": ({"training": {"extends": "auto", "participation": 0.4}}, {}, "not all devices"),
    "turns": ({"training": {"extends": "auto", "device_turns": 2}}, {}, "not all devices"),
    "secret draws": (
        {"protects": "device", "training": {"participation": {"rate": 0.5, "secret": True, "cover": True}}},
        {},
        "uploads",
    ),
    "whole devices": ({"protects": "device", "epsilon": 200.0}, {}, "whole uploads are clipped"),
    "a budget of joules": ({"control": {"joules": 1.0}}, {}, "decides by more"),
    "a budget of epsilon": ({"budget": {"cloud": 1.0}}, {}, "before their last interval"),
    "until": ({"training": {"extends": "auto", "until": {"accuracy": 0.9}}}, {}, "before their last interval"),
    "faults": ({"faults": {"device_dropout": 0.1}}, {}, "not all devices"),
    "batteries": ({}, {"devices": {"battery_j": 50.0}}, "not all devices"),
    "turns by battery": (
        {"training": {"extends": "auto", "device_turns": "battery"}},
        {"devices": {"battery_j": 50.0}},
        "not all devices",
    ),
    "compression": (
        {"method": {"extends": "h2fdp", "privacy": "local"}, "compression": {"device": {"quantise": 8}}},
        {},
        "errors of their own",
    ),
    "liars": ({}, {"adversaries": {"devices": 0.2, "attack": "sign-flip"}}, "lie"),
    "weights": (
        {"training": {"extends": "auto", "weights": "uniform"}, "partition": {"sizes": {"lognormal": 1}}},
        {},
        "weigh no more",
    ),
    "proximal": ({"method": {"extends": "h2fdp", "objective": "proximal"}}, {}, "plain gradients"),
    "buffers": (
        {"method": {"extends": "h2fdp", "schedule": {"name": "buffered", "buffer": {"edge": 2, "cloud": 1}}}},
        {},
        "do not wait|by more",
    ),
    "robust": ({"method": {"extends": "h2fdp", "aggregation": "median"}}, {}, "plain shares"),
    "plain": ({}, {}, ""),
    "equal sizes": ({"training": {"extends": "auto", "weights": "uniform"}, "partition": "iid"}, {}, ""),
    "a sampling rate": ({"training": {"extends": "auto", "sampling_rate": 0.5}}, {}, ""),
    "secure sums": ({"method": {"extends": "h2fdp"}}, {"trust": {"secure-sum": 1, "exact": True}}, ""),
    "a relay": ({}, {"trust": {"relay": 1}}, ""),
    "the cloud": ({"method": {"extends": "h2fdp", "privacy": "central"}}, {"trust": {"trusted": 1}}, "clipped"),
}


@pytest.mark.parametrize("row", ROWS)
def test_what_accuracy_depends_on_is_said(row):
    settings, more, said = ROWS[row]
    own = {"topology": network() | more, "model": "softmax", "epsilon": 4.0}
    own["data"] = {"name": "digits", "partition": settings.get("partition", "iid")}
    found = plan(experiment_of(**(own | _without(settings, "partition")))).depends
    assert bool(found) == bool(said), found
    assert re.search(said, found), found


def test_without_noise_there_is_nothing_to_plan():
    with pytest.raises(UserError, match=r"method.privacy: this method adds no noise"):
        plan(Experiment(topology=network(), data="digits", method="hfl"))
