"""The command in the tests' own process: seconds less for each call than one of its own."""

import subprocess
import sys

import pytest

from h2fdp.cli.main import main

SMALL = """\
name: small
topology: {edges: [{name: a, trusted: true, devices: {count: 2}}, {name: b, trusted: false, devices: {count: 2}}]}
data: digits
model: softmax
training: {extends: paper, intervals: 3, local_steps: 4, aggregate_every: 2, batch_size: 4}
privacy: {epsilon: 20.0, calibration: paper, accountant: rdp}
"""


@pytest.fixture
def experiment(tmp_path):
    """The file of a small experiment."""
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


@pytest.fixture
def h2fdp(monkeypatch, capsys):
    """The command; returns what a finished process would."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    def called(*arguments):
        monkeypatch.setattr(sys, "argv", ["h2fdp", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(arguments, ended.value.code, *capsys.readouterr())

    return called
