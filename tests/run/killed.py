"""Runs that are killed (SIGKILL) at chosen points, for the tests of resuming; each is a child process of its own."""

import os
import signal
from functools import partial
from pathlib import Path

import h2fdp
from h2fdp import Experiment, Topology
from h2fdp.records import atomic, noise_key
from h2fdp.records import checkpoint as checkpoint_file
from h2fdp.records.json_lines import cut_sums
from h2fdp.run import recorders
from h2fdp.run.identity import package_digest
from h2fdp.run.loop import start_run
from tests.forks import in_a_child
from tests.noise_keys import known
from tests.runtime.runs import assert_equal, recorded


def experiment(**settings):
    """Learns from what is released, so that a checkpoint has more to hold than the model."""
    defaults = {"intervals": 12, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 2}
    defaults |= {"sensitivity": "tight", "calibration": "paper", "control": {"tau_max": 6}}
    defaults |= {"runtime": {"checkpoint_every": 3}, "accountant": "rdp"}  # pld is coarse at epsilons in the thousands
    topology = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
    defaults |= {"model": "softmax", "training": "paper"}
    return Experiment(topology=topology, data="digits", method="h2fdp-adaptive", **{**defaults, **settings})


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def at(step, interval=None):
    """Die when a run comes to this step of an interval, counted from 0, or of any."""
    recorders.listener = lambda reached, number: die() if reached == step and interval in (None, number) else None


def in_the_middle_of_rows(interval, run):
    """Half of an interval's rows are in the file, the last of them torn: as if it had died while they were written."""

    def half(reached, number):
        if (reached, number) == ("released", interval):
            ledger = run / "privacy.jsonl"
            lines = ledger.read_bytes().splitlines(keepends=True)
            before = [line for line in lines if f'"interval": {interval + 1},'.encode() not in line]
            whole = sum(map(len, before))
            cut_sums(ledger, len(before))  # which come after the rows
            os.truncate(ledger, (whole + sum(map(len, lines))) // 2)
            die()

    recorders.listener = half


def in_the_middle_of_a_checkpoint(interval):
    original = checkpoint_file.replacing

    def half(path, private):
        return HalfWritten(path) if path.name == f"{interval:09d}.ckpt" else original(path, private=private)

    checkpoint_file.replacing = half


class HalfWritten:
    def __init__(self, path):
        self._whole = atomic.replacing(path)

    def __enter__(self):
        self._file = self._whole.__enter__()
        return self

    def write(self, data):
        self._file.write(data[: len(data) // 2])
        self._file.flush()
        die()

    def __exit__(self, *_):
        raise AssertionError("dead by now")


POINTS = {
    "before the first checkpoint": lambda _: at("hosts up", 0),
    "in the rows of the first interval": lambda run: in_the_middle_of_rows(0, run),
    "in the rows of a later interval": lambda run: in_the_middle_of_rows(5, run),
    "rows on disk, interval not begun": lambda _: at("released", 7),
    "interval done, not recorded": lambda _: at("ran", 3),
    "in a checkpoint": lambda _: in_the_middle_of_a_checkpoint(9),
    "metrics written, checkpoint not": lambda _: at("checkpoint", 6),
    "all intervals done, results not": lambda _: at("results"),
}


def killed_runs(folder: Path) -> dict[str, Path]:
    """A run for each point at which it was killed."""
    run = experiment().prepare()
    package_digest()  # a second, once for all

    def until_killed(arm, path):
        noise_key.drawn = known  # the keys of these runs are in their directories alone, for whoever resumes them
        arm(path)
        start_run(run, path)

    paths = {point: folder / str(number) for number, point in enumerate(POINTS)}
    for point, arm in POINTS.items():
        assert in_a_child(partial(until_killed, arm, paths[point])) == -signal.SIGKILL, point
    return paths


def assert_outlives_a_kill(made: Experiment, folder: Path, step: str, interval: int) -> None:
    """A run that is killed when it comes to a step of an interval goes on to the bits of one that nothing disturbed."""
    whole = made.run(folder / "whole")
    killed_at(made, folder / "killed", step, interval)
    assert_equal(recorded(whole), recorded(h2fdp.resume(folder / "killed")))


def killed_at(made: Experiment, path: Path, step: str, interval: int) -> None:
    """A run into a directory, until it is killed at a step of an interval."""
    setup = made.prepare()

    def until_killed():
        at(step, interval)
        start_run(setup, path)

    assert in_a_child(until_killed) == -signal.SIGKILL
