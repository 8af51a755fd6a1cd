"""The stored table of networks that no curve had seen: what its page says, and the bar of the study."""

import csv
import re
from pathlib import Path

from experiments.study import held_out


def test_the_page_has_the_numbers_of_the_table():
    with held_out.TABLE.open() as file:
        *of_data, of_all, _ = held_out.judge(list(csv.DictReader(file)))
    page = (Path(held_out.__file__).with_name("README.md")).read_text()
    numbers = [
        tuple(map(int, re.findall(r"(\d+) of (\d+) within one point, (\d+)", line)[0])) for line in (*of_data, of_all)
    ]
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| \**(\d+)\** \| \**(\d+)\** \|", page, re.MULTILINE)
    assert [(int(near), int(count), int(inside)) for count, near, inside in rows] == numbers
    near, count, _ = numbers[-1]
    assert (count, near >= 45) == (50, True)


def test_networks_are_drawn_alike_each_time_and_differ(tmp_path):
    first, second = (held_out.drawn("mnist", number, tmp_path) for number in (0, 1))
    assert first == held_out.drawn("mnist", 0, tmp_path)
    assert first["seed"] != second["seed"]
    assert len(first["topology"]["edges"]) == 3
