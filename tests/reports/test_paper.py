"""Tables and figures of sweeps, from numbers worked out by hand."""

import json
from itertools import product

import pandas as pd
import pytest
from typer.testing import CliRunner

from h2fdp import UserError
from h2fdp.cli.main import app
from h2fdp.reports.paper import along_runs, axes_of, over_key, paper_table
from h2fdp.reports.sweep_numbers import sweep_numbers
from h2fdp.reports.sweep_view import SweepView

METHODS, TRUST = ("hfl_x", "h2fdp"), (0, 0.5)
SEEDS = (1, 2, 3)


def accuracy(method, trust, seed, interval):
    """0.4 to 0.9: intervals 1, 2, 3 add 0.1 each; the seed moves it by 0.1."""
    return 0.4 + 0.1 * interval + 0.1 * (seed - 2) + (0.1 if method == "h2fdp" else 0) * trust


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return stored_sweep(tmp_path_factory.mktemp("paper") / "study")


def stored_sweep(folder):
    """A sweep's directory as `h2fdp sweep` leaves it, of 12 runs that nobody made."""
    rows, points = [], {}
    for method in METHODS:
        for trust in TRUST:
            for seed in SEEDS:
                values = {"method": method, "topology.trust.probability": trust, "seed": seed}
                run = f"{method},{trust},{seed}"
                points[run] = {"values": values, "digest": "", "code": "", "state": "done"}
                (folder / "runs" / run).mkdir(parents=True)
                worst = {"edge": {"pld": 1.0}, "cloud": {"pld": 0.9 + seed / 10}}
                (folder / "runs" / run / "summary.json").write_text(json.dumps({"privacy": {"worst": worst}}))
                for k in (1, 2, 3):
                    costs = {"energy_j": 10.0 * k, "delay_s": 5.0 * k, "clock_s": 2.0 * k}
                    learned = {"accuracy": accuracy(method, trust, seed, k), "loss": 1.0}
                    rows.append({"run": run, **values, "interval": k, **learned, **costs})
    keys = ["method", "topology.trust.probability", "seed"]
    (folder / "sweep.json").write_text(json.dumps({"name": "study", "keys": keys, "points": points}))
    table = pd.DataFrame(rows)
    table.to_parquet(folder / "sweep.parquet")
    groups = table.groupby([*keys[:2], "interval"], sort=False)
    means = groups[["accuracy", "energy_j"]].mean().add_suffix("_mean").reset_index()
    means["n"] = 3
    for end, sign in (("low", -1), ("high", 1)):
        means[f"accuracy_{end}"] = means["accuracy_mean"] + sign * 0.05
        means[f"energy_j_{end}"] = means["energy_j_mean"]
    means.to_parquet(folder / "summary.parquet")
    return folder


def test_a_row_for_each_point_with_students_interval_the_worst_epsilon_and_the_last_costs(sweep):
    table = paper_table(sweep_numbers(sweep))
    assert table.heads == ("method", "probability", "test accuracy, %", "epsilon (pld)", "energy, J")
    half = 4.302653 * 10 / 3**0.5  # three seeds, 10 points apart
    assert [row[:2] for row in table.rows] == [("hfl_x", 0.0), ("hfl_x", 0.5), ("h2fdp", 0.0), ("h2fdp", 0.5)]
    cell = table.rows[3][2]
    assert (cell.mean, cell.low, cell.high) == pytest.approx((75.0, 75 - half, 75 + half), abs=1e-4)
    assert table.texts()[3]["test accuracy, %"] == "75 ± 25"
    assert table.rows[0][3].mean == pytest.approx(1.2)  # the worst observer of the worst seed
    assert table.texts()[0]["energy, J"] == "30"


def test_costs_to_a_target_are_those_of_the_first_interval_that_has_it(sweep):
    """hfl_x reaches 0.6 after 3, 2, 1 intervals under seeds 1, 2, 3; 0.85 is reached under none but the last seed."""
    texts = paper_table(sweep_numbers(sweep, 0.6 - 1e-9)).texts()
    assert texts[0]["intervals to 60 %"] == "2.0 ± 2.5"
    assert texts[0]["J to 60 %"] == "20 ± 25"
    assert texts[0]["s to 60 %"] == "4.0 ± 5.0"
    rare = paper_table(sweep_numbers(sweep, 0.8 - 1e-9), ["target_energy_j"]).texts()
    assert rare[0]["J to 80 %"] == "1 of 3"  # no mean over those that got there
    assert paper_table(sweep_numbers(sweep, 0.95), ["target_energy_j"]).texts()[0]["J to 95 %"] == "-"


def planned_sweep(folder, rows):
    """A sweep's directory with a run for each of these rows, which have their swept values and what they reached."""
    keys, table = [key for key in rows[0] if key != "accuracy"], []
    points = {}
    for row in rows:
        values = {key: row[key] for key in keys}
        run = ",".join(f"{key}={value}" for key, value in values.items())
        points[run] = {"values": values, "digest": "", "code": "", "state": "done"}
        table.append({"run": run, **row, "interval": 1, "energy_j": 1.0})
        (folder / "runs" / run).mkdir(parents=True)
        (folder / "runs" / run / "summary.json").write_text("{}")
    (folder / "sweep.json").write_text(json.dumps({"name": "study", "keys": keys, "points": points}))
    pd.DataFrame(table).to_parquet(folder / "sweep.parquet")
    pd.DataFrame({"interval": [], "n": []}).to_parquet(folder / "summary.parquet")
    return folder


def test_paired_differences_are_those_of_runs_with_one_seed_with_students_interval(tmp_path):
    """Seeds 1 to 3 gain 1, 3 and 2 points, seed 4 has no partner: 2 +- 4.302653 x 1 / sqrt(3), although the means of
    three seeds are 10 points apart from seed to seed."""
    reached = {("hfl", 1): 0.60, ("hfl", 2): 0.70, ("hfl", 3): 0.80}
    reached |= {("h2fdp", 1): 0.61, ("h2fdp", 2): 0.73, ("h2fdp", 3): 0.82, ("h2fdp", 4): 0.10}
    rows = [{"method": method, "seed": seed, "accuracy": at} for (method, seed), at in reached.items()]
    table = paper_table(sweep_numbers(planned_sweep(tmp_path / "s", rows), against="method=hfl"), ["accuracy"])
    assert table.heads == ("method", "difference in test accuracy, points")
    half = 4.302653 / 3**0.5
    ((method, cell),) = table.rows
    assert method == "h2fdp"
    assert (cell.mean, cell.low, cell.high) == pytest.approx((2.0, 2 - half, 2 + half), abs=1e-5)
    assert (cell.runs, cell.known) == (3, 3)
    assert r"h2fdp & $2.0 \pm 2.5$ \\" in table.latex()
    command = ["table", str(tmp_path / "s"), "--against", "method=hfl"]
    assert "2.0 ± 2.5" in CliRunner().invoke(app, command).stdout
    (row,) = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert row["difference in test accuracy, points"]["mean"] == pytest.approx(2.0)


def test_latex_escapes_what_latex_reads(sweep):
    text = paper_table(sweep_numbers(sweep), ["accuracy"]).latex()
    assert r"method & probability & test accuracy, \% \\" in text
    assert r"hfl\_x & 0 & $70 \pm 25$ \\" in text
    assert text.count(r"\\") == 5
    assert text.count("{") == text.count("}")


def test_a_figure_over_a_key_has_a_line_for_each_value_of_another(sweep):
    figure = over_key(sweep_numbers(sweep), "probability", "method")
    assert [(line.label, line.x) for line in figure.lines] == [
        ("method = hfl_x", (0.0, 0.5)),
        ("method = h2fdp", (0.0, 0.5)),
    ]
    assert figure.lines[1].mean == pytest.approx((70.0, 75.0))
    assert figure.lines[1].high[1] == pytest.approx(75 + 4.302653 * 10 / 3**0.5, abs=1e-4)
    words = over_key(sweep_numbers(sweep), "method", "probability")
    assert (words.words, words.lines[0].x) == (("hfl_x", "h2fdp"), (0.0, 1.0))


@pytest.mark.parametrize(
    ("values", "stated", "axes"),
    [
        (
            {"method": ["hfl", "h2fdp"], "a.probability": [0, 1]},
            {},
            ("a.probability", "method"),
        ),  # numbers before words
        ({"a.probability": [0, 1], "b.epsilon": [1, 2, 4]}, {}, ("b.epsilon", "a.probability")),  # most values
        ({"a.probability": [0, 1], "b.epsilon": [1, 2, 4]}, {"x": "probability"}, ("a.probability", "b.epsilon")),
        ({"a.probability": [0, 1], "b.epsilon": [1, 2, 4]}, {"line": "epsilon"}, ("a.probability", "b.epsilon")),
        ({"method": ["hfl", "h2fdp"], "server": ["adam", "average"]}, {}, ("method", "server")),
        ({"b.epsilon": [1, 2]}, {}, ("b.epsilon", None)),
        ({"b.epsilon": [1, 2], "method": ["hfl"]}, {}, ("b.epsilon", None)),  # what does not vary is no line
    ],
)
def test_what_a_figure_leaves_open_follows_from_the_keys_that_vary(tmp_path, values, stated, axes):
    rows = [dict(zip(values, each, strict=True)) | {"accuracy": 0.5} for each in product(*values.values())]
    folder = planned_sweep(tmp_path / "s", rows)
    numbers = sweep_numbers(folder)
    assert axes_of(numbers, **stated) == axes
    figure = over_key(numbers, **stated)
    assert len(figure.lines) == len(values.get(axes[1], "1"))
    options = [word for name, key in stated.items() for word in (f"--{name}", key)]
    done = CliRunner().invoke(app, ["plot", str(folder), "--out", str(tmp_path / "p.svg"), *options])
    said = f"note: {axes[0]} along x, and a line for each {axes[1]}; --x {axes[1]} exchanges them"
    assert (said in " ".join(done.stderr.split())) is ("line" not in stated and axes[1] is not None)


def test_a_third_key_is_named_with_the_option_that_fixes_it(tmp_path):
    rows = [
        {"method": method, "a.probability": trust, "b.epsilon": epsilon, "accuracy": 0.5}
        for method, trust, epsilon in product(("hfl", "h2fdp"), (0, 1), (1, 2, 4))
    ]
    numbers = sweep_numbers(planned_sweep(tmp_path / "s", rows))
    with pytest.raises(UserError, match="varies method too; expected a value of each, as --where 'method=hfl'"):
        over_key(numbers)
    assert len(over_key(numbers.where(["method=hfl"])).lines) == 2
    with pytest.raises(UserError, match=r"--x: no other key varies; expected one of method, .*, interval, "):
        over_key(numbers.where(["method=hfl", "probability=0", "epsilon=1"]))


def test_curves_along_runs_have_bands(sweep):
    figure = along_runs(SweepView.read(sweep), sweep_numbers(sweep).where(["method=h2fdp"]), "energy_j")
    assert [line.label for line in figure.lines] == ["probability = 0", "probability = 0.5"]
    assert figure.lines[0].x == (10.0, 20.0, 30.0)
    assert figure.lines[0].low[2] == pytest.approx(65.0)


def test_the_commands_write_where_they_are_told(sweep, tmp_path):
    table, picture = tmp_path / "new" / "t.csv", tmp_path / "other" / "p.svg"
    along = ["plot", str(sweep), "--x", "interval", "--out", str(picture)]
    for command in (["table", str(sweep), "--out", str(table)], along):
        assert CliRunner().invoke(app, command).exit_code == 0
    assert table.read_text().startswith("method,")
    assert "method = hfl_x" in picture.read_text()
    for wrong, told in (("t.doc", "expected a file that ends in .tex, .csv, .md"), (".", "is a folder")):
        assert told in str(CliRunner().invoke(app, ["table", str(sweep), "--out", wrong]).exception)
    assert "--line: means nothing" in str(CliRunner().invoke(app, [*along, "--line", "method"]).exception)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda numbers: over_key(numbers, "trsut"), "--x: expected one of method, "),
        (lambda numbers: over_key(numbers, "probabilty"), "did you mean `topology.trust.probability`"),
        (lambda numbers: over_key(numbers, "intervl"), "one of method, .*, interval, .* did you mean `interval`"),
        (lambda numbers: over_key(numbers, "method", measure="acuracy"), "--y: .* did you mean `accuracy`"),
        (lambda numbers: over_key(numbers, "method", "method"), "--line: expected another key than --x, found method"),
        (lambda numbers: paper_table(numbers, ["joules"]), "--show: expected one of rmse, r2"),
        (
            lambda numbers: paper_table(numbers, ["target_energy_j"]),
            "--show: .* needs a target, as --target 0.7 for accuracy",
        ),
        (lambda numbers: numbers.where(["method=fedavg"]), '--where: method: expected one of hfl_x, h2fdp, found "fed'),
    ],
)
def test_mistakes_are_told_with_their_option_and_what_there_is(sweep, make, told):
    with pytest.raises(UserError, match=told):
        make(sweep_numbers(sweep))
