"""A small reproduction from its files to its page: what is made, shared, redone, drawn, judged."""

import json
import shutil
from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from experiments.reproduce import app
from experiments.reproduction.decisions import decisions
from experiments.reproduction.regions import RESULTS, begin, end
from h2fdp import Experiment
from h2fdp.run.setup import RunSetup
from tests.reproduction.small import folder

BEGIN, END = begin(RESULTS), end(RESULTS)


def reproduce(path, *arguments, experiments=None):
    fixed = ["--jobs", "1", "--experiments", str(experiments or path / "experiments"), "--out", str(path / "out")]
    return CliRunner().invoke(app, [*arguments, *fixed], env={"COLUMNS": "100"})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Everything made, and the page written."""
    path = tmp_path_factory.mktemp("small")
    folder(path / "experiments")
    (path / "experiments" / "README.md").write_text(f"# Head\n\nwords\n\n{BEGIN}\nstale words\n{END}\n\ntail\n")
    answer = reproduce(path, "all", "--check")
    assert answer.exit_code == 0, answer.output
    return path, answer


def share_of(page, figure):
    """What the page says of the noise by formula of a figure."""
    section = page.split(f"(figures/{figure}.png)")[1]
    return section.split("divided by the target epsilon: ")[1].split(" ")[0]


def runs_of(path, *parts):
    return sorted(each.name for each in path.joinpath("out", "full", "digits", *parts, "runs").iterdir())


def test_every_run_of_both_columns_is_made(done):
    path, _ = done
    for column in ("claimed", "accounted"):
        assert len(runs_of(path, column, "one")) == 4
        assert len(runs_of(path, column, "two")) == 4
        table = pd.read_parquet(path / "out" / "full" / "digits" / column / "three" / "sweep.parquet")
        assert table["run"].nunique() == 6


def test_the_accounted_column_meets_epsilon_and_the_claimed_one_does_not(done):
    path, _ = done
    tables = {
        column: pd.read_parquet(path / "out" / "full" / "digits" / column / "two" / "sweep.parquet")
        for column in ("claimed", "accounted")
    }
    largest = {column: table["epsilon_edge"].max() for column, table in tables.items()}
    assert largest["accounted"] <= 20
    assert largest["claimed"] > 50


def test_the_page_keeps_what_is_around_the_markers_and_has_every_claim(done):
    path, _ = done
    page = (path / "experiments" / "README.md").read_text()
    assert page.startswith(f"# Head\n\nwords\n\n{BEGIN}\n")
    assert page.endswith(f"{END}\n\ntail\n")
    assert "stale words" not in page
    assert "| noise costs accuracy | Sec. 1 | Digits | ≤ 500 points |" in page
    assert "| tau rises | Sec. 3 | Digits | every step |" in page
    assert "Other" not in page  # it has a page of its own
    assert "Made by `python -m experiments.reproduce" in page
    runs = path / "out" / "full" / "digits" / "accounted" / "two" / "runs"
    summaries = [json.loads(each.read_text())["privacy"]["worst"] for each in runs.glob("*/summary.json")]
    largest = max(min(row["rdp"], row["pld"]) for each in summaries for row in each.values())
    assert largest <= 20
    found = f"{share_of(page, 'two')} (noise by formula), {largest / 20:.3g} (noise by account)."
    assert f"divided by the target epsilon: {found}" in page
    assert float(share_of(page, "two")) > 1
    for name in ("one", "two", "three"):
        assert f"](figures/{name}.png)" in page
        assert imread(path / "experiments" / "figures" / f"{name}.png").std() > 0.05  # something is drawn


def test_again_nothing_is_made_and_the_same_is_said(done):
    path, answer = done
    page = (path / "experiments" / "README.md").read_text()
    again = reproduce(path, "all", "--check")
    assert again.exit_code == 0, again.output
    assert ": done" not in again.stderr
    assert again.stdout == answer.stdout
    assert (path / "experiments" / "README.md").read_text() == page


def test_what_is_stored_is_judged_by_changed_claims_without_a_run(done, tmp_path):
    path, _ = done
    shutil.copytree(path / "experiments", tmp_path / "experiments")
    claims = tmp_path / "experiments" / "claims.yaml"
    claims.write_text(claims.read_text().replace("digits: 500", "digits: -500"))
    answer = reproduce(tmp_path, "stored", "--check", "--json")
    assert answer.exit_code == 0, answer.output
    told = {each["id"]: each for each in json.loads(answer.stdout)}
    assert told["noise-costs"]["claimed"]["verdict"] == "does not hold"
    assert "≤ -500 points" in (tmp_path / "experiments" / "README.md").read_text()
    assert list((tmp_path / "out").rglob("metrics.parquet")) == []
    assert '"does not hold"' in (tmp_path / "experiments" / "verdicts.json").read_text()
    for words, told in (
        (["--quick"], "expected stored without them"),
        (["--data-set", "wide"], "expected data sets of which anything is stored, found wide"),
    ):
        assert told in str(reproduce(tmp_path, "stored", *words).exception)
    page = (tmp_path / "experiments" / "README.md").read_text()
    (tmp_path / "experiments" / "verdicts.json").write_text("{}")
    assert "figures: the key is missing" in str(reproduce(tmp_path, "one").exception)  # before any run
    assert list((tmp_path / "out").rglob("metrics.parquet")) == []
    (tmp_path / "experiments" / "verdicts.json").unlink()
    assert "no such file" in str(reproduce(tmp_path, "stored", "--check").exception)
    assert (tmp_path / "experiments" / "README.md").read_text() == page


def test_decisions_are_those_of_a_trained_run(tmp_path):
    folder(tmp_path)
    experiment = Experiment.from_file(tmp_path / "three.yaml", ["method=h2fdp-adaptive", "control.alpha1=100"])
    run = experiment.run(tmp_path / "run")
    trained = [json.loads(line) for line in (run.directory / "control.jsonl").read_text().splitlines()]
    prepared = experiment.prepare(None)
    assert isinstance(prepared, RunSetup)
    found = decisions(prepared)
    assert [row["local_steps"] for row in found] == [row["tau"] for row in trained]
    means = [sum(row["participation"].values()) / len(row["participation"]) for row in trained]
    assert [row["devices_per_subnet"] for row in found] == means
    assert all(after["interval"] - before["interval"] == 1 for before, after in pairwise(found))
