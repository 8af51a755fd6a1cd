"""`h2fdp report` on the command line."""

from typer.testing import CliRunner

from h2fdp.cli.main import app


def call(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_says_what_it_wrote(spoilt):
    run = spoilt("open")
    done = call(run)
    assert (done.exit_code, done.output.strip()) == (0, str(run / "report.html"))
    assert call(run, "--out", run / "a/b/c.html").exit_code == 0  # folders are made
    assert (run / "a/b/c.html").is_file()
