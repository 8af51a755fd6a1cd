"""What the controller decides in the runs of a study, without training.

tau_k and s_c^k depend on the channels, the slot and the constants of the noise, on nothing that is learned
(`tests/reproduction/test_reproducing.py` compares with trained runs): so they cost seconds, not hours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from h2fdp.errors import UserError
from h2fdp.records.atomic import replacing
from h2fdp.records.directory import locked
from h2fdp.run.identity import package_digest
from h2fdp.run.setup import RunSetup
from h2fdp.schedules.registry import chosen
from h2fdp.sweeps.conduct import RUN
from h2fdp.sweeps.plan import PlannedRun, SharedInputs, SweepPlan
from h2fdp.sweeps.pool import WorkOptions
from h2fdp.sweeps.task import Outcome, SweepDirectory, SweepEntry, read_entries, write_entries

DECIDED = "decided"


def decide(study: SweepPlan, path: Path, shared: SharedInputs, options: WorkOptions) -> dict[str, Outcome]:
    """Write `sweep.json` and `sweep.parquet` of a study as a sweep does, the latter with what was decided.

    Its rows: `run`, the swept keys, `interval`, `local_steps` (tau_k), `devices_per_subnet` (the mean of s_c^k over
    the subnets).

    Raises:
        UserError: a study without control; the directory holds something else, or is in use.
    """
    directory = SweepDirectory(path.absolute())
    code = package_digest()
    wanted = {each.point.name: SweepEntry(each.point.values, each.digest, code, DECIDED) for each in study.runs}
    before = read_entries(directory)
    with locked(directory.path, str(path), "sweep"):
        if before == wanted and directory.table.is_file():
            return {}
        options.watcher.begin(len(study.runs), 0, len(study.runs))
        tables: list[pd.DataFrame] = []
        for planned in study.runs:
            if options.stop():
                return {}
            tables.append(_decided(study, planned, shared, options))
        write_entries(directory, study.name, study.keys, wanted)
        with replacing(directory.table) as file:
            pd.concat(tables, ignore_index=True).to_parquet(file, index=False)
    return {name: Outcome(DECIDED) for name in wanted}


def _decided(study: SweepPlan, planned: PlannedRun, shared: SharedInputs, options: WorkOptions) -> pd.DataFrame:
    name = planned.point.name
    options.watcher.started(name, 0, 1)
    config, topology = shared.experiment(study.document, planned.settings)
    if not chosen(config.method.schedule).controlled:
        raise UserError("there are no decisions without control; expected control.enabled: true", name)
    rows = decisions(shared.prepare(config, topology))
    options.watcher.interval(name, {"interval": 1})
    options.watcher.ended(name, Outcome("done"), False)
    return pd.DataFrame([{RUN: name, **planned.point.values, **row} for row in rows])


def decisions(run: RunSetup) -> list[dict[str, Any]]:
    """Interval by interval.

    Raises:
        UserError: control that is told what finished intervals cost, which only training can tell.
    """
    if not run.config.control.is_algorithm_1:
        text = "these depend on what finished intervals cost; expected no budget and no target"
        raise UserError(text, run.config.name, "control")
    schedule, slot, found = run.schedule(), 0, []
    for interval in range(run.config.training.intervals):
        if schedule.ends(slot):
            break
        decision = schedule.decide(interval, slot)
        slot += decision.local_steps
        devices = float(decision.participation.mean())
        found.append({"interval": interval + 1, "local_steps": decision.local_steps, "devices_per_subnet": devices})
    return found
