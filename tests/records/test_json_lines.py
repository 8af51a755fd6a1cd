"""The ledger on disk: one short row is there, and synced, when `append` returns."""

import os

import pytest

from h2fdp.errors import UserError
from h2fdp.records import JsonLines, read_json_lines


def test_a_short_row_is_in_the_file_and_synced_when_append_returns(tmp_path, monkeypatch):
    synced = []
    original = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda number: (synced.append(os.fstat(number).st_size), original(number)))
    with JsonLines(tmp_path / "ledger") as ledger:
        assert ledger.append([{"a": 1}]) == 1
        assert (tmp_path / "ledger").read_text() == '{"a": 1}\n'
        assert synced == [9]
        ledger.append([{"a": 2}])
        assert synced == [9, 18]


def test_rows_come_back(tmp_path):
    with JsonLines(tmp_path / "ledger") as ledger:
        ledger.append([{"a": 1}, {"b": 2.5}])
    assert list(read_json_lines(tmp_path / "ledger")) == [{"a": 1}, {"b": 2.5}]


def test_a_missing_ledger_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        list(read_json_lines(tmp_path / "ledger"))
