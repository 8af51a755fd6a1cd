"""`reproduce settings` on digits: tried, made once, judged, written, and known in another folder from its CSV."""

import csv
import json
import shutil

import pytest

from experiments.reproduction.regions import SETTINGS, VERDICTS, begin, end
from tests.reproduction.settings_file import folder_with_settings
from tests.reproduction.test_reproducing import reproduce


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    path = tmp_path_factory.mktemp("settings")
    folder_with_settings(path / "experiments")
    regions = "".join(f"{begin(name)}\n{end(name)}\nbetween\n" for name in (VERDICTS, SETTINGS))
    (path / "experiments" / "README.md").write_text(f"# Head\n{regions}")
    answer = reproduce(path, "settings", "--check", "--quiet")
    assert answer.exit_code == 0, answer.output
    return path, answer


def stages(path):
    lines = [line for line in (path / "settings.csv").read_text().splitlines() if not line.startswith("#")]
    found = {}
    for row in csv.DictReader(lines):
        found.setdefault(row["stage"], []).append(int(row["setting"]))
    return {stage: sorted(numbers) for stage, numbers in found.items()}


def test_settings_that_work_are_run_and_two_of_them_again(done):
    path, _ = done
    found = stages(path / "experiments")
    working = sorted(set(found["screen"]))
    assert set(found["trial"]) - set(working), "one learns nothing"
    assert len(found["screen"]) == 4 * len(working)  # two methods, two seeds
    assert sorted(set(found["confirm"])) == working
    assert len(found["confirm"]) == 4 * len(working)
    assert len(found["decisions"]) == 2 * 3 * 2  # two settings, three points, two seeds


def test_again_nothing_is_made_nor_in_another_folder_that_has_the_stored_runs(done, tmp_path):
    path, answer = done
    assert reproduce(path, "settings", "--quiet").stdout == answer.stdout.split("page")[0]
    shutil.copytree(path / "experiments", tmp_path / "experiments")
    other = reproduce(tmp_path, "settings", "--json")
    assert other.stderr == ""
    assert not (tmp_path / "out").exists()
    found = json.loads(other.stdout)
    assert {each["claim"] for each in found["claims"]} == {"noise-costs", "tau"}
    assert len(set(found["chosen"].values())) >= 1


def test_the_page_has_the_map_and_keeps_what_stands_between(done):
    path, _ = done
    page = (path / "experiments" / "README.md").read_text()
    assert page.count("between") == 2
    found = page.split(begin(SETTINGS))[1].split(end(SETTINGS))[0]
    assert "settings were tried; training works in" in found
    assert "it learns too little: " in found
    assert "setting is number" in found
    assert "Made by `python -m experiments.reproduce" in found
    first = page.split(begin(VERDICTS))[1].split(end(VERDICTS))[0]
    assert 'class="share"' in first
    assert "other settings" in first
