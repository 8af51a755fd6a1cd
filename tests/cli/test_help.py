"""Usage lines, completion and the names of choices, in this process."""

import io
import os
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from h2fdp.cli.main import app
from h2fdp.cli.terminal import interruptible
from h2fdp.methods import METHODS, axes_of

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["run"], "run [OPTIONS] FILE"),
        (["runs"], "runs [OPTIONS] [DIR]..."),
        (["topology", "new"], "topology new [OPTIONS] KIND"),
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


def test_the_list_of_methods_its_help_and_the_pages_name_the_same_six_axes():
    axes = list(axes_of(METHODS["hfl"]))
    assert len(axes) == 6
    listed = CliRunner().invoke(app, ["methods"], env={"COLUMNS": "160"}).stdout.splitlines()
    assert ", ".join(axes) in listed[0]
    (row,) = (line for line in listed if line.startswith("upcycled-"))
    assert row.startswith("upcycled-NAME ")
    assert "same, same, same, same upcycled, same, same" in row
    help_text = " ".join(CliRunner().invoke(app, ["methods", "--help"], env={"COLUMNS": "160"}).stdout.split())
    assert f"{', '.join(axes[:-1])} and {axes[-1]}" in help_text
    for page in ("methods", "experiment-file"):
        text = (DOCS / f"{page}.md").read_text()
        passage = next(part for part in text.split("\n\n") if "six axes" in part)
        assert [passage.find(f"`{axis}`") for axis in axes] == sorted(passage.find(f"`{axis}`") for axis in axes)
        assert all(f"`{axis}`" in passage for axis in axes)


def test_a_signal_that_comes_while_a_line_is_written_stops_the_run_all_the_same(monkeypatch, capfd):
    """A buffered stream refuses to be entered by a handler that interrupts its own write."""

    class Interrupted(io.RawIOBase):
        def writable(self):
            return True

        def write(self, text):
            os.kill(os.getpid(), signal.SIGTERM)
            return len(text)

    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(Interrupted())))
    with interruptible() as interrupt:
        print("note: a line", file=sys.stderr, flush=True)
        assert interrupt.asked()
        assert interrupt.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert "stopping after this interval (SIGTERM again to stop at once)" in capfd.readouterr().err
