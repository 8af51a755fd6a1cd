"""Devices take part as long as their batteries last: who pays what, by the bills of the intervals; accounts stay."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.network.mobility import Mobility
from h2fdp.protocol import InProcessNodes
from h2fdp.run import recorders
from tests.run.test_device_unit import DEEP, FLAT
from tests.runtime.runs import assert_equal, recorded

USUAL = {
    "data": {"name": "digits", "partition": "iid"},
    "model": "softmax",
    "intervals": 8,
    "local_steps": 4,
    "aggregate_every": 2,
    "batch_size": 8,
    "epsilon": 4.0,
    "calibration": "accounted",
    "method": "h2fdp",
}


def experiment(topology, battery_j=None, **settings):
    topology = topology.with_devices(joules_per_step=1e-4)
    topology = topology if battery_j is None else topology.with_devices(battery_j=battery_j)
    return Experiment(topology, **{**USUAL, **settings})


def bills(run):
    """(intervals, I) joules of each device, by the bill of each interval's plan."""
    cloud = run.cloud(InProcessNodes({}))
    return np.array([run.bill.of(cloud.plan(interval)).device_energy_j for interval in range(8)])


@pytest.mark.parametrize("topology", [FLAT, DEEP, FLAT.as_star()], ids=["flat", "deep", "star"])
def test_devices_pay_whole_intervals_until_one_is_too_dear(topology):
    """By hand: full batteries show what intervals cost; each device then lasts for as many as it can add up."""
    full = bills(experiment(topology).prepare())
    batteries = full[0] * np.linspace(0.5, 9.5, topology.devices)
    run = experiment(topology, batteries).prepare()
    paid = bills(run)
    lasts = (paid > 0).sum(axis=0)
    assert (np.sort(paid > 0, axis=0)[::-1] == (paid > 0)).all()  # none comes back
    assert (paid.sum(axis=0) <= batteries * (1 + 1e-12)).all()
    assert 0 < (lasts < 8).sum() < topology.devices
    for device in np.flatnonzero(lasts < 8):  # the next one was too dear
        assert full[: lasts[device] + 1, device].sum() > batteries[device] * (1 - 1e-9)
        if topology is DEEP:  # no price depends on who else takes part
            assert lasts[device] == int(np.floor(batteries[device] / full[0, device] * (1 + 1e-12)))


def test_batteries_that_never_end_change_no_bit(tmp_path):
    plain = experiment(FLAT).run(tmp_path / "plain")
    full = experiment(FLAT, 1e9).run(tmp_path / "full")
    for one, other in zip(plain.model.parameters(), full.model.parameters(), strict=True):
        assert torch.equal(one, other)
    rows = [(path / "privacy.jsonl").read_text() for path in (tmp_path / "plain", tmp_path / "full")]
    assert rows[0] == rows[1]


def test_a_killed_run_goes_on_with_the_batteries_that_are_left(tmp_path, monkeypatch):
    made = experiment(FLAT, np.linspace(1e-3, 5e-3, 9))
    whole = made.run(tmp_path / "whole")
    assert 0 < pd.read_parquet(tmp_path / "whole" / "metrics.parquet")["participants"].iloc[-1] < 9

    def fail(step, interval):
        if (step, interval) == ("released", 5):
            raise RuntimeError("the host is gone")

    with monkeypatch.context() as patch:
        patch.setattr(recorders, "listener", fail)
        with pytest.raises(RuntimeError, match="the host is gone"):
            made.run(tmp_path / "killed")
    assert_equal(recorded(whole), recorded(h2fdp.resume(tmp_path / "killed")))


def test_every_observer_keeps_to_the_target(tmp_path):
    run = experiment(FLAT, np.linspace(2e-4, 3e-3, 9)).run(tmp_path / "run")
    assert all(0 < run.privacy.epsilon(observer) <= 4.0 for observer in ("edge", "peer", "cloud", "public"))


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("training.participation", {"participation": 0.5}),
        ("training.device_turns", {"device_turns": 3}),
        ("method.schedule", {"method": "hfl-async", "calibration": None}),
        ("control.least_ghz", {"topology": FLAT.with_devices(cycles_per_record=1e6), "control": {"least_ghz": 0.2}}),
        ("topology", {"topology": replace(FLAT, mobility=Mobility())}),
    ],
)
def test_what_no_battery_goes_with_is_refused(key, settings):
    settings = dict(settings)
    with pytest.raises(UserError) as caught:
        experiment(settings.pop("topology", FLAT), 1.0, **settings).prepare()
    assert key in {each.key for each in caught.value.problems}
