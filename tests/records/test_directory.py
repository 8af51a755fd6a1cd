"""The run directory: never mixed, never lost."""

import contextlib

import pytest

from h2fdp.errors import UserError
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.directory import create, reopen


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
