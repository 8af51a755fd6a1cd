"""A sweep as it is read: an experiment file with a `sweep:` section, every run of its grid checked before any starts.

What the runs of one process have in common is made once: drawn topologies, the records of data sets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from h2fdp.config import Document
from h2fdp.config.own_parts import OwnPart, own_parts_in
from h2fdp.config.parsing import text_of
from h2fdp.data.federate import configured_data
from h2fdp.data.federated import DeviceData
from h2fdp.data.source import DataRequest, Pool
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.file import (
    Setting,
    Settings,
    apply_settings,
    changed_topology,
    draw_topology,
    experiment_from,
    named_document,
    parse_setting,
)
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.network import Topology
from h2fdp.network.files import yaml_text
from h2fdp.records.atomic import hash_of
from h2fdp.run.identity import code_of, counted
from h2fdp.run.network_plan import planned
from h2fdp.run.prepare import prepare, spread
from h2fdp.run.recipe import intervals_of
from h2fdp.run.setup import RunSetup
from h2fdp.runtime import chosen_backend
from h2fdp.streams import Streams
from h2fdp.sweeps.grid import SWEEP, Point, points_of

Value = TypeVar("Value")
MOST_TOPOLOGIES, MOST_POOLS, MOST_SPREAD = 8, 2, 8  # a pool may take 200 MB, which spread records share


def kept(values: dict[Hashable, Value], key: Hashable, make: Callable[[], Value], most: int) -> Value:
    """The value of a key, which determines it; the oldest values make room for new ones.

    >>> values = {}
    >>> [kept(values, key, lambda: made, most=1) for key, made in (("a", "first"), ("a", "second"), ("b", "third"))]
    ['first', 'first', 'third']
    """
    if key not in values:
        values[key] = make()
    while len(values) > most:
        del values[next(iter(values))]
    return values[key]


def _digest_of(topology: Topology) -> str:
    own_code = code_of(part.part for part in topology.own_parts)
    return hash_of([yaml_text(topology), own_code] if own_code else [yaml_text(topology)])


class SharedInputs:
    """Experiments that share what equal parts of their configurations determine. Files are taken not to change.

    Attributes:
        root: folder of the data sets; None for the default.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root
        self._topologies: dict[Hashable, Topology] = {}
        self._networks: dict[Hashable, tuple[Topology, str]] = {}
        self._pools: dict[Hashable, Pool] = {}
        self._spread: dict[Hashable, DeviceData] = {}

    def experiment(self, document: Document, settings: Settings) -> tuple[ExperimentFile, Topology]:
        """The experiment and network of a document (`experiment_from`), which stays as it is."""
        return experiment_from(document.copy(), settings, draw=self._topology)

    def network(self, topology: Topology) -> str:
        """A digest of a topology as it is written, and of the code of its own parts."""
        # What is kept has the topology itself, so that no other one can have its number.
        return kept(self._networks, id(topology), lambda: (topology, _digest_of(topology)), MOST_TOPOLOGIES)[1]

    def prepare(self, config: ExperimentFile, topology: Topology) -> RunSetup:
        return prepare(config, topology, data_root=self.root, data_source=configured_data(config.data, self._pool))

    def planned(self, config: ExperimentFile, topology: Topology) -> RunSetup:
        """A network to be planned, see `network_plan.planned`; those of equal groups and seeds share their records."""
        source = configured_data(config.data, self._pool)
        groups = [(subnet.name, subnet.size) for subnet in topology.subnets]
        key = json.dumps([config.model_dump(mode="json", include={"data", "seed"}), groups])
        data = kept(self._spread, key, lambda: spread(source, topology, config.seed, self.root), MOST_SPREAD)
        return planned(config, topology, lambda *_: data)

    def check_data(self, experiments: Iterable[tuple[ExperimentFile, Topology]]) -> None:
        """Refuse runs if the data of none of them can be read: reported once, and not by every run.

        Raises:
            UserError: they cannot; drawn ones, and those of a user's own function, are taken to be there.
        """
        problems, tried = list[Problem](), set[Hashable]()
        for config, topology in experiments:
            if isinstance(config.data, OwnPart) or not config.data.on_disk:
                return
            groups = [(subnet.name, subnet.size) for subnet in topology.subnets]
            request = DataRequest(config.data, groups, Streams(config.seed), self.root)
            if request.origin not in tried:
                tried.add(request.origin)
                try:
                    self._pool(request)
                except UserError as error:
                    problems += error.problems
                else:
                    return
        if problems:
            raise UserError(problems)

    def _topology(self, document: Document, wanted: str | dict[str, Any], seed: int, settings: Settings) -> Topology:
        values = [(key, value) for key, value, _ in settings]
        key = json.dumps([str(document.folder), wanted, values, seed])
        make = partial(draw_topology, document, wanted, seed, settings)
        return kept(self._topologies, key, make, MOST_TOPOLOGIES)

    def _pool(self, request: DataRequest) -> Pool:
        return kept(self._pools, request.origin, request.read, MOST_POOLS)


_MOST_PROBLEMS = 50
_MOST_RUNS_NAMED = 2
_PATHS = ("topology", "data.path")  # keys whose texts are paths, relative to the file


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep, checked.

    Attributes:
        settings: everything that changes the sweep's document: the command line's, then the point's.
        digest: equal for equal configurations and topologies, as far as bits depend on them.
        intervals: how many it has at most.
        on_ray: it asks for Ray itself, so it has the machine for its own.
        address: of the cluster that it asks for, if any.
        alike: equal for runs that share their data and their topology.
    """

    point: Point
    settings: tuple[Setting, ...]
    digest: str
    intervals: int
    on_ray: bool
    address: str | None
    alike: str


@dataclass(frozen=True)
class SweepPlan:
    """A sweep as it was read.

    Attributes:
        document: of the file, with its `sweep:` section as the command line changed it.
        settings: the other ones of the command line.
        keys: that are swept, in the order of the file.
    """

    name: str
    document: Document
    settings: tuple[Setting, ...]
    keys: tuple[str, ...]
    runs: tuple[PlannedRun, ...]

    @property
    def directory(self) -> Path:
        """The directory of its sweep by default."""
        return Path("sweeps") / self.name

    def text(self) -> str:
        """The sweep as a self-contained file: settings written in, paths absolute."""
        values = written_out(self.document, self.settings)
        values = _plain(values)
        values[SWEEP] = {key: _portable(self.document, key, items) for key, items in values[SWEEP].items()}
        return text_of(values)


def written_out(document: Document, settings: Sequence[Setting]) -> dict[str, Any]:
    """A document's values with settings written in and paths absolute, so that they can stand in any folder."""
    document = document.copy()
    reaching = apply_settings(document, settings)
    for key in _PATHS:
        *parents, last = key.split(".")
        section = document.values()
        for step in parents:
            section = section.get(step) if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(section.get(last), str):
            document.set(key, _absolute(document, section[last]), "")
    values: dict[str, Any] = document.values()
    if reaching:
        values["topology"] = changed_topology(document, values["topology"], reaching).values()
    return values


def read_sweep(path: Path, settings: Sequence[str], shared: SharedInputs) -> SweepPlan:
    """Read a sweep and check each of its runs; settings as `--set` takes them, those of `sweep.` change the grid.

    Raises:
        UserError: every problem of any run, at once.
    """
    return planned_sweep(named_document(path), [parse_setting(text) for text in settings], shared)


def planned_sweep(document: Document, settings: Sequence[Setting], shared: SharedInputs) -> SweepPlan:
    """A sweep from its document, which is written to, and settings from anywhere; see `read_sweep`."""
    base = []
    for setting in settings:
        section, _, swept = setting.key.partition(".")
        if section == SWEEP:  # below it, the rest is one key, dots and all
            document.put([SWEEP, swept] if swept else [SWEEP], setting.value, setting.where, setting.key)
        else:
            base.append(setting)
    points = points_of(document)
    keys = tuple(points[0].values)
    if both := [setting for setting in base if setting.key in keys]:
        text = f"is part of the sweep; expected {SWEEP}.{{}}=[...]"
        raise UserError(Problem(text.format(each.key), each.where, each.key) for each in both)
    runs, name = _checked(document, base, points, shared)
    return SweepPlan(name, document, tuple(base), keys, runs)


def _checked(
    document: Document, base: Sequence[Setting], points: Sequence[Point], shared: SharedInputs
) -> tuple[tuple[PlannedRun, ...], str]:
    """The runs, and the name of the sweep."""
    points_of: dict[Problem, list[Point]] = {}
    runs: list[PlannedRun] = []
    name = ""
    for point in points:
        settings = (*base, *point.settings)
        try:
            config, topology = shared.experiment(document, settings)
        except UserError as error:
            for problem in error.problems:
                points_of.setdefault(problem, []).append(point)
            if len(points_of) >= _MOST_PROBLEMS:
                break
            continue
        network, data = shared.network(topology), json.dumps(config.model_dump(mode="json", include={"data"}))
        intervals, on_ray = intervals_of(config, len(topology.subnets)), chosen_backend(config.runtime) == "ray"
        alike, digest = hash_of([data, network, str(config.seed)]), digest_of(config, network)
        runs.append(PlannedRun(point, settings, digest, intervals, on_ray, config.runtime.address, alike))
        name = name or config.name
    if points_of:
        raise UserError([_of_runs(problem, at, len(points)) for problem, at in points_of.items()])
    return tuple(runs), name


def digest_of(config: ExperimentFile, network: str) -> str:
    """The digest of all in a configuration that bits depend on; `network` see `SharedInputs.network`."""
    # What a run's config.yaml says about bits, but for the topology, which has a file of its own there.
    said = {key: value for key, value in counted(config.model_dump(mode="json")).items() if key != "topology"}
    stated = [json.dumps(said, sort_keys=True), config.runtime.engine, network]
    own_code = code_of(part.part for part in own_parts_in(config))
    return hash_of([*stated, own_code] if own_code else stated)


def _of_runs(problem: Problem, at: Sequence[Point], of: int) -> Problem:
    """The problem, with the runs that have it where its place does not say."""
    if len(at) == of or any(problem.where == setting.where for setting in at[0].settings):
        return problem
    names = ", ".join(point.name for point in at[:_MOST_RUNS_NAMED])
    more = f" and {len(at) - _MOST_RUNS_NAMED} more" if len(at) > _MOST_RUNS_NAMED else ""
    return replace(problem, text=f"{problem.text} (in {names}{more})")


def _plain(value: Any) -> Any:
    """Values as YAML can say them; an object of Python's by its name."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    is_plain = value is None or isinstance(value, (str, bool, int, float))
    return value if is_plain else f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _portable(document: Document, written: str, items: list[Any]) -> list[Any]:
    """Swept values, paths among them absolute."""
    keys = [key.strip() for key in written.split(",")]
    if len(keys) == 1:
        return [_absolute(document, item) if keys[0] in _PATHS else item for item in items]
    return [
        [_absolute(document, part) if key in _PATHS else part for key, part in zip(keys, item, strict=True)]
        for item in items
    ]


def _absolute(document: Document, path: Any) -> Any:
    return str((document.folder / path).resolve()) if isinstance(path, str) else path
