"""Noise is calibrated to the account unless a file asks for the paper's formula, or there is no account of the plan."""

import pytest

from h2fdp import Experiment, Topology
from h2fdp.experiment import sections
from h2fdp.run.preview import privacy_report

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
DEFAULT = sections.default_calibration  # what tests replace, see tests/conftest.py
CASES = [
    ("h2fdp", {}, "accounted"),
    ("pedpfl", {}, "accounted"),
    ({"extends": "h2fdp", "privacy": "dp-sgd"}, {}, "accounted"),
    ({"extends": "h2fdp", "privacy": {"name": "dp-sgd", "noise_multiplier": 2.0}}, {}, "paper"),
    ({"extends": "h2fdp", "privacy": "central"}, {"aggregations_per_interval": 0}, "accounted"),
    ("h2fdp-adaptive", {}, "accounted"),
    ({"extends": "h2fdp", "schedule": "experiments.noise_decay:NoiseDecay"}, {}, "paper"),
    ("hfl", {}, "paper"),
    ("h2fdp", {"calibration": "paper"}, "paper"),
]


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    monkeypatch.setattr(sections, "default_calibration", DEFAULT)


@pytest.mark.parametrize(("method", "settings", "expected"), CASES)
def test_the_default_is_by_account_where_there_is_one(method, settings, expected):
    made = Experiment(topology=NETWORK, data="digits", method=method, **settings)
    assert made.config.privacy.calibration == expected


def test_a_file_that_says_nothing_gets_noise_that_meets_its_target():
    made = Experiment(topology=NETWORK, data="digits", epsilon=1.0, intervals=3, batch_size=4)
    run = made.prepare()
    accounts = [each["pld"] for each in privacy_report(run)["observers"].values() if each]
    assert run.factor > 1.1, "the formula's noise is too small here"
    assert 0.99 < max(accounts) <= 1.0
