"""Whole runs with secure sums: every observer has an account, calibration meets its target, audits agree."""

import json

import numpy as np
import pyarrow.parquet
import pytest
from scipy import stats

from h2fdp import Experiment, Topology
from h2fdp.audit.run_audit import audit
from h2fdp.privacy import Release
from h2fdp.run.preview import privacy_report
from tests.networks import placed
from tests.protocol.overhearing import devices_of, overheard

DROPOUTS = {"device_dropout": 0.2}


def experiment(trust, tolerance=None, **settings):
    levels = {"trusted": {"trust": 1.0}, "secure-sum": {"trust": 0.0, "secure_sum": 1.0}, "untrusted": {"trust": 0.0}}
    privacy = {"name": "hierarchical", "secure_sum": tolerance or {}}
    given = {"intervals": 3, "local_steps": 2, "aggregate_every": 1, "batch_size": 8, "epsilon": 3.0, "seed": 1}
    topology = Topology.regular(edges=2, devices=4, **levels[trust])
    return Experiment(topology, "digits", method={"extends": "h2fdp", "privacy": privacy}, **given | settings)


def epsilons(trust, tolerance=None, **settings):
    report = privacy_report(experiment(trust, tolerance, **settings).prepare())
    return {observer: numbers["pld"] for observer, numbers in report["observers"].items()}


@pytest.mark.parametrize("tolerance", [{}, {"colluding": 1, "dropouts": 0.25}])
@pytest.mark.parametrize("faults", [{}, DROPOUTS])
def test_calibrated_noise_meets_the_target_of_every_observer(tolerance, faults):
    settings = {"calibration": "accounted", "accountant": "pld", "epsilon": 1.0, "faults": faults}
    found = epsilons("secure-sum", tolerance, **settings)
    assert max(found.values()) == pytest.approx(1.0, rel=0.02)
    assert max(found.values()) <= 1.0 + 1e-9


def test_a_run_that_loses_sums_releases_nothing_of_them(tmp_path):
    run = experiment("secure-sum", faults={"device_dropout": 0.5}).run(tmp_path / "run")
    rows = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    plain = experiment("trusted", faults={"device_dropout": 0.5}).run(tmp_path / "plain")
    others = [json.loads(line) for line in (plain.directory / "privacy.jsonl").read_text().splitlines()]
    opened, arrived = ({(row["slot"], row["edge"]) for row in each} for each in (rows, others))
    assert opened < arrived
    devices = {}
    for row in rows:
        of_sum = devices.setdefault((row["slot"], row["edge"], row["observer"]), [])
        of_sum += [number for _, number in devices_of(Release(**row))]
    assert all(sorted(found) == [0, 1, 2, 3] for found in devices.values())  # without tolerance all must arrive
    assert run.metrics["participants"].sum() < plain.metrics["participants"].sum()


@pytest.mark.parametrize("observer", ["edge", "peer", "cloud"])
def test_an_audit_refutes_the_noise_that_is_off_and_keeps_the_right_one(observer):
    """A run with the noise off leaks more than the account allows, which one with the right noise does not, at 95 %."""
    run = experiment("secure-sum", intervals=30, epsilon=1.0, batch_size=10).prepare()
    kept = audit(run, observer, canaries=200)
    assert kept.epsilon_lower <= kept.accounted("pld")
    off = audit(run, observer, canaries=200, noise_scale=0.02)
    assert off.epsilon_lower > kept.accounted("pld")


def test_noise_inside_with_all_three_levels_meets_one_target(tmp_path):
    """A trusted edge server and a secure sum release sums of single steps, untrusted devices noisy steps: each with the
    same ratio of noise to sensitivity, less a peer's own share of it."""
    trust = {"a": "trusted", "b": "secure-sum", "c": "untrusted"}
    network = Topology("three", tuple(placed(name, level, [9.0] * 4, [9.0] * 4) for name, level in trust.items()))
    every = {"trusted": 1, "secure-sum": 1, "untrusted": 3}
    data = {"name": "digits", "partition": {"labels_per_device": 10}}
    inside = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}
    common = {"method": inside, "aggregate_every": every, "data": data, "sampling_rate": 0.2, "clip_norm": 1.0}
    target = {"calibration": "accounted", "accountant": "rdp", "epsilon": 1.0}
    run = Experiment(network, intervals=2, local_steps=3, seed=1, **common, **target).run(tmp_path / "run")
    rows = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    ratios, kinds = {}, {}
    for row in rows:
        ratios.setdefault((row["edge"], row["observer"]), set()).add(round(row["noise_std"] / row["sensitivity"], 9))
        kinds.setdefault(row["edge"], set()).add(row["kind"])
    assert kinds == {"a": {"local", "global"}, "b": {"local", "global"}, "c": {"step"}}
    (ratio,) = ratios["c", "edge"]
    for place in (("b", "edge"), ("b", "cloud"), ("b", "public"), ("a", "cloud")):
        assert min(ratios[place]) == pytest.approx(ratio, rel=1e-6), place  # of the device that counts most
    assert min(ratios["b", "peer"]) == pytest.approx(ratio * (3 / 4) ** 0.5, rel=1e-6)
    assert ("a", "edge") not in ratios
    found = {observer: run.privacy.epsilon(observer=observer) for observer in ("edge", "peer", "cloud", "public")}
    assert max(found.values()) == found["peer"] == pytest.approx(1.0, rel=0.02)
    devices = pyarrow.parquet.read_table(run.directory / "devices.parquet").to_pydict()
    assert dict(zip(devices["edge"], devices["trust"], strict=True)) == trust
    assert (run.summary["trusted_edges"], run.summary["secure_sum_edges"]) == (1, 1)


@pytest.mark.parametrize("weights", ["uniform", "by-size"])
def test_the_noise_on_the_global_model_is_that_of_full_trust(monkeypatch, weights):
    """Devices that do not move; an F test at an error rate of 1e-6 tells factors of 1.15 apart in 20,000 coordinates,
    and takes the variances of both models for equal."""

    def moved(trust):
        setup = experiment(trust, weights=weights, intervals=1).prepare()
        return overheard(setup, monkeypatch, silent=20_000).models[0]

    sums, trusted, untrusted = (float(np.var(moved(trust))) for trust in ("secure-sum", "trusted", "untrusted"))
    low, high = stats.f.ppf([5e-7, 1 - 5e-7], 20_000, 20_000)
    assert low < sums / trusted < high
    assert high < 1.15
    assert untrusted / trusted > 2  # of four devices, each with the noise that one trusted edge server adds


@pytest.mark.parametrize("bits", [14, 16, 24])
@pytest.mark.parametrize("weights", ["uniform", "by-size"])
def test_calibrated_noise_on_a_grid_meets_the_target(bits, weights):
    """The grid follows the noise, so that accounts do not scale with it: coarse grids take more noise."""
    settings = {"calibration": "accounted", "accountant": "pld", "epsilon": 2.0, "clip_scope": "record"}
    found = epsilons("secure-sum", {"rounding": bits}, weights=weights, **settings)
    assert max(found.values()) <= 2.0
    assert max(found.values()) == pytest.approx(2.0, rel=0.05)
