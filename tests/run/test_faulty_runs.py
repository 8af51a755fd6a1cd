"""Whole runs in a world in which devices fail: against NumPy slot by slot, under control, without anybody."""

import json
import math

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Radio
from h2fdp.run.preview import estimate
from h2fdp.streams import Streams
from tests.networks import placed

NETWORK = Topology(
    "t",
    tuple(placed(name, name == "A", np.full(4, 10.0), np.full(4, 24.0)) for name in "ABC"),
    Radio(fading="none"),
).with_devices(seconds_per_step=0.5, joules_per_step=0.25)
FAULTS = {
    "device_dropout": 0.4,
    "straggler": {"probability": 0.4},
    "edge_outage": {"probability": 0.25, "intervals": 2},
}
INTERVALS, STEPS, STEP = 6, 7, 0.5
ENDS = (3, 6, 7)


def experiment(faults=FAULTS, **settings):
    defaults = {"intervals": INTERVALS, "local_steps": STEPS, "aggregate_every": 3, "batch_size": 5, "step_size": STEP}
    return Experiment(NETWORK, "digits", faults=faults, **{**defaults, "epsilon": 20.0, "seed": 4, **settings})


class World:
    """Hierarchical FedAvg with faults in plain NumPy: one device, one slot after another."""

    def __init__(self, run):
        self.run, self.model = run, run.initial.numpy().reshape(10, 64).astype(float)
        self.uploads = self.relayed = self.steps = 0

    def gradient(self, model, subnet, device, interval, slot):
        group = self.run.blueprint.device_group(subnet)
        drawn = group.sampler.draw(interval, [slot], np.array([device])).of(0, 0)
        x, y = group.records.gather(drawn + group.records.offsets[device])
        x, y = x.reshape(len(y), -1).numpy(), y.numpy()
        logits = x @ model.T
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (shares / shares.sum(axis=1, keepdims=True) - np.eye(10)[y]).T @ x / len(y)

    def interval(self, k):
        eta, received = STEP / math.sqrt(k + 1), []
        for number, name in enumerate("ABC"):
            begun = np.random.Generator(np.random.Philox(key=Streams(4).key(name, "outage"))).random(k + 1)[-2:]
            if (begun >= 0.25).all() and (model := self.subnet(k, number, name, eta)) is not None:
                received.append(model)
        self.relayed += len(received)
        self.model = np.mean(received, axis=0) if received else self.model

    def subnet(self, k, number, name, eta):
        """The subnet's model at the end, or None where nothing ever came up."""
        draws = Streams(4).open(name, "faults", k).random((4, 4))
        gone = [int(when * STEPS) + 1 if drops < 0.4 else STEPS + 1 for drops, when, _, _ in draws]  # in this slot
        work = [1 + int(part * 6) if slow < 0.4 else STEPS for _, _, slow, part in draws]
        held, heard = [self.model] * 4, False
        broadcast, since = self.model, [0] * 4
        for slot in range(1, STEPS + 1):
            start = max((end for end in ENDS if end < slot), default=0)
            for device in range(4):
                if slot < gone[device] and work[device] * slot // STEPS > work[device] * (slot - 1) // STEPS:
                    since[device] += 1  # its next step uses the next batch of this segment
                    at = k * STEPS + start + since[device]
                    held[device] = held[device] - eta * self.gradient(held[device], number, device, k, at)
                    self.steps += 1
            if slot in ENDS:
                there = [device for device in range(4) if slot < gone[device] and since[device]]
                self.uploads += len(there)
                if there:
                    broadcast, heard = np.mean([held[device] for device in there], axis=0), True
                held, since = [broadcast] * 4, [0] * 4
        return broadcast if heard else None


@pytest.fixture(scope="module")
def world():
    made = World(experiment(method="hfl").prepare())
    for interval in range(INTERVALS):
        made.interval(interval)
    return made


@pytest.mark.parametrize("engine", ["stacked", "loop"])
def test_a_run_is_what_numpy_finds_slot_by_slot(tmp_path, world, engine):
    run = experiment(method="hfl", engine=engine).run(tmp_path / "run")
    (model,) = run.model.state_dict().values()
    assert np.abs(model.numpy() - run_initial(world)).max() > 0.1
    np.testing.assert_allclose(model.numpy(), world.model, atol=1e-5)


def run_initial(world):
    return world.run.initial.numpy().reshape(10, 64)


def test_energy_is_what_was_spent(tmp_path, world):
    """Every upload that was sent, every step also in vain, and a message of each edge server that had anything."""
    run = experiment(method="hfl").run(tmp_path / "run")
    cost = world.run.costs.drawn(0)
    spent = world.uploads * cost.joules[0] + world.relayed * cost.link_joules[0] + 0.25 * world.steps
    assert world.relayed < 3 * INTERVALS
    assert run.metrics["energy_j"].iloc[-1] == pytest.approx(spent, rel=1e-9)
    assert estimate(experiment(method="hfl").prepare())["device steps"] == world.steps


def test_without_anybody_the_model_stays_nothing_is_released_and_time_passes(tmp_path):
    run = experiment({"edge_outage": {"probability": 1}}, intervals=3).run(tmp_path / "run")
    (model,) = run.model.state_dict().values()
    assert torch.equal(model.flatten(), experiment().prepare().initial)
    assert (run.directory / "privacy.jsonl").read_text() == ""
    assert run.metrics["participants"].tolist() == [0, 0, 0]
    assert run.metrics["energy_j"].tolist() == [0, 0, 0]
    assert run.metrics["clock_s"].tolist() == pytest.approx([0.5 * STEPS * k for k in (1, 2, 3)])
    assert run.metrics["epsilon_claimed"].tolist() == [0, 0, 0]
    assert run.privacy.epsilon(observer="cloud") is None


def test_the_claim_counts_the_aggregations_that_released_something(tmp_path):
    """Everybody drops out in every interval: no global release, a local one where somebody is left."""
    settings = {"local_steps": 8, "aggregate_every": 6, "participation": 0.25, "epsilon": 4.0}
    run = experiment({"device_dropout": 1}, **settings, sampling="fixed").run(tmp_path / "run")
    rows = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"local"}
    released = len({row["interval"] for row in rows})
    assert 0 < released < INTERVALS
    assert run.metrics["epsilon_claimed"].iloc[-1] == pytest.approx(4.0 * math.sqrt(released / INTERVALS))
    assert [each["kind"] for each in run.summary["noise_std"]] == ["local", "local"]
    assert all(each["smallest"] > 0 for each in run.summary["noise_std"])


def test_calibration_to_an_account_knows_the_faults(tmp_path):
    run = experiment(calibration="accounted", accountant="rdp", epsilon=2.0, intervals=3).run(tmp_path / "run")
    reached = max(run.privacy.epsilon(observer=observer) for observer in ("edge", "peer", "cloud", "public"))
    assert 1.98 < reached <= 2.0


def test_a_star_and_its_tree_meet_the_same_faults():
    # One aggregation in the interval: the same devices come through, with the same steps.
    star, tree = (
        experiment(method=name, aggregate_every=STEPS, intervals=20).prepare().cloud(None) for name in ("fedavg", "hfl")
    )
    for interval in range(20):
        of_star, of_tree = star.plan(interval).subnets, tree.plan(interval).subnets
        expected = {}
        for name, part in of_tree.items():
            end = part.aggregation(-1)
            expected |= {4 * "ABC".index(name) + row: steps for row, steps in zip(end.rows, end.steps, strict=True)}
        ends = [part.aggregation(-1) for part in of_star.values()]
        found = {row: steps for end in ends for row, steps in zip(end.rows, end.steps, strict=True)}
        assert found == expected


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"device_dropout": 1.5}, r"faults\.device_dropout: expected a number from 0 to 1, found 1\.5"),
        ({"straggler": {"fraction": [0.9, 0.1]}}, r"faults\.straggler\.fraction: expected the lowest value first"),
        ({"dropout": 0.1}, r"faults\.dropout.*device_dropout"),
    ],
)
def test_wrong_faults_are_told(faults, words):
    with pytest.raises(UserError, match=words):
        experiment(faults)
