"""The questions: sweeps as they are planned, formulas against planned runs, pages against what writes them."""

import numpy as np
import pytest

import h2fdp
from experiments.questions.catalogue import QUESTIONS
from experiments.questions.secure_sums import SECURE, noise
from h2fdp.run.forecast import forecast
from h2fdp.sweeps.study import SharedInputs, read_study

STORED = [each for each in QUESTIONS.values() if each.stored.is_file()]
RUNS = {"trust": 80, "secure-sums": 45, "depth": 35, "labels": 60, "faults": 45, "devices": 80}


@pytest.mark.parametrize("name", RUNS)
def test_every_point_has_five_seeds_and_every_account_is_by_pld(name):
    shared = SharedInputs()
    study = read_study(QUESTIONS[name].file, [], shared)
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
