"""A study of networks by one curve: a few runs under noises of all sizes, and a plan of each network that is asked for.

What accuracy depends on is the noise in the last model, where nothing else differs (`run.network_plan`). So a run of
seconds at each of a few levels stands for all networks, which are planned without training. Where more than the noise
differs the study says what, and every network is run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.config import Document
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting, located, named_document, parse_setting
from h2fdp.experiment.sections import ExperimentFile, StudySection
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.records.atomic import json_values, read_checked_json, write_checked_json, write_text
from h2fdp.records.directory import has_content, locked
from h2fdp.run.api import Experiment
from h2fdp.run.identity import package_digest
from h2fdp.run.network_plan import ALIKE, NetworkPlan, plan_of
from h2fdp.run.prelude import distance_of
from h2fdp.run.result import Run
from h2fdp.sweeps.api import SweepProgress, document_of
from h2fdp.sweeps.asked import EPSILON, WHERE, Asked, asked_in
from h2fdp.sweeps.conduct import conduct
from h2fdp.sweeps.curve import SEEDS, Curve, levels_between
from h2fdp.sweeps.grid import SWEEP
from h2fdp.sweeps.plan import SharedInputs, SweepPlan, digest_of, planned_sweep
from h2fdp.sweeps.pool import Stopped, WorkOptions
from h2fdp.sweeps.task import SweepDirectory
from h2fdp.wording import SCORES, Score, judged_by, note, noted_if_long, progress_bar

MOST_RUNS = 60  # of networks that have to be run: more are a sweep of the user's


class NetworkPlans:
    """Plans of networks, each made once and kept in a file.

    Args:
        path: of the file; what other code of h2fdp has planned is planned again.
    """

    def __init__(self, shared: SharedInputs, path: Path) -> None:
        self._shared, self._path, self._code = shared, path, package_digest()
        kept = read_checked_json(path) or {}
        self._known: dict[str, Any] = kept.get("plans", {}) if kept.get("code") == self._code else {}

    def of(self, document: Document, settings: Sequence[Setting]) -> NetworkPlan:
        """The plan of a document that settings change."""
        config, topology = self._shared.experiment(document, settings)
        digest = digest_of(config, self._shared.network(topology))
        if digest not in self._known:
            try:
                self._known[digest] = asdict(plan_of(self._shared.planned(config, topology)))
            except UserError as error:
                raise located(error, document, settings) from error.__cause__
        return NetworkPlan(**self._known[digest])

    def keep(self) -> None:
        """Write the file."""
        write_checked_json(self._path, {"code": self._code, "plans": self._known}, indent=None)


@dataclass(frozen=True)
class Studied:
    """A study that was carried out.

    Attributes:
        name: of the file.
        directory: where its files are.
        score: by which runs are judged, a name in `SCORES`.
        networks: as they were asked for.
        curve: None where accuracy depends on more than the noise, so that all networks were run.
        why: on what else it depends; empty where there is a curve.
        runs: noise and score of each run of the curve.
        joules: the most that a run may spend; None for any number.
    """

    name: str
    directory: Path
    score: str
    networks: list[Asked]
    curve: Curve | None
    why: str = ""
    runs: list[tuple[float, float]] = field(default_factory=list)
    joules: float | None = None

    @property
    def table(self) -> Any:
        """A frame of pandas with a row for each network: what varies, its plan, its score and what was measured."""
        import pandas as pd

        return pd.DataFrame([each.row for each in self.networks])

    @property
    def best(self) -> Asked | None:
        """The network of the best score that spends no more than `joules`; None where all spend more."""
        affordable = [each for each in self.networks if each.plan and each.plan.joules <= (self.joules or np.inf)]
        signed = SCORES[self.score].signed
        known = [(signed(each.score if self.curve else each.measured), each) for each in affordable]
        return max(known, key=lambda each: each[0], default=(0.0, None))[1]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [each.row for each in self.networks]
        best = None if self.best is None else self.best.row
        runs = [{"noise": noise, "score": score} for noise, score in self.runs]
        known = {"name": self.name, "directory": str(self.directory), "score": self.score, "depends": self.why}
        return known | {"joules": self.joules, "runs": runs, "best": best, "networks": rows}


@dataclass(frozen=True)
class CurveMaker:
    """The experiment of a study, whose networks are planned and run.

    Attributes:
        settings: of the command line.
        directory: of the study.
    """

    document: Document
    settings: tuple[Setting, ...]
    shared: SharedInputs
    options: WorkOptions
    directory: Path

    @cached_property
    def plans(self) -> NetworkPlans:
        """The plans in the study's directory."""
        return NetworkPlans(self.shared, self.directory / _PLANS)

    def plan(self, networks: Sequence[Asked]) -> str:
        """Plan networks, and say what accuracy depends on besides noise; empty for nothing."""
        with noted_if_long(f"planning {len(networks)} networks"):
            for each in networks:
                each.plan = self.plans.of(self.document, (*self.settings, *each.settings))
        self.plans.keep()
        plans = [each.plan for each in networks if each.plan is not None]
        records = [each.records for each in plans]
        if max(records) > (1 + ALIKE) * min(records):
            return f"the networks have different numbers of records ({min(records):,} to {max(records):,})"
        return next((each.depends for each in plans if each.depends), "")

    def curve(self, networks: Sequence[Asked], folder: str) -> tuple[Curve, list[tuple[float, float]], str]:
        """The curve over the noises of planned networks, its runs, and the name of its score.

        The runs are of the smallest of these networks, at the epsilons that give it noise of each level.

        Args:
            folder: of the runs, in the study's directory.
        """
        plans = [each.plan for each in networks if each.plan is not None]
        at = min(range(len(plans)), key=lambda number: plans[number].devices)
        base, own, noises = plans[at], (*self.settings, *networks[at].settings), [each.noise for each in plans]
        config, _ = self.shared.experiment(self.document, own)
        delta, whole = config.privacy.delta, distance_of(config.privacy.epsilon, config.privacy.delta)
        epsilons = sorted(
            float(f"{gaussian_epsilon(whole * base.noise / level, delta):.3g}")
            for level in levels_between(min(noises), max(noises))
        )
        grid = {EPSILON: list(dict.fromkeys(epsilons)), "seed": [config.seed + number for number in range(SEEDS)]}
        rest = [each for each in own if each.key not in grid]
        runs = self.run(folder, rest, grid)
        with noted_if_long("planning the runs of the curve"):
            noise = [self.plans.of(self.document, (*rest, *settings)).noise for settings, _ in runs]
        self.plans.keep()
        score, scores = _last_scores(runs)
        levels = [next(each.value for each in settings if each.key == EPSILON) for settings, _ in runs]
        return Curve.of_runs(noise, scores, score.falls, levels), list(zip(noise, scores, strict=True)), score.column

    def sweep(self, networks: Sequence[Asked]) -> tuple[list[Setting], dict[str, Any]]:
        """The settings and the grid of a sweep with a run of each of these networks."""
        values = [{each.key: each.value for each in network.settings} for network in networks]
        fixed = [each for each in networks[0].settings if all(of[each.key] == each.value for of in values)]
        fixed = fixed if len(networks) > 1 else [each for each in fixed if each.key != EPSILON]
        keys = [key for key in values[0] if key not in {each.key for each in fixed}]
        grid = {", ".join(keys): [[each[key] for key in keys] if len(keys) > 1 else each[keys[0]] for each in values]}
        return [*self.settings, *fixed], grid

    def measure(self, name: str, networks: Sequence[Asked]) -> str:
        """Run these networks; the name of their score."""
        runs = self.run(name, *self.sweep(networks))
        score, scores = _last_scores(runs)
        for network, measured in zip(networks, scores, strict=True):
            network.measured = measured
        return score.column

    def of_grid(self, base: Sequence[Setting], grid: dict[str, Any]) -> SweepPlan:
        """A sweep of the study's experiment."""
        return planned_sweep(self.document.copy(), [*base, Setting(SWEEP, grid, WHERE)], self.shared)

    def run(self, name: str, base: Sequence[Setting], grid: dict[str, Any]) -> list[tuple[tuple[Setting, ...], Run]]:
        """The runs of a grid as a sweep in a folder of the study's directory, with the settings of each.

        Raises:
            UserError: a run failed, or the work was stopped.
        """
        study = self.of_grid(base, grid)
        directory = self.directory / name
        outcomes = conduct(study, directory, self.shared, self.options)
        if failed := {point: each for point, each in outcomes.items() if each.error}:
            point, first = next(iter(failed.items()))
            raise UserError(f"{len(failed)} of {len(study.runs)} runs failed: {first.reason}", str(directory), point)
        at = SweepDirectory(directory)
        names = [each.point.name for each in study.runs]
        if len(done := at.finished(names)) < len(names):
            raise Stopped(f"stopped: {len(done)} of {len(names)} runs are done; run the same command to continue")
        return [(each.point.settings, Run(at.run(each.point.name))) for each in study.runs]


_PLANS = "plans.json"


def _last_scores(runs: Sequence[tuple[Any, Run]]) -> tuple[Score, list[float]]:
    """The score that runs are judged by, and that of each at its end."""
    score = judged_by(runs[0][1].summary)
    return score, [float(run.metrics[score.column].iloc[-1]) for _, run in runs]


def directory_of(config: ExperimentFile, out: Path | None) -> Path:
    """The directory of a study: by default of the experiment's name.

    Raises:
        UserError: there is something else.
    """
    directory = Path("studies") / config.name if out is None else out
    if has_content(directory, WHERE, str(directory)) and not (directory / _PLANS).exists():
        raise UserError("the directory contains something other than a study; choose another --out", str(directory))
    return directory


def carry_out(
    document: Document,
    settings: Sequence[Setting],
    shared: SharedInputs,
    options: WorkOptions,
    out: Path | None = None,
    verify: int = 0,
) -> Studied:
    """A study as its file says, in its directory.

    Args:
        verify: of how many networks to measure what the curve says, spread over the noises.

    Raises:
        UserError: a wrong file; more networks than are run, where accuracy depends on more than noise.
        Stopped: by the user.
    """
    config, _ = shared.experiment(document, settings)
    section = config.study or StudySection()
    directory = directory_of(config, out)
    networks = asked_in(document, settings, section, config.privacy.epsilon)
    with locked(directory, str(directory), WHERE):
        maker = CurveMaker(document, tuple(settings), shared, options, directory)
        why = maker.plan(networks)
        curve: Curve | None = None
        runs: list[tuple[float, float]] = []
        if why and len(networks) > MOST_RUNS:
            write_text(file := directory / "sweep.yaml", maker.of_grid(*maker.sweep(networks)).text())
            text = f"no curve stands for these networks: {why}. All {len(networks)} would have to be run"
            raise UserError(f"{text}; expected at most {MOST_RUNS} networks, or: h2fdp sweep {file}", key=WHERE)
        if why:
            note(f"no curve stands for these networks, which are all run: {why}")
            score = maker.measure("networks", networks)
        else:
            curve, runs, score = maker.curve(networks, "curve")
            for each in networks:
                assert each.plan is not None, "it was planned"
                each.score, each.half = float(curve(each.plan.noise)), float(curve.band(each.plan.noise))
            if verify:
                maker.measure("verified", spread(networks, verify))
        studied = Studied(config.name, directory, score, networks, curve, why, runs, section.joules)
        write_text(directory / "study.csv", studied.table.to_csv(index=False))
        write_text(directory / "study.json", json.dumps(json_values(studied.as_dict()), indent=1))
    return studied


def spread(networks: Sequence[Asked], number: int) -> list[Asked]:
    """So many networks, from the least noise to the most."""
    ordered = sorted(networks, key=lambda each: 0.0 if each.plan is None else each.plan.noise)
    places = np.linspace(0, len(ordered) - 1, min(number, len(ordered))).round().astype(int)
    return [ordered[at] for at in dict.fromkeys(places.tolist())]


def study(
    file: str | Path | Experiment,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    *,
    verify: int = 0,
    data_root: str | Path | None = None,
    jobs: int = 1,
    overwrite: bool = False,
    progress: bool | None = None,
    **asked: Any,
) -> Studied:
    """Study the networks of a file's `study:` section, or of an experiment that Python made, by one curve.

    Args:
        file: an experiment's file, or an `Experiment`.
        settings: as `--set` takes them.
        out: the study's directory, by default `studies/<name>`; what is there is used again.
        verify: how many of the networks to run, to see what the curve says of them.
        jobs: runs at a time; short ones are faster one after another.
        overwrite: repeat runs whose configuration or code has changed.
        asked: keys of the section in place of the file's: `trust=[0, 0.5, 1]`, `epsilon=[0.5, 1, 3]`.

    Raises:
        UserError: a wrong value; a method without noise; a run that fails; more networks than are run, where accuracy
            depends on more than the noise.
    """
    shared = SharedInputs(None if data_root is None else Path(data_root))
    if isinstance(file, Experiment):
        document, own = document_of(file, Path("studies") if out is None else Path(out).parent)
    else:
        document, own = named_document(Path(file)), ()
    changes = [*own, *map(parse_setting, settings), *(Setting(f"study.{key}", each) for key, each in asked.items())]
    with progress_bar(1, progress) as bar:
        options = WorkOptions(jobs, overwrite, SweepProgress(bar))
        return carry_out(document, changes, shared, options, None if out is None else Path(out), verify)
