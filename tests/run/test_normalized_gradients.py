"""Normalized gradients in whole runs: their ledger is that of clipped ones, and what cannot have them is refused."""

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError

BY_RECORD = {"method": "hfl-dp", "clip_scope": "record", "local_steps": 1}
INSIDE = {"method": {"privacy": {"name": "hierarchical", "noise": "steps"}}, "local_steps": 2}


def experiment(**settings):
    shared = {"data": "digits", "intervals": 2, "sampling_rate": 0.5, "epsilon": 5.0, "clip_norm": "normalized"}
    return Experiment(topology=Topology.regular(edges=2, devices=2, trust=0.5, seed=1), **{**shared, **settings})


@pytest.mark.parametrize("settings", [BY_RECORD, INSIDE, {"method": "hfl-dp", "local_steps": 3}])
def test_noise_and_sensitivities_are_those_of_clipped_gradients_and_models_are_not(settings, tmp_path):
    runs = [experiment(clip_norm=norm, **settings).run(tmp_path / str(norm)) for norm in (1.0, "normalized")]
    ledgers = [(run.directory / "privacy.jsonl").read_text() for run in runs]
    assert ledgers[0] == ledgers[1] != ""
    assert runs[0].metrics["loss"].iloc[-1] != runs[1].metrics["loss"].iloc[-1]


@pytest.mark.parametrize("settings", [BY_RECORD, INSIDE])
def test_all_engines_agree(settings, tmp_path):
    loop, stacked = (experiment(engine=name, **settings).run(tmp_path / name) for name in ("loop", "stacked"))
    np.testing.assert_allclose(loop.metrics["loss"], stacked.metrics["loss"], rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "h2fdp-adaptive"}, "the controller plans by its own model.*; expected a number"),
        ({"method": "hfl-dp", "clip_norm": "automatic"}, "expected a number from 1e-9 to 1e9, normalized or null"),
        ({"method": "hfl-dp", "clipping": "normalized"}, "clipping: unknown .* did you mean `training.clip_norm`"),
    ],
)
def test_what_has_no_gradients_to_normalise_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        experiment(**settings)
