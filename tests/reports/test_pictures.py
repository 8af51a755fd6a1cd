"""Pictures for papers."""

import pytest
from matplotlib.figure import Figure

from h2fdp import UserError, report
from h2fdp.reports.figures import Curve, CurveChart, Heatmap, Series
from h2fdp.reports.pictures import write_pictures


def test_every_figure_is_written_as_png_and_as_pdf(runs, tmp_path):
    report(runs["open"], tmp_path / "out.html", tmp_path / "pictures")
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    for stem in ("accuracy-interval", "accuracy-energy_j", "loss-clock_s", "step-size", "devices", "network-0"):
        assert {f"{stem}.png", f"{stem}.pdf"} <= names
    assert (tmp_path / "pictures/step-size.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "pictures/step-size.pdf").read_bytes().startswith(b"%PDF")


def test_names_with_dollars_gaps_and_many_series_are_drawn(tmp_path):
    columns = {"interval": [1, 2, 3], "loss": [None, 2.0, 1.0], "low": [None, 1, 1], "high": [None, 3, 1]}
    every = [Series(f"$\\frac{{{number}$", columns) for number in range(30)]
    curves = [Curve(number, "loss", "$x", band=("low", "high")) for number in range(30)]
    heat = Heatmap("heat", "t", "c", 0, "x", "y", "z", [1, 2], ["$\\frac{$", "b"], [[1, None], [2, 3]])
    written = write_pictures([CurveChart("some", "t", "c", "y", curves), heat], every, tmp_path)
    assert {path.name for path in written} == {"some.png", "some.pdf", "heat.png", "heat.pdf"}


def test_counts_have_whole_ticks_and_no_axis_shows_what_cannot_be(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda picture, path: drawn.append(picture.axes[0]))
    columns = {"interval": [1, 2, 3], "accuracy": [0.1, 0.2, 0.5], "low": [-0.3, 0.1, 0.4], "high": [0.5, 0.3, 0.6]}
    series = Series("a", columns | {"tau": [1, 3, 2]})
    charts = [
        CurveChart(name, "t", "c", "y", [Curve(0, name, "x", band=band)])
        for name, band in (("accuracy", ("low", "high")), ("tau", None))
    ]
    write_pictures(charts, [series], tmp_path)
    accuracy, tau = drawn[0], drawn[-1]
    assert accuracy.get_ylim()[0] == 0
    assert {tick % 1 for tick in [*accuracy.get_xticks(), *tau.get_xticks(), *tau.get_yticks()]} == {0}


def test_a_folder_that_cannot_be_made_is_told(runs, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="--png"):
        report(runs["open"], tmp_path / "out.html", tmp_path / "taken" / "pictures")
