"""The plan of a reproduction: figures, claims, and the study of each part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.reproduction.claims import ClaimsFile
from experiments.reproduction.figures_file import COLUMNS, Column, FiguresFile
from experiments.reproduction.points import points_of
from experiments.reproduction.results import combinations_at, from_table
from h2fdp.config import Document, check, read_document
from h2fdp.errors import Problem, UserError, not_one_of
from h2fdp.experiment.file import Setting, named_document
from h2fdp.sweeps.grid import points_of as grid_of
from h2fdp.sweeps.grid import word
from h2fdp.sweeps.plan import SharedInputs, SweepPlan, planned_sweep

FIGURES, CLAIMS = "figures.yaml", "claims.yaml"


@dataclass(frozen=True)
class FigurePart:
    """A figure on a data set, with noise by the formula or by the account."""

    figure: str
    data_set: str
    column: Column

    def path(self, out: Path) -> Path:
        """Its directory in that of a reproduction."""
        return out / self.data_set / self.column / self.figure


@dataclass(frozen=True)
class Reproduction:
    """What a folder of experiments has to reproduce, checked.

    Attributes:
        folder: of the two files and the figures' sweeps.
        document: of the file of the figures.
    """

    folder: Path
    document: Document
    file: FiguresFile
    claims: ClaimsFile

    def parts(self, figures: Iterable[str], data_sets: Iterable[str], quick: bool = False) -> Iterator[FigurePart]:
        """All parts of some figures on some data sets, as far as the paper shows them."""
        wanted = list(data_sets)
        for name in figures:
            for data_set in self.file.figures[name].data_sets:
                for column in self.columns(name, data_set, quick) if data_set in wanted else ():
                    yield FigurePart(name, data_set, column)

    def columns(self, figure: str, data_set: str, quick: bool) -> Iterable[Column]:
        """Those of a figure; the first, where it has one only."""
        return COLUMNS if self.one_column(figure, data_set, quick) is None else ("claimed",)

    def one_column(self, figure: str, data_set: str, quick: bool) -> str | None:
        """Why a figure has no second column; None where it has one."""
        shown = self.file.figures[figure]
        if shown.fitted is not None and (quick or data_set != shown.data_sets[0]):
            return shown.fitted
        return "a table has one column" if shown.one_column is None and shown.table is not None else shown.one_column

    def table(self, figure: str) -> Path | None:
        """The CSV of a table; None of a figure with a sweep."""
        name = self.file.figures[figure].table
        return None if name is None else self.folder / name

    def study(self, part: FigurePart, quick: bool, shared: SharedInputs) -> SweepPlan:
        """The study of a part, every run checked.

        Raises:
            UserError: every problem of its file or of the changes.
        """
        return planned_sweep(*self._source(part, quick), shared)

    def _source(self, part: FigurePart, quick: bool) -> tuple[Document, list[Setting]]:
        figure = self.file.figures[part.figure]
        assert figure.file is not None, "a table has no study"
        at: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            (("data_sets", part.data_set, "set"), self.file.data_sets[part.data_set].set)
        ]
        if quick:
            at += [(("quick",), self.file.quick), (("figures", part.figure, "quick"), figure.quick)]
        if part.column == "accounted" and figure.accounted is None:
            at.append((("accounted",), self.file.accounted))
        elif part.column == "accounted":
            at.append((("figures", part.figure, "accounted"), figure.accounted or {}))
        changes = {key: Setting(key, value, self.document.where((*path, key))) for path, keys in at
                   for key, value in keys.items()}  # fmt: skip
        return named_document(self.folder / figure.file), list(changes.values())


def read_reproduction(folder: Path) -> Reproduction:
    """Read a folder's figures and claims.

    Raises:
        UserError: every problem of the two files; points that a figure's grid has not, or has several of.
    """
    if not (folder / FIGURES).is_file():
        text = f"no {FIGURES} here; expected the experiments folder of a checkout of h2fdp (--experiments)"
        raise UserError(text, str(folder))
    document, claimed = read_document(folder / FIGURES), read_document(folder / CLAIMS)
    found = _with_alike(Reproduction(folder, document, check(FiguresFile, document), check(ClaimsFile, claimed)))
    problems = [*_strange_data_sets(found), *_strange_claims(found, claimed), *_strange_panels(found)]
    if problems:
        raise UserError(problems)
    return found


def _with_alike(of: Reproduction) -> Reproduction:
    """Data sets that are like another one have its figures and claims."""
    alike = [(name, data_set.like) for name, data_set in of.file.data_sets.items() if data_set.like is not None]
    figures = {
        name: figure.model_copy(
            update={"data_sets": [*figure.data_sets, *(new for new, old in alike if old in figure.data_sets)]}
        )
        for name, figure in of.file.figures.items()
    }
    claims = [
        claim.model_copy(
            update={"paper": {**claim.paper, **{new: claim.paper[old] for new, old in alike if old in claim.paper}}}
        )
        for claim in of.claims.claims
    ]
    return replace(
        of,
        file=of.file.model_copy(update={"figures": figures}),
        claims=of.claims.model_copy(update={"claims": claims}),
    )


def _strange_data_sets(of: Reproduction) -> Iterator[Problem]:
    for name, shown in of.file.data_sets.items():
        if shown.like is not None and shown.like not in of.file.data_sets:
            yield _unknown(of.document, ("data_sets", name, "like"), shown.like, of.file.data_sets)
    for name, figure in of.file.figures.items():
        for data_set in figure.data_sets:
            if data_set not in of.file.data_sets:
                path = ("figures", name, "data_sets")
                yield _unknown(of.document, path, data_set, of.file.data_sets)


def _strange_claims(of: Reproduction, document: Document) -> Iterator[Problem]:
    """Claims about figures, data sets and points that are not there, and two of one name."""
    first: dict[str, int] = {}
    for number, claim in enumerate(of.claims.claims):
        path: tuple[str | int, ...] = ("claims", number)
        if first.setdefault(claim.id, number) != number:
            yield Problem("another claim has this id", document.where((*path, "id")), document.key((*path, "id")))
        if claim.figure not in of.file.figures:
            yield _unknown(document, (*path, "figure"), claim.figure, of.file.figures)
            continue
        shown = of.file.figures[claim.figure].data_sets
        for data_set in claim.paper:
            if data_set not in shown:
                yield _unknown(document, (*path, "paper"), data_set, shown)
        yield from _strange_points(of, claim.figure, claim.points, document, (*path, "points"))


def _strange_panels(of: Reproduction) -> Iterator[Problem]:
    for name, figure in of.file.figures.items():
        for number, panel in enumerate(figure.panels):
            path: tuple[str | int, ...] = ("figures", name, "panels", number)
            if panel.kind == "levels":
                ladders = [line.points for line in panel.lines]
                yield from _strange_points(of, name, ladders, of.document, path)
                for ladder in ladders:
                    if len(points_of(ladder)) != len(panel.x):
                        text = f"expected {len(panel.x)} points, one for each x, found {len(points_of(ladder))}"
                        yield Problem(text, of.document.where(path), of.document.key(path))
            else:
                yield from _strange_points(of, name, [[line.at for line in panel.lines]], of.document, path)


def _strange_points(
    of: Reproduction, figure: str, ladders: Iterable[Any], document: Document, path: tuple[str | int, ...]
) -> Iterator[Problem]:
    file, grid = _grid(of, figure)
    for ladder in ladders:
        for point in points_of(ladder):
            count = combinations_at(grid, point)
            if count != 1:
                has = f"has {count} of it; name more of its keys" if count else "has it not"
                text = f"expected a point of the grid of {file}, which {has}: {word(point)}"
                yield Problem(text, document.where(path), document.key(path))


def _grid(of: Reproduction, figure: str) -> tuple[str, list[Any]]:
    """The file of a figure's runs, and their swept values."""
    shown, table = of.file.figures[figure], of.table(figure)
    if table is None:
        assert shown.file is not None, "a sweep or a table"
        return shown.file, [point.values for point in grid_of(named_document(of.folder / shown.file))]
    return table.name, [
        dict(values) for name in shown.data_sets for values in from_table(table, name, shown.keys).values.values()
    ]


def _unknown(document: Document, path: tuple[str | int, ...], found: str, known: Iterable[str]) -> Problem:
    return Problem(not_one_of(found, list(known)), document.where(path), document.key(path))
