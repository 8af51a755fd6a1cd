"""The checked experiment and its topology, from a file and settings: of `--set` or keywords of Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from h2fdp.config import Document, Section, check, parse, read_document
from h2fdp.config.check import key_meant
from h2fdp.errors import Problem, UserError, near_file
from h2fdp.experiment import rules
from h2fdp.experiment.network import check_network
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.experiment.training_section import PAIRS
from h2fdp.network import Topology, from_document, read
from h2fdp.network.schema import TopologyFile
from h2fdp.privacy import DeviceDp, HierarchicalDp
from h2fdp.schedules.registry import reconciled
from h2fdp.training.losses import DEFAULTS


def check_experiment(document: Document) -> ExperimentFile:
    """The document as an experiment, with the defaults of its method.

    Raises:
        UserError: with every problem of the file.
    """
    experiment = _with_its_unit(_with_one_schedule(check(ExperimentFile, document), document), document)
    try:
        open_keys = {f"training.{key}" for key in experiment.training.left_open}  # to be chosen so that they fit
        found = [
            Problem(text, document.where(key.split(".")), key)
            for key, text in rules.problems(experiment)
            if key not in open_keys
        ]
    except UserError as error:  # of a user's own part, once it is made
        raise located(error, document) from error.__cause__
    if found:
        raise UserError(found)
    return _completed(experiment)


def conflicts(experiment: ExperimentFile) -> list[tuple[str, str]]:
    """(key, what is wrong) of a configuration that was changed after it had been checked."""
    return list(rules.problems(experiment))


def _with_one_schedule(experiment: ExperimentFile, document: Document) -> ExperimentFile:
    """The experiment with `control.enabled` and the method's schedule in agreement; later code reads the schedule."""
    try:
        schedule, control = reconciled(experiment.method.schedule, experiment.control)
    except UserError as error:
        raise located(error, document) from None
    method = experiment.method.model_copy(update={"schedule": schedule})
    return experiment.model_copy(update={"method": method, "control": control})


def _with_its_unit(experiment: ExperimentFile, document: Document) -> ExperimentFile:
    """The experiment with the placement of noise that protects the unit of `privacy.protects`."""
    placement, wanted, key = experiment.method.privacy, experiment.privacy.protects, "privacy.protects"
    sums = placement.secure_sum if isinstance(placement, HierarchicalDp) else None
    if wanted == "device" and placement == HierarchicalDp(secure_sum=sums):
        placement = DeviceDp(secure_sum=sums)
    if placement.private and wanted not in (None, placement.protects):
        right = "or privacy hierarchical (with no option but secure_sum), devices or central"
        text = f"this noise ({placement.name}) protects {placement.protects}s; expected {placement.protects}, null,"
        text = f"{text} {right}; found {wanted}"
        raise UserError(text, document.where(key.split(".")), key)
    method = experiment.method.model_copy(update={"privacy": placement})
    return experiment.model_copy(update={"method": method})


def _completed(experiment: ExperimentFile) -> ExperimentFile:
    """The experiment with missing keys completed by the method's placement of noise and its schedule."""
    training, control = experiment.training, experiment.control
    placement, schedule = experiment.method.privacy, experiment.method.traits
    update: dict[str, Any] = {}
    if not placement.private or placement.clips == "nothing" or placement.input_norm is not None:
        update["clip_norm"] = None
    if not placement.private and training.sampling == "poisson":
        update["sampling"] = "fixed"
    if placement.clips == "record":
        update["clip_scope"] = "record"
    if (loss := DEFAULTS.get(rules.task_of(experiment))) is not None:
        update["loss"] = loss
    update = {key: value for key, value in update.items() if key not in training.model_fields_set}
    hides = placement.private and (placement.clips == "record" or experiment.privacy.adjacency == "add-remove")
    if training.local_epochs is not None and "sampling" not in training.stated and not hides:
        update["sampling"] = "fixed"  # batches of one size, where it brings nothing that they are not
    if schedule.fixed_step_size:
        update["step_decay"] = "none"
    if control.enabled and control.accuracy is not None:
        update["until"] = {**(training.until or {}), "accuracy": control.accuracy}
    changed: dict[str, Any] = {"training": training.model_copy(update=update)}
    if experiment.privacy.calibration is None:
        changed["privacy"] = experiment.privacy.model_copy(update={"calibration": experiment.calibration})
    return experiment.model_copy(update=changed)


# Of sections with the same key the first one has it: `budget` is that of privacy, not of control.
_SECTIONS = ("training", "privacy", "control", "runtime", "faults", "tracking")
_OWNER = {
    key: section
    for section in reversed(_SECTIONS)
    for key in cast("type[Section]", ExperimentFile.model_fields[section].annotation).model_fields
}


def place_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as the sections of an experiment file.

    A keyword is a section with a mapping (`training={"intervals": 5}`) or a key of a section (`intervals=5`).

    Raises:
        UserError: a keyword that is neither, or a key that is stated twice.

    >>> place_settings({"epsilon": 2.0, "training": {"intervals": 5}, "local_steps": 10})
    {'training': {'intervals': 5, 'local_steps': 10}, 'privacy': {'epsilon': 2.0}}
    """
    whole = {key: value for key, value in settings.items() if key in ExperimentFile.model_fields}
    placed: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in whole.items()}
    if isinstance(placed.get("training"), str):
        placed["training"] = {"extends": placed["training"]}
    problems = []
    for key, value in settings.items():
        if key in whole:
            continue
        if key in _OWNER:
            section = placed.setdefault(_OWNER[key], {})
            if isinstance(section, dict) and key in section:
                problems.append(Problem(f"stated in {_OWNER[key]} too; state it once", "Experiment", key))
            elif isinstance(section, dict):
                section[key] = value
            else:
                problems.append(Problem(f"{_OWNER[key]} is given too and is not a mapping", "Experiment", key))
        else:
            near = key_meant(key, [*_OWNER, *ExperimentFile.model_fields], ExperimentFile)
            did_you_mean = "" if near is None else f"; did you mean `{near}`?"
            problems.append(Problem(f"unknown setting{did_you_mean}", "Experiment", key))
    if problems:
        raise UserError(problems)
    return placed


_TOPOLOGY = "topology"
COMMAND_LINE = "--set"
_AXES = ("objective", "privacy", "aggregation", "server", "schedule")
_WORDS = {"data": "name", "model": "name", "method": "extends", "training": "extends", "training.loss": "name"} | {
    f"method.{axis}": "name" for axis in _AXES
}


class Setting(NamedTuple):
    """A value for a dotted key, and where the user wrote it: on the command line, or in a line of a file."""

    key: str
    value: Any
    where: str = COMMAND_LINE


Settings = Sequence[Setting]
DrawTopology = Callable[[Document, str | dict[str, Any], int, Settings], Topology]


def parse_setting(text: str) -> Setting:
    """`training.intervals=20` as a dotted key and a YAML value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f'expected key=value, found "{text}"', COMMAND_LINE)
    key = key.strip()
    return Setting(key, parse(value, f"{COMMAND_LINE} {key}").plain() if value.strip() else None)


def read_experiment(
    path: Path, settings: Sequence[str] = (), seed: int | None = None
) -> tuple[ExperimentFile, Topology]:
    """Read, change by settings, check; the topology is drawn with the experiment's seed."""
    document = named_document(path)
    experiment, topology = experiment_from(document, [parse_setting(text) for text in settings], seed)
    check_network(experiment, topology, document)
    return experiment, topology


def named_document(path: Path) -> Document:
    """An experiment file, whose name is that of the file unless it says one."""
    document = read_document(path)
    if isinstance(document.root.content, dict) and "name" not in document.root.content:
        document.set("name", path.stem, str(path))
    return document


def experiment_from(
    document: Document, settings: Settings = (), seed: int | None = None, draw: DrawTopology | None = None
) -> tuple[ExperimentFile, Topology]:
    """A checked experiment and its drawn topology.

    Settings under `topology.` reach into the topology, inline or in its file; a relative path of a topology is
    relative to the experiment file, one that was set on the command line to the current directory.

    Args:
        draw: makes the topology instead of `draw_topology`.
    """
    reaching = apply_settings(document, settings)
    if seed is not None:
        document.set("seed", seed, "--seed")
    try:
        experiment = check_experiment(document)
    except UserError as error:
        raise UserError([*error.problems, *_inline_problems(document, reaching)]) from error.__cause__
    return experiment, (draw or draw_topology)(document, experiment.topology, experiment.seed, reaching)


def apply_settings(document: Document, settings: Settings) -> list[Setting]:
    """Write settings into the document; those that reach into the topology are left, with keys inside of it."""
    reaching = []
    for setting in settings:
        key, value, where = setting
        if key.startswith(f"{_TOPOLOGY}."):
            reaching.append(setting._replace(key=key.removeprefix(f"{_TOPOLOGY}.")))
            continue
        if key == _TOPOLOGY and isinstance(value, str) and where == COMMAND_LINE:
            value = str(Path(value).resolve())
        _write_out_word(document, key)
        document.set(key, value, where)
    _unset_partners(document, {key for key, value, _ in settings if value is not None})
    return reaching


def _unset_partners(document: Document, stated: set[str]) -> None:
    """Unset a file's key, as `batch_size`, whose partner in a pair, as `training.sampling_rate`, a setting states."""
    content = document.root.content
    training = content["training"].content if isinstance(content, dict) and "training" in content else None
    for pair in PAIRS:
        for key, partner in (pair, pair[::-1]):
            stands = isinstance(training, dict) and partner in training and training[partner].content is not None
            if f"training.{key}" in stated and f"training.{partner}" not in stated and stands:
                document.set(f"training.{partner}", None, document.where(("training", key)))


def _write_out_word(document: Document, key: str) -> None:
    """`data.validation` below `data: digits` needs the mapping that the word is short for, and `method.schedule.buffer`
    that of `schedule: buffered`."""
    node, steps = document.root, key.split(".")[:-1]
    for depth, step in enumerate(steps, start=1):
        if not isinstance(node.content, dict) or step not in node.content:
            return
        node, above = node.content[step], ".".join(steps[:depth])
        if above in _WORDS and isinstance(node.content, str):
            document.set(above, {_WORDS[above]: node.content}, node.where)
            return


def located(error: UserError, document: Document, settings: Settings = ()) -> UserError:
    """An error's mistakes with the places of their keys, for mistakes that appear after the file has been read.

    Args:
        document: as it was read, unchanged by the settings.
    """
    changed = document.copy()
    apply_settings(changed, settings)
    assert isinstance(changed.root.content, dict)

    def placed(problem: Problem) -> Problem:
        steps = problem.key.split(".")
        if steps[0] in TopologyFile.model_fields.keys() - ExperimentFile.model_fields.keys():  # which its file may be
            steps = [_TOPOLOGY, *steps]
        return replace(problem, where=changed.where(steps), key=".".join(steps))

    return UserError(each if each.where or not each.key else placed(each) for each in error.problems)


def _inline_problems(document: Document, settings: Settings) -> tuple[Problem, ...]:
    """The problems of an inline topology, to be reported together with those of the rest of the file."""
    content = document.root.content
    if not isinstance(content, dict) or _TOPOLOGY not in content or not isinstance(content[_TOPOLOGY].content, dict):
        return ()
    try:
        draw_topology(document, {}, 0, settings)
    except UserError as error:
        return error.problems
    return ()


def draw_topology(document: Document, wanted: str | dict[str, Any], seed: int, settings: Settings) -> Topology:
    """The topology of an experiment's document, changed by settings with keys inside of it.

    Args:
        wanted: what the document says, a path or an inline topology.
        seed: under which what the topology leaves open is drawn.
    """
    if isinstance(wanted, str) and not settings:
        return read(_topology_file(document, wanted), seed)
    return from_document(changed_topology(document, wanted, settings), seed)


def changed_topology(document: Document, wanted: str | dict[str, Any], settings: Settings) -> Document:
    """The document of a topology, with settings written into it."""
    if isinstance(wanted, str):
        path = _topology_file(document, wanted)
        if path.suffix not in (".yaml", ".yml"):
            key, _, where = settings[0]
            raise UserError("only a YAML topology can be changed by settings", where, f"{_TOPOLOGY}.{key}")
        inner = read_document(path)
    else:
        inner = document.part(_TOPOLOGY).copy()
    for key, value, where in settings:
        inner.set(key, value, where)
    return inner


def _topology_file(document: Document, wanted: str) -> Path:
    path = document.folder / wanted
    if not os.path.isfile(path):  # False for a name that is longer than the file system takes, too
        what = "expected a file, found a directory" if os.path.isdir(path) else "no such file"
        text = f"{what}: {str(path)[:1_024]}{near_file(path)}"
        raise UserError(text, document.where((_TOPOLOGY,)), _TOPOLOGY)
    return path
