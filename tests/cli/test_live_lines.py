"""The plain lines of a run in a pipe."""

import io

import pytest
from rich.console import Console

from h2fdp.cli.sweep import SweepProgress
from h2fdp.cli.terminal import Target, live_bars, progress

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


@pytest.mark.parametrize("columns", [30, 60, 80, 200])
def test_the_bar_of_a_sweep_keeps_its_name_and_cuts_no_word(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    bars, shown, name = live_bars(), io.StringIO(), "seed=1,privacy.epsilon=20,training.step_size=0.5"
    watcher = SweepProgress(None, bars)
    watcher.begin(500, 120, 30)
    watcher.started(name, 0, 30)
    watcher.interval(name, {"interval": 3} | ROW)
    Console(file=shown, width=columns).print(bars)
    line = shown.getvalue().rstrip("\n")
    assert ("\n" in line, "…" in line) == (False, False)
    first, *words = line.split()
    assert first == "runs"
    assert "120/500" in words
    assert ("1 running" in line, name in line, "0.0123 J" in line) == (columns > 30, columns > 80, columns > 80)
