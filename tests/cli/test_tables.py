"""Tables in 80 columns: numbers are never cut, and where nothing else fits each row is a block of lines."""

import pytest

from h2fdp.cli.tables import print_table


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_words_wrap_and_numbers_do_not(capsys):
    row = {"what": "a description of many words, which may be broken", "number": 123456.0, "mean": "0.2072 ± 0.0123"}
    print_table([{**row, "more": "another description that is far too long for one line of a terminal"}])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "1.235e+05" in printed
    assert "0.2072 ± 0.0123" in printed


def test_a_title_is_as_wide_as_the_terminal_and_not_as_its_table(capsys):
    title = "means over seeds, and half of their 95 % intervals (Student's t)"
    print_table([{"n": 1}], title=title)
    assert capsys.readouterr().out.splitlines()[0] == title


def test_a_table_that_cannot_fit_is_a_block_for_each_row(capsys):
    keys = ["batch_size", "intervals", "local_steps", "clip_scope", "accuracy", "interval", "energy", "epsilon"]
    print_table([dict.fromkeys(keys, 0.20721) | {"interval": "0.1234 to 0.5678"}] * 2, title="runs")
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "runs"
    assert printed.count("batch_size   0.2072\n") == 2
    assert "interval     0.1234 to 0.5678\n" in printed


@pytest.mark.parametrize("interval", ["<0 to 0.736", "0.9 to >1"])
def test_an_interval_that_is_cut_is_a_number_too(capsys, interval):
    print_table([{f"c{place}": interval for place in range(6)}])
    assert capsys.readouterr().out.count(interval) == 6


def test_how_many_of_how_many_is_not_broken_either(capsys):
    print_table([{f"c{place}": "13 of 15" for place in range(10)}])
    assert capsys.readouterr().out.count("13 of 15") == 10
