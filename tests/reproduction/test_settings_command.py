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
    (path / "experiments" / "reproduction.md").write_text(f"# Head\n{regions}")
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
    page = (path / "experiments" / "reproduction.md").read_text()
    assert page.count("between") == 2
    found = page.split(begin(SETTINGS))[1].split(end(SETTINGS))[0]
    assert "settings were tried; training works in" in found
    assert "it learns too little: " in found
    assert "setting is number" in found
    assert "Made by `python -m experiments.reproduce" in found
    first = page.split(begin(VERDICTS))[1].split(end(VERDICTS))[0]
    assert 'class="share"' in first
    assert "other settings" in first


def test_a_changed_setting_is_made_anew(done, tmp_path):
    path, _ = done
    shutil.copytree(path / "experiments", tmp_path / "experiments")
    file = tmp_path / "experiments" / "settings.yaml"
    file.write_text(
        file.read_text().replace("privacy.c2: 1.2", "privacy.c2: 1.3").replace("settings: 3", "settings: 1")
    )
    answer = reproduce(tmp_path, "settings")
    assert answer.exit_code == 0, answer.output
    assert "trial, setting 1, one: 1 runs" in answer.stderr
    assert "decisions" not in answer.stderr  # which do not have that change


def test_runs_that_figures_share_are_made_once_and_stored_under_each(tmp_path):
    folder = folder_with_settings(tmp_path / "experiments")
    file, grid = folder / "settings.yaml", "one: {method: [hfl, h2fdp]}"
    both = file.read_text().replace(grid, f"{grid}\n  two: {{method: [h2fdp, hfl-dp]}}")
    file.write_text(both.replace("figures: [one]}", "figures: [two, one], chosen_by: [two], seeds_of: {one: [8, 9]}}"))
    answer = reproduce(tmp_path, "settings", "--quiet")
    assert answer.exit_code == 0, answer.output
    out = tmp_path / "out" / "settings"
    lines = [line for line in (out / "settings.csv").read_text().splitlines() if not line.startswith("#")]
    rows = [row for row in csv.DictReader(lines) if row["stage"] in ("screen", "confirm")]
    by_figure = {
        figure: {
            (row["stage"], row["setting"], row["seed"], json.loads(row["point"])["method"]): row["accuracy"]
            for row in rows
            if row["figure"] == figure
        }
        for figure in ("one", "two")
    }
    shared = {key for key in by_figure["one"] if key[3] == "h2fdp"}
    assert len(by_figure["two"]) == len(by_figure["one"]) == 2 * len(shared)
    assert {key[2] for key in by_figure["one"] if key[0] == "confirm"} == {"8", "9"}
    both = shared & {*by_figure["two"]}
    assert {key[2] for key in both} == {"1", "2", "8"}
    assert all(by_figure["two"][key] == by_figure["one"][key] for key in both)
    for stage in ("screen", "confirm"):
        made = [json.loads((run / "summary.json").read_text()) for run in out.glob(f"{stage}/*/one-claimed/runs/*")]
        those = {each["method"] for each in made if each["seed"] != 9}
        assert those == {"hfl"}, "h2fdp is another figure's"
