"""Runs by the compiled engine: near the same run by another, equal for any number of threads, refused with a reason."""

import pytest
import torch
import yaml

from h2fdp import Experiment, Topology
from h2fdp.records.directory import RunDirectory
from h2fdp.run.identity import run_digest

TREE = Topology.regular(edges=3, devices=4, trust=0.4, seed=1)


def experiment(engine, **changes):
    settings = {"intervals": 3, "local_steps": 4, "aggregate_every": 2, "batch_size": 6, "clip_scope": "record"}
    runtime = {"backend": "inline", "hosts": changes.pop("threads", 1), "engine": engine}
    return Experiment(topology=TREE, data="digits", method="h2fdp", **{**settings, "runtime": runtime, **changes})


def model_of(run):
    return torch.cat([value.flatten() for value in torch.load(run.directory / "model.pt", weights_only=True).values()])


@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_a_run_is_the_stacked_engines_but_for_rounding(tmp_path, model):
    found, expected = (experiment(engine, model=model).run(tmp_path / engine) for engine in ("compiled", "stacked"))
    assert yaml.safe_load((found.directory / "config.yaml").read_text())["runtime"]["engine"] == "compiled"
    torch.testing.assert_close(model_of(found), model_of(expected), rtol=1e-4, atol=1e-4)


def test_threads_change_no_bit(tmp_path):
    one, three = (experiment("compiled", threads=count).run(tmp_path / str(count)) for count in (1, 3))
    assert model_of(one).equal(model_of(three))


def test_the_versions_of_what_compiles_belong_to_what_bits_depend_on(tmp_path):
    directory = experiment("compiled").run(tmp_path / "run").directory

    def versions_of(engine):
        return run_digest(experiment(engine).prepare(), RunDirectory(directory))["versions"]

    assert versions_of("compiled") != versions_of("stacked")
    assert versions_of("loop") == versions_of("stacked")
