"""`h2fdp runs --check`: a run directory is whole, or what is not is named; its accounts are those of its ledger."""

import json
import shutil

import pytest
from typer.testing import CliRunner

import h2fdp
from h2fdp import Experiment, Topology
from h2fdp.cli.main import app
from h2fdp.records.directory import RunDirectory, read_summary
from h2fdp.records.json_lines import write_sums
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks
from h2fdp.run.result import write_inputs
from h2fdp.tuning.results import TuneDirectory
from tests.noise_keys import keys_are, known
from tests.tuning.searches import search

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
SETTINGS = {"topology": NETWORK, "intervals": 3, "local_steps": 4, "aggregate_every": 2, "batch_size": 4}
SETTINGS |= {"epsilon": 20.0, "seed": 2, "backend": "inline"}


FILES = "inputs, tables, ledger, decisions, log, model and checkpoints, by their checksums"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checked")
    Experiment(method="h2fdp", faults={"device_dropout": 0.3}, **SETTINGS).run(folder / "faulty")
    for method in ("hfl-dp", "hfl"):
        Experiment(method=method, **SETTINGS).run(folder / method)
    rows = []
    watcher = RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 2)
    with keys_are(known):
        start_run(Experiment(method="h2fdp-adaptive", **SETTINGS).prepare(), folder / "stopped", watcher)
    return folder


@pytest.fixture
def spoilt(runs, tmp_path):
    return shutil.copytree(runs / "faulty", tmp_path / "run")


def said(path):
    return [str(problem) for problem in h2fdp.check(path).problems]


ACCOUNTS = "with their accounts by the ledger"


@pytest.mark.parametrize(
    ("name", "agree"),
    [("faulty", [FILES, ACCOUNTS]), ("hfl-dp", [FILES, ACCOUNTS]), ("stopped", [FILES, ACCOUNTS]), ("hfl", [FILES])],
)
def test_what_a_run_left_is_whole_and_agrees(runs, name, agree):
    found = h2fdp.check(runs / name)
    assert found.problems == []
    assert found.whole
    assert [any(words in each for each in found.confirmed) for words in agree] == [True] * len(agree)


@pytest.mark.parametrize(
    "name", ["config.yaml", "topology.yaml", "privacy.jsonl", "metrics.parquet", "devices.parquet", "model.pt"]
)
def test_each_file_that_is_missing_or_changed_is_named(spoilt, name):
    path = spoilt / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] + b"#" + whole[len(whole) // 2 + 2 :])
    assert any(name in text for text in said(spoilt))
    path.unlink()
    assert f"{path}: missing" in said(spoilt)


@pytest.mark.parametrize("name", ["newest.ckpt", "older.ckpt", "log.jsonl"])
def test_damage_in_what_a_resume_reads_and_in_the_log_is_named(runs, tmp_path, name):
    run = shutil.copytree(runs / "stopped", tmp_path / "run")
    older, newest = sorted((run / "checkpoint").glob("*.ckpt"))
    paths = {"newest.ckpt": newest, "older.ckpt": older, "log.jsonl": run / "log.jsonl"}
    path = paths[name]
    whole = path.read_bytes()
    for place in (0, len(whole) // 3, len(whole) - 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert any(str(path) in text for text in said(run)), place
    path.write_bytes(whole[: len(whole) // 2])
    assert any(str(path) in text for text in said(run))


def test_a_run_that_was_killed_when_its_inputs_were_written_is_intact(tmp_path):
    setup, directory = Experiment(method="h2fdp", **SETTINGS).prepare(), RunDirectory(tmp_path)
    write_inputs(setup, directory)
    found = h2fdp.check(tmp_path)
    assert (found.state, found.problems) == ("killed", [])
    assert h2fdp.resume(tmp_path).summary["state"] == "done"


def forged(path, change):
    """Rows of a ledger, changed with their checksums."""
    rows = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_sums(path)


def test_numbers_that_do_not_agree_are_told_though_every_checksum_is_right(spoilt):
    directory = RunDirectory(spoilt)
    forged(directory.ledger, lambda row: row | {"noise_std": row["noise_std"] * 2})
    shutil.rmtree(directory.checkpoints)
    assert any("summary.json: rdp of cloud is " in text for text in said(spoilt))


def test_an_epsilon_of_a_device_that_was_changed_does_not_agree_with_the_ledger(spoilt):
    summary = read_summary(spoilt)
    device, held = next(iter(summary["privacy"]["devices"].items()))
    held["cloud"]["rdp"] *= 0.5
    RunDirectory(spoilt).write_summary(summary)
    (text,) = said(spoilt)
    assert f"summary.json: rdp of cloud about {device} is " in text


def test_the_command_says_so_in_words_in_json_and_by_its_exit_code(runs, spoilt):
    command = CliRunner()
    good = command.invoke(app, ["runs", str(runs), "--check"])
    assert (good.exit_code, good.stdout.count(": intact (")) == (0, 4)
    (spoilt / "devices.parquet").unlink()
    bad = command.invoke(app, ["runs", "--check", str(spoilt)])
    assert (bad.exit_code, "DAMAGED (done)" in bad.stdout) == (1, True)
    (found,) = json.loads(command.invoke(app, ["runs", "--check", "--json", str(spoilt)]).stdout)
    assert (found["whole"], [each["text"] for each in found["problems"]]) == (False, ["missing"])


def test_several_runs_and_folders_are_listed_and_checked_at_once(runs, spoilt, tmp_path):
    command, whole = CliRunner(), min(path for path in runs.iterdir() if path.is_dir())
    (spoilt / "devices.parquet").unlink()
    both = command.invoke(app, ["runs", str(whole), str(spoilt), "--check"])
    verdicts = [line.split(" (")[0] for line in both.stdout.splitlines() if not line.startswith(" ")]
    assert (both.exit_code, verdicts) == (1, [f"{whole}: intact", f"{spoilt}: DAMAGED"])
    folder = command.invoke(app, ["runs", str(runs), str(whole), "--check", "--json"])
    assert (folder.exit_code, len(json.loads(folder.stdout))) == (0, 4)  # each once
    listed = command.invoke(app, ["runs", str(whole), str(spoilt), "--json"])
    assert [row["directory"] for row in json.loads(listed.stdout)] == [str(whole), str(spoilt)]
    shown = command.invoke(app, ["runs", str(whole), str(spoilt)]).stdout
    assert (shown.count(str(whole)), shown.count(str(spoilt))) == (1, 1)
    for wrong in (["--check"], []):
        refused = command.invoke(app, ["runs", str(whole), str(tmp_path / "nowhere"), *wrong])
        assert f"{tmp_path / 'nowhere'}: no such directory" in str(refused.exception)


def test_a_sweep_is_checked_with_its_runs_and_its_tables(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "topology: {edges: [{name: a, trusted: true, devices: {count: 2}}]}\ndata: digits\nmethod: hfl\n"
        "training: {intervals: 1, local_steps: 1, batch_size: 2}\nsweep: {seed: [1, 2]}\n"
    )
    h2fdp.sweep(file, out=tmp_path / "out", jobs=1)
    assert h2fdp.check(tmp_path / "out").whole
    table = tmp_path / "out" / "sweep.parquet"
    whole = table.read_bytes()
    table.write_bytes(whole[:-20])
    assert any(str(table) in text for text in said(tmp_path / "out"))
    table.write_bytes(whole)
    (tmp_path / "out" / "runs" / "seed=1" / "model.pt").unlink()
    found = h2fdp.check(tmp_path / "out")
    assert [name for name, run in found.runs.items() if not run.whole] == ["seed=1"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    file = search(folder, options="trials: 2\n  privacy: ignore")
    return h2fdp.tune(file, out=folder / "out", jobs=1).directory


@pytest.fixture
def spoilt_search(searched, tmp_path):
    return shutil.copytree(searched, tmp_path / "search")


def test_a_search_is_whole_with_all_of_its_trials(searched):
    found = h2fdp.check(searched)
    assert (found.problems, sorted(found.runs), found.whole) == ([], ["trial-0000", "trial-0001"], True)


def test_what_is_wrong_with_a_search_is_named(spoilt_search):
    out = TuneDirectory(spoilt_search)
    whole = out.table.read_bytes()
    out.table.write_bytes(whole[:-20])
    (out.run("trial-0000") / "privacy.jsonl").write_text("{}\n")
    assert any(str(out.table) in text for text in said(spoilt_search))
    assert [name for name, run in h2fdp.check(spoilt_search).runs.items() if not run.whole] == ["trial-0000"]
    assert CliRunner().invoke(app, ["runs", "--check", str(spoilt_search)]).exit_code == 1
