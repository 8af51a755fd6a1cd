"""No byte of a run's file can be changed or cut off such that a number changes: it is told, with the file and its line.

Every place of small files is tried, in this process; of a table, which takes longer to read, every sixth.
H2FDP_DAMAGES=N flips N bits at every place of each file.
"""

import os
import random

import pyarrow as pa
import pytest

from h2fdp.errors import UserError
from h2fdp.records.atomic import write_checked_json
from h2fdp.records.directory import read_summary
from h2fdp.records.json_lines import JsonLines, check_lines, read_json_lines, write_sums
from h2fdp.records.tables import read_table, write_table

FLIPS = int(os.environ.get("H2FDP_DAMAGES", "0"))
ROWS = [{"interval": k, "kind": "local", "noise_std": 0.1 * k, "devices": "1-3"} for k in (1, 2, 3)]


def a_summary(folder):
    values = {"schema_version": 2, "accuracy": 0.8125, "loss": float("nan"), "seeds": [1, 2]}
    write_checked_json(folder / "summary.json", values, indent=2)
    return folder / "summary.json", lambda: read_summary(folder)


def a_ledger(folder):
    with JsonLines(folder / "privacy.jsonl") as ledger:
        ledger.append(ROWS[:1])
        ledger.append(ROWS[1:])
    return folder / "privacy.jsonl", lambda: list(read_json_lines(folder / "privacy.jsonl"))


def a_configuration(folder):
    (folder / "config.yaml").write_text("name: x\nprivacy:\n  epsilon: 1.0\n")
    write_sums(folder / "config.yaml")

    def read():
        check_lines(folder / "config.yaml")
        return (folder / "config.yaml").read_text()

    return folder / "config.yaml", read


def a_table(folder):
    columns = {"interval": [1, 2, 3], "accuracy": [0.1, None, float("inf")], "device": ["a", "b", None]}
    write_table(folder / "metrics.parquet", pa.table(columns))
    return folder / "metrics.parquet", lambda: read_table(folder / "metrics.parquet").to_pylist()


def damages(whole, draw, every):
    for place in range(0, len(whole), 1 if FLIPS else every):
        yield whole[:place]
        for bit in draw.sample(range(8), min(FLIPS or 1, 8)):
            yield whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]


@pytest.mark.parametrize(("make", "every"), [(a_summary, 1), (a_ledger, 1), (a_configuration, 1), (a_table, 6)])
def test_no_damage_at_any_place_changes_a_number(make, every, tmp_path):
    path, read = make(tmp_path)
    whole, expected = path.read_bytes(), read()
    answers = []
    for damaged in damages(whole, random.Random(1), every):
        path.write_bytes(damaged)
        try:
            answers.append(read())
        except UserError as error:
            answers.append(str(error))
    untold = [answer for answer in answers if not isinstance(answer, str) or answer == expected]
    assert all(answer == expected for answer in untold)  # a blank, or a byte that stands for nothing
    assert all(path.name in answer for answer in answers if answer not in untold)
    assert len(untold) < len(answers) / 2


@pytest.mark.parametrize("make", [a_ledger, a_configuration])
def test_the_line_is_named(make, tmp_path):
    path, read = make(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    for number in range(len(lines)):
        changed = [*lines[:number], b"x" + lines[number][1:], *lines[number + 1 :]]
        path.write_bytes(b"".join(changed))
        with pytest.raises(UserError, match=rf"{path.name}:{number + 1}: the line was changed after the run wrote it"):
            read()
        path.write_bytes(b"".join(lines[:number]))
        with pytest.raises(UserError, match=rf"{path.name}:{number + 1}: .* expected 3 lines, found {number}"):
            read()


def test_lines_that_a_killed_process_left_without_checksums_get_them(tmp_path):
    path, _ = a_ledger(tmp_path)
    sums = tmp_path / "checksums" / "privacy.jsonl"
    whole = sums.read_bytes()
    for length in (0, 9, 13, 18):
        sums.write_bytes(whole[:length])
        assert list(read_json_lines(path)) == ROWS
        with JsonLines(path):
            assert sums.read_bytes() == whole
