"""One writer at a time: what a dead process left is no lock, whatever its text says; who comes second is told."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from h2fdp.errors import UserError
from h2fdp.records import directory as lock
from h2fdp.records.directory import check_room, create, in_use, locked

HOLDS = "import sys, time; from pathlib import Path; from h2fdp.records.directory import locked\n"
HOLDS += "with locked(Path(sys.argv[1]), 'x'): print('held', flush=True); time.sleep(60)"


@pytest.mark.process
def test_who_comes_second_is_told_who_has_it_and_a_killed_process_holds_nothing(tmp_path):
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLDS, run], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        words = rf"another sweep is writing to this directory \(process {holder.pid} on {socket.gethostname()}, since 2"
        with pytest.raises(UserError, match=words), locked(run, "run", "sweep"):
            pass
        with pytest.raises(UserError, match="another run is writing"):
            check_room(run, overwrite=True)
        assert in_use(run)
        os.kill(holder.pid, signal.SIGKILL)
    assert (run / ".lock").exists()
    assert not in_use(run)
    with create(run) as directory:
        assert in_use(directory.path)


@pytest.mark.parametrize(
    "who", [{"process": os.getpid(), "host": socket.gethostname()}, {"process": 1, "host": "gone"}]
)
def test_a_lock_that_was_left_is_free_though_its_number_or_its_host_is_anothers(tmp_path, who):
    (tmp_path / ".lock").write_text(json.dumps(who | {"since": "2001-01-01 00:00:00"}))
    assert not in_use(tmp_path)
    with locked(tmp_path, "here"):
        assert in_use(tmp_path)


def test_a_lock_that_its_holder_removed_meanwhile_is_none(tmp_path, monkeypatch):
    """Another process opened the file before it was removed, and locks what nobody else will ever see."""
    flock, removed = lock.fcntl.flock, []

    def late(descriptor, how):
        if not removed:
            removed.append((tmp_path / ".lock").unlink())
        flock(descriptor, how)

    monkeypatch.setattr(lock.fcntl, "flock", late)
    with locked(tmp_path, "here"), pytest.raises(UserError, match="another run"), locked(tmp_path, "here"):
        pass


def test_what_another_run_left_meanwhile_is_not_written_into(tmp_path, monkeypatch):
    """Two runs find an empty directory; the second gets the lock when the first is done."""
    from h2fdp.records import directory as module

    @contextlib.contextmanager
    def after_another(path, where):
        (path / "config.yaml").write_text("of the other run")
        with locked(path, where):
            yield

    monkeypatch.setattr(module, "locked", after_another)
    with pytest.raises(UserError, match="the directory is not empty"), create(tmp_path):
        pass
    assert (tmp_path / "config.yaml").read_text() == "of the other run"
