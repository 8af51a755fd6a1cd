"""Pictures for papers."""

from h2fdp import report
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
