"""The questions: sweeps as they are planned, formulas against planned runs, pages against what writes them."""

import math

import numpy as np
import pandas as pd
import pytest

import h2fdp
from experiments.questions.catalogue import QUESTIONS
from experiments.questions.depth import NETWORKS
from experiments.questions.depth import noise as noise_of_ends
from experiments.questions.faults import equal_epsilon
from experiments.questions.secure_sums import SECURE, noise
from experiments.questions.study import FOLDER
from experiments.questions.trust import Trust
from h2fdp.run.forecast import forecast
from h2fdp.sweeps.study import SharedInputs, read_study
from h2fdp.topology import read

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
        topology={"trust": {"share": trust}, "edges": edges},
        data="digits", partition="iid", method="h2fdp", epsilon=0.5, intervals=4, local_steps=1, aggregate_every=1,
        sampling_rate=0.5, clip_scope="record", sensitivity="tight", calibration="accounted",
    ).prepare()  # fmt: skip
    rows = [row for alike in next(forecast(run)).releases() for row in len(alike.edges) * alike.releases]
    releases = [each for each in rows if each.observer == "cloud"]
    return np.mean([each.noise_std / each.sensitivity for each in releases])


def test_noise_of_untrusted_servers_and_secure_sums_is_that_of_the_formula():
    trusted = cloud_noise(1)
    assert cloud_noise(0) / trusted == pytest.approx(noise("none", 4), rel=0.02)
    assert cloud_noise({"secure-sum": 1}) / trusted == pytest.approx(noise(SECURE, 4), rel=0.02)


def test_networks_of_the_depth_have_48_devices_and_end_their_trust_where_the_table_says():
    for name, (_, adding) in NETWORKS.items():
        network = read(FOLDER / "networks" / f"{name}.yaml", seed=1)
        assert network.devices == 48
        assert noise_of_ends(adding) == math.sqrt(adding)


def test_an_equal_epsilon_is_read_off_between_the_points_of_a_curve():
    curve = {0.1: 70.0, 1.0: 80.0, 3.0: 81.0}
    assert equal_epsilon(curve, 80.0) == pytest.approx(1.0)
    assert equal_epsilon(curve, 80.5) == pytest.approx(math.sqrt(3))
    assert math.isnan(equal_epsilon(curve, 69.9))


def test_joules_until_what_all_reach_are_those_of_the_first_interval_that_has_it():
    curves = {"none": [50, 60, 70], "all": [60, 75, 80], "half": [50, 70, 72], "secure sums": [60, 74, 79]}
    table = pd.DataFrame(
        {"trust": trust, "epsilon": 1.0, "seed": seed, "interval": place + 1, "accuracy": accuracy + seed,
         "energy_j": 2.0 * (place + 1), "clock_s": 1.0 * (place + 1)}
        for trust, curve in curves.items() for seed in (0, 1) for place, accuracy in enumerate(curve)
    )  # fmt: skip
    trust = Trust()
    assert trust.target(table, 1.0) == 70
    assert trust.until(table, "none", 1.0, "energy_j") == {0: 6.0, 1: 6.0}
    assert trust.until(table, "all", 1.0, "energy_j") == {0: 4.0, 1: 4.0}
    assert trust.saving(table, "all", 1.0, "energy_j").value == pytest.approx(100 / 3)
    assert trust.gain(table, "all", 1.0).value == 10


@pytest.mark.parametrize("question", STORED, ids=lambda each: each.name)
def test_the_pages_are_what_the_programs_write(question):
    table = question.read()
    assert question.text(table) == question.page.read_text()
    if "accounted" in table and "epsilon" in table:
        assert (table["accounted"] <= table["epsilon"]).all()
    if "seed" in table:
        assert set(table["seed"]) == {1, 2, 3, 4, 5}
