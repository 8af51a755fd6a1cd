"""The log of a run: one JSON object a line, with node and interval; what the user should know on standard error."""

import json
import logging

from h2fdp.records import about, logged_to

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
