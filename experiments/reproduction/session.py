"""A reproduction under way: studies checked first, then made, drawn, judged, and written down."""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from experiments.reproduction.conduct import made_by, make, results_of
from experiments.reproduction.evaluation import Found, NoColumn, Row, evaluate
from experiments.reproduction.figures_file import Column
from experiments.reproduction.overview import overview
from experiments.reproduction.page import FigureResults, details
from experiments.reproduction.plan import FigurePart, Reproduction
from experiments.reproduction.points import points_of
from experiments.reproduction.regions import RESULTS, SETTINGS, write_regions
from experiments.reproduction.regions import VERDICTS as VERDICTS_REGION
from experiments.reproduction.results import Results, from_table, largest_accounted, makers_of, require_whole
from experiments.reproduction.settings.markup import settings_region
from experiments.reproduction.settings.session import SettingsSession
from experiments.reproduction.verdict_store import VERDICTS, Place, Provenance, VerdictStore, read_verdicts
from h2fdp.sweeps.plan import SharedInputs, SweepPlan
from h2fdp.sweeps.pool import WorkOptions
from h2fdp.sweeps.task import Outcome, SweepDirectory

PICTURES = "figures"


@dataclass
class Session:
    """One command's work on a reproduction.

    Attributes:
        out: where the runs of all parts are, of this and of earlier commands.
        command: how the user said it.
        only: the data sets that are drawn, judged and written down; None for all.
        stored: nothing but what is stored is judged, whatever runs there are.
    """

    of: Reproduction
    out: Path
    quick: bool
    command: str
    only: tuple[str, ...] | None = None
    stored: bool = False
    shared: SharedInputs = field(default_factory=SharedInputs)

    def __post_init__(self) -> None:
        """Damage in what is stored is told before hours of runs, not after them."""
        if not self.quick:
            _ = self._before

    def plan(self, figures: Iterable[str], data_sets: Iterable[str]) -> dict[FigurePart, SweepPlan]:
        """The studies of some figures, every run of each checked.

        Raises:
            UserError: every problem of the first study that has one.
        """
        parts = [part for part in self.of.parts(figures, data_sets, self.quick) if self.of.table(part.figure) is None]
        return {part: self.of.study(part, self.quick, self.shared) for part in parts}

    def make(self, part: FigurePart, study: SweepPlan, options: WorkOptions) -> dict[str, Outcome]:
        return make(self.of, part, study, self.out, self.command, self.shared, options)

    @cached_property
    def found(self) -> Found:
        """What there is of every part, whichever command made it; asked for once all is made."""
        found: dict[FigurePart, Results | str] = {}
        for part in self.of.parts(self.of.file.figures, self.only or self.of.file.data_sets, self.quick):
            table = self.of.table(part.figure)
            why = self.of.one_column(part.figure, part.data_set, self.quick)
            if why is not None:
                found[replace(part, column="accounted")] = NoColumn(why)
            if table is not None:
                found[part] = self._of_table(table, part)
            elif not self.stored and part.path(self.out).is_dir():
                found[part] = results_of(part, self.of.study(part, self.quick, self.shared), self.out)
        return found

    def _of_table(self, table: Path, part: FigurePart) -> Results:
        figure = self.of.file.figures[part.figure]
        results = from_table(table, part.data_set, figure.keys, figure.looks)
        for claim in self.of.claims.claims:
            if claim.figure == part.figure and part.data_set in claim.paper:
                require_whole(results, [point for ladder in claim.points for point in points_of(ladder)])
        return results

    def evaluate(self) -> list[Row]:
        """All claims; those about a data set that is like another one only where it has runs, or had them."""
        made = {part.data_set for part, found in self.found.items() if isinstance(found, Results)}
        made |= set() if self.quick else {*self._before.data_sets}
        sets = self.of.file.data_sets
        shown = [name for name in self.only or sets if sets[name].like is None or name in made]
        return [row for row in evaluate(self.of.claims.claims, self.found) if row.data_set in shown]

    def picture(self, figure: str) -> Path:
        """Where a figure is drawn."""
        return self.out / f"{'-'.join([figure, *(self.only or ())])}.png"

    def draw(self, figures: Iterable[str], data_sets: Container[str] | None = None) -> list[Path]:
        """Draw figures, of some data sets alone if asked; those that could be."""
        from experiments.reproduction.pictures import draw  # matplotlib, for those who draw

        results = {
            part: found
            for part, found in self.found.items()
            if isinstance(found, Results) and (data_sets is None or part.data_set in data_sets)
        }
        return [self.picture(figure) for figure in figures if draw(self.of, figure, results, self.picture(figure))]

    def complete(self, rows: list[Row]) -> list[Row]:
        """Rows in which what has no runs here is as it was found before; with --quick nothing was."""
        return rows if self.quick else self._before.completed(rows)

    @cached_property
    def _before(self) -> VerdictStore:
        return read_verdicts(self.of.folder / VERDICTS, self.of.file.figures, required=self.stored)

    def store(self, rows: list[Row]) -> None:
        """Keep the verdicts on what has runs here, for pages to come.

        Raises:
            UserError: what is kept already is damaged.
        """
        figures = {claim.id: claim.figure for claim in self.of.claims.claims}
        fresh = self._fresh()
        if fresh or self.stored:
            now = self._before.rejudged(self.complete(rows)) if self.stored else self._before.updated(rows, fresh)
            now.write(self.of.folder / VERDICTS, figures)

    def _fresh(self) -> dict[Place, Provenance]:
        """Figures and data sets that have runs here."""
        places = {(part.figure, part.data_set) for part, found in self.found.items()
                  if isinstance(found, Results) and self.of.table(part.figure) is None}  # fmt: skip
        return {place: self._provenance(*place) for place in sorted(places)}

    def _provenance(self, figure: str, data_set: str) -> Provenance:
        own = {claim.id: claim.compares for claim in self.of.claims.claims if claim.figure == figure}
        return Provenance(self._made(figure, data_set), self._accounted(figure, data_set), own)

    def write_page(self, page: Path, rows: list[Row], settings: SettingsSession | None) -> None:
        """Write all claims into a page, and pictures beside it; a data set with a page of its own is detailed there."""
        rows, known, sets = self.complete(rows), self._fresh(), self.of.file.data_sets
        if not self.quick:
            known = {**self._before.provenance, **known}
        shown, shown_sets = {}, {row.data_set for row in rows if self.only or sets[row.data_set].page is None}
        for figure in self.of.file.figures:
            pictures, picture = self.draw([figure], shown_sets), page.parent / PICTURES / self.picture(figure).name
            if pictures:
                picture.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(pictures[0], picture)
            table = self.of.table(figure)
            own = [each for (name, data_set), each in known.items() if name == figure and data_set in shown_sets]
            made = [*(() if table is None else makers_of(table)), *(note for each in own for note in each.made)]
            accounted: dict[Column, float] = {}
            for each in own:
                accounted |= {
                    column: max(share, accounted.get(column, share)) for column, share in each.accounted.items()
                }
            if table is not None and not picture.is_file():  # drawn by the table's own program
                picture = table.parent / PICTURES / picture.name
            path = os.path.relpath(picture, page.parent) if picture.is_file() else None
            shown[figure] = FigureResults(path, list(dict.fromkeys(made)), accounted)
        results, counted, first = None, {}, next(iter(self.only or self.of.file.data_sets))
        bodies = {RESULTS: details(self.of, rows, shown_sets, shown)}
        if settings is not None and settings.data_set == first:
            results, counted = settings.results(), settings.counted
            axes = settings.file.axes
            bodies[SETTINGS] = settings_region(settings.claims, settings.data_set, results, counted, axes)
        write_regions(page, {VERDICTS_REGION: overview(self.of, rows, results, counted, first), **bodies})

    def _made(self, figure: str, data_set: str) -> list[str]:
        """How the runs of a figure on a data set were made, each way once."""
        notes: dict[str, None] = {}
        for part, results in self.found.items():
            if (part.figure, part.data_set) == (figure, data_set) and isinstance(results, Results):
                by = made_by(part.path(self.out))
                notes |= {by[run]: None for run in results.table["run"].unique() if by.get(run)}
        return list(notes)

    def _accounted(self, figure: str, data_set: str) -> dict[Column, float]:
        """Column -> the largest of `largest_accounted` of its runs."""
        found: dict[Column, float] = {}
        for part, results in self.found.items():
            if (part.figure, part.data_set) == (figure, data_set) and isinstance(results, Results):
                runs = SweepDirectory(part.path(self.out))
                epsilons = [largest_accounted(runs.run(name)) for name in results.table["run"].unique()]
                known = [epsilon for epsilon in (*epsilons, found.get(part.column)) if epsilon is not None]
                if known:
                    found[part.column] = max(known)
        return found
