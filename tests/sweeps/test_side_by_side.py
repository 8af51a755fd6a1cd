"""A sweep in several processes: the bits of `h2fdp run`, the loss of a worker, failures apart."""

import multiprocessing
import os
import runpy
import signal
import sys
import threading

import pytest
from typer.testing import CliRunner

from h2fdp import Experiment
from h2fdp.cli.main import app
from h2fdp.sweeps import Sweep
from h2fdp.sweeps.conduct import conduct
from h2fdp.sweeps.plan import SharedInputs, read_sweep
from h2fdp.sweeps.pool import SilentWatcher, WorkOptions
from tests.cli.test_sweep_command import assert_stopped
from tests.forks import in_a_child
from tests.sweeps.studies import BASE, assert_equal_runs, study


def two_at_a_time(path, out, watcher, *settings):
    shared = SharedInputs()
    found = read_sweep(path, settings, shared)
    outcomes = conduct(found, out, shared, WorkOptions(jobs=2, watcher=watcher))
    return outcomes, Sweep(out, tuple(run.point.name for run in found.runs))


class KillsAWorker(SilentWatcher):
    """Kills the first worker that is seen to have trained an interval."""

    def __init__(self):
        self.killed = False
        self.again = []

    def interval(self, name, row):
        if not self.killed:
            self.killed = True
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    def ended(self, name, outcome, again):
        self.again += [name] * again


@pytest.mark.usefixtures("forked_workers")
def test_runs_side_by_side_have_the_bits_of_h2fdp_run_though_a_worker_is_lost_and_another_fails(tmp_path):
    base = BASE.replace("intervals: 3", "intervals: 12")
    sweep = '{"seed, data": [[1, digits], [2, digits], [3, {name: npz, path: none.npz}]]}'
    path, watcher = study(tmp_path, sweep, base), KillsAWorker()
    outcomes, done = two_at_a_time(path, tmp_path / "out", watcher)
    assert watcher.killed
    assert len(watcher.again) == 1
    assert list(done.runs) == ["seed=1,data=digits", "seed=2,data=digits"]
    (failed,) = (name for name, outcome in outcomes.items() if outcome.mistake)
    assert "no such file" in done.failures[failed]
    for seed in (1, 2):
        alone = Experiment.from_file(path, [f"seed={seed}"]).run(tmp_path / f"alone-{seed}")
        assert_equal_runs(done.runs[f"seed={seed},data=digits"].directory, alone.directory)


@pytest.mark.usefixtures("forked_workers")
def test_ctrl_c_ends_them_after_their_intervals_and_the_same_command_goes_on(tmp_path):
    path, out = study(tmp_path, "{seed: [1, 2, 3]}"), tmp_path / "out"
    ledger = out / "runs" / "seed=1" / "privacy.jsonl"

    ended = threading.Event()

    def press():
        while not ended.wait(0.1):
            if ledger.exists() and ledger.stat().st_size:
                os.kill(os.getpid(), signal.SIGINT)
                return

    pressing = threading.Thread(target=press)
    pressing.start()
    arguments = ["sweep", path, "--out", out, "--jobs", "2", "--set", "training.intervals=100000"]
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "80"})
    ended.set()
    pressing.join()
    assert_stopped(done, path, out)


SCRIPT = """
import sys
from torch import nn
from h2fdp import Experiment, Topology, sweep

{part}
network = Topology.regular(edges=2, devices=2, trust=1)
settings = dict(method="hfl", training="paper", intervals=2, local_steps=2, data="digits", model={model})
{guard}found = sweep(Experiment(topology=network, **settings), grid={{"seed": [1, 2]}}, out=sys.argv[1], jobs=2)
"""
NET = """
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.mark.parametrize(
    ("part", "model", "guard"),
    [("", "'softmax'", ""), (NET, "Net", 'if __name__ == "__main__": ')],
    ids=["plain", "own part"],
)
def test_a_script_runs_once_and_may_have_parts_of_its_own(tmp_path, monkeypatch, part, model, guard):
    """Its workers are processes of their own, as a user's are."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(part=part, model=model, guard=guard))
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path / "out")])

    def run():
        found = runpy.run_path(str(path), run_name="__main__")["found"]
        assert (len(found.runs), found.failures) == (2, {})

    assert in_a_child(run) == 0
