"""The Python interface of one experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from torch import nn

from h2fdp.config import Document, empty_document, read_document
from h2fdp.data.federate import configured_data, from_arguments, given_records, own_records
from h2fdp.data.federated import DeviceData, label_counts
from h2fdp.data.from_python import PythonData
from h2fdp.data.source import GIVEN, Given
from h2fdp.errors import UserError, no_directory
from h2fdp.experiment.file import (
    Setting,
    experiment_from,
    located,
    named_document,
    parse_setting,
    place_settings,
    read_experiment,
)
from h2fdp.methods import name_of
from h2fdp.network import Topology
from h2fdp.network.files import yaml_text
from h2fdp.network.graphs import graph_of, tree_document
from h2fdp.records.directory import new_directory
from h2fdp.records.json_lines import check_lines
from h2fdp.run.explain import FirstDecision, explanation, first_decision
from h2fdp.run.loop import resume_run, start_run
from h2fdp.run.prepare import prepare, spread
from h2fdp.run.recipe import intervals_of
from h2fdp.run.recorders import OnInterval
from h2fdp.run.result import Run
from h2fdp.run.setup import RunSetup
from h2fdp.run.tracking import shown
from h2fdp.wording import counted, facts_html

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Written:
    """An experiment as a document, from which others of a sweep are made.

    Attributes:
        settings: that change the document.
        drawn: its topology is a `Topology` as it was drawn, and not a file that says how to draw one.
    """

    document: Document
    settings: tuple[Setting, ...]
    drawn: bool = False


class Experiment:
    """One experiment, checked when it is made.

    Args:
        topology: a `Topology`, a topology file's path, a mapping with what such a file holds, a graph of networkx whose
            nodes have the attributes of one, or None for the paper's 10 x 5 devices.
        data: a data set's name, or a mapping as in an experiment file. Or records of your own with `test_data`: a pair
            of arrays, a torch `Dataset`, a Hugging Face `Dataset`, a pandas frame, what `h2fdp.data.from_python` makes
            of these; a mapping or a function from a device's name to its (inputs, labels).
        model: a model's name, a mapping, an nn.Module class or a function that makes one; None for `auto`.
        method: a method's name, or a mapping of the six axes.
        test_data: the same for the test records; or the share of the records that becomes these, as 0.2.
        partition: who holds which records, as `data.partition` in an experiment file.
        settings: any key of the sections of an experiment file (`epsilon=1.0`, `intervals=50`), or a whole section.

    Raises:
        UserError: a wrong value; every problem at once.

    >>> experiment = Experiment(topology=Topology.regular(edges=2, devices=3), data="digits", method="hfl", intervals=2)
    >>> experiment.config.training.clip_norm is None, experiment.topology.devices
    (True, 6)
    """

    def __init__(
        self,
        topology: Any = None,
        data: Any = "digits",
        model: str | dict[str, Any] | Callable[[], nn.Module] | None = None,
        method: str | dict[str, Any] = "h2fdp",
        *,
        test_data: Any = None,
        partition: str | dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        values = place_settings(settings) | {"method": method}
        values["data"], given = from_arguments(data, test_data, partition)
        if model is not None:
            values["model"] = model
        if topology is None:
            topology = Topology.regular(edges=10, devices=5, trust=0.5, seed=settings.get("seed", 1))
        if hasattr(topology, "is_multigraph"):
            topology = tree_document(graph_of(topology)).values()
        elif not isinstance(topology, (Topology, str, Path, dict, type(None))):
            expected = "a Topology, the path of a topology file, what it holds, or a graph of networkx"
            raise UserError(f"expected {expected}, found {type(topology).__name__}", "Experiment", "topology")
        own_topology = topology if isinstance(topology, Topology) else None
        if own_topology is not None:
            values["topology"] = {"edges": [{"name": "given", "devices": {"count": 1}}]}
        else:
            values["topology"] = topology if isinstance(topology, dict) else str(topology)
        document = empty_document("Experiment", Path.cwd(), values)
        self.config, drawn = experiment_from(document)
        self.topology = own_topology or drawn
        if own_topology is not None:
            document.set("topology", yaml.safe_load(yaml_text(own_topology)), "Experiment")
        self.written = Written(document, (), own_topology is not None)
        if given is not None:
            self._use_given(given)

    written: Written | None = None

    def _use_given(self, given: PythonData) -> None:
        section = self.config.data
        assert isinstance(section, Given), "the section says that Python has the records"
        self.config = self.config.model_copy(update={"data": section.holding(given.pool)})

    @classmethod
    def from_file(cls, path: str | Path, settings: Sequence[str] = (), seed: int | None = None) -> Experiment:
        """The experiment of a file, changed by settings as `--set` takes them (`training.intervals=20`)."""
        experiment = cls.__new__(cls)
        experiment.config, experiment.topology = read_experiment(Path(path), settings, seed)
        seeded = [*settings, *([] if seed is None else [f"seed={seed}"])]
        experiment.written = Written(named_document(Path(path)), tuple(map(parse_setting, seeded)))
        return experiment

    @classmethod
    def of_run(
        cls,
        run: str | Path,
        settings: Sequence[str] = (),
        *,
        data: Any = None,
        test_data: Any = None,
        model: Callable[[], nn.Module] | None = None,
    ) -> Experiment:
        """The experiment of a run directory, to continue the run.

        Args:
            settings: where and how to run from now on: keys of `runtime` and `tracking`.
            data, test_data, model: the user's own parts that the run began with.
        """
        config = Path(run) / "config.yaml"
        if not config.is_file():
            raise no_directory("not a run directory (expected config.yaml)", run)
        check_lines(config, config.with_name("topology.yaml"))
        document, records = read_document(config), None
        for key, part in {"data": data, "model": model}.items():
            stated = document.values().get(key)
            given = key == "data" and isinstance(stated, dict) and stated.get("name") == GIVEN
            handed_in = given or isinstance(stated, str)
            if handed_in and part is None:
                began = stated if isinstance(stated, str) else "records from Python"
                text = f"the run began with {began}; resume it from Python: h2fdp.resume(run, {key}=...)"
                raise UserError(text, document.where((key,)), key)
            if part is not None and not handed_in:
                text = f"this run does not use a {key} of your own; leave the argument out"
                raise UserError(text, "h2fdp.resume", key)
            if isinstance(stated, str):
                document.set(key, part if key == "model" else own_records(part, test_data), key)
            elif given:
                records = given_records(part, test_data)
        changed = [parse_setting(text) for text in settings]
        for key, _, where in changed:
            if not key.startswith(("runtime.", "tracking.")) or key == "runtime.engine":
                text = "only runtime (except engine) and tracking can change when a run is resumed"
                raise UserError(text, where, key)
        experiment = cls.__new__(cls)
        experiment.config, experiment.topology = experiment_from(document, changed)
        if records is not None:
            experiment._use_given(records)
        return experiment

    @property
    def records(self) -> Callable[[Path | None], DeviceData]:
        """A function of the data folder: the records of all devices, spread as the experiment says."""
        source = configured_data(self.config.data)
        return lambda root: spread(source, self.topology, self.config.seed, root)

    def prepare(self, data_root: str | Path | None = None) -> RunSetup:
        """Load the data, build the model and work out the noise, without running."""
        with self.mistakes_placed():
            return prepare(self.config, self.topology, data_root=data_root)

    @contextmanager
    def mistakes_placed(self) -> Iterator[None]:
        """Mistakes that are met within have the lines of the experiment's file."""
        try:
            yield
        except UserError as error:
            if self.written is None:
                raise
            placed = located(error, self.written.document, self.written.settings)
            for note in getattr(error, "__notes__", ()):  # the traceback of a host
                placed.add_note(note)
            raise placed from error.__cause__

    def _repr_html_(self) -> str:
        """The view in notebooks: the training, the network, the target."""
        config, network = self.config, self.topology
        size = f"{counted(network.devices, 'device')} under {counted(network.edges, 'edge server')}"
        how = f" ({config.privacy.calibration})" if config.privacy.calibration else ""
        facts = {
            "method": name_of(config.method),
            "network": f"{network.name}: {size}",
            "data": config.data.name,
            "model": config.model.name,
            "intervals": intervals_of(config, len(network.subnets)),
            "epsilon": f"{config.privacy.epsilon:g}{how}, delta {config.privacy.delta:g}",
            "seed": config.seed,
        }
        return facts_html(f"experiment {config.name}", facts)

    def __repr__(self) -> str:
        method, devices = name_of(self.config.method), self.topology.devices
        return f"Experiment({self.config.name!r}: {method} on {self.config.data.name}, {devices} devices)"

    def holdings(self, data_root: str | Path | None = None) -> pd.DataFrame:
        """The number of records of each label (columns) that each device (rows) holds; nothing is trained.

        The frame's `attrs["records"]` has the number of records of each device; `attrs["owners"]` lists whose records
        each device has; it is empty where the data name none.
        """
        import pandas as pd

        data = self.records(None if data_root is None else Path(data_root))
        names = self.topology.device_names()
        frame = pd.DataFrame(label_counts(data), index=pd.Index(names, name="device"), columns=data.class_names or None)
        frame.attrs |= {"owners": list(data.holders), "records": data.sizes.tolist()}
        return frame

    def run(
        self,
        out: str | Path | None = None,
        *,
        data_root: str | Path | None = None,
        overwrite: bool = False,
        on_interval: OnInterval | None = None,
        progress: bool | None = None,
    ) -> Run:
        """Run into the directory `out` (default `runs/<name>-<time>`) and return what was recorded.

        Args:
            on_interval: called with each row of the metrics, a mapping of their columns.
            progress: show how far the run is; null: in notebooks and on terminals.
        """
        with new_directory(None if out is None else Path(out), self.config.name, overwrite) as directory:
            setup = self.prepare(data_root)
            with self.mistakes_placed(), shown(setup.config.training.intervals, progress, on_interval) as watcher:
                return start_run(setup, directory, watcher, overwrite=overwrite)


@dataclass(frozen=True, repr=False)
class Explanation:
    """An explanation of who learns what, in a few lines; printed, it is these lines.

    Attributes:
        facts: all numbers behind them, see `h2fdp.run.explain.explanation`.
    """

    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.facts["lines"])

    __repr__ = __str__


def explain(experiment: Experiment | str | Path, *, data_root: str | Path | None = None) -> Explanation:
    """An explanation of what each observer would learn, by which bound and noise, and of which changes pay most.

    Args:
        experiment: or its file.

    Raises:
        UserError: a mistake in the file; a method that adds no noise.
    """
    known = experiment if isinstance(experiment, Experiment) else Experiment.from_file(experiment)
    with known.mistakes_placed():
        return Explanation(explanation(known.prepare(data_root)))


def plan(
    path: str | Path | Experiment, settings: Sequence[str] = (), data_root: str | Path | None = None
) -> FirstDecision:
    """The first decision for an experiment file, with the controller on whether or not the file enables it.

    Args:
        path: or an `Experiment`, which enables it itself: `control={"enabled": True}`.
        settings: of a file, as `--set` takes them, `control.alpha1=2`.

    Raises:
        UserError: a wrong file; a method without noise, which leaves nothing to weigh.
    """
    if isinstance(path, Experiment):
        if settings:
            raise UserError("an Experiment has its settings; expected none, or a file", key="settings")
        if not path.config.control.enabled:
            raise UserError('expected control={"enabled": True}, found it disabled', "h2fdp.plan", "control")
        return first_decision(path.prepare(data_root))
    written = Experiment.from_file(path, settings)
    config = written.config
    schedule, traits = config.method.schedule, config.method.traits
    if not (traits.controlled or traits.as_stated):
        text = f"the controller takes the place of a fixed schedule; expected fixed or h2fdp, found {schedule.name}"
        with written.mistakes_placed():
            raise UserError(text, key="method.schedule")
    stated = config.control.enabled or traits.controlled
    try:
        run = Experiment.from_file(path, [*settings, "control.enabled=true"])
    except UserError as error:
        if stated:
            raise
        why = "h2fdp plan turns the controller on, which does not go with this"  # though a run does
        raise UserError(replace(each, text=f"{why}: {each.text}") for each in error.problems) from None
    return first_decision(run.prepare(data_root), stated=stated)


def resume(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    data: Any = None,
    test_data: Any = None,
    model: Callable[[], nn.Module] | None = None,
    settings: Sequence[str] = (),
    on_interval: OnInterval | None = None,
    fresh_noise: bool = False,
    progress: bool | None = None,
) -> Run:
    """Go on with a run that ended early, and return what was recorded; a run that is done is returned as it is.

    Args:
        run: its directory.
        data, test_data, model: a user's own parts, if it had any.
        progress: show how far it is; null: in notebooks and on terminals.
        settings: of `runtime` and `tracking`, as `--set` takes them (`runtime.hosts=2`).
        fresh_noise: where the intervals to be repeated would not come out the same, draw them afresh; what was released
            before counts too. Also goes on where code of your own has changed.

    Raises:
        UserError: no run directory; another process is writing to it; a part is missing, or is not the one that the run
            began with; a file of it, or code of your own, was changed; it would draw fresh noise, and was not
            allowed to.
    """
    experiment = Experiment.of_run(run, settings, data=data, test_data=test_data, model=model)
    with shown(experiment.config.training.intervals, progress, on_interval) as watcher:
        return resume_run(lambda: experiment.prepare(data_root), Path(run), watcher, fresh_noise=fresh_noise)
