"""The job that all systems do, as our program does it, beside federated averaging written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.rivals import job as jobs
from benchmarks.rivals import own_app
from benchmarks.rivals.records import write_archive
from benchmarks.rivals.shapes import SHAPES
from benchmarks.rivals.works import STAR, WORKS, Work
from benchmarks.side_by_side import Bench
from h2fdp.models.architectures import char_lstm

DEVICES, RECORDS, STEPS, ROUNDS, STEP_SIZE = 3, 5, 2, 2, 0.1


def averaged(job):
    """(M,) the mean of all devices' models, whose steps take all their records, after all rounds."""
    archive = np.load(job.data)
    x, y = torch.from_numpy(archive["x_train"]), torch.from_numpy(archive["y_train"])
    model = jobs.initial_model(job.model)
    parameters = list(model.parameters())
    vector = nn.utils.parameters_to_vector(parameters).detach()
    for _ in range(ROUNDS):
        ends = []
        for own in (slice(RECORDS * each, RECORDS * (each + 1)) for each in range(DEVICES)):
            nn.utils.vector_to_parameters(vector.clone(), parameters)  # it shares the memory
            for _ in range(STEPS):
                scores = model(x[own] / 255 if x.dtype == torch.uint8 else x[own])
                each = scores.log_softmax(dim=-1).gather(-1, y[own][..., None])
                gradients = torch.autograd.grad(-each.mean(), parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter -= STEP_SIZE * gradient
            ends.append(nn.utils.parameters_to_vector(parameters).detach())
        vector = torch.stack(ends).mean(dim=0)
    return vector


@pytest.mark.run
@pytest.mark.parametrize("name", ["lr-mnist", "rnn-shakespeare"])
def test_our_program_averages_the_models_of_devices_on_a_shape(name, monkeypatch, tmp_path):
    if name == "rnn-shakespeare":
        small = replace(SHAPES[name], record=(6,), label=(6,))
        monkeypatch.setitem(SHAPES, name, small)
        monkeypatch.setitem(jobs.MODELS, name, lambda: char_lstm((6,), (6, 90), 89, 8, 4))
    path = tmp_path / "records.npz"
    assert write_archive(path, name, DEVICES, RECORDS, None) == f"drawn records of the shape of {name}"
    sizes = {"devices": DEVICES, "participants": DEVICES, "records": RECORDS, "batch_size": RECORDS}
    job = jobs.Job(
        "own_app", name, str(path), rounds=ROUNDS, local_steps=STEPS, step_size=STEP_SIZE, workers=1, subnets=1,
        precision="float32", folder=str(tmp_path), **sizes,
    )  # fmt: skip
    trained, expected = own_app.train(job), averaged(job)
    start = nn.utils.parameters_to_vector(jobs.initial_model(name).parameters()).detach()
    assert len(trained.ends) == ROUNDS
    assert torch.linalg.vector_norm(trained.parameters - expected) < 1e-3 * torch.linalg.vector_norm(expected - start)


def test_devices_have_their_own_records_as_the_model_sees_them(tmp_path):
    path = tmp_path / "records.npz"
    write_archive(path, "lr-mnist", DEVICES, RECORDS, None)
    sizes = {"devices": DEVICES, "participants": DEVICES, "records": RECORDS, "batch_size": RECORDS}
    job = jobs.Job("pfl_app", "lr-mnist", str(path), rounds=1, local_steps=1, step_size=STEP_SIZE, workers=1,
                   subnets=1, precision="float32", folder="", **sizes)  # fmt: skip
    archive, devices = np.load(path), jobs.ByDevice(job)
    x, y = devices[2]
    assert len(devices) == DEVICES
    np.testing.assert_allclose(x.numpy(), archive["x_train"][10:15] / 255, rtol=1e-6)
    assert y.tolist() == archive["y_train"][10:15].tolist()
    assert (archive["device_train"] == np.repeat(np.arange(DEVICES), RECORDS)).all()


def test_each_shape_is_a_work_of_all_systems_that_know_its_model():
    works = {work.model: work for work in WORKS}
    for name, shape in SHAPES.items():
        work = works[name]
        assert isinstance(work, Work)
        assert (work.devices, work.participants, work.records, work.local_steps) == (
            shape.devices, 10, shape.records, shape.steps
        )  # fmt: skip
        assert {each.program for each in work.systems} == {"own_app", "flower_app", "pfl_app"}


def test_systems_that_are_left_out_are_not_asked(tmp_path):
    bench = Bench(None, tmp_path, tmp_path, without=["flower_app", "pfl_app", "jax_app"])
    work = next(work for work in WORKS if work.model == "lr-mnist")
    assert [each.program for each in bench.systems(work)] == ["own_app", "own_app"]
    assert bench.systems(work)[0] == STAR
