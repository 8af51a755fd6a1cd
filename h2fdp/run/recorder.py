"""A run's directory while it runs: inputs first, then whatever was recorded, however the run ends."""

from __future__ import annotations

import errno
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import yaml

from h2fdp.errors import UserError
from h2fdp.methods import name_of
from h2fdp.models import Flat
from h2fdp.records import (
    DEVICE_SCHEMA,
    SCHEMA_VERSION,
    RunDirectory,
    about,
    versions,
    write_columns,
)
from h2fdp.records.atomic import replacing, write_text
from h2fdp.run.checkpoints import Checkpoints, HostsDiffer
from h2fdp.run.fingerprint import run_digest
from h2fdp.run.loop import OnInterval, run_intervals
from h2fdp.run.metric_sinks import sinks_of
from h2fdp.run.model_scores import Scoreboard, device_scores
from h2fdp.run.setup import RunSetup
from h2fdp.run.state import Progress
from h2fdp.runtime import chosen_backend
from h2fdp.runtime.local_hosts import run_arithmetic
from h2fdp.topology import write as write_topology

FINISHED = ("done", "budget spent")  # states of runs that have nothing left to do
_LAST = 20  # intervals whose mean accuracy is reported beside the last one: noisy curves swing
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_log = logging.getLogger(__name__)


def record(
    run: RunSetup,
    directory: RunDirectory,
    progress: Progress,
    on_start: Callable[[], None] | None,
    on_interval: OnInterval | None,
    stop: Callable[[], bool] | None,
) -> None:
    """Run what is not done yet; whatever happens, what was recorded is written."""
    started = time.perf_counter()
    state = "failed"
    directory.write_summary(_summary(run, progress, "running", progress.wall_s))
    checkpoints = Checkpoints(directory, run.config.runtime, run_digest(run, directory))
    backend = chosen_backend(run.config.runtime)
    _log.info("start", extra=about(backend=backend, seed=run.config.seed, done=len(progress.rows)))
    sinks = sinks_of(run.config, directory, progress.rows)

    def seen(row: dict[str, Any]) -> None:
        for sink in sinks:
            sink.add(row)
        if on_interval is not None:
            on_interval(row)

    try:
        state = run_intervals(
            run, directory, progress, checkpoints, on_start or (lambda: None), seen, stop or (lambda: False)
        )
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except HostsDiffer:
        raise  # `resume` goes on with fresh draws
    except Exception as error:
        _log.error("failure", extra=about(interval=len(progress.rows) + 1, error=f"{type(error).__name__}: {error}"))
        raise
    finally:
        wall_s = progress.wall_s + time.perf_counter() - started
        try:
            returned = _write_results(run, directory, progress)
            directory.write_summary(_summary(run, progress, state, wall_s) | returned)
        except OSError:
            if sys.exception() is None:
                raise
        for sink in sinks:
            sink.close(state)
        _log.info("end", extra=about(state=state, intervals=len(progress.rows)))


@contextmanager
def full_disk_told(directory: RunDirectory) -> Iterator[None]:
    """A full disk is the user's to mend, and the run goes on after it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        text = f"the disk is full ({error.strerror}); make room, then go on with: h2fdp resume {directory.path}"
        raise UserError(text, str(error.filename or directory.path)) from None


def record_inputs(run: RunSetup, directory: RunDirectory) -> None:
    """Everything needed to run it again."""
    values = run.config.model_dump(mode="json") | {"topology": directory.topology.name, "sweep": {}, **run.own.names}
    values["runtime"] |= {"backend": chosen_backend(run.config.runtime), "engine": run.blueprint.engine}
    write_text(directory.config, yaml.safe_dump(values, sort_keys=False, width=120))
    write_topology(run.drawn, directory.topology)


def _write_results(run: RunSetup, directory: RunDirectory, progress: Progress) -> dict[str, float]:
    """Write metrics, model and devices' scores; what the model is worth, where it is not the last interval's."""
    progress.rows.write(directory.metrics)
    if progress.cloud is None:
        return {}
    module = run.blueprint.module()
    returned = progress.cloud.returned
    Flat(module).load(module, returned)
    with replacing(directory.model) as file:
        torch.save(module.state_dict(), file)
    with run_arithmetic():
        write_columns(directory.devices, device_scores(run, returned), DEVICE_SCHEMA)
        if torch.equal(returned, progress.cloud.model):
            return {}
        scores = Scoreboard(run).scores_of(returned)
    return {key: scores[key] for key in ("accuracy", "loss")}


def _summary(run: RunSetup, progress: Progress, state: str, wall_s: float) -> dict[str, Any]:
    rows = progress.rows
    scored, losses = rows.column("accuracy"), rows.column("loss")
    recent = [rows[place] for place in range(max(0, len(rows) - _LAST), len(rows))]
    last = [row["accuracy"] for row in recent if "accuracy" in row]
    return {
        "schema_version": SCHEMA_VERSION,
        "name": run.config.name,
        "state": state,
        "method": name_of(run.config.method),
        "seed": run.config.seed,
        "backend": chosen_backend(run.config.runtime),
        "intervals": len(rows),
        "accuracy": scored[-1] if scored else None,
        "best_accuracy": max(scored, default=None),
        f"accuracy_mean_last_{_LAST}": float(np.mean(last)) if last else None,
        "loss": losses[-1] if losses else None,
        **{key: rows[-1][key] if rows else 0.0 for key in ("energy_j", "delay_s", "clock_s")},
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
        "fresh_from": progress.fresh,
        "wall_s": wall_s,
        "versions": versions(),
    }
