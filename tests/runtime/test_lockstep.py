"""Subnets that train as one computation give what each gives alone, to the bit."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from h2fdp import Experiment, Topology
from h2fdp.arithmetic import run_arithmetic, set_arithmetic
from h2fdp.protocol import InProcessNodes
from h2fdp.runtime.blueprint import Blueprint
from h2fdp.runtime.lockstep import LockstepNodes, blocks, inline_nodes, lockstep_of


def experiment(method="h2fdp", **settings):
    defaults = {"intervals": 2, "local_steps": 5, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 3}
    sums = settings.pop("secure_sum", 0.0)
    topology = Topology.regular(edges=5, devices=3, trust=0.0 if sums else 0.5, secure_sum=sums, seed=3)
    data = {"name": "digits", "partition": {"dirichlet": 0.5, "sizes": {"lognormal": 1.0}}}
    return Experiment(topology=topology, data=data, method=method, **{**defaults, **settings})


def model_after(run, nodes):
    cloud = run.cloud(nodes)
    for interval in range(run.config.training.intervals):
        cloud.run_interval(cloud.plan(interval))
    return cloud.model


FAULTS = {"device_dropout": 0.4, "straggler": {"probability": 0.5}, "edge_outage": {"probability": 0.2}}
ONE_UPLOAD = {"aggregate_every": None, "aggregations_per_interval": 0}
SECURE = {"name": "hierarchical", "secure_sum": {"dropouts": 1}}
OBJECTIVE = {"name": "objective", "noise_multiplier": 0.01, "input_bound": 60.0}
SETTINGS = [
    {},
    {"participation": 0.4, "weights": "by-size"},
    {"method": {"extends": "h2fdp", "objective": {"name": "proximal", "mu": 0.5}}, "clip_scope": "record"},
    {"engine": "loop"},
    {"control": {"enabled": True}},
    {"faults": FAULTS},
    {"faults": FAULTS, "control": {"enabled": True}, "weights": "by-size"},
    {"method": {"extends": "h2fdp", "privacy": "dp-sgd"}, "faults": FAULTS},
    {"method": {"extends": "h2fdp", "privacy": {"name": "dp-sgd", "normalize": "drawn"}}, "momentum": 0.5},
    {"method": {"extends": "h2fdp", "privacy": SECURE}, "faults": FAULTS, "secure_sum": 1.0},
    {"method": {"extends": "h2fdp", "privacy": "central"}, **ONE_UPLOAD, "faults": FAULTS},
    {"method": {"extends": "h2fdp", "privacy": "output"}, "participation": 0.4},
    {
        "method": {"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": 2.0}, "objective": "pfedme"},
        "participation": {"rate": 0.4, "secret": True, "cover": True},
    },
    {"method": {"extends": "hfl", "objective": {"name": "proximal", "mu": 2.0}, "privacy": OBJECTIVE}, **ONE_UPLOAD},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("workers", "keep"), [(1, True), (2, True), (3, False)])
def test_blocks_give_the_bits_of_single_edge_servers(settings, workers, keep):
    run = experiment(**settings).prepare()
    single = {subnet.name: run.blueprint.edge_server(number) for number, subnet in enumerate(run.topology.subnets)}
    with run_arithmetic():
        alone = model_after(run, InProcessNodes(single))
    engine = run.blueprint.local_engine()
    names = [subnet.name for subnet in run.topology.subnets]
    runs = blocks(run.topology.sizes, range(5), workers)
    with ThreadPoolExecutor(workers, initializer=set_arithmetic) as threads, run_arithmetic():
        nodes = LockstepNodes(names, runs, lambda each: lockstep_of(run.blueprint, each, engine), threads, keep)
        assert torch.equal(model_after(run, nodes), alone)


@pytest.mark.parametrize(("workers", "engines"), [(1, 1), (2, 2), (16, 5)])
def test_no_more_engines_are_built_than_threads_train(monkeypatch, workers, engines):
    """Five subnets of three devices: on 16 threads each would be three parts of one device, and is trained as one."""
    asked, engine = [], Blueprint.local_engine
    monkeypatch.setattr(Blueprint, "local_engine", lambda own, threads: asked.append(threads) or engine(own, threads))
    run = experiment().prepare()
    with run_arithmetic(), inline_nodes(run.blueprint, range(5), workers) as nodes:
        model_after(run, nodes)
    assert asked == [engines]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_star_spread_over_threads_has_the_bits_of_one_thread(workers):
    run = experiment(method="pedpfl").prepare()
    models = []
    for count in (1, workers):
        with run_arithmetic(), inline_nodes(run.blueprint, range(1), count) as nodes:
            models.append(model_after(run, nodes))
    assert torch.equal(*models)
