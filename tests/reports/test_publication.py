"""A page about runs with a guarantee may be passed on: what no epsilon covers is left out, unless it is asked for."""

import json
import re

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from h2fdp import Experiment, report
from h2fdp.cli.main import app
from h2fdp.reports.writing import without_seeds
from tests.reports.conftest import NETWORK, SETTINGS
from tests.reports.pages import Page

SEED = 90_210


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs whose seed is seen wherever it is, with and without a guarantee, and a validation split."""
    folder = tmp_path_factory.mktemp("made")
    data = {"name": "digits", "validation": 0.2}
    for method in ("h2fdp", "hfl"):
        Experiment(topology=NETWORK, method=method, data=data, **SETTINGS | {"seed": SEED, "noise_key": "seed"}).run(
            folder / method
        )
    return {method: folder / method for method in ("h2fdp", "hfl")}


@pytest.mark.run
def test_a_page_about_a_private_run_has_neither_seed_nor_results_on_private_records(made, tmp_path):
    page = Page(report(made["h2fdp"], tmp_path / "page.html"))
    assert str(SEED) not in page.own
    assert "because epsilon does not cover them" in page.words
    assert "accuracy on own records" not in page.own
    assert "final accuracy" not in page.own
    assert "validation_" not in page.own
    accuracies = pq.read_table(made["h2fdp"] / "devices.parquet")["accuracy"].to_pylist()
    told = {f"{value:.6g}" for value in accuracies} - {f"{x:.6g}" for x in _test_accuracies(made["h2fdp"])}
    assert told
    assert not any(re.search(rf"(?<!\\d){re.escape(value)}(?!\\d)", page.own) for value in told)


def _test_accuracies(run):
    return pq.read_table(run / "metrics.parquet")["accuracy"].to_pylist()


@pytest.mark.run
def test_all_of_it_is_there_where_it_is_asked_for_and_without_a_guarantee(made, tmp_path):
    asked = CliRunner().invoke(app, ["report", str(made["h2fdp"]), "--with-private", "--out", str(tmp_path / "a.html")])
    assert asked.exit_code == 0
    report(made["hfl"], tmp_path / "b.html")
    for name in ("a.html", "b.html"):
        page = Page(tmp_path / name)
        assert f"seed: {SEED}" in page.words
        assert page.figure("devices")["curves"]
        assert "final accuracy" in page.own
        assert any(curve["column"] == "validation_accuracy" for curve in page.figure("accuracy")["curves"])
        assert "Left out of this page" not in page.words


def test_a_page_about_a_private_sweep_has_no_seeds(tmp_path):
    worst = {"cloud": {"device": "d", "rdp": 9.0, "pld": 8.0, "verdict": "open"}}
    names = [f"seed={seed}" for seed in (SEED, SEED + 1)]
    points = {name: {"values": {"seed": SEED}, "state": "failed", "error": "no memory"} for name in names}
    for name in names:
        (tmp_path / "runs" / name).mkdir(parents=True)
        summary = {"privacy": {"claimed": 1.0, "worst": worst}}
        (tmp_path / "runs" / name / "summary.json").write_text(json.dumps(summary))
    pq.write_table(_means(), tmp_path / "summary.parquet")
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "s", "keys": ["seed"], "points": points}))
    (tmp_path / "study.yaml").write_text(f"name: s\nsweep:\n  seed:\n  - {SEED}\n")
    page, whole = Page(report(tmp_path)), Page(report(tmp_path, tmp_path / "whole.html", with_private=True))
    assert str(SEED) not in page.own
    assert "validation_accuracy" not in page.own
    assert "because epsilon does not cover them" in page.words
    assert str(SEED) in whole.own
    assert "validation_accuracy" in whole.own


def _means():
    import pyarrow as pa

    row = {"interval": 1, "n": 2}
    for metric in ("accuracy", "loss", "validation_accuracy"):
        row |= {f"{metric}_mean": 0.5, f"{metric}_low": 0.4, f"{metric}_high": 0.6}
    return pa.Table.from_pylist([row])


def test_linked_keys_of_a_sweep_hide_their_seeds_too_and_a_text_without_any_is_left_alone():
    told = yaml.safe_load(without_seeds("seed: 17\nsweep: {'seed, method': [[17, hfl]], privacy.epsilon: [1]}"))
    assert told == {"seed": "left out", "sweep": {"seed, method": "left out", "privacy.epsilon": [1]}}
    assert without_seeds("name: s  # as it was\n") == "name: s  # as it was\n"
