"""Whole runs with secure sums: every observer has an account, calibration meets its target, audits agree."""

import json

import pytest

from h2fdp import Experiment, Topology
from h2fdp.audit.run_audit import audit
from h2fdp.privacy import Release
from h2fdp.run.privacy_report import noises, privacy_report
from tests.protocol.overhearing import devices_of

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


def test_edge_servers_have_the_account_that_only_others_have_of_trusted_ones():
    sums, trusted = epsilons("secure-sum"), epsilons("trusted")
    assert sums["edge"] == sums["cloud"] == sums["public"] == pytest.approx(trusted["cloud"])
    assert trusted["edge"] is None
    assert sums["peer"] > sums["cloud"]
    assert epsilons("untrusted")["edge"] > 0


@pytest.mark.parametrize("tolerance", [{}, {"colluding": 1, "dropouts": 0.25}])
@pytest.mark.parametrize("faults", [{}, DROPOUTS])
def test_calibrated_noise_meets_the_target_of_every_observer(tolerance, faults):
    settings = {"calibration": "accounted", "accountant": "pld", "epsilon": 1.0, "faults": faults}
    found = epsilons("secure-sum", tolerance, **settings)
    assert max(found.values()) == pytest.approx(1.0, rel=0.02)
    assert max(found.values()) <= 1.0 + 1e-9


def test_the_noise_is_told_as_shares():
    rows = noises(experiment("secure-sum").prepare())
    assert {row["added_by"] for row in rows} == {"the devices, each a share"}
    trusted = {(row["edge"], row["kind"]): row["noise_std"] for row in noises(experiment("trusted").prepare())}
    shares = {(row["edge"], row["kind"]): row["noise_std"] for row in rows}
    in_sums = {place: level / 4 * 4**0.5 for place, level in shares.items()}
    assert in_sums == pytest.approx(trusted)  # four shares of weight 1/4 make one noise


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
    """A run with the noise off attains more than the account, which one with the right noise does not, at 95 %."""
    run = experiment("secure-sum", intervals=30, epsilon=1.0, batch_size=10).prepare()
    kept = audit(run, observer, canaries=200)
    assert kept.epsilon_lower <= kept.accounted("pld")
    off = audit(run, observer, canaries=200, noise_scale=0.02)
    assert off.epsilon_lower > kept.accounted("pld")
