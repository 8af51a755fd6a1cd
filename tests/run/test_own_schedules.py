"""A user's own schedule: named in a file or handed in from Python; its noise covers its longest interval."""

import math

import numpy as np
import pytest

import h2fdp
from h2fdp.errors import UserError
from h2fdp.run.api import Experiment
from h2fdp.run.forecast import budgets_of, first_interval
from h2fdp.run.live_accounts import notes
from h2fdp.schedules import Decision, OwnSchedule


class Steady(OwnSchedule):
    """Every interval has this many local steps, whatever the file says."""

    varies_tau = True

    def __init__(self, tau, longest):
        self.tau, self.longest = tau, longest

    def longest_interval(self, horizon):
        return self.longest

    def choose(self, interval, slot):
        step_size = self.context.step_size / math.sqrt(interval + 1)
        return Decision(self.tau, step_size, self.context.participation)


MODULE = """
from h2fdp.schedules import Decision, OwnSchedule


class Doubling(OwnSchedule):
    varies_tau = True

    def __init__(self, longest=8):
        self.longest = longest

    def longest_interval(self, horizon):
        return self.longest

    def choose(self, interval, slot):
        tau = min(2**interval, self.longest)
        return Decision(tau, self.context.step_size, self.context.participation)
"""
FILE = """
data: {{name: digits, partition: iid}}
topology:
  edges:
    - {{name: west, trusted: true, devices: {{count: 2}}}}
    - {{name: east, trusted: false, devices: {{count: 2}}}}
method: {{privacy: {privacy}, schedule: {{name: "my_schedule:Doubling", longest: 4}}}}
model: softmax
training: {{extends: paper, intervals: 4, local_steps: 2, aggregate_every: 1, batch_size: 8}}
"""
NETWORK = h2fdp.Topology.regular(edges=2, devices=2, trust=0.5, seed=1)


class Unbounded(Steady):
    longest_interval = OwnSchedule.longest_interval


def experiment(schedule, local_steps=2, privacy="hierarchical", **settings):
    return Experiment(
        topology=NETWORK,
        data="digits",
        method={"privacy": privacy, "schedule": schedule},
        intervals=3,
        local_steps=local_steps,
        aggregate_every=1,
        **settings,
    )


def named(folder, privacy="none"):
    (folder / "my_schedule.py").write_text(MODULE)
    file = folder / "own.yaml"
    file.write_text(FILE.format(privacy=privacy))
    return file


@pytest.mark.parametrize("privacy", ["none", "hierarchical"])
def test_a_schedule_named_in_a_file_decides_a_run(tmp_path, privacy):
    run = Experiment.from_file(named(tmp_path, privacy)).run(tmp_path / "run")
    assert run.metrics["local_steps"].tolist() == [1, 2, 4, 4]


def test_a_run_with_it_is_resumed_to_the_same_bits(tmp_path):
    whole = Experiment.from_file(named(tmp_path)).run(tmp_path / "whole")

    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Experiment.from_file(named(tmp_path)).run(tmp_path / "cut", on_interval=stop)
    again = h2fdp.resume(tmp_path / "cut")
    assert again.metrics["loss"].tolist() == whole.metrics["loss"].tolist()


@pytest.mark.parametrize("privacy", ["hierarchical", "local", "dp-sgd"])
def test_the_noise_covers_the_longest_interval(privacy):
    longest = experiment(Steady(6, longest=6), privacy=privacy).prepare()
    fixed = experiment("fixed", local_steps=6, privacy=privacy).prepare()
    shorter = experiment("fixed", local_steps=2, privacy=privacy).prepare()

    def noises(setup):
        return np.concatenate([part.noise_std.ravel() for part in first_interval(setup).subnets.values()])

    assert noises(longest).tolist() == noises(fixed).tolist()
    assert noises(longest).max() > 1.1 * noises(shorter).max()


class Plain(OwnSchedule):
    def choose(self, interval, slot):
        return Decision(self.context.local_steps, self.context.step_size, self.context.participation)


class Reading(Plain):
    reads_releases = True


class Blind(Plain):
    reads_releases = False


class Observing(Plain):
    def observe(self, seen):
        pass


class Reverting(Plain):
    def kept(self, model):
        return model


class Factory(Plain):
    def build(self, context):
        return Observing().build(context)


@pytest.mark.parametrize(
    ("schedule", "calibration", "accountant"),
    [
        (Plain, "accounted", "pld"),  # it is handed no release, and held to its forecast whatever it reads
        (Blind, "accounted", "pld"),
        (Reading, "accounted", "rdp"),
        (Observing, "accounted", "rdp"),
        (Reverting, "accounted", "rdp"),
        (Factory, "accounted", "rdp"),
        (Plain, "paper", "rdp"),  # nothing holds it to a forecast: it may read what it is not handed
        (Blind, "paper", "pld"),
    ],
)
def test_a_schedule_that_is_handed_no_release_needs_no_privacy_filter(schedule, calibration, accountant):
    setup = experiment(schedule(), calibration=calibration, accountant="pld").prepare()
    assert setup.accountant == accountant
    found = [note for note in notes(setup) if "reads_releases = False" in note]
    assert bool(found) == (accountant == "rdp")
    if calibration == "accounted":
        assert (setup.reserve is None, setup.watched is None) == (accountant == "rdp", accountant == "pld")


def test_a_schedule_that_varies_tau_must_bound_it():
    with pytest.raises(UserError, match="Unbounded varies tau; expected a method `longest_interval"):
        experiment(Unbounded(6, longest=6)).prepare()


def test_the_account_ends_a_run_that_does_not_keep_to_the_iterations_of_given_noise(tmp_path):
    steps = {"name": "dp-sgd", "noise_multiplier": 1.0}
    setup = experiment(Steady(6, longest=6), privacy=steps, epsilon=8.0).prepare()
    assert setup.iterations is not None
    assert set(budgets_of(setup).values()) == {8.0}
