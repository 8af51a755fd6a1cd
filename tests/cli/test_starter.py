"""`h2fdp init`: what it writes is shown, explained, tested and run."""

import json

import pytest

from tests.cli.conftest import SMALL


@pytest.fixture
def folder(tmp_path, h2fdp):
    done = h2fdp("init", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert f"cd {tmp_path / 'new'}" in done.stdout
    return tmp_path / "new"


def test_its_network_its_data_and_its_privacy_can_be_looked_at(folder, h2fdp):
    assert "18" in h2fdp("topology", "check", folder / "network.yaml").stdout
    held = json.loads(h2fdp("data", "show", folder / "experiment.yaml", "--json").stdout)
    assert (len(held), sum(map(sum, (each["records"] for each in held)))) == (18, 1438)
    shown = h2fdp("data", "show", folder / "experiment.yaml", "--png", folder / "who.png").stdout
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    assert "a device holds 3 of them" in shown
    assert (folder / "who.png").read_bytes().startswith(b"\x89PNG")


def test_classes_and_owners_are_shown_by_name(tmp_path, h2fdp):
    (tmp_path / "t.csv").write_text("x,site,grade\n" + "1,north,low\n2,south,high\n3,north,low\n" * 4)
    (tmp_path / "e.yaml").write_text(
        "topology: {edges: [{name: a, devices: {count: 2}}]}\nmethod: hfl\n"
        "data: {name: table, path: t.csv, label: grade, classes: [low, high], by: site}\n"
    )
    shown = h2fdp("data", "show", tmp_path / "e.yaml").stdout.splitlines()
    assert "classes       0 low, 1 high" in shown
    assert [line.split()[0] for line in shown if line.endswith(("north", "south"))] == ["a/1", "a/2"]
    held = json.loads(h2fdp("data", "show", tmp_path / "e.yaml", "--json").stdout)
    assert [each["owner"] for each in held] == ["north", "south"]


@pytest.mark.run
def test_its_test_passes_and_its_sweep_runs(folder, h2fdp, tmp_path):
    code = {"__file__": str(folder / "test_experiment.py"), "__name__": "starter"}
    exec((folder / "test_experiment.py").read_text(), code)
    code["test_the_network_is_the_one_that_is_meant"]()
    code["test_a_short_run_keeps_to_its_target"](tmp_path)
    few = ["--set", "training.intervals=1", "--set", "sweep.seed=[1]"]
    done = h2fdp("sweep", folder / "experiment.yaml", "--inline", "--quiet", "--out", tmp_path / "all", *few)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 done" in done.stdout


def test_nothing_that_is_there_is_overwritten(folder, h2fdp):
    (folder / "network.yaml").write_text(SMALL)
    done = h2fdp("init", folder)
    assert done.returncode == 2
    assert "has network.yaml, experiment.yaml, my_model.py, test_experiment.py already" in done.stderr
    assert (folder / "network.yaml").read_text() == SMALL
