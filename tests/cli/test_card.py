"""`h2fdp privacy card`: of a run, of one without a guarantee, of a ledger alone, of none."""

import json

import pytest

from h2fdp.reports.results import card_table
from h2fdp.reports.run_view import RunView
from h2fdp.run.privacy import RunPrivacy

pytestmark = pytest.mark.run


def test_command_python_and_report_have_one_card_and_the_command_fits_80_columns(h2fdp, experiment, tmp_path):
    run = tmp_path / "run"
    assert h2fdp("run", experiment, "--out", run, "--quiet").returncode == 0
    card = RunPrivacy(run).card()
    assert json.loads(h2fdp("privacy", "card", run, "--json").stdout) == card
    assert card["observers"]["cloud"]["epsilon"] == RunPrivacy(run).epsilon("cloud")
    (table,) = card_table(RunView.read(run, "run")).values()
    assert table.rows == [[observer, *numbers.values()] for observer, numbers in card["observers"].items()]
    lines = h2fdp("privacy", "card", run).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line.strip()}
    assert (shown["protected"], shown["neighbours"], shown["delta"]) == ("record", "null-record", "1e-05, by rdp")
    assert shown["hidden"].startswith("the noise, and which records are in a batch")
    ledger = h2fdp("privacy", "card", run / "privacy.jsonl", "--delta", 1e-5, "--json")
    assert json.loads(ledger.stdout)["assumed"]["trusted"].startswith("not stated, where the ledger is all there is")


def test_without_a_guarantee_there_is_no_card(h2fdp, experiment, tmp_path):
    run = tmp_path / "run"
    assert h2fdp("run", experiment, "--set", "method=hfl", "--out", run, "--quiet").returncode == 0
    assert h2fdp("privacy", "card", run).stdout == "the ledger is empty: nothing was released under a guarantee\n"
    assert RunPrivacy(run).card()["observers"] == {}


def test_what_is_no_run_is_refused_in_a_line(h2fdp, experiment, tmp_path):
    for arguments, text in (
        ([tmp_path / "nothing"], "no such run directory or ledger"),
        ([experiment], "expected a run directory or a ledger (privacy.jsonl), found an experiment file; before a run:"),
        ([tmp_path, "--delta", 2], "expected a number above 0 and below 1, found 2.0"),
    ):
        done = h2fdp("privacy", "card", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr
        assert "Traceback" not in done.stderr
