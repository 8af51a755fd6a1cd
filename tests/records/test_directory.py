"""The run directory: never mixed, never lost."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from datetime import datetime
from types import SimpleNamespace

import pytest

from h2fdp.errors import UserError
from h2fdp.records import directory as lock
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.directory import check_room, create, in_use, locked, new_directory, reopen


def a_run(path):
    path.mkdir()
    (path / "config.yaml").write_text("name: x")
    (path / "summary.json").write_text("{}")


def test_a_directory_that_holds_something_is_refused(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UserError, match="not empty"), create(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "precious"


def test_overwrite_replaces_a_run_and_nothing_else(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UserError, match="something other than a run"), create(tmp_path, overwrite=True):
        pass
    assert (tmp_path / "mine").read_text() == "precious"
    a_run(tmp_path / "run")
    with create(tmp_path / "run", overwrite=True) as directory:
        assert not directory.config.exists()


def test_what_a_run_wrote_in_part_goes_when_it_is_opened_again(tmp_path):
    a_run(tmp_path / "run")
    (tmp_path / "run" / "topology.yaml").write_text("name: x")
    (tmp_path / "run" / "checkpoint").mkdir()
    for name in ("metrics.parquet.part", "checkpoint/000000001.ckpt.part"):
        (tmp_path / "run" / name).write_text("half")
    with reopen(tmp_path / "run") as directory:
        assert not list(directory.path.rglob("*.part"))


def test_a_failed_write_leaves_the_old_file(tmp_path):
    write_text(tmp_path / "file", "old")
    with contextlib.suppress(RuntimeError), replacing(tmp_path / "file") as file:
        file.write(b"half of the n")
        raise RuntimeError
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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


def test_runs_that_start_in_one_second_have_directories_of_their_own(tmp_path, monkeypatch):
    """Each is made at once, not when its data are loaded; what stays empty goes again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("h2fdp.records.directory.datetime", SimpleNamespace(now=lambda: datetime(2026, 1, 2)))
    with new_directory(None, "one", False) as first, new_directory(None, "one", False) as second:
        assert [each.name for each in (first, second)] == ["one-20260102-000000", "one-20260102-000000-2"]
        (second / "kept").touch()
    assert os.listdir("runs") == [second.name]


@pytest.mark.parametrize("name", ["log.jsonl", "privacy.jsonl", "control.jsonl", "checkpoint", "checksums", "model.pt"])
def test_a_run_whose_file_is_a_link_is_not_gone_on_with(tmp_path, name):
    run, target = tmp_path / "run", tmp_path / "victim"
    run.mkdir()
    target.write_text("precious")
    for file in ("config.yaml", "topology.yaml"):
        (run / file).touch()
    (run / name).symlink_to(target)
    with pytest.raises(UserError, match=rf"{name}: is a link to .*victim"), reopen(run):
        pass
    assert target.read_text() == "precious"


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="cannot be written"), create(tmp_path / "run"):
        pass
    assert (tmp_path / "victim").read_text() == "precious"
