"""The questions: sweeps as they are planned, formulas against planned runs, pages against what writes them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import h2fdp
from experiments.ali_dpfl.differences import FILE as GAP_FILE
from experiments.ali_dpfl.differences import READINGS, SCHEDULES, SWEEPS
from experiments.ali_dpfl.first_version import COLUMNS, FILE, settings_of
from experiments.published_settings.__main__ import PAGE
from experiments.published_settings.__main__ import text as field_text
from experiments.published_settings.settings import SETTINGS
from experiments.questions.catalogue import QUESTIONS
from experiments.questions.secure_sums import SECURE, noise
from experiments.resource_budget.svm import DECAY, SmoothSVM, smooth_hinge
from experiments.resource_budget.table import ADAPTIVE, between, page
from experiments.upcycled.rule import ended, half_width
from experiments.upcycled.runs import held_out
from h2fdp.experiment.file import named_document, parse_setting
from h2fdp.run.forecast import forecast
from h2fdp.sweeps.plan import SharedInputs, planned_sweep, read_sweep

STORED = [each for each in QUESTIONS.values() if each.stored.is_file()]
RUNS = {"trust": 80, "secure-sums": 45, "depth": 35, "labels": 60, "faults": 45, "devices": 80, "liars": 180}


@pytest.mark.parametrize("name", RUNS)
def test_every_point_has_five_seeds_and_every_account_is_by_pld(name):
    shared = SharedInputs()
    study = read_sweep(QUESTIONS[name].file, [], shared)
    assert len(study.runs) == RUNS[name]
    assert {planned.point.values["seed"] for planned in study.runs} == {1, 2, 3, 4, 5}
    for planned in study.runs[:: RUNS[name] // 5 - 1]:  # one of each seed, at other points
        config, _ = shared.experiment(study.document, planned.settings)
        noisy = planned.point.values.get("method") != "hfl"
        assert config.privacy.calibration == ("accounted" if noisy else "paper")
        assert (config.privacy.accountant, config.privacy.delta) == ("pld", 1e-5)


def cloud_noise(trust):
    """Noise over sensitivity of a subnet's average at the cloud, of a planned run that meets one epsilon."""
    edges = [{"name": "edge-{i}", "repeat": 2, "devices": {"count": 4}}]
    run = h2fdp.Experiment(
        topology={"trust": trust | {"exact": True}, "edges": edges},
        data="digits", partition="iid", method="h2fdp", epsilon=0.5, intervals=4, local_steps=1, aggregate_every=1,
        sampling_rate=0.5, clip_scope="record", sensitivity="tight", calibration="accounted",
    ).prepare()  # fmt: skip
    rows = [row for alike in next(forecast(run)).releases() for row in len(alike.edges) * alike.releases]
    releases = [each for each in rows if each.observer == "cloud"]
    return np.mean([each.noise_std / each.sensitivity for each in releases])


def test_noise_of_untrusted_servers_and_secure_sums_is_that_of_the_formula():
    trusted = cloud_noise({"trusted": 1})
    assert cloud_noise({"trusted": 0}) / trusted == pytest.approx(noise("none", 4), rel=0.02)
    assert cloud_noise({"secure-sum": 1}) / trusted == pytest.approx(noise(SECURE, 4), rel=0.02)


@pytest.mark.parametrize("question", STORED, ids=lambda each: each.name)
def test_the_pages_are_what_the_programs_write(question):
    table = question.read()
    assert question.text(table) == question.page.read_text()
    if "accounted" in table and "epsilon" in table:
        assert (table["accounted"] <= table["epsilon"]).all()
    if "seed" in table:
        assert set(table["seed"]) == {1, 2, 3, 4, 5}


def test_the_page_of_published_settings_is_what_the_program_writes_and_each_has_five_seeds_or_one():
    assert field_text() == PAGE.read_text()
    assert all(each.file.exists() for each in SETTINGS.values())
    for each in (each for each in SETTINGS.values() if each.stored.exists()):
        seeds = pd.read_csv(each.stored, comment="#").groupby("point")["seed"].apply(set)
        assert all(found in ({1}, {1, 2, 3, 4, 5}) for found in seeds)


SHARED = SharedInputs()


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_a_sweep_whose_budget_is_the_printed_one(name):
    column = COLUMNS[name]
    study = planned_sweep(named_document(FILE), [parse_setting(each) for each in settings_of(column, [1, 2])], SHARED)
    rules = int(column.rounds < column.iterations)
    assert len(study.runs) == 2 * (len(column.fixed) + rules)
    config, _ = SHARED.experiment(study.document, study.runs[0].settings)
    assert config.training.intervals == column.rounds
    assert config.privacy.epsilon == column.epsilon


def runs(**accuracies):
    rows = [(name, seed, value) for name, values in accuracies.items() for seed, value in enumerate(values, 1)]
    return pd.DataFrame(rows, columns=["reading", "seed", "accuracy"])


def test_every_reading_is_a_run_that_could_be_made():
    found = {}
    for name, settings in SWEEPS.items():
        study = planned_sweep(
            named_document(Path(GAP_FILE)), [parse_setting(each) for each in settings], SharedInputs()
        )
        for planned in study.runs:
            found.setdefault(planned.point.values["name"], []).append((name, planned.point.values["seed"]))
    assert found.keys() == READINGS.keys() | SCHEDULES.keys()
    assert all(len(set(each)) == len(each) for each in found.values()), "no run is made twice"
    assert all(sorted(seed for _, seed in each) == [1, 2, 3, 4, 5] for each in found.values())


def test_a_fifth_of_each_device_is_held_out_and_no_test_record_is_seen(tmp_path):
    devices = np.repeat([0, 1, 2], [4, 5, 11])
    x = np.arange(20.0)[:, None]
    np.savez(
        tmp_path / "all.npz", x_train=x, y_train=devices % 2, device_train=devices,
        x_test=x[:3] - 100, y_test=devices[:3], device_test=devices[:3],
    )  # fmt: skip
    with np.load(held_out(tmp_path / "all.npz", tmp_path / "half" / "all.npz")) as found:
        assert found["device_test"].tolist() == [1, 2, 2]
        assert found["x_test"][:, 0].tolist() == [8.0, 13.0, 18.0]
        np.testing.assert_array_equal(np.sort(np.concatenate([found["x_train"], found["x_test"]]), axis=0), x)


def test_seeds_are_enough_at_the_corrected_level():
    """Three seeds 2, 3, 4: t = 4.303 at 95 %, so half a length of 2.48; 8.860 at 98.75 %, so 5.12. Of eight seeds with
    four gains above and four below their mean by d, the deviation is 1.069 d and t 3.336: so 1.26 d."""
    assert half_width([2.0, 3.0, 4.0], 0.95) == pytest.approx(2.484, abs=1e-3)
    assert half_width([2.0, 3.0, 4.0]) == pytest.approx(8.860 / 3**0.5, abs=1e-3)
    assert half_width([1.0, -1.0] * 4) == pytest.approx(1.261, abs=1e-3)
    assert not ended([2.25, 0.25] * 4)
    assert ended([2.27, 0.27] * 4)
    assert not ended([0.4, -0.4] * 4)
    assert ended([0.39, -0.39] * 4)
    assert not ended([0.39, -0.39] * 3)  # fewer than a first look has


rng = np.random.default_rng(5)


def test_the_loss_and_its_gradient_are_those_of_a_smooth_svm():
    model = SmoothSVM(inputs=6)
    w, x, labels = rng.normal(size=6), rng.normal(size=(40, 6)), rng.integers(0, 2, 40)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(w))
    scores = model(torch.from_numpy(x).float())
    signs = np.where(labels == 0, 1.0, -1.0)  # even digits are +1
    slack = np.maximum(0, 1 - signs * (x @ w))
    losses = smooth_hinge(scores, torch.from_numpy(labels))
    np.testing.assert_allclose(losses.detach(), DECAY / 2 * w @ w + slack**2 / 2, rtol=1e-5)
    losses.mean().backward()
    np.testing.assert_allclose(model.weight.grad, DECAY * w - (slack * signs) @ x / 40, rtol=1e-4, atol=1e-6)
    assert (scores.argmax(dim=1).numpy() == (x @ w < 0)).all()
    assert not SmoothSVM().weight.any()


def test_the_page_is_what_the_program_writes():
    from experiments.resource_budget.table import PAGE

    runs = pd.read_csv(PAGE.with_name("wang.csv"), comment="#")
    assert between(PAGE.read_text(), page(runs)) == PAGE.read_text()
    assert set(runs.groupby(["gradients", "data_set", "schedule"]).size()) == {5}
    assert set(runs["schedule"]) >= {ADAPTIVE, "tau = 1", "tau = 100"}
