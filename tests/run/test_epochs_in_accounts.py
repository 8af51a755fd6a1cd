"""Noise on steps in epochs: a record is in one batch of an epoch, and is charged for that one alone.

The oracle runs neighbouring data sets under equal outputs: the second run's noisy steps are replaced by those of the
first, so that what is left between them is how far one record moves each step, given all that was released before.
"""

import itertools
import json
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq

from h2fdp import Experiment
from h2fdp.errors import UserError
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.mechanisms.pipeline import StepNoise
from tests.networks import placed
from tests.run.test_noise_as_wired import Topology, numbers

EPSILON, DELTA, CLIP, BATCH, EPOCHS, INTERVALS = 1.5, 1e-4, 0.7, 6, 2, 3
SIZES = {"A": (23, 10), "B": (16, 6, 3)}  # batches of an epoch: 4, 2, 3, 1, 1; A is trusted, B is not
NETWORK = Topology(
    "t",
    tuple(placed(n, n == "A", np.full(len(s), 10.0), np.full(len(s), 24.0)) for n, s in SIZES.items()),
)
METHODS = ({"name": "dp-sgd"}, {"name": "dp-sgd", "normalize": "drawn"}, {"name": "local", "noise": "steps"})
FAULTS = {"device_dropout": 0.2, "straggler": {"probability": 0.5, "fraction": [0.1, 0.9]}}


def records(seed=2):
    rng = np.random.default_rng(seed)
    found = {}
    for edge, sizes in SIZES.items():
        for device, size in enumerate(sizes, 1):
            found[f"{edge}/{device}"] = rng.normal(size=(size, 5)), np.arange(size) % 3
    return found


def experiment(held, privacy, network=NETWORK, **settings):
    defaults = {"epsilon": EPSILON, "delta": DELTA, "clip_norm": CLIP, "intervals": INTERVALS, "seed": 4}
    defaults |= {"calibration": "accounted", "accountant": "pld", "step_size": 0.01}
    epochs = {"local_epochs": EPOCHS, "aggregations_per_interval": 0, "batch_size": BATCH, "noise_key": "seed"}
    method = {"extends": "h2fdp", "privacy": privacy}
    test = np.zeros((3, 5)), np.arange(3)
    given = {"model": "softmax", "method": method, "test_data": test, "extends": "paper", "clip_scope": "record"}
    return Experiment(network, held, **given | defaults | epochs | settings)


class Steps:
    """The noisy steps of a run: (device, interval, slot) -> sum of gradients, noisy sum, noise on it."""

    def __init__(self, monkeypatch, forced=None):
        self.seen = {}
        original = StepNoise.add

        def add(noise, gradients, slot, divisors):
            sums = gradients.clone()
            original(noise, gradients, slot, divisors)
            for row in range(len(gradients)):
                at = noise.nodes[row], noise.segment.interval, noise.segment.first_slot + slot + 1
                if forced is not None:
                    gradients[row] = forced.seen[at][1]
                exact = sums[row].double() * divisors[row]
                self.seen[at] = exact, gradients[row].clone(), float(noise.levels[row]), float(divisors[row])

        monkeypatch.setattr(StepNoise, "add", add)


def charged(run, observer):
    """Device -> the squared ratios of sensitivity to noise of its rows."""
    found = {}
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        if row["observer"] == observer:
            for device in numbers(row["devices"]):
                ratio = row["sensitivity"] / row["noise_std"]
                found.setdefault(f"{row['edge']}/{device}", []).append(ratio**2)
    return found


def rows_of(run, device):
    """The intervals in which anything of it arrived; what a device did before it dropped out reaches nobody."""
    rows = map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines())
    edge, number = device.split("/")
    return {row["interval"] for row in rows if row["edge"] == edge and int(number) in numbers(row["devices"])}


@pytest.mark.parametrize(
    ("privacy", "settings"),
    [
        (METHODS[0], {}),
        (METHODS[1], {}),
        (METHODS[2], {"budget_decay": "linear"}),
        (METHODS[0], {"faults": FAULTS, "intervals": 5, "engine": "loop"}),  # others go on for stragglers, for nothing
        (METHODS[2], {"participation": 0.5, "momentum": 0.5, "intervals": 5}),
        (METHODS[0], {"sampling": "fixed"}),
        (METHODS[2], {"sampling": "fixed", "faults": FAULTS, "intervals": 4}),
    ],
)
def test_no_record_moves_the_steps_of_a_run_further_than_its_rows_say(tmp_path, monkeypatch, privacy, settings):
    held = records()
    with monkeypatch.context() as patched:
        first = Steps(patched)
        run = experiment(held, privacy, adjacency="replace", **settings).run(tmp_path / "first")
    rows = charged(run, "edge")
    largest = {}
    for device, (inputs, labels) in list(held.items())[::2]:
        inputs = np.where(np.arange(len(inputs))[:, None] == len(inputs) // 2, -1e4 * inputs, inputs)
        with monkeypatch.context() as patched:
            other = Steps(patched, forced=first)
            experiment(held | {device: (inputs, labels)}, privacy, adjacency="replace", **settings).run(
                tmp_path / device
            )
        assert other.seen.keys() == first.seen.keys()
        moves = {at: float((other.seen[at][0] - first.seen[at][0]).norm()) / first.seen[at][2] for at in first.seen}
        sent = rows_of(run, device)
        touched = {at: moved for at, moved in moves.items() if moved > 1e-5 and at[1] + 1 in sent}
        assert {at[0] for at in touched} <= {device}
        assert len(touched) == len(rows.get(device, ()))  # one batch of each epoch holds it
        squared = sum(moved**2 for moved in touched.values())
        assert squared <= sum(rows.get(device, ())) * (1 + 1e-4)
        largest[device] = squared / max(sum(rows.get(device, ())), 1e-9)
    assert max(largest.values()) > 0.8  # and not much less, either


def test_a_device_has_a_row_for_each_epoch_at_its_first_step_whoever_sees_it(tmp_path):
    run = experiment(records(), METHODS[0]).run(tmp_path / "run")
    slots = {}
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        for device in numbers(row["devices"]):
            slots.setdefault((row["edge"], device, row["interval"]), {}).setdefault(row["observer"], []).append(
                row["slot"]
            )
            assert (row["kind"], row["sensitivity"], row["steps"]) == ("step", CLIP, 1)
    for (edge, device, interval), found in slots.items():
        begins = 4 * EPOCHS * (interval - 1)  # the largest device has four batches in an epoch
        steps = math.ceil(SIZES[edge][device - 1] / BATCH)
        assert found == {each: [begins + 1, begins + 1 + steps] for each in ("edge", "peer", "cloud", "public")}


def exact_multiplier(releases):
    """z at which so many Gaussians are (epsilon, delta)-private together, by the closed form of their delta."""
    law = NormalDist()

    def delta(mu):
        return law.cdf(mu / 2 - EPSILON / mu) - math.exp(EPSILON) * law.cdf(-mu / 2 - EPSILON / mu)

    return math.sqrt(releases) / brentq(lambda mu: delta(mu) - DELTA, 1e-3, 10)


@pytest.mark.parametrize("privacy", METHODS)
def test_noise_is_that_of_one_release_an_epoch_and_two_thirds_or_three_halves_of_it_are_rejected(
    tmp_path, monkeypatch, privacy
):
    """Chi-square over all numbers of all noise vectors, error rate 1e-6 on either side."""
    wanted = CLIP * exact_multiplier(EPOCHS * INTERVALS)
    with monkeypatch.context() as patched:
        steps = Steps(patched)
        run = experiment(records(), privacy, sampling="fixed").run(tmp_path / "run")
    assert 0.99 * EPSILON < run.privacy.epsilon(observer="edge") <= EPSILON
    squares = [float(((noisy.double() * by - exact) ** 2).sum()) for exact, noisy, _, by in steps.seen.values()]
    numbers_drawn = 18 * len(squares)
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], numbers_drawn)

    def accepted(noise_std):
        return low <= sum(squares) / noise_std**2 <= high

    assert accepted(wanted)
    assert not accepted(wanted * 2 / 3)
    assert not accepted(wanted * 3 / 2)


@pytest.mark.parametrize("privacy", [METHODS[0], METHODS[2]])
def test_records_that_choose_their_batch_need_less_noise_and_two_thirds_or_three_halves_of_it_are_rejected(
    tmp_path, monkeypatch, privacy
):
    """Chi-square as above; the account is tested in `tests/privacy/accounting/test_allocation.py`."""
    held = {f"{edge}/{device}": (np.ones((24, 5)), np.arange(24) % 3) for edge in "AB" for device in (1, 2)}
    network = Topology("t", tuple(placed(n, n == "A", np.full(2, 10.0), np.full(2, 24.0)) for n in "AB"))

    def spent(z):
        release = ReleaseType(z, 1, 1 / 4, "allocated")
        return ACCOUNTANTS["pld"].epsilon({release: EPOCHS * INTERVALS}, DELTA) - EPSILON

    z = brentq(spent, 1, exact_multiplier(EPOCHS * INTERVALS), xtol=1e-4)
    assert z < 0.7 * exact_multiplier(EPOCHS * INTERVALS)
    with monkeypatch.context() as patched:
        steps = Steps(patched)
        run = experiment(held, privacy, network).run(tmp_path / "run")
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        assert (row["sampling"], row["sampling_rate"], row["sensitivity"]) == ("allocated", 1 / 4, CLIP)
    assert 0.99 * EPSILON < run.privacy.epsilon(observer="edge") <= EPSILON
    squares = [float(((noisy.double() * by - exact) ** 2).sum()) for exact, noisy, _, by in steps.seen.values()]
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], 18 * len(squares))
    accepted = [low <= sum(squares) / (z * CLIP * factor) ** 2 <= high for factor in (1, 2 / 3, 3 / 2)]
    assert accepted == [True, False, False]
    with pytest.raises(UserError, match="only epochs allocate records to batches; expected sampling: poisson or fixed"):
        experiment(held, privacy, network, local_epochs=None, local_steps=2, sampling="allocated")


@pytest.mark.parametrize("adjacency", ["null-record", "add-remove"])
def test_allocated_epochs_go_with_records_that_are_there_or_not_and_hide_nothing_in_sums(tmp_path, adjacency):
    """A trusted edge server's noise is on sums of whole uploads, which hold every record."""
    privacy = {"name": "hierarchical", "noise": "steps"}
    run = experiment(records(), privacy, adjacency=adjacency).run(tmp_path / "run")
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        assert row["sampling"] == ("allocated" if row["edge"] == "B" else "fixed")


@pytest.mark.parametrize("epochs", [1, 2])
def test_adaptive_steps_over_disjoint_batches_lose_what_one_gaussian_an_epoch_loses(epochs):
    """The whole likelihoods of outputs, in both worlds, of steps whose other gradients follow all earlier outputs.

    Orders are secret in one count and known in the other. By 200,000 draws, error rate 1e-6 (4.9 deviations).
    """
    rng, count, noise, batches, epsilon = np.random.default_rng(epochs), 200_000, 1.1, 3, 0.8
    at = rng.integers(batches, size=(count, epochs))  # the batch that holds the record
    history, known, paths = np.zeros(count), np.zeros(count), np.zeros((count, batches**epochs, 2))
    places = np.array(list(itertools.product(range(batches), repeat=epochs)))
    for epoch, step in itertools.product(range(epochs), range(batches)):
        others = np.sin(history * (step + 1)) + np.sign(history)
        record = np.where(np.cos(history) > -2, np.sign(others + 0.5), 1.0)  # of length 1, adaptive too
        output = others + record * (at[:, epoch] == step) + noise * rng.normal(size=count)
        held = places[None, :, epoch] == step
        for world in (0, 1):
            mean = others[:, None] + record[:, None] * held * (world == 0)
            paths[:, :, world] -= (output[:, None] - mean) ** 2 / (2 * noise**2)
        history = history + output
    chosen = (places[None] == at[:, None]).all(axis=2)
    known = (paths[:, :, 0] - paths[:, :, 1])[chosen]
    hidden = np.logaddexp.reduce(paths[:, :, 0], axis=1) - np.logaddexp.reduce(paths[:, :, 1], axis=1)
    mu, law = math.sqrt(epochs) / noise, NormalDist()
    exact = law.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * law.cdf(-mu / 2 - epsilon / mu)
    for losses, meets in ((known, True), (hidden, False)):
        found = np.maximum(0.0, 1 - np.exp(epsilon - losses))
        deviation = found.std() / math.sqrt(count)
        assert found.mean() <= exact + 4.9 * deviation
        assert not meets or found.mean() >= exact - 4.9 * deviation
