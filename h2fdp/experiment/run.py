"""One run from start to end: its directory, its loop, and what is left whatever happens."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml

from h2fdp.errors import UserError
from h2fdp.experiment.ledger_account import RunPrivacy
from h2fdp.experiment.loop import OnInterval, Progress, run_intervals
from h2fdp.experiment.outcome import device_scores
from h2fdp.experiment.preparation import Preparation
from h2fdp.experiment.privacy_watch import PrivacyWatch
from h2fdp.experiment.schema import ExperimentFile
from h2fdp.methods import name_of
from h2fdp.models import Flat, build
from h2fdp.records import (
    DEVICE_SCHEMA,
    SCHEMA_VERSION,
    RunDirectory,
    metrics_schema,
    read_summary,
    versions,
    write_columns,
    write_table,
)
from h2fdp.records.atomic import replacing, write_text
from h2fdp.records.directory import create
from h2fdp.runtime import chosen_backend
from h2fdp.topology import write as write_topology

if TYPE_CHECKING:
    import pandas as pd
_LAST = 20  # intervals whose mean accuracy is reported beside the last one: noisy curves swing


@dataclass(frozen=True)
class Run:
    """A finished (or stopped) run, read from its directory."""

    directory: Path

    @property
    def metrics(self) -> pd.DataFrame:
        """A row for each interval."""
        import pandas as pd

        return pd.read_parquet(self.directory / "metrics.parquet")

    @property
    def devices(self) -> pd.DataFrame:
        """A row for each device: final accuracy and loss."""
        import pandas as pd

        return pd.read_parquet(self.directory / "devices.parquet")

    @property
    def summary(self) -> dict[str, Any]:
        """How the run ended and what it ran with."""
        summary = read_summary(self.directory)
        if summary is None:
            raise UserError("not a run directory: there is no summary.json", str(self.directory))
        return summary

    @property
    def privacy(self) -> RunPrivacy:
        """What each observer holds, recomputed from the ledger: `run.privacy.epsilon(observer="cloud")`."""
        return RunPrivacy(self.directory)

    def model(self) -> torch.nn.Module:
        """The trained model."""
        return load_model(self.directory)


def start_run(
    preparation: Preparation,
    out: Path,
    *,
    overwrite: bool = False,
    on_start: Callable[[], None] | None = None,
    on_interval: OnInterval | None = None,
    stop: Callable[[], bool] | None = None,
    own_parts: dict[str, str] | None = None,
) -> Run:
    """Run a prepared experiment into the directory `out`.

    Args:
        on_start: called when the hosts are up.
        on_interval: called with each row of the metrics.
        stop: asked before each interval; true ends the run cleanly.
        own_parts: configuration keys that stand for a user's own Python objects, and what to write in their place.
    """
    progress = Progress(PrivacyWatch(preparation))
    try:
        _recorded(preparation, out, progress, overwrite, on_start, on_interval, stop, own_parts or {})
    except UserError:
        if progress.directory_made and progress.cloud is None:
            # No host came up, so nothing was released: the mended command finds nothing in its way. Later the ledger
            # may hold releases, and these are never dropped.
            shutil.rmtree(out.resolve())
        raise
    return Run(out)


def _recorded(
    preparation: Preparation,
    out: Path,
    progress: Progress,
    overwrite: bool,
    on_start: Callable[[], None] | None,
    on_interval: OnInterval | None,
    stop: Callable[[], bool] | None,
    own_parts: dict[str, str],
) -> None:
    """Run inside the locked directory; whatever happens, what was recorded is written."""
    started = time.perf_counter()
    with create(out, overwrite) as directory:
        progress.directory_made = True
        state = "failed"
        _write_inputs(preparation, directory, own_parts)
        directory.write_summary(_summary(preparation, progress, "running", 0.0))
        directory.log("start", backend=chosen_backend(preparation.config.runtime), seed=preparation.config.seed)
        try:
            state = run_intervals(
                preparation,
                directory,
                progress,
                on_start or (lambda: None),
                on_interval or (lambda row: None),
                stop or (lambda: False),
            )
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        finally:
            wall_s = time.perf_counter() - started
            _write_results(preparation, directory, progress)
            directory.write_summary(_summary(preparation, progress, state, wall_s))
            directory.log("end", state=state, intervals=len(progress.rows))


def _write_inputs(run: Preparation, directory: RunDirectory, own_parts: dict[str, str]) -> None:
    values = run.config.model_dump(mode="json") | {"topology": directory.topology.name, "sweep": {}} | own_parts
    values["runtime"] |= {"backend": chosen_backend(run.config.runtime), "engine": run.blueprint.engine}
    write_text(directory.config, yaml.safe_dump(values, sort_keys=False, width=120))
    write_topology(run.drawn, directory.topology)


def _write_results(run: Preparation, directory: RunDirectory, progress: Progress) -> None:
    write_table(directory.metrics, progress.rows, metrics_schema(run.data.validation is not None))
    if progress.cloud is None:
        return
    module = run.blueprint.module()
    Flat(module).load(module, progress.cloud.model)
    with replacing(directory.model) as file:
        torch.save(module.state_dict(), file)
    write_columns(directory.devices, device_scores(run, progress.cloud.model), DEVICE_SCHEMA)


def _summary(run: Preparation, progress: Progress, state: str, wall_s: float) -> dict[str, Any]:
    scored = [row["accuracy"] for row in progress.rows if row.get("accuracy") is not None]
    last = [row["accuracy"] for row in progress.rows[-_LAST:] if row.get("accuracy") is not None]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": run.config.name,
        "state": state,
        "method": name_of(run.config.method),
        "seed": run.config.seed,
        "backend": chosen_backend(run.config.runtime),
        "intervals": len(progress.rows),
        "accuracy": scored[-1] if scored else None,
        "best_accuracy": max(scored, default=None),
        f"accuracy_mean_last_{_LAST}": float(np.mean(last)) if last else None,
        "loss": next((row["loss"] for row in reversed(progress.rows) if "loss" in row), None),
        **{key: progress.rows[-1][key] if progress.rows else 0.0 for key in ("energy_j", "delay_s", "clock_s")},
        "leaking": run.leaks,
        "devices": run.topology.devices,
        "edges": run.topology.edges,
        "trusted_edges": sum(subnet.trusted for subnet in run.topology.subnets),
        "parameters": run.initial.numel(),
        "data": run.data.name,
        "shape": list(run.data.shape),
        "classes": run.data.classes,
        "data_fingerprint": run.data.fingerprint(),
        "noise_std": [
            {"kind": kind, "added_by": source, "smallest": low, "largest": high}
            for (kind, source), (low, high) in sorted(progress.noise.items())
        ],
        "privacy": progress.watch.summary() if state != "running" else None,
        "budget_spent_by": progress.spent_by,
        "wall_s": wall_s,
        "versions": versions(),
    }


def load_model(run: str | Path) -> torch.nn.Module:
    """The trained model of a run directory, for a model that the package knows by name.

    Raises:
        UserError: `run` is no run directory, or its model was a user's own class (load `model.pt` into that).
    """
    path = Path(run)
    if not (path / "model.pt").is_file() or not (path / "config.yaml").is_file():
        raise UserError("not a run directory with a model (expected model.pt and config.yaml)", str(path))
    values = yaml.safe_load((path / "config.yaml").read_text())
    state = torch.load(path / "model.pt", weights_only=True)
    if isinstance(values["model"], str):
        raise UserError(f"this run trained a model of your own ({values['model']}); load model.pt into it", str(path))
    summary = read_summary(path) or {}
    section = ExperimentFile.model_fields["model"].annotation
    assert section is not None
    spec = section.model_validate(values["model"])
    module: torch.nn.Module = build(spec.name, tuple(summary["shape"]), summary["classes"], spec.options(), 0)
    module.load_state_dict(state)
    return module
