"""The ledger on disk: rows are there, and synced, when `append` returns; rows that come again are not written twice."""

import json
import logging
import os
import shutil

import pytest

from h2fdp.errors import UserError
from h2fdp.records.json_lines import JsonLines, read_json_lines
from h2fdp.records.log import about, logged_to


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


def left_by_a_crash(path, content=b""):
    """Two groups, a mark between them, then what was being written."""
    with JsonLines(path) as ledger:
        ledger.append([{"a": 1}, {"a": 2}])
        mark = ledger.mark()
        ledger.append([{"a": 3}, {"a": 4}])
    with path.open("ab") as file:
        file.write(content)
    return mark


@pytest.mark.parametrize("torn", [b'{"a', b'{"a": 5}', b'{"a": 5}\n{"a": 6', b"\0" * 5000])
def test_rows_that_come_again_are_not_written_twice(tmp_path, torn):
    mark = left_by_a_crash(tmp_path / "ledger", torn)
    with JsonLines(tmp_path / "ledger", mark) as ledger:
        for group in ([{"a": 3}, {"a": 4}], [{"a": 5}, {"a": 6}], [{"a": 7}]):
            ledger.append(group)
        end = ledger.mark()
    assert [row["a"] for row in read_json_lines(tmp_path / "ledger")] == [1, 2, 3, 4, 5, 6, 7]
    with JsonLines(tmp_path / "ledger") as ledger:
        assert ledger.mark() == end


def test_other_rows_in_their_place_are_refused_and_the_file_is_left(tmp_path):
    mark = left_by_a_crash(tmp_path / "ledger")
    before = (tmp_path / "ledger").read_bytes()
    words = r'ledger:4: this row is not the one .* expected \{"a": 5\}, found \{"a": 4\}'
    with JsonLines(tmp_path / "ledger", mark) as ledger, pytest.raises(UserError, match=words):
        ledger.append([{"a": 3}, {"a": 5}])
    assert (tmp_path / "ledger").read_bytes() == before


@pytest.mark.parametrize("content", [b"", b'{"a": 1}\n', b'{"a": 1}\n{"a": 9}\n{"a": 3}\n'])
def test_a_file_that_lost_or_changed_what_stands_is_refused(tmp_path, content):
    mark = left_by_a_crash(tmp_path / "ledger")
    (tmp_path / "ledger").write_bytes(content)
    with pytest.raises(UserError, match=r"ledger:[123]: the (file was cut|line was changed) after the run wrote it"):
        JsonLines(tmp_path / "ledger", mark)
    shutil.rmtree(tmp_path / "checksums")
    with pytest.raises(UserError, match="the file was changed after the run wrote it"):
        JsonLines(tmp_path / "ledger", mark)


def test_without_a_mark_everything_whole_stands(tmp_path):
    left_by_a_crash(tmp_path / "ledger", b'{"a": 5')
    with JsonLines(tmp_path / "ledger") as ledger:
        ledger.append([{"a": 3}])
    assert [row["a"] for row in read_json_lines(tmp_path / "ledger")] == [1, 2, 3, 4, 3]


def test_a_failed_append_leaves_no_part_of_its_group(tmp_path, monkeypatch):
    with JsonLines(tmp_path / "ledger") as ledger:
        ledger.append([{"a": 1}])
        monkeypatch.setattr(os, "fdatasync", lambda number: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            ledger.append([{"a": 2}, {"a": 3}])
    assert (tmp_path / "ledger").read_text() == '{"a": 1}\n'


LOG = logging.getLogger("h2fdp.runtime.somewhere")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_names_its_node_and_interval(tmp_path, capsys):
    with logged_to(tmp_path / "log.jsonl"):
        LOG.info("host lost", extra=about(node="host-2", interval=7, devices=3, loss=float("nan")))
        LOG.debug("too much")
    (line,) = lines(tmp_path / "log.jsonl")
    assert line.pop("time") > 1e9
    named = {"level": "info", "node": "host-2", "interval": 7, "event": "host lost", "devices": 3, "loss": None}
    assert line == named
    assert capsys.readouterr().err == ""


def test_warnings_are_notes_to_the_user_and_plain_records_are_the_drivers(tmp_path, capsys):
    with logged_to(tmp_path / "log.jsonl"):
        LOG.warning("slow", extra=about(note="the disk is slow"))
        LOG.warning("plain %d", 5)
    assert capsys.readouterr().err == "note: the disk is slow\nnote: plain 5\n"
    assert [(line["event"], line["node"]) for line in lines(tmp_path / "log.jsonl")] == [
        ("slow", "driver"),
        ("plain 5", "driver"),
    ]


def test_notes_fit_80_columns_and_the_file_has_them_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = "training.device_turns: 5 is more than the devices of 1 of 8 edge servers, none of which take part"
    with logged_to(tmp_path / "log.jsonl"):
        LOG.warning("notice", extra=about(note=text))
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= 80
    assert " ".join(said.split()) == f"note: {text}"
    assert lines(tmp_path / "log.jsonl")[0]["note"] == text
