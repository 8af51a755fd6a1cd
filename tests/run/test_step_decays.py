"""A decay of the step size in whole runs: sensitivity and noise fall together, and accounts do not change."""

import numpy as np
import pytest

from tests.run.test_noise_as_wired import STEP, experiment
from tests.run.test_placements_as_wired import ledger_of

INTERVALS = 4
ONE_STEP = {"local_steps": 1, "aggregate_every": 1, "sampling_rate": 0.5, "clip_scope": "record"}
INSIDE = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}
SETTINGS = {
    "batch": {"local_steps": 3, "aggregate_every": 3, "batch_size": 2},
    "record": ONE_STEP,
    "steps": {"method": INSIDE, "local_steps": 3, "aggregate_every": {"trusted": 1, "untrusted": 3}},
}


def run(tmp_path, decay, settings):
    made = experiment(intervals=INTERVALS, step_decay=decay, calibration="accounted", accountant="rdp", **settings)
    return made.run(tmp_path / decay)


DECAYS = {"linear": ({}, [1.0, 0.75, 0.5, 0.25]), "cosine": ({"warm_up": 1}, [0.5, 1.0, 0.75, 0.25])}


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_release_under_a_step_size_that_changes_has_the_noise_multiplier_that_it_has_without(
    tmp_path, kind, decay
):
    more, shares = DECAYS[decay]
    plain, linear = run(tmp_path, "none", SETTINGS[kind]), run(tmp_path, decay, SETTINGS[kind] | more)
    assert linear.metrics["step_size"].tolist() == pytest.approx([STEP * share for share in shares])
    before, after = ledger_of(plain), ledger_of(linear)
    assert before.keys() == after.keys()
    for key, (release, _, sensitivity, noise, *_) in after.items():
        _, _, plain_sensitivity, plain_noise, *_ = before[key]
        share = 1.0 if release == "step" else shares[key[0] - 1]  # a step's noise is on the gradients
        assert sensitivity == pytest.approx(share * plain_sensitivity, rel=1e-9)
        assert noise == pytest.approx(share * plain_noise, rel=1e-9)
    for observer in ("edge", "peer", "cloud", "public"):
        assert linear.privacy.epsilon(observer=observer) == plain.privacy.epsilon(observer=observer)


def test_models_differ_by_the_noise_and_the_steps_that_the_ledger_states(tmp_path, monkeypatch):
    """The noise that is really added is that of the ledger's rows, interval by interval."""
    from tests.run.test_placements_as_wired import listened

    added = listened(monkeypatch)
    rows = ledger_of(run(tmp_path, "linear", ONE_STEP))
    stated = {
        (interval, edge, device if edge == "B" else 0): values[3]
        for (interval, _, edge, device, observer), values in rows.items()
        if observer == ("edge" if edge == "B" else "cloud")
    }
    np.testing.assert_allclose(sorted(added), sorted(stated.values()), rtol=1e-6)
