"""Tables and figures of a sweep for a paper, in its own words.

    python -m experiments.paper_figures table sweeps/trust --label 'probability=$p_c$' --out trust.tex
    python -m experiments.paper_figures table sweeps/trust --across probability --show accuracy --out across.md
    python -m experiments.paper_figures plot sweeps/trust --label 'probability=$p_c$' --out trust.pgf
    python -m experiments.paper_figures page runs/a runs/b --out figures      # all figures of a report
    python -m experiments.paper_figures search tunes/trust --cost seconds --out pareto.pdf
    python -m experiments.paper_figures labels experiments/trust.yaml --out who.png     # who holds which labels

The options are those of `h2fdp table` and `h2fdp plot`, and besides: `--label NAME=TEXT` gives a key, a value or a
measure another word, which may be a formula; `--across KEY` makes its values the columns; a file that ends in `.pgf` is
an `\\input` for LaTeX in the fonts of the paper, which needs LaTeX on this machine.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from matplotlib import style
from matplotlib.backends.backend_pgf import LatexError

from experiments.paper_figures.labels import across, labels_of, plot_in, table_in
from experiments.paper_figures.matrices import draw_holdings
from experiments.paper_figures.pages import write_pages
from experiments.paper_figures.searches import UNITS, draw_search
from experiments.programs import told
from h2fdp import Experiment
from h2fdp.errors import UserError
from h2fdp.records.atomic import output_file, write_text
from h2fdp.reports.figures import AXES, Plot
from h2fdp.reports.paper import FORMATS, along_runs, axes_of, over_key, paper_table
from h2fdp.reports.pictures import PLOT_SUFFIXES, STYLE, drawn
from h2fdp.reports.sweep_numbers import sweep_numbers
from h2fdp.reports.sweep_view import SweepView

_TEX_SYSTEMS = ("pdflatex", "lualatex", "xelatex")


def write_table(asked: argparse.Namespace) -> None:
    """Of a sweep."""
    numbers = sweep_numbers(asked.sweep, asked.target, asked.against).where(asked.where)
    table = paper_table(numbers, asked.show)
    if asked.across is not None:
        table = across(table, numbers, asked.across)
    table = table_in(table, numbers, labels_of(asked.label, numbers))
    with output_file(asked.out, "--out", list(FORMATS)):
        write_text(asked.out, FORMATS[asked.out.suffix](table))


def write_plot(asked: argparse.Namespace) -> None:
    """Of a sweep, over a swept key or along its runs."""
    numbers = sweep_numbers(asked.sweep, asked.target).where(asked.where)
    if asked.x in AXES:
        plot = along_runs(SweepView.read(asked.sweep), numbers, asked.x, asked.y)
    else:
        plot = over_key(numbers, *axes_of(numbers, asked.x, asked.line), asked.y)
    write_picture(plot_in(plot, numbers, labels_of(asked.label, numbers)), asked.out)


def write_picture(plot: Plot, path: Path) -> None:
    """By the suffix.

    Raises:
        UserError: another suffix, no LaTeX for PGF, a label that is no formula, or a file that cannot be written.
    """
    system = next(filter(shutil.which, _TEX_SYSTEMS), None)
    tex: dict[str, object] = {}
    if path.suffix == ".pgf":
        if system is None:
            raise UserError(f"a .pgf file needs LaTeX ({', '.join(_TEX_SYSTEMS)}), which measures its texts", "--out")
        tex = {"pgf.texsystem": system, "pgf.rcfonts": False, "axes.unicode_minus": False}
    with output_file(path, "--out", (*PLOT_SUFFIXES, ".pgf")), style.context([STYLE, tex]):
        try:
            drawn(plot).savefig(path)
        except (ValueError, LatexError) as error:  # of mathtext or LaTeX
            lines = str(error).strip().splitlines()
            said = next((line for line in lines if line.startswith("!")), lines[-1])
            raise UserError(f"invalid TeX in a label: {said}", "--label") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in ("table", "plot"):
        of_sweep = kinds.add_parser(kind)
        of_sweep.add_argument("sweep", type=Path, metavar="SWEEP")
        of_sweep.add_argument("--label", action="append", default=[], metavar="NAME=TEXT")
        of_sweep.add_argument("--where", action="append", default=[], metavar="KEY=VALUE")
        of_sweep.add_argument("--target", type=float)
        of_sweep.add_argument("--out", type=Path, required=True, metavar="FILE")
        if kind == "table":
            of_sweep.add_argument("--show", action="append", default=[], metavar="MEASURE")
            of_sweep.add_argument("--across", metavar="KEY")
            of_sweep.add_argument("--against", metavar="KEY=VALUE")
        else:
            of_sweep.add_argument("--x", metavar="KEY")
            of_sweep.add_argument("--line", metavar="KEY")
            of_sweep.add_argument("--y", default="accuracy", metavar="MEASURE")
    page = kinds.add_parser("page")
    page.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    page.add_argument("--out", type=Path, required=True, metavar="DIR")
    page.add_argument("--with-private", action="store_true")
    labels = kinds.add_parser("labels")
    labels.add_argument("file", type=Path, metavar="FILE.yaml", help="an experiment")
    labels.add_argument("--data-root", type=Path)
    labels.add_argument("--out", type=Path, required=True, metavar="FILE")
    search = kinds.add_parser("search")
    search.add_argument("search", type=Path, metavar="SEARCH", help="a directory of h2fdp tune")
    search.add_argument("--cost", choices=list(UNITS), default="joules")
    search.add_argument("--out", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args()
    if asked.kind == "page":
        write_pages(asked.runs, asked.out, asked.with_private)
    elif asked.kind == "search":
        draw_search(asked.search, asked.cost, asked.out)
    elif asked.kind == "labels":
        counts = Experiment.from_file(asked.file).holdings(asked.data_root)
        draw_holdings(counts.to_numpy(), [str(each) for each in counts.index], asked.out)
    else:
        (write_table if asked.kind == "table" else write_plot)(asked)
    print(asked.out)


if __name__ == "__main__":
    told(main)
