"""`h2fdp report` on the command line."""

import pytest
from typer.testing import CliRunner

from h2fdp.cli.main import app
from h2fdp.errors import UserError


def call(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_says_what_it_wrote(spoilt):
    run = spoilt("open")
    done = call(run)
    assert (done.exit_code, done.output.strip()) == (0, str(run / "report.html"))
    assert call(run, "--out", run / "a/b/c.html").exit_code == 0  # folders are made
    assert (run / "a/b/c.html").is_file()


def test_several_runs_need_a_file_to_be_written_to(runs):
    done = call(runs["fixed"], runs["open"])
    assert isinstance(done.exception, UserError)
    assert "--out: a report of several runs needs a file" in str(done.exception)


@pytest.mark.parametrize("out", [".", "taken/report.html"])
def test_a_place_that_cannot_be_written_is_told(runs, tmp_path, out):
    (tmp_path / "taken").write_text("")
    done = call(runs["open"], "--out", tmp_path / out)
    assert isinstance(done.exception, UserError)
    assert "--out" in str(done.exception)
