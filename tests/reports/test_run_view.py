"""What is read of a run directory, however the run stands."""

import re

import pyarrow.parquet as pq
import pytest

from h2fdp import Experiment, Topology, UserError, report
from h2fdp.privacy.statement import verdict_of
from h2fdp.records.directory import RunDirectory, read_summary
from h2fdp.records.tables import write_table
from h2fdp.reports.figures import DASHES, Series
from h2fdp.reports.results import epsilon_figures, noise, results, verdict_rows
from h2fdp.reports.run_view import RunView, noise_columns, series_of
from tests.reports.pages import Page


def summary_of(run, **changes):
    RunDirectory(run).write_summary(read_summary(run) | changes)


def test_the_verdict_is_in_the_words_of_the_specification(spoilt):
    run = spoilt("fixed")
    worst = {
        "edge": {"device": "a", "rdp": 0.9, "pld": 0.8, "verdict": verdict_of(1.0, 0.8)},
        "peer": {"device": "b", "rdp": 1.4, "pld": 1.2, "verdict": verdict_of(1.0, 1.2)},
        "cloud": {"device": "c", "rdp": 5.0, "pld": 1.0, "verdict": verdict_of(1.0, 1.0)},
    }
    summary_of(run, privacy={"delta": 1e-5, "claimed": 1.0, "worst": worst, "devices": {}})
    rows = {row[1]: row for row in verdict_rows(RunView.read(run, "run"))}
    assert rows["edge"] == ["run", "edge", 1.0, 0.8, "pld", "met", "a"]
    assert [rows[observer][5] for observer in ("edge", "peer", "cloud")] == ["met", "open", "met"]
    assert rows["public"][3:6] == [None, None, "nothing released"]


def test_a_killed_run_tells_what_it_released_after_its_last_checkpoint(spoilt):
    run = spoilt("fixed")
    last = pq.read_table(run / "metrics.parquet")
    write_table(run / "metrics.parquet", last.slice(0, 1))
    summary_of(run, state="running", privacy=None)
    told = {row[1]: row[3] for row in verdict_rows(RunView.read(run, "run"))}
    assert told["cloud"] == pytest.approx(last["epsilon_cloud"][2].as_py())


@pytest.mark.parametrize("lost", [[], ["metrics.parquet"], ["metrics.parquet", "devices.parquet", "privacy.jsonl"]])
def test_a_run_that_was_killed_at_any_time_has_a_page(spoilt, tmp_path, lost):
    run = spoilt("controlled")
    summary_of(run, state="running", privacy=None)
    for name in lost:
        (run / name).unlink()
    words = Page(report(run, tmp_path / "killed.html")).words
    assert "copy is killed, so its end or last checkpoint is shown." in words


def test_a_leaking_run_has_no_epsilon(spoilt, tmp_path):
    run = spoilt("open")
    summary_of(run, leaking=True)
    assert "sent raw measurements in" in Page(report(run, tmp_path / "leaking.html")).words


def test_the_mean_noise_is_over_devices_and_over_edge_servers():
    row = {"interval": 2, "kind": "local", "edge": "a", "devices": "1-3", "observer": "edge", "noise_std": 1.0}
    rows = [
        row,
        row | {"devices": "4", "noise_std": 5.0},
        row | {"observer": "cloud", "noise_std": 0.1},  # the average of a's noisy uploads: no noise of its own
        row | {"edge": "b", "observer": "cloud", "noise_std": 3.0},
        row | {"edge": "b", "observer": "public", "noise_std": 3.0},
    ]
    columns = noise_columns(rows, [1, 2])
    assert columns == {
        "noise_local_device": [None, 2.0],
        "noise_local_device_low": [None, 1.0],
        "noise_local_device_high": [None, 5.0],
        "noise_local_edge": [None, 3.0],
        "noise_local_edge_low": [None, 3.0],
        "noise_local_edge_high": [None, 3.0],
    }


def test_every_directory_that_is_no_run_is_told_at_once(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as caught:
        report([tmp_path / "none", runs["fixed"], tmp_path / "empty"], tmp_path / "out.html")
    assert [problem.where for problem in caught.value.problems] == [str(tmp_path / "none"), str(tmp_path / "empty")]
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize("name", ["metrics.parquet", "privacy.jsonl", "control.jsonl", "config.yaml", "topology.yaml"])
def test_a_damaged_file_is_named(spoilt, name):
    run = spoilt("controlled")
    (run / name).write_text("{no: [table\n")
    with pytest.raises(UserError, match=name):
        report(run)


def test_a_target_is_drawn_unlike_each_of_five_observers():
    observers = ("edge", "peer", "tier-2", "cloud", "public")
    columns = {"interval": [1, 2], "epsilon_target": [1.0, 1.0]} | {
        f"epsilon_{each}": [0.1, 0.2 + 0.1 * at] for at, each in enumerate(observers)
    }
    (chart,) = epsilon_figures([Series("run", columns)])
    assert len({curve.style % len(DASHES) for curve in chart.curves}) == len(chart.curves) == 6


def test_curves_that_coincide_are_one_with_the_names_of_all():
    same = {f"epsilon_{each}": [None, 0.1, 0.2] for each in ("edge", "peer", "cloud", "public")}
    (chart,) = epsilon_figures([Series("run", same)])
    assert [curve.label for curve in chart.curves] == ["all 4: edge, peer, cloud, public"]
    (chart,) = epsilon_figures([Series("run", same | {"epsilon_peer": [None, 0.1, 0.21], "epsilon_cloud": [0.1] * 3})])
    assert [curve.label for curve in chart.curves] == ["edge, public", "peer", "cloud"]


@pytest.mark.run
def test_a_page_begins_with_the_settings_and_says_who_decided_the_noise(tmp_path):
    network = Topology.regular(edges=2, devices=2, trust=1.0)
    training = {"step_size": 0.1, "local_steps": 2, "batch_size": 4}
    privacy = {"calibration": "accounted", "epsilon": 2.0}
    experiment = Experiment(topology=network, method="h2fdp", privacy=privacy, training={"intervals": 2} | training)
    run = RunView.read(experiment.run(tmp_path / "run").directory, "run")
    rows = dict(results([run]).tables["Settings"].rows)
    assert rows["network and trust"] == "2 edge servers, 2 trusted; 4 devices"
    assert rows["privacy"].startswith("epsilon 2 for edge, peer, cloud, public, delta 1e-05")
    assert "step size 0.1" in rows["training"]
    lead = noise([run], [series_of(run)]).lead
    assert re.search(r"Decided by .*cloud.* about edge-\d/\d \(under edge-\d, trusted\), with the largest", lead)


@pytest.mark.parametrize(("last", "charts"), [(0.5, 0), (0.4, 1)])
def test_noise_that_never_changes_is_a_sentence(last, charts):
    columns = {"interval": [1, 2], "noise_global_device": [0.5, last]}
    columns |= {"noise_global_device_low": [0.25, 0.25], "noise_global_device_high": [0.75, 0.75]}
    section = noise([], [Series("run", columns)])
    assert len(section.figures) == charts
    assert ("in every interval the same: global, by each device 0.25 to 0.75." in section.lead) == (not charts)
