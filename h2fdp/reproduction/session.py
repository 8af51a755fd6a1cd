"""A reproduction under way: studies checked first, then made, drawn, judged, and written down."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from h2fdp.reproduction.conduct import made_by, make, results_of
from h2fdp.reproduction.evaluation import Found, NoColumn, Row, evaluate
from h2fdp.reproduction.figures_file import Column
from h2fdp.reproduction.page import FigureResults, write_page
from h2fdp.reproduction.plan import FigurePart, Reproduction
from h2fdp.reproduction.results import Results, from_table, largest_accounted, makers_of
from h2fdp.sweeps.directory import SweepDirectory
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.study import Study
from h2fdp.sweeps.task import Outcome
from h2fdp.sweeps.work_options import WorkOptions

PICTURES = "figures"


@dataclass
class Session:
    """One command's work on a reproduction.

    Attributes:
        out: where the runs of all parts are, of this and of earlier commands.
        command: how the user said it.
    """

    of: Reproduction
    out: Path
    quick: bool
    command: str
    _shared: SharedInputs = field(default_factory=SharedInputs)

    def plan(self, figures: Iterable[str], data_sets: Iterable[str]) -> dict[FigurePart, Study]:
        """The studies of some figures, every run of each checked.

        Raises:
            UserError: every problem of the first study that has one.
        """
        parts = [part for part in self.of.parts(figures, data_sets, self.quick) if self.of.table(part.figure) is None]
        return {part: self.of.study(part, self.quick, self._shared) for part in parts}

    def make(self, part: FigurePart, study: Study, options: WorkOptions) -> dict[str, Outcome]:
        return make(self.of, part, study, self.out, self.command, self._shared, options)

    @cached_property
    def found(self) -> Found:
        """What there is of every part, whichever command made it; asked for once all is made."""
        found: dict[FigurePart, Results | str] = {}
        for part in self.of.parts(self.of.file.figures, self.of.file.data_sets, self.quick):
            table, figure = self.of.table(part.figure), self.of.file.figures[part.figure]
            why = self.of.one_column(part.figure, part.data_set, self.quick)
            if why is not None:
                found[replace(part, column="accounted")] = NoColumn(why)
            if table is not None:
                found[part] = from_table(table, part.data_set, figure.keys)
            elif part.path(self.out).is_dir():
                found[part] = results_of(part, self.of.study(part, self.quick, self._shared), self.out)
        return found

    def evaluate(self) -> list[Row]:
        """All claims."""
        return evaluate(self.of.claims.claims, self.found)

    def picture(self, figure: str) -> Path:
        """Where a figure is drawn."""
        return self.out / f"{figure}.png"

    def draw(self, figures: Iterable[str]) -> list[Path]:
        """Draw figures; those that could be."""
        from h2fdp.reproduction.pictures import draw  # matplotlib, for those who draw

        results = {part: found for part, found in self.found.items() if isinstance(found, Results)}
        return [self.picture(figure) for figure in figures if draw(self.of, figure, results, self.picture(figure))]

    def write_page(self, page: Path, rows: list[Row]) -> None:
        """Write all claims into a page, and all pictures beside it."""
        results = {}
        for figure in self.of.file.figures:
            pictures = self.draw([figure])
            if pictures:
                (page.parent / PICTURES).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(pictures[0], page.parent / PICTURES / pictures[0].name)
            results[figure] = FigureResults(
                f"{PICTURES}/{pictures[0].name}" if pictures else None, self._made(figure), self._accounted(figure)
            )
        write_page(page, self.of, rows, results)

    def _made(self, figure: str) -> list[str]:
        """How the runs that are shown were made, each way once."""
        table = self.of.table(figure)
        notes: dict[str, None] = {} if table is None else dict.fromkeys(makers_of(table))
        for part, results in self.found.items():
            if part.figure == figure and isinstance(results, Results):
                by = made_by(part.path(self.out))
                notes |= {by[run]: None for run in results.table["run"].unique() if by.get(run)}
        return list(notes)

    def _accounted(self, figure: str) -> dict[Column, float]:
        """Column -> the largest of `largest_accounted` of its runs."""
        found: dict[Column, float] = {}
        for part, results in self.found.items():
            if part.figure == figure and isinstance(results, Results):
                runs = SweepDirectory(part.path(self.out))
                epsilons = [largest_accounted(runs.run(name)) for name in results.table["run"].unique()]
                known = [epsilon for epsilon in (*epsilons, found.get(part.column)) if epsilon is not None]
                if known:
                    found[part.column] = max(known)
        return found
