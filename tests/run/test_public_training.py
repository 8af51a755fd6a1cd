"""Public records: no device holds them, the first model is trained on them, and every account says so."""

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.data.federate import load
from h2fdp.data.images import Digits
from h2fdp.run import RunPrivacy
from h2fdp.run.explain import explanation
from h2fdp.run.recipe import step_without_noise
from h2fdp.streams import Streams

DIGITS = {"name": "digits", "public": 0.1}


def experiment(**settings):
    shared = {"data": DIGITS, "method": "hfl-dp", "epsilon": 20.0, "intervals": 2, "local_steps": 1, "step_size": 0.5}
    return Experiment(topology=Topology.regular(edges=2, devices=2, trust=0.5, seed=1), **{**shared, **settings})


def records_of(data):
    """Rows of all records of devices, of the validation split and of the public one."""
    parts = [data.subnet(0, len(data.sizes))[0], data.validation, data.public]
    return [np.zeros((0, 64)) if part is None else part.x.reshape(len(part), -1) for part in parts]


def test_public_validation_and_devices_records_are_all_records_once():
    everything = load(Digits(), 4, Streams(1))
    split = load(Digits(public=0.1, validation=0.2), 4, Streams(1))
    held, validation, public = map(len, records_of(split))
    total = len(records_of(everything)[0])
    assert (public, validation) == (int(0.1 * total), int(0.2 * (total - public)))
    assert held == total - validation - public
    together, whole = (np.concatenate(records_of(each)) for each in (split, everything))
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(whole, axis=0))


def test_the_first_model_is_that_of_sgd_on_the_public_records_alone(monkeypatch):
    """Three steps with batches of all of them, as in plain numpy."""
    monkeypatch.setattr("h2fdp.run.prepare._PUBLIC_STEPS", 3)
    monkeypatch.setattr("h2fdp.run.prepare._PUBLIC_BATCH", 1000)
    setup = experiment().prepare()
    public, scaling = setup.data.public, setup.data.scaling
    x = (public.x * np.array(scaling.scale) + np.array(scaling.shift)).reshape(len(public), -1)
    weights = experiment(data="digits").prepare().initial.numpy().reshape(10, 64).astype(float)
    size = step_without_noise(setup.blueprint.module(), setup.data, setup.config)
    inputs = (setup.data.test.x * np.array(scaling.scale) + np.array(scaling.shift)).reshape(-1, 64)
    assert size == pytest.approx(80 / np.square(inputs).sum(axis=1).mean(), rel=0.3)  # measured by a few draws
    for _ in range(3):
        scores = x @ weights.T
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(x)), public.y] -= 1
        weights -= size * shares.T @ x / len(x)
    np.testing.assert_allclose(setup.initial.numpy().reshape(10, 64), weights, rtol=1e-4, atol=1e-5)


def test_a_run_starts_from_it_and_says_so_beside_every_account(tmp_path):
    warm, cold = experiment(), experiment(data="digits")
    run, setup = warm.run(tmp_path / "run"), warm.prepare()
    assert run.summary["public_records"] == len(setup.data.public) > 100
    assert setup.data.sizes.sum() + len(setup.data.public) == cold.prepare().data.sizes.sum()
    assert run.metrics["accuracy"].iloc[0] > cold.run(tmp_path / "cold").metrics["accuracy"].iloc[0]
    (note,) = [each for each in RunPrivacy(run.directory).notes if each.startswith("data.public")]
    assert note in run.summary["privacy"]["notes"]
    assert f"{run.summary['public_records']} public" in explanation(setup)["lines"][0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"training": {"public": {"steps": 3}}}, "training.public: unknown key; did you mean `data.public`"),
        ({"data": {"name": "digits", "public": 1.0}}, "data.public: expected a number of at least 0 and below 1"),
    ],
)
def test_what_is_no_share_of_public_records_is_refused(settings, words):
    with pytest.raises(UserError, match=words):
        experiment(**settings)
