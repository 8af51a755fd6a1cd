"""Tables and figures of sweeps in a paper's own words, and all figures of a report."""

import math
import shutil

import pandas as pd
import pytest

from experiments.paper_figures import __main__ as program
from experiments.paper_figures.labels import across, labels_of, plot_in, table_in
from experiments.paper_figures.pages import write_pages, write_pictures
from h2fdp import UserError
from h2fdp.reports.figures import Curve, CurveChart, Series
from h2fdp.reports.paper import along_runs, over_key, paper_table
from h2fdp.reports.pictures import write_map
from h2fdp.reports.sweep_numbers import sweep_numbers
from h2fdp.reports.sweep_view import SweepView
from tests.reports.test_paper import stored_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return stored_sweep(tmp_path_factory.mktemp("paper") / "study")


def test_a_key_across_makes_its_values_columns(sweep):
    numbers = sweep_numbers(sweep)
    table = across(paper_table(numbers, ["accuracy"]), numbers, "probability")
    assert table.heads == ("method", "probability 0", "probability 0.5")
    assert [row[0] for row in table.rows] == ["hfl_x", "h2fdp"]
    assert table.rows[1][2].mean == pytest.approx(75.0)
    assert table_in(table, numbers, {"method": "Method", "hfl_x": "HFL"}).texts()[0]["Method"] == "HFL"


def test_latex_escapes_what_latex_reads_and_leaves_formulas(sweep):
    numbers = sweep_numbers(sweep)
    text = table_in(paper_table(numbers, ["accuracy"]), numbers, {"probability": "$p_c$"}).latex()
    assert r"method & $p_c$ & test accuracy, \% \\" in text
    assert r"hfl\_x & 0 & $70 \pm 25$ \\" in text


def test_lines_and_axes_have_the_words_of_the_paper(sweep):
    numbers = sweep_numbers(sweep)
    words = labels_of(["h2fdp=H2FDP", "method=rule", "probability=$p_c$", "accuracy=top-1, %"], numbers)
    plot = plot_in(over_key(numbers, "probability", "method"), numbers, words)
    assert [line.label for line in plot.lines] == ["rule = hfl_x", "H2FDP"]
    assert (plot.x_title, plot.y_title) == ("$p_c$", "top-1, %")
    words = plot_in(over_key(numbers, "method", "probability"), numbers, words)
    assert (words.words, words.lines[1].label) == (("hfl_x", "H2FDP"), "$p_c$ = 0.5")
    words = labels_of(["h2fdp=H2FDP", "probability=$p_c$", "interval=k"], numbers)
    curves = plot_in(along_runs(SweepView.read(sweep), numbers, "interval"), numbers, words)
    assert [line.label for line in curves.lines][2:] == ["H2FDP, $p_c$ = 0", "H2FDP, $p_c$ = 0.5"]
    assert curves.x_title == "k"


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["paper_figures", *map(str, words)])
    program.main()


def test_the_program_writes_tables_and_figures(sweep, tmp_path, monkeypatch):
    table, picture = tmp_path / "new" / "t.md", tmp_path / "p.svg"
    run(monkeypatch, "table", sweep, "--across", "probability", "--show", "accuracy", "--out", table)
    assert table.read_text().startswith("| method | probability 0 |")
    run(monkeypatch, "plot", sweep, "--x", "interval", "--label", "method=rule", "--out", picture)
    assert "rule = hfl_x" in picture.read_text()
    with pytest.raises(UserError, match=r"--label: expected a swept key, one of its values .* did you mean `method`"):
        run(monkeypatch, "plot", sweep, "--label", "metod=rule", "--out", picture)
    with pytest.raises(UserError, match="--label: expected NAME=TEXT"):
        run(monkeypatch, "table", sweep, "--label", "rule", "--out", table)
    with pytest.raises(UserError, match="--label: invalid TeX in a label"):
        run(monkeypatch, "plot", sweep, "--label", r"probability=$\frac{$", "--out", picture)
    with pytest.raises(UserError, match="--across: shows one measure"):
        run(monkeypatch, "table", sweep, "--across", "probability", "--out", table)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"--out: a \.pgf file needs LaTeX"):
        run(monkeypatch, "plot", sweep, "--out", tmp_path / "p.pgf")


def test_every_figure_is_written_as_png_and_as_pdf(runs, tmp_path):
    write_pages([runs["open"]], tmp_path / "pictures")
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    for stem in ("accuracy-interval", "accuracy-energy_j", "loss-clock_s", "step-size", "devices", "network-0"):
        assert {f"{stem}.png", f"{stem}.pdf"} <= names
    assert (tmp_path / "pictures/step-size.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "pictures/step-size.pdf").read_bytes().startswith(b"%PDF")


def test_names_with_dollars_gaps_and_many_series_are_drawn(tmp_path):
    columns = {"interval": [1, 2, 3], "loss": [None, 2.0, 1.0], "low": [None, 1, 1], "high": [None, 3, 1]}
    every = [Series(f"$\\frac{{{number}$", columns) for number in range(30)]
    curves = [Curve(number, "loss", "$x", band=("low", "high")) for number in range(30)]
    written = write_pictures([CurveChart("some", "t", "c", "y", curves)], every, tmp_path)
    assert {path.name for path in written} == {"some.png", "some.pdf"}


def test_who_holds_which_labels_is_drawn(tmp_path, monkeypatch):
    file = tmp_path / "run.yaml"
    file.write_text("data: digits\ntopology: {edges: [{name: a, devices: {count: 3}}]}\n")
    run(monkeypatch, "labels", file, "--out", tmp_path / "who.png")
    assert (tmp_path / "who.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"--out: expected a file that ends in \.png, \.pdf"):
        run(monkeypatch, "labels", file, "--out", tmp_path / "who.svg")


def test_the_trials_of_a_search_are_drawn(tmp_path, monkeypatch):
    columns = {"state": ["done", "done", "pruned", "failed"], "validation_accuracy": [0.5, 0.6, 0.2, None]}
    pd.DataFrame({**columns, "seconds": [1.0, 2.0, 1.5, None]}).to_parquet(tmp_path / "trials.parquet")
    run(monkeypatch, "search", tmp_path, "--cost", "seconds", "--out", tmp_path / "pareto.svg")
    assert "validation accuracy" in (tmp_path / "pareto.svg").read_text()
    with pytest.raises(UserError, match="none: no such directory"):
        run(monkeypatch, "search", tmp_path / "none", "--out", tmp_path / "pareto.svg")


def test_a_network_that_a_study_asks_for_twice_is_once_on_its_map(tmp_path):
    """As `edges: [4, [4, 5]]` does where the file has five devices below each."""
    networks = [
        {"edges": 4, "devices": 20, "trust": trust, "epsilon": epsilon, "noise": 1 / (trust + epsilon)}
        | {"score": 0.8, "low": 0.7, "high": 0.9, "measured": math.nan, "joules": 1.0 + trust}
        for trust in (0.0, 0.5, 1.0)
        for epsilon in (0.5, 1.0)
    ]
    pictures = []
    for several in (networks, networks * 2):
        path = tmp_path / f"{len(several)}.svg"
        write_map({"networks": several, "runs": [], "score": "accuracy"}, path)
        pictures.append(path.read_text().count("share of trusted edge servers"))
    assert pictures == [1, 1]
