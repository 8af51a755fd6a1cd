"""The plain lines of a run in a pipe."""

import os
import pty
import sys
from contextlib import suppress

import pytest

from h2fdp.cli.terminal import progress
from h2fdp.sweeps.api import SweepProgress
from h2fdp.wording import Target, progress_bar

ROW = {"accuracy": 0.8512, "epsilon_cloud": 0.98765, "energy_j": 0.012345, "clock_s": 1234.5}


@pytest.mark.parametrize("total", [3, 150, 10_000])
def test_no_line_is_wider_than_80_columns_and_costs_give_way(capsys, total):
    with progress(total, quiet=False, verbose=False, target=Target(1.25)) as show:
        for interval in range(1, total + 1):
            show({"interval": interval} | ROW)
    said = capsys.readouterr().err.splitlines()
    assert max(map(len, said)) <= 80
    assert all("accuracy 0.8512  epsilon 0.988 of 1.25" in line for line in said)
    assert any("0.0123 J" in line for line in said)


def test_what_fits_is_said(capsys):
    with progress(3, quiet=False, verbose=False) as show:
        show({"interval": 1} | ROW)
    assert capsys.readouterr().err == "interval 1/3  accuracy 0.8512  epsilon 0.988  0.0123 J  1.23e+03 s simulated\n"


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_live_line_of_a_sweep_fits_and_cuts_no_word(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "seed=1,privacy.epsilon=20,training.step_size=0.5"
    with progress_bar(1, True) as bar:
        watcher = SweepProgress(bar)
        watcher.begin(500, 120, 30)
        watcher.started(name, 0, 30)
        watcher.interval(name, {"interval": 3} | ROW)
        shown = str(bar)
    assert len(shown) <= columns
    assert shown.startswith("120/500  1 running")
    assert (f"{name} 3" in shown, "0.0123 J" in shown) == (columns > 80, columns > 80)
    assert shown in capsys.readouterr().err


@pytest.mark.process
def test_a_terminal_that_does_not_know_its_size_has_a_live_line():
    """As those of containers and of batch systems: 0 lines of 0 columns."""
    child, end = pty.fork()
    if child == 0:
        code = "from h2fdp.wording import progress_bar\nwith progress_bar(7, True) as bar: bar.update(7)"
        os.execv(sys.executable, [sys.executable, "-c", code])
    said = b""
    with suppress(OSError):  # it is gone
        while some := os.read(end, 1000):
            said += some
    assert os.waitpid(child, 0)[1] == 0
    assert b"7/7" in said


def test_a_live_line_is_shown_again_when_only_its_words_change(monkeypatch, capsys):
    monkeypatch.setattr("h2fdp.wording._SECONDS_BETWEEN", 0.0)
    with progress_bar(3, True) as bar:
        watcher = SweepProgress(bar)
        watcher.begin(3, 0, 6)
        watcher.started("a", 0, 3)
        for interval in (1, 2):
            watcher.interval("a", {"interval": interval})
        said = capsys.readouterr().err
    assert "1 running  a 1" in said
    assert "1 running  a 2" in said
