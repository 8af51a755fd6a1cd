"""Searches in one process: the same trials however they are computed, stopped and gone on with; what they leave."""

import json
import re

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from h2fdp import Experiment, UserError, tune
from h2fdp.cli.main import app
from h2fdp.privacy.accounting.selection import TrialNumbers
from h2fdp.run import recorders
from h2fdp.run.result import Run
from h2fdp.streams import Streams
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.sweeps.pool import SilentWatcher, WorkOptions
from h2fdp.tuning import Tuned
from h2fdp.tuning import search as searching
from h2fdp.tuning.plan import read_plan
from h2fdp.tuning.price import share_of
from h2fdp.tuning.results import TuneDirectory
from tests.tuning.searches import BASE, search

BY_RECORD = "until: {accuracy: 0.01}, sampling_rate: 0.2, clip_scope: record, clip_norm: 1"
PRIVATE = BASE.replace("hfl", "h2fdp").replace("batch_size: 8", BY_RECORD)
PRIVATE += "privacy: {epsilon: 8, calibration: accounted, accountant: rdp, noise_key: seed}\n"
OPTIONS = "trials: 12\n  privacy: ignore"  # eight at random, then by TPE; pruning from the ninth on


def table_of(directory):
    return pd.read_csv(directory / "trials.csv")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return tune(search(folder, options=OPTIONS), out=folder / "out", jobs=1)


@pytest.mark.run
def test_a_search_tries_what_it_says_and_leaves_a_file_that_runs(searched, tmp_path):
    table = searched.trials
    assert table["trial"].tolist() == list(range(12))
    assert table["training.intervals"].between(2, 8).all()
    assert set(table["state"]) == {"done", "pruned"}
    done = table[table["state"] == "done"]
    assert searched.best["validation_accuracy"] == done["validation_accuracy"].max()
    assert searched.best["values"]["training.step_size"] > 0.1  # 0.01 learns nothing in so few steps
    configuration = yaml.safe_load((searched.directory / "runs" / "trial-0000" / "config.yaml").read_text())
    assert (configuration["seed"], configuration["data"]["validation"]) == (101, 0.1)
    assert "tune" not in configuration
    best = Experiment.from_file(searched.file)
    assert best.config.seed == 1
    assert best.config.tune is None
    assert best.config.data.validation == 0
    assert best.config.sweep["seed"] == [1, 2, 3]
    assert best.config.training.step_size == searched.best["values"]["training.step_size"]
    assert best.run(tmp_path / "run").summary["state"] == "done"
    assert (len(searched.price), searched.front) == (1, [])


@pytest.mark.run
def test_a_search_that_is_killed_goes_on_to_the_same_trials(searched, tmp_path, monkeypatch):
    """In the fifth trial the process dies, and leaves half a line behind."""
    path, out = search(tmp_path, options=OPTIONS), tmp_path / "out"
    left = [12]

    def killed(step, interval):
        left[0] -= step == "ran"
        if not left[0]:
            raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(recorders, "listener", killed)
        with pytest.raises(KeyboardInterrupt):
            tune(path, out=out, jobs=1)
    journal = TuneDirectory(out).journal
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "wor')
    (out / "optuna.log.lock").symlink_to(journal)
    again = tune(path, out=out, jobs=1)
    pd.testing.assert_frame_equal(table_of(out), table_of(searched.directory), check_exact=True)
    assert again.file.read_bytes() == searched.file.read_bytes()


@pytest.mark.process
@pytest.mark.usefixtures("forked_workers")
def test_trials_are_made_side_by_side(tmp_path):
    found = tune(search(tmp_path, options="trials: 3\n  privacy: ignore"), out=tmp_path / "out", jobs=2).trials
    assert set(found["state"]) == {"done"}
    assert sorted(found["trial"]) == [0, 1, 2]


@pytest.mark.run
def test_a_search_that_is_stopped_goes_on_and_refuses_another_file(tmp_path):
    options = "trials: 3\n  privacy: ignore"
    path, out, shared = search(tmp_path, options=options), tmp_path / "out", SharedInputs()
    asked = iter([False] * 6 + [True] * 20)
    plan = read_plan(path, (), shared)
    assert not searching.conduct(plan, out, WorkOptions(jobs=1, stop=lambda: next(asked))).finished
    assert Tuned(out).best is None
    with pytest.raises(UserError, match="the search in this directory is of another file"):
        tune(path, ["training.momentum=0.5"], out, jobs=1)
    (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match="something other than a search"):
        tune(path, (), tmp_path, jobs=1)
    assert len(tune(path, (), out, jobs=1).trials) == 3
    assert len(tune(path, ["tune.trials=4"], out, jobs=1).trials) == 4  # more may follow
    assert len(tune(path, ["training.momentum=0.5"], out, jobs=1, overwrite=True).trials) == 3


@pytest.mark.run
def test_the_account_covers_each_trial_by_its_ledger(tmp_path):
    path, shared = search(tmp_path, "training.step_size: [0.3, 1.0]", "trials: 3", PRIVATE), SharedInputs()
    path.write_text(path.read_text().replace(", training.batch_size: [8]", ""))
    plan = read_plan(path, (), shared)
    command = CliRunner().invoke(app, ["tune", str(path), "--jobs", "1", "--out", str(tmp_path / "out")])
    assert "trial-0000: done  epsilon 3.9" in command.stderr
    assert "accuracy" not in command.stderr  # nobody may know what a trial scores without its noise
    done = Tuned(tmp_path / "out")
    law, streams = TrialNumbers.of_mean(3), Streams(101)
    assert len(done.trials) == law.draw(streams.open("", "number of trials"))
    bounds, seeds = plan.price.budget.bounds, set()
    for number in range(len(done.trials)):
        run = Run(tmp_path / "out" / "runs" / f"trial-{number:04d}")
        accounts = run.privacy.accounts
        taken = [share_of(each.composition, bounds) for name in accounts.observers for each in accounts.classes(name)]
        assert 0.98 < max(taken) <= 1
        seeds.add(run.summary["seed"])
        assert len(run.metrics) == 4  # until a test accuracy is for final runs
        score = streams.open("", "score", number).standard_normal() * plan.price.budget.score_deviation / 143
        exact = run.metrics["validation_accuracy"].iloc[-1]
        assert done.trials["validation_accuracy"][number] == pytest.approx(exact + score)
    assert len(seeds) == len(done.trials)  # or their noises, which the seed determines here, would be equal
    assert not seeds & plan.final_seeds
    final = Experiment.from_file(done.file)
    assert final.config.privacy.epsilon == done.best["epsilon"] < 5
    assert "a second one is not covered" in done.file.read_text()
    assert not final.config.sweep, "its runs would not be covered"
    kept = re.search(r"the final run keeps epsilon (\S+) of 8", " ".join(command.stderr.split()))
    assert float(kept[1]) == pytest.approx(done.best["epsilon"], rel=0.03)
    assert command.stderr.index("the final run keeps") < command.stderr.index("trial-0000"), "before the search"
    assert "drawn at random so that the search can be counted in epsilon; 3 is its mean" in " ".join(
        command.stdout.split()
    )
    assert "the number of trials was drawn at random (geometric, mean 3)" in done.price[0]
    assert not re.search(r"trial[- ]\d", done.file.read_text())  # which trial was best is not for others


@pytest.mark.run
def test_what_cannot_be_counted_is_found_in_any_corner_of_the_ranges(tmp_path):
    """Values that exclude those of the first corner, and a trial more than the noise was made for."""
    ranges = "method.privacy: [hierarchical, central]\n    training.clip_scope: [record, batch]"
    path = search(tmp_path, ranges, "trials: 6", PRIVATE)
    text = (
        path.read_text().replace(", training.batch_size: [8]", "").replace("method: h2fdp", "method: {extends: h2fdp}")
    )
    path.write_text(text)
    found = tune(path, (), tmp_path / "out", jobs=1).trials
    central = found["method.privacy"] == "central"
    assert central.any()
    assert (found.loc[central, "state"] == "failed").all()
    assert (
        found.loc[central & (found["training.clip_scope"] == "batch"), "reason"].str.contains("protects devices").all()
    )
    with pytest.raises(UserError, match="the search in this directory is of another file"):
        tune(path, ["tune.trials=7"], tmp_path / "out", jobs=1)


def test_under_account_all_is_drawn_under_a_secret_key(tmp_path, monkeypatch):
    monkeypatch.setattr("h2fdp.records.noise_key.drawn", lambda: b"0123456789abcdef")
    path = search(tmp_path, "training.step_size: {uniform: [0.1, 10]}", "", PRIVATE)
    path.write_text(path.read_text().replace(", training.batch_size: [8]", ""))
    plan = read_plan(path, ["privacy.noise_key=system"], SharedInputs())

    def drawn(secret):
        found = searching.Search(plan, TuneDirectory(tmp_path / secret.hex()), secret, SilentWatcher())
        return searching.number_of_trials(plan, secret), [found.study.ask(plan.space.distributions).params]

    (tmp_path / b"".hex()).mkdir(exist_ok=True)
    (tmp_path / (b"x" * 16).hex()).mkdir()
    known, secret = drawn(b""), drawn(b"x" * 16)
    assert known[0] != secret[0]
    assert known[1] != secret[1]
    assert plan.trial_seed(0) == plan.trial_seed(1) == 101
    final = read_plan(path, ["privacy.noise_key=system", "seed=101"], SharedInputs())
    assert final.trial_seed(0) == 102, "no final run has the seed of trials"


@pytest.mark.run
def test_stand_ins_and_choices_that_exclude_each_other(tmp_path):
    options = "trials: 5\n  stand_in: {name: synthetic, features: 64, classes: 10}"
    path = search(tmp_path, "method.objective: [plain, scaffold]\n    method.server: [average, scaffold]", options)
    arguments = ["tune", str(path), "--jobs", "1", "--quiet", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, [*arguments, "--json"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["finished"]
    assert sum(found["trials"].values()) == 5
    assert found["trials"]["done"] > 0 < found["trials"]["failed"]
    assert "trials used stand-in data (synthetic) alone" in found["price"][0]
    configuration = yaml.safe_load(next((tmp_path / "out" / "runs").rglob("config.yaml")).read_text())
    assert configuration["data"]["name"] == "synthetic"
    assert Experiment.from_file(found["best"]["file"]).config.data.name == "digits"
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert "h2fdp run" in shown.stdout
    lines = [line for line in shown.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
