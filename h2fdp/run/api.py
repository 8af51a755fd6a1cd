"""The Python interface of one experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from torch import nn

from h2fdp.config import read_document
from h2fdp.config.own_parts import OwnPart
from h2fdp.data.registry import RECORDS
from h2fdp.errors import UserError
from h2fdp.experiment.file import document_of, experiment_from, parse_setting, read_experiment
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.settings import place_settings
from h2fdp.run.loop import start_run
from h2fdp.run.own_code import code_of
from h2fdp.run.prepare import DataSource, DeviceFunction, own_data, prepare
from h2fdp.run.recorders import OnInterval, RunCallbacks
from h2fdp.run.result import Run
from h2fdp.run.setup import OwnParts, RunSetup
from h2fdp.topology import Topology

_DATA_PLACEHOLDER = "digits"  # in a configuration whose data are a function from Python


class Experiment:
    """One experiment, checked when it is made.

    Args:
        topology: a `Topology`, a topology file's path, or None for the paper's 10 x 5 devices.
        data: a data set's name, a mapping as in an experiment file, or a function from a device's name to its
            (inputs, labels) - with `test_data`.
        model: a model's name, a mapping, an nn.Module class or a function that makes one.
        method: a method's name, or a mapping of the six axes.
        settings: any key of the sections of an experiment file (`epsilon=1.0`, `intervals=50`), or a whole section.

    Raises:
        UserError: a wrong value; every problem at once.

    >>> experiment = Experiment(topology=Topology.regular(edges=2, devices=3), data="digits", method="hfl", intervals=2)
    >>> experiment.config.training.clip_norm is None, experiment.topology.devices
    (True, 6)
    """

    def __init__(
        self,
        topology: Topology | str | Path | None = None,
        data: str | dict[str, Any] | DeviceFunction = "digits",
        model: str | dict[str, Any] | Callable[[], nn.Module] = "softmax",
        method: str | dict[str, Any] = "h2fdp",
        *,
        test_data: tuple[Any, Any] | None = None,
        **settings: Any,
    ) -> None:
        values = place_settings(settings) | {"method": method}
        values["data"] = _DATA_PLACEHOLDER if callable(data) else data
        values["model"] = model
        own_topology = topology if isinstance(topology, Topology) else None
        values["topology"] = {"edges": [{"name": "given", "devices": {"count": 1}}]} if own_topology else str(topology)
        if topology is None:
            own_topology = Topology.regular(edges=10, devices=5, trust=0.5, seed=settings.get("seed", 1))
            values["topology"] = {"edges": [{"name": "given", "devices": {"count": 1}}]}
        self.config, drawn = experiment_from(document_of(values, "Experiment"))
        self.topology = own_topology or drawn
        if callable(data):
            self._use_own_data(data, test_data)

    _data: DataSource | None = None
    _own = OwnParts()

    def _use_own_data(self, data: DeviceFunction, test_data: tuple[Any, Any] | None) -> None:
        if test_data is None:
            raise UserError("a function for the devices' data needs test_data=(inputs, labels)", "Experiment", "data")
        name = _name(data)
        self._data = own_data(OwnPart(name, data, RECORDS, from_python=True, where="Experiment", key="data"), test_data)
        self._own = OwnParts({"data": name}, code_of([data]))

    @classmethod
    def from_file(cls, path: str | Path, settings: Sequence[str] = (), seed: int | None = None) -> Experiment:
        """The experiment of a file, changed by settings as `--set` takes them (`training.intervals=20`)."""
        experiment = cls.__new__(cls)
        experiment.config, experiment.topology = read_experiment(Path(path), settings, seed)
        return experiment

    @classmethod
    def of_run(
        cls,
        run: str | Path,
        settings: Sequence[str] = (),
        *,
        data: DeviceFunction | None = None,
        test_data: tuple[Any, Any] | None = None,
        model: Callable[[], nn.Module] | None = None,
    ) -> Experiment:
        """The experiment of a run directory, to continue the run.

        Args:
            settings: where and how to run from now on: keys of `runtime` and `tracking`.
            data, test_data, model: the user's own parts that the run began with.
        """
        config = Path(run) / "config.yaml"
        if not config.is_file():
            raise UserError("not a run directory (expected config.yaml)", str(run))
        given = {"data": data, "model": model}
        document = read_document(config)
        for key, part in given.items():
            own = isinstance(document.values().get(key), str)
            if own and part is None:
                text = (
                    f"the run began with {document.values()[key]}; resume it from Python: h2fdp.resume(run, {key}=...)"
                )
                raise UserError(text, document.where((key,)), key)
            if part is not None and not own:
                raise UserError(
                    f"this run does not use a {key} of your own; leave the argument out", "h2fdp.resume", key
                )
            if own:
                document.set(key, part if key == "model" else _DATA_PLACEHOLDER, key)
        changed = [parse_setting(text) for text in settings]
        for key, _, where in changed:
            if not key.startswith(("runtime.", "tracking.")) or key == "runtime.engine":
                text = "only runtime (except engine) and tracking can change when a run is resumed"
                raise UserError(text, where, key)
        experiment = cls.__new__(cls)
        experiment.config, experiment.topology = experiment_from(document, changed)
        if data is not None:
            experiment._use_own_data(data, test_data)
        return experiment

    def prepare(self, data_root: str | Path | None = None) -> RunSetup:
        """Load the data, build the model and work out the noise, without running."""
        return prepare(self.config, self.topology, data_root=data_root, data_source=self._data, own=self._own)

    def run(
        self,
        out: str | Path | None = None,
        *,
        data_root: str | Path | None = None,
        overwrite: bool = False,
        on_interval: OnInterval | None = None,
    ) -> Run:
        """Run into the directory `out` (default `runs/<name>-<time>`) and return what was recorded."""
        directory = Path(out) if out is not None else default_directory(self.config)
        watcher = RunCallbacks() if on_interval is None else RunCallbacks(on_interval=on_interval)
        return start_run(self.prepare(data_root), directory, watcher, overwrite=overwrite)

    @property
    def own_parts(self) -> dict[str, str]:
        """Which parts are a user's own Python objects, and their names."""
        return dict(self._own.names)


def default_directory(config: ExperimentFile) -> Path:
    """`runs/<name>-<time>`, with a number where that is taken."""
    stem = Path("runs") / f"{config.name}-{datetime.now():%Y%m%d-%H%M%S}"
    candidate, number = stem, 2
    while candidate.exists():
        candidate, number = stem.with_name(f"{stem.name}-{number}"), number + 1
    return candidate


def _name(part: Callable[..., Any]) -> str:
    return f"{getattr(part, '__module__', '?')}.{getattr(part, '__qualname__', repr(part))}"
