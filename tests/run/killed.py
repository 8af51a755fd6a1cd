"""Runs that are killed (SIGKILL) at chosen points, for the tests of resuming: python -m tests.run.killed DIR.

Libraries are imported once; each run is a child of its own, forked before anything was trained.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from h2fdp import Experiment, Topology
from h2fdp.protocol import Cloud
from h2fdp.records import JsonLines, atomic
from h2fdp.records import checkpoint as checkpoint_file
from h2fdp.run import checkpoints, recorder
from h2fdp.run.result import start_run


def experiment(**settings):
    """Learns from what is released, so that a checkpoint has more to hold than the model."""
    defaults = {"intervals": 12, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 20.0, "seed": 2}
    defaults |= {"sensitivity": "tight", "control": {"tau_max": 6}, "runtime": {"checkpoint_every": 3}}
    topology = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
    return Experiment(topology=topology, data="digits", method="h2fdp-adaptive", **{**defaults, **settings})


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner, name, call):
    """Die instead of the call-th call."""
    original, calls = getattr(owner, name), [0]

    def counted(*arguments, **keywords):
        calls[0] += 1
        return die() if calls[0] == call else original(*arguments, **keywords)

    setattr(owner, name, counted)


def in_the_middle_of_rows(interval):
    """Half of an interval's rows are in the file, the last of them torn."""
    original = JsonLines._write

    def half(self, data):
        if self._path.name == "privacy.jsonl" and f'"interval": {interval},'.encode() in data:
            self._file.write(data[: len(data) // 2])
            die()
        original(self, data)

    JsonLines._write = half


def in_the_middle_of_a_checkpoint(interval):
    original = checkpoint_file.replacing

    def half(path):
        return HalfWritten(path) if path.name == f"{interval:09d}.ckpt" else original(path)

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
    "before the first checkpoint": lambda: before(checkpoints.Checkpoints, "begin", 1),
    "in the rows of the first interval": lambda: in_the_middle_of_rows(1),
    "in the rows of a later interval": lambda: in_the_middle_of_rows(6),
    "rows on disk, interval not begun": lambda: before(Cloud, "run_interval", 8),
    "interval done, not recorded": lambda: before(Cloud, "plan", 5),
    "in a checkpoint": lambda: in_the_middle_of_a_checkpoint(9),
    "metrics written, checkpoint not": lambda: before(checkpoints, "save_checkpoint", 3),
    "all intervals done, results not": lambda: before(recorder, "device_scores", 1),
}


def main(folder: Path):
    torch.set_num_threads(1)  # threads do not survive a fork
    run = experiment().prepare()
    for number, arm in enumerate(POINTS.values()):
        child = os.fork()
        if child == 0:
            arm()
            start_run(run, folder / str(number))
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"run {number} was not killed"
        assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(Path(sys.argv[1]))
