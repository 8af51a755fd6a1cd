"""Sinks of a run's metrics while it runs, other than its files: a notebook or terminal, TensorBoard, MLflow, W&B.

A further place is a `Sink`, and a line in `sinks_of`.
"""

from __future__ import annotations

import logging
import math
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, ClassVar

from h2fdp.config.parsing import dotted
from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.protocol import IntervalPlan
from h2fdp.records.atomic import write_text
from h2fdp.records.directory import RunDirectory
from h2fdp.records.log import about
from h2fdp.run.live_accounts import Row
from h2fdp.run.recorders import OnInterval, Recorder, RunCallbacks
from h2fdp.run.setup import accountant_of
from h2fdp.wording import advance, progress_bar, short_score


@contextmanager
def shown(total: int, progress: bool | None, on_interval: OnInterval | None) -> Iterator[RunCallbacks]:
    """The callbacks of a run from Python: its progress, and the user's own function."""
    with progress_bar(total, progress) as bar:

        def both(row: dict[str, Any]) -> None:
            advance(bar, row["interval"], short_score(row))
            if on_interval is not None:
                on_interval(row)

        yield RunCallbacks(on_interval=both)


_log = logging.getLogger(__name__)
_EVENTS = "tensorboard"
_MLFLOW_RUN, _WANDB_RUN = "mlflow-run", "wandb-run"


class Sink(Recorder):
    """Takes a run's metrics elsewhere."""

    def close(self, end: str) -> None:
        """The run ends here, for now."""


@contextmanager
def _installed(name: str, extra: str, off: str) -> Iterator[None]:
    """Around the imports of a library that an extra of h2fdp installs; `off` is the value that does without it."""
    try:
        yield
    except ImportError:
        text = f"{name} is not installed; run pip install 'h2fdp[{extra}]', or set this to {off}"
        raise UserError(text, key=f"tracking.{extra}") from None


class _TensorBoard(Sink):
    """Rewritten from the recorded rows when a run is resumed, so that no step appears twice."""

    def __init__(self, directory: RunDirectory, rows: Iterable[Row], accountant: str) -> None:
        with _installed("TensorBoard", "tensorboard", "false"):
            from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
            from torch.utils.tensorboard import FileWriter
        self._accountant = accountant
        self._time = time.time() - sum(row["wall_s"] for row in rows)
        folder = directory.path / _EVENTS
        shutil.rmtree(folder, ignore_errors=True)
        self._writer, self._summary, self._flushed = FileWriter(str(folder)), Summary, -math.inf
        for row in rows:
            self._add(row)

    def _add(self, row: Row) -> None:
        self._time += row["wall_s"]
        values = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars(row, self._accountant).items()
        ]
        self._writer.add_summary(self._summary(value=values), row["interval"], self._time)

    def after(self, plan: IntervalPlan, row: Row) -> None:
        self._add(row)
        if time.monotonic() - self._flushed >= 1.0:  # which waits for another thread: a twentieth of a short interval
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self, end: str) -> None:
        self._writer.close()


class _Server(Sink):
    """A run of a server, whose id is kept in the run directory, for a later resume.

    Attributes:
        name: of the service.
    """

    name: ClassVar[str]
    _silent = False

    def _tell(self, words: Callable[[], Any]) -> None:
        """A server that went away ends no run."""
        if self._silent:
            return
        try:
            words()
        except Exception as error:
            self._silent = True
            note = f"{self.name} no longer answers; tracking to it ends here: {error}"
            _log.warning(self.name.lower(), extra=about(note=note))

    @staticmethod
    def _unreachable(server: str, error: Exception, hint: str, key: str) -> UserError:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return UserError(f"{server} does not answer: {reason}{hint}", key=key)


class _MLflow(_Server):
    name = "MLflow"

    def __init__(self, directory: RunDirectory, uri: str, config: ExperimentFile) -> None:
        with _installed("MLflow", "mlflow", "null"):
            from mlflow import MlflowClient
            from mlflow.entities import Metric
        self._metric, self._accountant = Metric, accountant_of(config)
        kept = directory.path / _MLFLOW_RUN
        try:
            self._client = MlflowClient(tracking_uri=uri)
            if not kept.exists():
                earlier = self._client.get_experiment_by_name(config.name)
                experiment = self._client.create_experiment(config.name) if earlier is None else earlier.experiment_id
                run = self._client.create_run(experiment, run_name=directory.path.name).info.run_id
                for key, value in _parameters(config).items():
                    self._client.log_param(run, key, value)
                write_text(kept, run)
            self._run = kept.read_text()
        except Exception as error:  # whatever its client and server raise
            hint = "" if "://" in uri else "; MLflow may take no folders any more: try sqlite:///runs.db"
            raise self._unreachable(f"MLflow at {uri}", error, hint, "tracking.mlflow") from None

    def after(self, plan: IntervalPlan, row: Row) -> None:
        now, columns = int(time.time() * 1000), scalars(row, self._accountant)
        metrics = [self._metric(key, value, now, row["interval"]) for key, value in columns.items()]
        self._tell(lambda: self._client.log_batch(self._run, metrics))

    def close(self, end: str) -> None:
        state = "FINISHED" if _is_finished(end) else "KILLED"
        self._tell(lambda: self._client.set_terminated(self._run, state))


class _WandB(_Server):
    """Steps that a resumed run repeats are there already; W&B keeps the first."""

    name = "W&B"

    def __init__(self, directory: RunDirectory, project: str, config: ExperimentFile) -> None:
        with _installed("Weights & Biases", "wandb", "null"):
            import wandb
        self._accountant = accountant_of(config)
        kept = directory.path / _WANDB_RUN
        if not kept.exists():
            write_text(kept, secrets.token_hex(4))
        try:
            self._run = wandb.init(
                project=project,
                name=directory.path.name,
                id=kept.read_text(),
                resume="allow",
                config=_parameters(config),
                dir=str(directory.path),
                settings={"console": "off"},
            )
        except Exception as error:  # whatever its client and server raise
            hint = "; with WANDB_MODE=offline it writes to the run directory"
            raise self._unreachable("W&B", error, hint, "tracking.wandb") from None

    def after(self, plan: IntervalPlan, row: Row) -> None:
        self._tell(lambda: self._run.log(scalars(row, self._accountant), step=row["interval"]))

    def close(self, end: str) -> None:
        self._tell(lambda: self._run.finish(exit_code=0 if _is_finished(end) else 1))


def _is_finished(end: str) -> bool:
    return end == "done" or end.endswith(" reached")


def scalars(row: Row, accountant: str) -> dict[str, float]:
    """The finite numbers of a row, by column; an accounted epsilon with its accountant's name.

    >>> row = {"interval": 3, "accuracy": 0.5, "loss": float("inf"), "epsilon_peer": None, "epsilon_edge": 2.5}
    >>> scalars(row, "pld")
    {'accuracy': 0.5, 'epsilon_edge_pld': 2.5}
    """
    values = {}
    for key, value in row.items():
        if key != "interval" and value is not None and math.isfinite(value):
            by = key.startswith("epsilon_") and key != "epsilon_claimed"
            values[f"{key}_{accountant}" if by else key] = float(value)
    return values


def sinks_of(config: ExperimentFile, directory: RunDirectory, rows: Iterable[Row]) -> list[Sink]:
    """The places that the experiment asks for.

    Args:
        rows: of the metrics that are there already.

    Raises:
        UserError: one of them cannot be reached.
    """
    sinks: list[Sink] = []
    events, server, project = config.tracking.tensorboard, config.tracking.mlflow, config.tracking.wandb
    if find_spec("tensorboard") is not None if events is None else events:
        sinks.append(_TensorBoard(directory, rows, accountant_of(config)))
    if server is not None:
        sinks.append(_MLflow(directory, server, config))
    if project is not None:
        sinks.append(_WandB(directory, project, config))
    return sinks


def _parameters(config: ExperimentFile) -> dict[str, str | float | bool | None]:
    """The configuration by dotted keys, without what a run is not compared by."""
    values = config.model_dump(mode="json", exclude={"topology", "sweep", "tracking", "tune"})
    return {key: str(value) if isinstance(value, list) else value for key, value in dotted(values)}
