"""What each part of a user's own is shown, and how far it can move what is published: part x placement x trust.

A run of one full-batch step is linear in what devices send, so each cell has an independent answer:

- A part at the cloud is shown vectors. Less the same vectors of a run without noise, they are noise; its deviation, in
  units of how far a record (or device) moves the vector, is at least the multiplier of the ledger's rows for `public`.
- A part at a device is shown that device's records. It makes its answer a million times larger; two runs under the
  same noise, one of which lacks a record (or device), then differ by no more than the ledger's sensitivity.
"""

import functools
import json
import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp import Experiment
from h2fdp.algorithms import Aggregation, LocalObjective, ServerUpdate
from h2fdp.errors import UserError
from h2fdp.schedules import Decision, OwnSchedule
from tests.protocol.test_noise_boundaries import accepts

FEATURES, CLASSES, RECORDS, STEP = 250, 4, 4, 0.1
NEVER_REACHED = 50.0  # a clip norm above every norm here: cells with noise move as the one without
CELLS = {
    "untrusted": ("hierarchical", "untrusted"),
    "trusted": ("hierarchical", "trusted"),
    "secure sum": ("hierarchical", "secure-sum"),
    "sum at the cloud over trusted": ("hierarchical", "trusted"),
    "sum at the cloud over untrusted": ("hierarchical", "untrusted"),
    "sum at the cloud over secure sums": ("hierarchical", "secure-sum"),
    "noisy steps, untrusted": ({"name": "hierarchical", "noise": "steps"}, "untrusted"),
    "noisy steps, trusted": ({"name": "hierarchical", "noise": "steps"}, "trusted"),
    "local": ("local", "trusted"),
    "dp-sgd": ("dp-sgd", "untrusted"),
    "output": ("output", "untrusted"),
    "central": ("central", "trusted"),
}
AVERAGE_ALONE = {"central", *(name for name in CELLS if name.startswith("sum at the cloud"))}


def cloud_of(cell):
    """Trust in the cloud."""
    return {"cloud": "secure-sum" if cell.startswith("sum at the cloud") else "untrusted"}


STEPS = {"dp-sgd", "noisy steps, untrusted"}


class Shown:
    """What the parts of one run were shown, the trial of them before it included."""

    def __init__(self):
        self.uploads, self.weights, self.averages, self.facts, self.kept = [], [], [], [], []

    def __deepcopy__(self, memo):
        return self  # a run copies its parts


class Watching(OwnSchedule):
    """Publishes, in the place of the model, what it can make of the first upload that it is shown."""

    observes = True
    foreseen = True
    reads_releases = False

    def __init__(self, shown):
        self.shown, self.model = shown, None

    def choose(self, interval, slot):
        return Decision(self.context.local_steps, self.context.step_size, self.context.participation)

    def observe(self, seen):
        self.shown.uploads.append([each.clone() for each in seen.uploads])
        self.shown.weights.append((seen.weights, seen.noise_variance, seen.mean_steps))
        self.model = seen.model - seen.uploads[0]

    def kept(self, model):
        self.shown.kept.append(model.clone())
        return self.model.clone()


class WatchingServer(ServerUpdate):
    def __init__(self, shown):
        self.shown = shown

    def apply(self, model, uploaded):
        self.shown.averages.append(uploaded.average.clone())
        assert uploaded.variate is None
        return model - uploaded.average


class WatchingAggregation(Aggregation):
    def __init__(self, shown):
        self.shown = shown

    def weights(self, uploads):
        self.shown.facts.append({each.name: np.copy(getattr(uploads, each.name)).tolist() for each in fields(uploads)})
        return uploads.shares


class Linear(nn.Module):
    """Without a bias, so that a record of zeros contributes nothing."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.factor, self.layer = factor, nn.Linear(FEATURES, CLASSES, bias=False)

    def forward(self, x):
        return self.factor * self.layer(x)


class Enlarging(LocalObjective):
    def direction(self, model, gradient, received, personal):
        return 1e6 * gradient(model), None

    def keeps_sensitivity(self, step_size):
        return True


def enlarged(scores, labels):
    return 1e6 * torch.nn.functional.cross_entropy(scores, labels, reduction="none")


def records(device, seed=0, without=None, factor=1.0):
    """Of a device; `without` "record" makes the first of the first device a null record, "device" all of its own."""
    rng = np.random.default_rng([seed, *(device or "test").encode()])
    x = rng.normal(size=(RECORDS, FEATURES)).astype(np.float32)
    if device == "e0/1" and without is not None:
        x[: 1 if without == "record" else None] = 0.0
    return factor * x, np.arange(RECORDS) % CLASSES


def carried_out(placement, trust, data, edges=2, model=Linear, clip_norm=NEVER_REACHED, cloud="untrusted", **parts):
    """(published model (M,), rows of the ledger for `public`, loss on the test data)."""
    tree = {
        "cloud": {"trust": cloud},
        "edges": [{"name": f"e{at}", "trust": trust, "devices": {"count": 2}} for at in range(edges)],
    }
    schedule = parts.pop("schedule", "fixed")
    axes = {axis: parts.pop(axis) for axis in ("server", "aggregation", "objective") if axis in parts}
    settings = {} if placement == "none" else {"clip_scope": None if placement in ("central", "output") else "record"}
    settings = {key: value for key, value in settings.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = Experiment(
            tree,
            data,
            test_data=records(None),
            method={"privacy": placement, "schedule": schedule, **axes},
            model=model,
            intervals=1,
            local_steps=1,
            aggregations_per_interval=0,
            sampling_rate=1.0,
            step_size=STEP,
            clip_norm=clip_norm,
            backend="inline",
            hosts=1,
            epsilon=30.0,
            **settings,
            **parts,
        ).run(out)
        rows = [json.loads(line) for line in (out / "privacy.jsonl").read_text().splitlines()]
        state = torch.load(out / "model.pt", weights_only=True)
        score = run.metrics["loss"].iloc[-1]
    model = torch.cat([each.ravel() for each in state.values()])
    return model, [row for row in rows if row["observer"] == "public"], score


@functools.cache
def watched(cell):
    """What the parts at the cloud were shown, the published model, its loss, and the rows for `public`."""
    placement, trust = ("none", "trusted") if cell == "without noise" else CELLS[cell]
    shown = Shown()
    return shown, *carried_out(
        placement, trust, records, schedule=Watching(shown), server=WatchingServer(shown), **cloud_of(cell)
    )


def moved_by(cell, devices):
    """How far a record (under central noise a device) moves an average over so many devices, by hand."""
    if cell == "central":
        return NEVER_REACHED / devices
    if cell == "output":
        return 2 * NEVER_REACHED / devices
    return STEP * NEVER_REACHED / RECORDS / devices


def multiplier_of(rows):
    return min(row["noise_std"] / row["sensitivity"] for row in rows)


@pytest.mark.parametrize("cell", CELLS)
def test_a_schedule_is_shown_what_the_public_is_accounted_for(cell):
    shown, _, rows, _ = watched(cell)
    plain, *_ = watched("without noise")
    uploads, (weights, variance, steps) = shown.uploads[-1], shown.weights[-1]
    raw = plain.averages[-1:] if cell in AVERAGE_ALONE else plain.uploads[-1]
    vectors = 1 if cell in AVERAGE_ALONE else 2
    assert {len(each) for each in (uploads, weights, variance, steps, raw)} == {vectors}
    assert weights.sum() == pytest.approx(1)
    for vector, without, stated in zip(uploads, raw, variance, strict=True):
        noise = vector - without
        expected = multiplier_of(rows) * moved_by(cell, devices=4 if cell in AVERAGE_ALONE else 2)
        if cell in STEPS:  # their rows do not count on the noise of the other device in the average
            expected *= np.sqrt(2)
        assert accepts(noise, expected)
        assert not accepts(noise, 2 / 3 * expected)
        assert not accepts(noise, 3 / 2 * expected)
        assert np.sqrt(stated) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_what_a_schedule_publishes_is_made_of_that_and_is_what_metrics_describe(cell):
    shown, published, _, loss = watched(cell)
    start = shown.kept[-1] + shown.averages[-1]
    assert torch.allclose(published, start - shown.uploads[-1][0], atol=1e-5 * float(published.abs().max()))
    if cell in AVERAGE_ALONE:  # the model that the public has without such a schedule
        assert torch.allclose(published, shown.kept[-1], atol=1e-5 * float(published.abs().max()))
    x, y = records(None)
    scores = torch.from_numpy(x) @ published.reshape(CLASSES, FEATURES).T
    assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(scores, torch.from_numpy(y))), rel=1e-4)


@pytest.mark.parametrize("cell", CELLS)
def test_a_server_is_shown_the_average_under_all_noise(cell):
    shown, _, rows, _ = watched(cell)
    plain, *_ = watched("without noise")
    noise = (shown.averages[-1] - plain.averages[-1]).double()
    least = multiplier_of(rows) * moved_by(cell, devices=4)
    assert float(noise.square().mean().sqrt()) > 0.9 * least


@pytest.mark.parametrize("cell", CELLS)
def test_an_aggregation_is_shown_nothing_of_what_records_contain(cell):
    placement, trust = CELLS[cell]
    if "sum" in cell:
        with pytest.raises(UserError, match=r"secure sums show one sum of .* expected average"):
            carried_out(placement, trust, records, aggregation=WatchingAggregation(Shown()), **cloud_of(cell))
        return
    seen = []
    for seed in (0, 1):
        shown = Shown()
        data = functools.partial(records, seed=seed)
        carried_out(placement, trust, data, aggregation=WatchingAggregation(shown), **cloud_of(cell))
        seen.append(shown.facts)
    assert seen[0] == seen[1] != []
    assert all(facts["planned_steps"] == 1 for facts in seen[0])


DEVICE_PARTS = {
    "objective": {"objective": Enlarging()},
    "loss": {"loss": enlarged},
    "model": {"model": functools.partial(Linear, factor=1e3)},
    "data": {},
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("part", DEVICE_PARTS)
def test_what_a_part_sees_at_a_device_moves_the_public_model_no_further_than_the_ledger_says(part, cell):
    placement, trust = CELLS[cell]
    without = "device" if cell == "central" else "record"
    factor = 1e4 if part == "data" else 1.0

    def run(missing):
        def data(device):
            return records(device, without=missing, factor=factor)

        return carried_out(placement, trust, data, edges=1, clip_norm=1.0, **DEVICE_PARTS[part], **cloud_of(cell))

    (model, rows, _), (other, _, _) = run(None), run(without)
    distance, said = float((model - other).double().norm()), max(row["sensitivity"] for row in rows)
    if cell in STEPS:  # their rows are in units of a single device's gradient
        said = STEP / RECORDS / 2
        if part == "objective":  # it enlarges what is noisy already
            said *= 1e6
    assert 0.01 * said < distance < 1.0001 * said
