"""Noise inside where trust ends, in whole runs: every vector and every row by hand, accounts that meet one target."""

import itertools
import math

import numpy as np
import pytest

from h2fdp import Experiment, UserError
from tests.run.test_noise_as_wired import CLIP, INTERVALS, NETWORK, SIZES, STEP, experiment
from tests.run.test_placements_as_wired import OBSERVERS, assert_same, ledger_of, listened, sizes_of

INSIDE = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}
EVERY = {"trusted": 1, "untrusted": 7}  # of seven local steps
BATCH = 6


def inside(**settings):
    defaults = {"calibration": "accounted", "aggregate_every": EVERY, "batch_size": BATCH, "weights": "by-size"}
    return experiment(method=INSIDE, **{**defaults, **settings})


def test_trusted_servers_release_noisy_sums_of_single_steps_and_untrusted_devices_noisy_steps(tmp_path, monkeypatch):
    added = listened(monkeypatch)
    made = inside(engine="loop")
    records, run = sizes_of(made), made.run(tmp_path / "run")
    found = ledger_of(run)
    multiplier = found[(1, 1, "B", 1, "edge")][3] / CLIP
    expected, noises = {}, []
    for interval, slot in itertools.product(range(1, INTERVALS + 1), range(1, 8)):
        eta, at = STEP / math.sqrt(interval), 7 * (interval - 1) + slot
        share = records["A"] / records["A"].sum()
        batch = np.minimum(BATCH, records["A"])
        moved = share * eta * np.minimum(CLIP / batch, 2 * CLIP)
        noises.append(multiplier * moved.max())
        for device, observer in itertools.product(range(SIZES["A"]), OBSERVERS[1:]):
            kind = "global" if slot == 7 else "local"
            row = (moved[device], multiplier * moved.max(), 1, batch[device] / records["A"][device])
            expected[(interval, at, "A", device + 1, observer)] = (kind, "poisson", *row)
        for device, size in enumerate(records["B"].tolist()):
            batch_of_device = min(BATCH, size)
            noises.append(multiplier * CLIP / batch_of_device)  # on the mean of the batch
            for observer in OBSERVERS:
                row = (CLIP, multiplier * CLIP, 1, batch_of_device / size)
                expected[(interval, at, "B", device + 1, observer)] = ("step", "poisson", *row)
    assert_same(found, expected)
    np.testing.assert_allclose(sorted(added), sorted(noises), rtol=1e-6)


def test_all_accounts_meet_the_target_and_none_exceeds_it(tmp_path):
    """With equal records and shares every release costs every device the same, whoever it is seen by."""
    shared = {"method": INSIDE, "calibration": "accounted", "accountant": "rdp", "aggregate_every": EVERY}
    equal = {"data": {"name": "digits", "partition": {"labels_per_device": 10}}, "sampling_rate": 0.3}
    made = Experiment(topology=NETWORK, epsilon=1.0, delta=1e-4, intervals=2, local_steps=7, **shared, **equal)
    run = made.run(tmp_path / "run")
    accounts = {observer: run.privacy.epsilon(observer=observer) for observer in OBSERVERS}
    assert accounts.keys() == set(OBSERVERS)
    assert all(0.9 < epsilon <= 1.0 for epsilon in accounts.values()), accounts


@pytest.mark.parametrize("runtime", [{"engine": "loop"}, {"backend": "inline", "hosts": 2}])
def test_subnets_of_different_rhythms_give_the_same_run_however_they_are_computed(tmp_path, runtime):
    runs = [inside(**more).run(tmp_path / str(number)) for number, more in enumerate(({}, runtime))]
    first, other = (run.metrics.drop(columns="wall_s") for run in runs)
    np.testing.assert_allclose(first["loss"], other["loss"], rtol=1e-5)
    assert ledger_of(runs[0]) == ledger_of(runs[1])
    assert first["energy_j"].tolist() == other["energy_j"].tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"clip_scope": "batch"},
            "training.clip_scope: noise: steps is added to sums of records' clipped gradients",
        ),
        ({"aggregate_every": {"trusted": 1}}, "training.aggregate_every: expected a number for the edge server B"),
        ({"aggregate_every": {"C": 1}}, "training.aggregate_every.C: expected untrusted, relay, secure-sum, trusted"),
        ({"aggregate_every": {}}, "training.aggregate_every: expected a number for trusted and untrusted"),
        ({"aggregate_every": {"A": 0, "B": 2}}, "training.aggregate_every.A: expected a whole number of at least 1"),
        ({"control": {"enabled": True}, "calibration": "paper"}, "control.enabled"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message):
    with pytest.raises(UserError) as error:
        inside(**settings).prepare()
    assert message in str(error.value)
