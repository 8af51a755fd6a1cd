"""The study of a figure in one setting, and what becomes a line of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from experiments.reproduction.figures_file import Column
from experiments.reproduction.plan import Reproduction
from experiments.reproduction.results import SEED
from experiments.reproduction.settings.file import SETTINGS, SettingsFile
from h2fdp.config import Document, empty_document
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting, named_document
from h2fdp.records.atomic import hash_of
from h2fdp.sweeps.grid import SWEEP, points_of
from h2fdp.sweeps.plan import SharedInputs, SweepPlan, planned_sweep

_LONG_ENOUGH = 12  # letters of a recipe: among thousands of runs no two agree


@dataclass(frozen=True)
class SettingStudy:
    """A figure's runs in one setting.

    Attributes:
        changes: dotted key -> value, of every run.
        grid: what is swept, seeds among it.
    """

    of: Reproduction
    stage: str
    setting: int
    column: Column
    figure: str
    changes: Mapping[str, Any]
    grid: Mapping[str, Any]

    def path(self, out: Path) -> Path:
        """Its directory: a sweep's."""
        return out / self.stage / f"{self.setting:02d}" / f"{self.figure}-{self.column}"

    @cached_property
    def recipes(self) -> dict[str, str]:
        """Name of a run -> a digest of all that it is made from."""
        common = [_written(self._file), json.dumps(dict(self.changes), sort_keys=True)]
        grid = empty_document(SETTINGS, self.of.folder, {SWEEP: dict(self.grid)})
        return {
            point.name: hash_of([*common, json.dumps(point.values, sort_keys=True)])[:_LONG_ENOUGH]
            for point in points_of(grid)
        }

    def study(self, shared: SharedInputs) -> SweepPlan:
        """The study itself, every run checked.

        Raises:
            UserError: every problem of it.
        """
        where = str(self.of.folder / SETTINGS)
        settings = [Setting(key, value, where) for key, value in (*self.changes.items(), (SWEEP, dict(self.grid)))]
        return planned_sweep(_document(self._file).copy(), settings, shared)

    @property
    def _file(self) -> Path:
        file = self.of.file.figures[self.figure].file
        assert file is not None, "checked when the settings were read"
        return self.of.folder / file


@cache  # files are taken not to change while a command works
def _written(file: Path) -> str:
    """What a study's file says, but for what it sweeps itself."""
    return json.dumps({key: value for key, value in _document(file).values().items() if key != SWEEP}, sort_keys=True)


@cache
def _document(file: Path) -> Document:
    return named_document(file)


@dataclass(frozen=True)
class SettingStudies:
    """All studies that a file of settings asks for."""

    of: Reproduction
    file: SettingsFile

    def trial(self, number: int, setting: Mapping[str, Any]) -> SettingStudy:
        """The runs that say whether training works."""
        trial = self.file.trial
        return self._study("trial", number, setting, trial.figure, trial.seeds, trial.intervals, trial.sweep)

    def screen(self, number: int, setting: Mapping[str, Any], figure: str) -> SettingStudy:
        """A figure's runs in a setting that works."""
        screen = self.file.screen
        grid = self.file.figures[figure]
        return self._study("screen", number, setting, figure, screen.seeds, screen.intervals, grid)

    def confirm(self, number: int, setting: Mapping[str, Any], figure: str, column: Column) -> SettingStudy:
        """The same at full length, under fresh seeds, in one of the columns."""
        confirm = self.file.confirm
        assert confirm is not None, "asked for only where there is one"
        grid = self.file.figures[figure] if column == "claimed" else confirm.accounted[figure]
        changes = {**setting, **confirm.changes}
        seeds = confirm.seeds_of.get(figure, confirm.seeds)
        return self._study("confirm", number, changes, figure, seeds, confirm.intervals, grid, column)

    def decisions(self, number: int, setting: Mapping[str, Any], figure: str) -> SettingStudy:
        """What the controller decides in a setting of its own."""
        decisions = self.file.decisions
        assert decisions is not None, "asked for only where there are some"
        values = {key: value for key, value in setting.items() if key != WEIGHT}
        name = self.of.file.figures[figure].file
        assert name is not None, "checked when the settings were read"
        swept = _document(self.of.folder / name).values()[SWEEP]
        grid = {key: value for key, value in swept.items() if key != SEED}
        if WEIGHT in setting:
            grid = _replaced(grid, decisions.figures[figure], setting[WEIGHT])
        changes = {**decisions.changes, **values, "training.intervals": decisions.intervals}
        return SettingStudy(
            self.of, "decisions", number, "claimed", figure, changes, {SEED: list(decisions.seeds), **grid}
        )

    def _study(
        self,
        stage: str,
        number: int,
        setting: Mapping[str, Any],
        figure: str,
        seeds: Sequence[int],
        intervals: int,
        grid: Mapping[str, Any],
        column: Column = "claimed",
    ) -> SettingStudy:
        changes = {**self.file.changes, **setting, "training.intervals": intervals}
        return SettingStudy(self.of, stage, number, column, figure, changes, {SEED: list(seeds), **grid})


WEIGHT = "weight"


def _replaced(grid: Mapping[str, Any], column: str, value: float) -> dict[str, Any]:
    """A grid in which one column has one value; combinations that come twice then are one.

    >>> _replaced({"a, b": [[1, 2], [1, 3], [2, 3]]}, "b", 7)
    {'a, b': [[1, 7], [2, 7]]}
    """
    found: dict[str, Any] = {}
    for written, items in grid.items():
        keys = [key.strip() for key in written.split(",")]
        if column in keys and len(keys) > 1:
            at = keys.index(column)
            changed = [[*item[:at], value, *item[at + 1 :]] for item in items]
            found[written] = [item for number, item in enumerate(changed) if item not in changed[:number]]
        else:
            found[written] = [value] if written == column else items
    return found


def check_figures(of: Reproduction, file: SettingsFile) -> None:
    """Refuse figures that have no sweep.

    Raises:
        UserError: for each of them.
    """
    decided = () if file.decisions is None else file.decisions.figures
    for figure in (*file.figures, file.trial.figure, *decided):
        if figure not in of.file.figures or of.file.figures[figure].file is None:
            known: Iterable[str] = (name for name, shown in of.file.figures.items() if shown.file is not None)
            text = f"expected a figure with a sweep, one of {', '.join(known)}, found {figure}"
            raise UserError(text, str(of.folder / SETTINGS), "figures")
