"""Usage lines and completion, in this process."""

import pytest
from typer.testing import CliRunner

from h2fdp.cli.main import app


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["run"], "run [OPTIONS] FILE"),
        (["runs"], "runs [OPTIONS] [DIR]"),
        (["check"], "check [OPTIONS] RUN..."),
        (["privacy", "account"], "privacy account [OPTIONS] RUN..."),
        (["report"], "report [OPTIONS] RUN..."),
        (["schema"], "schema [OPTIONS] [experiment|topology]"),
        (["topology", "new"], "topology new [OPTIONS] KIND"),
        (["data", "show"], "data show [OPTIONS] FILE"),
    ],
)
def test_a_usage_line_names_the_arguments_plainly(words, usage):
    shown = CliRunner().invoke(app, [*words, "--help"], prog_name="h2fdp", env={"COLUMNS": "100"}).stdout
    (line,) = (line.split() for line in shown.splitlines() if "Usage:" in line)
    assert line == ["Usage:", "h2fdp", *usage.split()]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("h2fdp sw", ["sweep"]), ("h2fdp run --dr", ["--dry-run"]), ("h2fdp privacy exp", ["explain"])],
)
def test_a_shell_completes_commands_and_options(typed, offered):
    asked = {"_H2FDP_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    assert CliRunner().invoke(app, [], prog_name="h2fdp", env=asked).stdout.split() == offered
