"""The page: one file that needs no network, says what the run directory says, and survives what users write."""

import re

import pyarrow.parquet as pq
import pytest

from h2fdp import Run, report
from h2fdp.records.directory import RunDirectory
from h2fdp.records.json_lines import write_sums
from h2fdp.records.tables import METRICS_SCHEMA, write_columns
from tests.reports.pages import Page


def page_of(*directories, out):
    return Page(report(directories, out))


@pytest.fixture(scope="module")
def together(runs, tmp_path_factory):
    return page_of(*runs.values(), out=tmp_path_factory.mktemp("pages") / "all.html")


def test_a_report_of_a_run_is_written_beside_it(spoilt):
    run = spoilt("fixed")
    assert Run(run).report() == run / "report.html"
    assert Page(run / "report.html").words.startswith("fixed: copy")


def test_nothing_is_fetched_from_anywhere(together):
    links = [each.get("src") or each.get("href") for _, each in together.elements if "src" in each or "href" in each]
    assert all(link.startswith("#") for link in links)
    assert not re.findall(r"https?:|//[a-z]|@import|url\(", re.sub(r"^\s*//.*|/\*.*\*/", "", together.own, flags=re.M))
    policy = next(each["content"] for tag, each in together.elements if each.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_every_figure_has_a_title_a_caption_and_words_for_those_who_do_not_see_it(together):
    figures = together.count("figure")
    drawings = [each for tag, each in together.elements if each.get("class") == "drawing"]
    assert figures == len(together.data["figures"]) + len(drawings) == together.count("figcaption")
    drawn = [each for _, each in together.elements if each.get("role") == "img"]
    assert len(drawn) == figures
    assert all(len(each["aria-label"]) > 40 for each in drawn)


def test_curves_show_the_columns_of_the_metrics(runs, together):
    for number, path in enumerate(runs.values()):
        metrics = pq.read_table(path / "metrics.parquet").to_pydict()
        columns = together.data["series"][number]["columns"]
        for name in ("interval", "slot", "energy_j", "clock_s", "accuracy", "loss", "local_steps", "step_size"):
            assert columns[name] == pytest.approx(metrics[name], rel=1e-5)


def test_several_runs_share_one_figure_of_epsilon(runs, tmp_path):
    page = Page(report([runs["fixed"], runs["controlled"]], tmp_path / "both.html"))
    assert [each["key"] for each in page.data["figures"] if each["key"].startswith("epsilon")] == ["epsilon"]
    shown = [curve["series"] for curve in page.figure("epsilon")["curves"] if curve["column"] == "epsilon_most"]
    assert shown == [0, 1]
    for series, name in zip(page.data["series"], ("fixed", "controlled"), strict=True):
        metrics = Run(runs[name]).metrics
        of_each = metrics[[f"epsilon_{each}" for each in ("edge", "peer", "cloud", "public")]]
        assert series["columns"]["epsilon_most"] == pytest.approx(list(of_each.max(axis=1)), rel=1e-4)  # five digits


def test_a_run_without_privacy_has_no_epsilon_and_says_so(runs, tmp_path):
    found = page_of(runs["open"], out=tmp_path / "open.html")
    keys = [each["key"] for each in found.data["figures"]]
    assert "Nothing is private in open" in found.words
    assert "accuracy" in keys
    assert not [key for key in keys if key.startswith(("epsilon", "noise"))]


def test_a_controlled_run_says_why_it_decided_as_it_did(runs, tmp_path):
    found = page_of(runs["controlled"], out=tmp_path / "controlled.html")
    reasons = found.data["series"][0]["columns"]["reason"]
    assert len(reasons) == 3
    assert all(reason.startswith("P = ") and "next best tau" in reason for reason in reasons)
    assert found.figure("tau")["curves"][0]["words"] == "reason"
    assert "next best tau" in found.words  # in the table, for those who cannot point


def test_several_runs_are_overlaid_and_told_apart(runs, together):
    boxes = [each for tag, each in together.elements if each.get("name") == "run"]
    assert len(boxes) == len(runs)
    assert len({series["marker"] for series in together.data["series"]}) == len(runs)
    assert "method.privacy.name hierarchical hierarchical none local" in together.words
    assert "training.intervals" not in together.words.split("config.yaml of")[0]  # it does not differ


def test_text_of_users_stays_text(spoilt, tmp_path):
    evil = "</script><script>alert(1)</script><!-- <b>&amp;"
    run = spoilt("open", "<img src=x onerror=alert(1)> %{y} $x$")
    config, topology = RunDirectory(run).config, RunDirectory(run).topology
    config.write_text(config.read_text() + f"# {evil}\n")
    topology.write_text(topology.read_text().replace("edge-1", "<i>edge&1</i>", 1))
    write_sums(config)
    write_sums(topology)
    found = page_of(run, spoilt("fixed"), out=tmp_path / "evil.html")
    assert found.count("script") == 3
    assert found.count("img") == found.count("i") == 0
    assert evil in found.words
    assert found.data["series"][0]["name"] == run.name
    assert any(tag == "title" and text.startswith("<i>edge&1</i>: ") for tag, text in found.texts)


def test_numbers_that_are_none_leave_gaps(spoilt, tmp_path):
    run = spoilt("fixed")
    metrics = pq.read_table(run / "metrics.parquet").to_pydict()
    metrics["loss"] = [float("nan"), float("inf"), 1.5]
    metrics["accuracy"] = [None, 0.5, 0.6]
    write_columns(run / "metrics.parquet", metrics, METRICS_SCHEMA)
    columns = page_of(run, out=tmp_path / "gaps.html").data["series"][0]["columns"]
    assert columns["loss"] == [None, None, 1.5]
    assert columns["accuracy"] == [None, 0.5, 0.6]


def test_200_intervals_take_less_than_7_mb_and_long_runs_are_thinned_out(spoilt, tmp_path):
    run = spoilt("fixed")
    metrics = pq.read_table(run / "metrics.parquet").to_pydict()
    ledger = (run / "privacy.jsonl").read_text()
    for intervals in (200, 30_000):
        longer = {
            name: [1 / (at + 3) if name == "loss" else values[0] for at in range(intervals)]
            for name, values in metrics.items()
        }
        longer["interval"] = list(range(1, intervals + 1))
        write_columns(run / "metrics.parquet", longer, METRICS_SCHEMA)
        (run / "privacy.jsonl").write_text(ledger * 60)
        target = report(run, tmp_path / f"{intervals}.html")
        assert target.stat().st_size < 7e6
        shown = Page(target).data["series"][0]["columns"]["interval"]
        assert (shown[0], shown[-1], len(shown)) == (1, intervals, min(intervals, 2000))
