"""A test that does what its marks do not say fails, whichever way it takes; these say nothing."""

import os
import subprocess
from multiprocessing import get_context

import pytest

from h2fdp.records import RunDirectory
from tests import tiers

TRUE = "/bin/true"


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([TRUE]),
        lambda: os.system(TRUE),
        lambda: os.popen(TRUE),
        lambda: os.spawnv(os.P_WAIT, TRUE, [TRUE]),
        lambda: os.posix_spawn(TRUE, [TRUE], {}),
        lambda: get_context("spawn").Process(target=print).start(),
    ],
    ids=["subprocess", "system", "popen", "spawn", "posix_spawn", "multiprocessing"],
)
def test_a_process_needs_its_mark(start):
    with pytest.raises(pytest.fail.Exception, match="starts a process, but is not marked process"):
        start()


def test_a_run_needs_its_mark(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="makes a run, but is not marked run"):
        RunDirectory(tmp_path).write_summary({})


def test_a_long_computation_needs_its_mark(request, monkeypatch):
    step = tiers._not_for_long(request.node)
    next(step)
    with monkeypatch.context() as short:
        short.setattr(tiers, "LONGEST_S", -1.0)
        with pytest.raises(pytest.fail.Exception, match="s, but is not marked slow"):
            step.send(None)
