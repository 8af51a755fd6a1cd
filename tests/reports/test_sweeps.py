"""The page about a sweep, from a directory as `h2fdp sweep` leaves it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from h2fdp import UserError, report
from h2fdp.reports.paper import over_key, paper_table
from h2fdp.reports.sweep_numbers import sweep_numbers
from tests.reports.pages import Page

TRUST, EPSILON = "topology.trust.probability", "privacy.epsilon"
METRICS = ("slot", "accuracy", "loss", "energy_j", "clock_s", "epsilon_claimed", "epsilon_cloud")


def value(metric, trust, epsilon, interval):
    return {"slot": 5.0 * interval, "energy_j": 2.0 * interval}.get(metric, trust + epsilon / 10 + interval / 100)


@pytest.fixture
def sweep(tmp_path):
    """Two seeds, trust 0, 0.5, 1 and epsilon 10, 2 in that order; one run failed."""
    directory = tmp_path / "study"
    rows, points = [], {}
    for trust in (0.0, 0.5, 1.0):
        for epsilon in (10, 2):
            for interval in (1, 2):
                row = {TRUST: trust, EPSILON: epsilon, "interval": interval, "n": 2 if trust else 1}
                for metric in METRICS:
                    mean = value(metric, trust, epsilon, interval)
                    spread = 0.01 if trust else float("nan")  # a single seed has no interval
                    row |= {f"{metric}_mean": mean, f"{metric}_low": mean - spread, f"{metric}_high": mean + spread}
                rows.append(row)
            for seed in (1, 2):
                name = f"seed={seed},{TRUST}={trust:g},{EPSILON}={epsilon}"
                failed = trust == 0 and seed == 2
                points[name] = {
                    "values": {"seed": seed, TRUST: int(trust) if trust.is_integer() else trust, EPSILON: epsilon},
                    "state": "failed" if failed else "done",
                    "error": "<b>no memory" if failed else "",
                }
                worst = {"device": "d", "rdp": 9.0, "pld": 8.0, "verdict": "open"}
                better = worst | {"rdp": 3.0, "pld": 2.0, "verdict": "met"}
                summary = {"privacy": {"claimed": epsilon, "worst": {"cloud": better if trust == 1 else worst}}}
                (directory / "runs" / name).mkdir(parents=True)
                (directory / "runs" / name / "summary.json").write_text(json.dumps(summary))
    pq.write_table(pa.Table.from_pylist(rows), directory / "summary.parquet")
    state = {"schema_version": 1, "name": "study", "keys": ["seed", TRUST, EPSILON], "points": points}
    (directory / "sweep.json").write_text(json.dumps(state))
    (directory / "study.yaml").write_text("name: study # </script>\n")
    return directory


def test_each_point_of_the_grid_is_a_curve_of_means_with_a_band(sweep):
    data = Page(report(sweep)).data
    assert [series["name"] for series in data["series"]][:3] == [
        "probability=0, epsilon=10",
        "probability=0, epsilon=2",
        "probability=0.5, epsilon=10",
    ]
    assert data["series"][2]["columns"]["accuracy"] == pytest.approx([1.51, 1.52])
    assert data["series"][2]["columns"]["energy_j"] == [2.0, 4.0]
    bands = [curve["band"] for curve in next(each for each in data["figures"] if each["key"] == "accuracy")["curves"]]
    assert bands == [None, None] + [["accuracy_low", "accuracy_high"]] * 4


def test_the_grid_can_be_looked_at_along_its_keys(sweep):
    explorer = Page(report(sweep)).figure("explorer")
    assert explorer["keys"] == {"probability": ["0", "0.5", "1"], "epsilon": ["2", "10"]}  # numbers by size
    title, found = explorer["metrics"]["accuracy"]
    assert title == "final test accuracy"
    for (trust, epsilon), (mean, low, high) in zip(explorer["points"], found, strict=True):
        right = value("accuracy", (0, 0.5, 1)[trust], (2, 10)[epsilon], 2)
        assert mean == pytest.approx(right)
        assert (low, high) == pytest.approx((right - 0.01, right + 0.01) if trust else (right, right))


def test_results_verdicts_and_failures_are_told(sweep):
    words = Page(report(sweep)).words
    assert "12 runs: 10 done, 2 failed." in words
    assert "Test accuracy 22.0 % (probability=0, epsilon=2) to 202.0 % (probability=1, epsilon=10); 4 J" in words
    assert "probability=1, epsilon=2 1.220 ± 0.010" in words
    assert "probability=0, epsilon=10 10 8 ? open" in words
    assert "probability=1, epsilon=10 10 2 ✓ met" in words
    assert "<b>no memory" in words
    assert "name: study # </script>" in words


@pytest.mark.parametrize(
    ("stated", "chosen", "named"),
    [
        (EPSILON, {10: {"parameters": 650, "intervals": 30}, 2: {"parameters": 650, "intervals": 30}}, ()),
        (EPSILON, {10: {"parameters": 650, "intervals": 30}, 2: {"parameters": 410, "intervals": 30}}, ("parameters",)),
        (EPSILON, {10: {"parameters": 650, "intervals": 30}, 2: {"parameters": 650, "intervals": 9}}, ("intervals",)),
        (EPSILON, {10: {"intervals": 30}, 2: {"intervals": 9, "state": "budget spent"}}, ()),  # none was chosen
        ("training.intervals", {10: {"intervals": 30}, 2: {"intervals": 9}}, ()),  # the point's name says it
        ("training", {10: {"intervals": 30}, 2: {"intervals": 9}}, ()),
        ("training.step_size", {10: {"intervals": 30}, 2: {"intervals": 9}}, ("intervals",)),
    ],
)
def test_points_for_which_auto_chose_other_numbers_are_marked_in_page_table_and_figure(sweep, stated, chosen, named):
    """Epsilons are renamed to be another key; `chosen`: its value -> what the runs at it have."""
    for folder in (sweep / "runs").iterdir():
        folder.rename(str(folder).replace(EPSILON, stated))
    state = (sweep / "sweep.json").read_text().replace(EPSILON, stated)
    (sweep / "sweep.json").write_text(state)
    means = pq.read_table(sweep / "summary.parquet")
    names = [stated if name == EPSILON else name for name in means.schema.names]
    pq.write_table(means.rename_columns(names), sweep / "summary.parquet")
    rows = []
    for name, point in json.loads(state)["points"].items():
        summary = {"state": "done"} | chosen[point["values"][stated]]
        (sweep / "runs" / name / "summary.json").write_text(json.dumps(summary))
        rows.append({"run": name, **point["values"], "interval": 1, "accuracy": 0.5, "energy_j": 1.0})
    pq.write_table(pa.Table.from_pylist(rows), sweep / "sweep.parquet")
    words, numbers = Page(report(sweep)).words, sweep_numbers(sweep)
    sentence = f"uns also differ in {' and '.join(named)}, which were chosen for each run, and so in their joules"
    assert words.count(sentence) == 2 * bool(named)  # below the table and the grid
    assert (sentence in numbers.footnote) is bool(named)
    heads = paper_table(numbers).heads
    axis = over_key(numbers.where([f"{TRUST}=1"]), stated).x_title
    for name in ("parameters", "intervals"):
        marked = name in named
        assert (f"{name} chosen" in words, f"{name} chosen" in heads, f": {name})" in axis) == (marked,) * 3
        if marked:
            assert f"probability=1, {stated.split('.')[-1]}=2 {chosen[2][name]} 1.220" in words


def test_a_sweep_is_reported_alone_and_a_damaged_one_is_told(sweep, runs, tmp_path):
    with pytest.raises(UserError, match="a sweep has its own report"):
        report([sweep, runs["open"]], tmp_path / "both.html")
    (sweep / "sweep.json").write_text("[]")
    with pytest.raises(UserError, match=r"sweep.json:1: damaged: expected an object"):
        report(sweep)
