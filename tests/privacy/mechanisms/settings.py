"""A run's setting, and one upload of a subnet, in numbers that can be worked with by hand."""

from functools import partial

import numpy as np

from h2fdp.privacy import MechanismContext
from h2fdp.training.local_steps import gain
from tests.privacy.uploads import uploads_of

RECORDS = np.array([100, 200, 400])
RATES = np.array([0.08, 0.04, 0.02])


def setting(**changes):
    values = {
        "epsilon": 2.0,
        "delta": 1e-5,
        "c2": 1.5,
        "sensitivity": "paper",
        "clip_norm": 0.5,
        "intervals": 10,
        "local_aggregations": 0,
        "local_steps": 4,
        "records": RECORDS,
        "sampling_rates": RATES,
        "sampling": "poisson",
        "gain": partial(gain, 0.0),
        "by_record": False,
        "own_objective": False,
        "step_size": 0.1,
        "mu": 0.0,
        "biased": False,
    }
    values |= changes
    return MechanismContext(**{"step_releases": values["local_steps"], **values})


def upload(place, levels, interval=3, **changes):
    values = {"interval": interval, "first_slot": 8, "records": RECORDS}
    return uploads_of(place, np.array([0.5, 0.3, 0.2]), RATES, levels, **values | changes)


def by_observer(releases):
    """Observer -> (slot, devices) -> (sensitivity, noise, steps, rate, sampling)."""
    found = {}
    for row in releases:
        key, values = (row.slot, row.devices), (row.sensitivity, row.noise_std, row.steps)
        assert key not in found.setdefault(row.observer, {})
        found[row.observer][key] = (*values, row.sampling_rate, row.sampling)
    return found
