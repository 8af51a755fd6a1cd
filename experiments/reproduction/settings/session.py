"""A command's work on claims over settings: the runs that are not stored yet, and what all of them say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from experiments.reproduction.claims import Claim
from experiments.reproduction.conduct import commit_of
from experiments.reproduction.decisions import decide
from experiments.reproduction.evaluation import JudgedClaim
from experiments.reproduction.figures_file import Column, Curves
from experiments.reproduction.measures import MEASURES
from experiments.reproduction.plan import Reproduction
from experiments.reproduction.reuse import borrow
from experiments.reproduction.settings.design import Setting, drawn
from experiments.reproduction.settings.file import SettingsFile
from experiments.reproduction.settings.judged import (
    ClaimOverSettings,
    JudgedSetting,
    SettingsResults,
    accuracy_at,
    chosen,
    judged_in,
    over_settings,
    why_not,
)
from experiments.reproduction.settings.kindred import kindred_runs
from experiments.reproduction.settings.stored_runs import RunHead, RunStore, StoredRun, read_runs, stored
from experiments.reproduction.settings.studies import SettingStudies, SettingStudy
from h2fdp.sweeps.conduct import conduct
from h2fdp.sweeps.plan import SharedInputs
from h2fdp.sweeps.pool import WorkOptions
from h2fdp.sweeps.task import Outcome, SweepDirectory

RUNS = "settings.csv"
COLUMNS_OF_CONFIRMED: tuple[Column, ...] = ("claimed", "accounted")


@dataclass
class SettingsSession:
    """Claims over settings, in one command.

    Attributes:
        out: where sweeps are, and the runs of this and earlier commands in `settings.csv`.
        command: how the user said it.
        stored: whether the runs of the checkout's `settings.csv` count.
    """

    of: Reproduction
    file: SettingsFile
    out: Path
    command: str
    stored: bool = True
    shared: SharedInputs = field(default_factory=SharedInputs)
    _known: dict[tuple[str, ...], dict[str, JudgedClaim]] = field(default_factory=dict)  # by recipes

    @cached_property
    def store(self) -> RunStore:
        """The runs that are known."""
        return read_runs(*([self.of.folder / RUNS] if self.stored else []), self.out / RUNS)

    @property
    def data_set(self) -> str:
        """The one on which settings are tried: the first."""
        return next(iter(self.of.file.data_sets))

    def studies(self) -> Iterator[SettingStudy]:
        """What is to be run, one after the other: which come later depends on what the earlier ones found."""
        working: list[tuple[int, Setting]] = []
        for number, setting in self._numbered():
            trial = self._all.trial(number, setting)
            yield trial
            if not why_not(self.file.works, self._runs([trial])):
                working.append((number, setting))
            if len(working) == self.file.design.working:
                break
        again = [] if self.file.confirm is None else self.file.confirm.figures
        choosing = [] if self.file.confirm is None else self.file.confirm.choosing
        yield from self._screens(choosing, working)  # by which is chosen what is run again
        yield from self._confirms(again[:1], COLUMNS_OF_CONFIRMED[:1], dict(working))
        yield from self._screens((figure for figure in self.file.figures if figure not in choosing), working)
        if self.file.decisions is not None:
            for number, setting in enumerate(drawn(self.file.decisions.design, self.file.decisions.axes), 1):
                for figure in self.file.decisions.figures:
                    yield self._all.decisions(number, setting, figure)
        yield from self._confirms(again, COLUMNS_OF_CONFIRMED, dict(working))

    def _screens(self, figures: Iterable[str], working: Iterable[tuple[int, Setting]]) -> Iterator[SettingStudy]:
        for figure in figures:
            for number, setting in working:
                yield self._all.screen(number, setting, figure)

    def _confirms(
        self, figures: Iterable[str], columns: Iterable[Column], settings: Mapping[int, Setting]
    ) -> Iterator[SettingStudy]:
        for figure in figures:
            for column in columns:
                for number in self._chosen().values():
                    yield from self._confirm(number, settings[number], column, [figure])

    def left(self, study: SettingStudy) -> int:
        """How many runs of a study are not stored."""
        return sum(recipe not in self.store.runs for recipe in study.recipes.values())

    def make(self, study: SettingStudy, options: WorkOptions) -> dict[str, Outcome]:
        """Make a study's runs that are neither stored nor finished in its directory, and store them.

        Raises:
            UserError: the directory holds something else, or is in use; runs are there that would differ now.
        """
        path, checked = study.path(self.out), study.study(self.shared)
        if self.of.file.figures[study.figure].decided:
            outcomes = decide(checked, path, self.shared, options)
        else:
            costs, known = self._has_costs(study.figure), self.store.runs
            kindred = kindred_runs(study, checked, self._kindred(study), known, self.shared, with_costs=costs)
            self.store.add(list(kindred))
            left = [planned for planned in checked.runs if study.recipes[planned.point.name] not in known]
            if not left:
                self.store.write(self.out / RUNS)
                return {}
            checked = replace(checked, runs=tuple(left))
            others = sorted(self.out.glob(f"*/{study.setting:02d}/*/sweep.json"))
            borrow(checked, SweepDirectory(path.absolute()),
                   (SweepDirectory(each.parent.absolute()) for each in others if each.parent != path))  # fmt: skip
            outcomes = conduct(checked, path, self.shared, options)
        self.take(study, path)
        return outcomes

    def take(self, study: SettingStudy, path: Path) -> None:
        """Store the finished runs of a study's directory."""
        table = pd.read_parquet(path / "sweep.parquet")
        points = {each.point.name: each.point.values for each in study.study(self.shared).runs}
        ordered = table.sort_values("interval").groupby("run")
        costs = self._has_costs(study.figure)
        taken = []
        for name, rows in ordered:
            if name in points:
                head = RunHead(study.recipes[str(name)], study.stage, study.setting, study.column, study.figure)
                taken.append(stored(head, points[str(name)], rows, with_costs=costs))
        self.store.add(taken, self._made)
        self.store.write(self.out / RUNS)

    def _has_costs(self, figure: str) -> bool:
        return any(MEASURES[claim.measure].has_target for claim in self.claims if claim.figure == figure)

    def _kindred(self, study: SettingStudy) -> Iterator[SettingStudy]:
        """All other studies of training in the setting of one of them."""
        setting = dict(self._numbered())[study.setting]
        yield self._all.trial(study.setting, setting)
        for figure in self.file.figures:
            yield self._all.screen(study.setting, setting, figure)
        for column in COLUMNS_OF_CONFIRMED if self.file.confirm else ():
            yield from self._confirm(study.setting, setting, column)

    @cached_property
    def _made(self) -> str:
        return f"`{self.command}` at {commit_of(self.of.folder)}"

    def results(self) -> SettingsResults:
        """What all stored runs say."""
        confirmed: dict[tuple[str, Column], Mapping[str, JudgedClaim]] = {}
        settings, roles = self._settings(), self._chosen()
        by_number = {each.number: each.setting for each in settings}
        for role, number in roles.items():
            for column in COLUMNS_OF_CONFIRMED:
                found = self._judged(self._confirm(number, by_number[number], column))
                if found:
                    confirmed[role, column] = found
        return SettingsResults(
            settings, self._decisions(), roles, confirmed, tuple(self.store.made), self._chosen_of(settings)
        )

    @cached_property
    def counted(self) -> dict[str, ClaimOverSettings]:
        """Claim -> how often it holds, in the settings that work or in those of the controller."""
        found = self.results()
        working = [each for each in found.settings if not each.why]
        own = {} if self.file.decisions is None else self.file.decisions.axes
        axes, products = {**own, **self.file.axes}, self.file.products
        over = {
            claim.id: over_settings(claim, self.data_set, [*working, *found.decisions], axes, products)
            for claim in self.claims
        }
        return {claim: each for claim, each in over.items() if each.judged}

    @cached_property
    def _all(self) -> SettingStudies:
        return SettingStudies(self.of, self.file)

    @cached_property
    def claims(self) -> list[Claim]:
        """Those that speak of the data set of the settings."""
        return [claim for claim in self.of.claims.claims if self.data_set in claim.paper]

    def _numbered(self) -> list[tuple[int, Setting]]:
        return list(enumerate(drawn(self.file.design, self.file.axes), 1))

    def _confirm(
        self, number: int, setting: Setting, column: Column, figures: Iterable[str] | None = None
    ) -> list[SettingStudy]:
        """Of some figures, or of all that are run again."""
        confirm = self.file.confirm
        assert confirm is not None, "settings were chosen for it"
        known = confirm.figures if column == "claimed" else list(confirm.accounted)
        wanted = known if figures is None else [figure for figure in figures if figure in known]
        return [self._all.confirm(number, setting, figure, column) for figure in wanted]

    def _chosen(self) -> dict[str, int]:
        """Of those that are chosen from."""
        settings = self._settings()
        among = None if self.file.confirm is None else self.file.confirm.among
        return self._chosen_of([each for each in settings if not each.why][:among])

    def _chosen_of(self, settings: Sequence[JudgedSetting]) -> dict[str, int]:
        if self.file.confirm is None:
            return {}
        claims = [claim for claim in self.claims if claim.figure in self.file.confirm.choosing]
        return chosen(claims, self.data_set, settings)

    def _settings(self) -> list[JudgedSetting]:
        found: list[JudgedSetting] = []
        for number, setting in self._numbered():
            trial = self._runs([self._all.trial(number, setting)])
            if not trial or sum(not each.why for each in found) == self.file.design.working:
                break
            why = why_not(self.file.works, trial)
            studies = [self._all.screen(number, setting, figure) for figure in self.file.figures]
            shown = [study for study in studies if study.figure == self.file.trial.figure]
            runs = self._runs(shown) or trial
            plausible = None if self.file.confirm is None else accuracy_at(self.file.confirm.plausible, runs)
            judged = {} if why else self._judged(studies)
            found.append(JudgedSetting(number, setting, why, self._accuracies(runs), plausible, judged))
        return found

    def _decisions(self) -> list[JudgedSetting]:
        decisions, found = self.file.decisions, []
        if decisions is not None:
            for number, setting in enumerate(drawn(decisions.design, decisions.axes), 1):
                judged = self._judged([self._all.decisions(number, setting, figure) for figure in decisions.figures])
                if judged:
                    found.append(JudgedSetting(number, setting, judged=judged))
        return found

    def _accuracies(self, runs: Sequence[StoredRun]) -> dict[str, float]:
        """Of the curves of the trial's figure, by their labels."""
        panels = self.of.file.figures[self.file.trial.figure].panels
        lines = [line for panel in panels if isinstance(panel, Curves) for line in panel.lines]
        found = {line.label: accuracy_at(line.at, runs) for line in lines}
        return {label: accuracy for label, accuracy in found.items() if accuracy is not None}

    def _runs(self, studies: Sequence[SettingStudy]) -> list[StoredRun]:
        """The stored runs of some studies, as the files have them now."""
        known = self.store.runs
        return [known[recipe] for study in studies for recipe in study.recipes.values() if recipe in known]

    def _judged(self, studies: Sequence[SettingStudy]) -> dict[str, JudgedClaim]:
        """Judged once, for as long as the runs are the same: it takes seconds, and is asked for at every choice."""
        runs = self._runs(studies)
        key = tuple(run.recipe for run in runs)
        if key not in self._known:
            self._known[key] = judged_in(self.claims, self.data_set, runs)
        return self._known[key]
