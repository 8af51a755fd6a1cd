"""From a file and `--set` settings to a checked experiment and its topology."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from h2fdp.config import Document, empty_document, parse, read_document
from h2fdp.errors import UserError
from h2fdp.experiment.schema import ExperimentFile, check_experiment
from h2fdp.topology import Topology, from_document, read

_TOPOLOGY = "topology"


def parse_setting(text: str) -> tuple[str, Any]:
    """`training.intervals=20` as a dotted key and a YAML value."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UserError(f'expected key=value, found "{text}"', "--set")
    return key.strip(), parse(value, f"--set {key.strip()}").plain() if value.strip() else None


def read_experiment(
    path: Path, settings: Sequence[str] = (), seed: int | None = None
) -> tuple[ExperimentFile, Topology]:
    """Read, change by settings, check; the topology is drawn with the experiment's seed."""
    document = read_document(path)
    if isinstance(document.root.content, dict) and "name" not in document.root.content:
        document.set("name", path.stem, str(path))
    return experiment_from(document, [parse_setting(text) for text in settings], seed)


def experiment_from(
    document: Document, settings: Sequence[tuple[str, Any]] = (), seed: int | None = None
) -> tuple[ExperimentFile, Topology]:
    """A checked experiment and its drawn topology.

    Settings under `topology.` reach into the topology, inline or in its file; a relative path of a topology is
    relative to the experiment file, one that was set on the command line to the current directory.
    """
    reaching = []
    for key, value in settings:
        if key.startswith(f"{_TOPOLOGY}."):
            reaching.append((key.removeprefix(f"{_TOPOLOGY}."), value))
        else:
            document.set(
                key, str(Path(value).resolve()) if key == _TOPOLOGY and isinstance(value, str) else value, "--set"
            )
    if seed is not None:
        document.set("seed", seed, "--seed")
    experiment = _with_absolute_data_path(check_experiment(document), document.folder)
    return experiment, _topology(document, experiment, reaching)


def _with_absolute_data_path(experiment: ExperimentFile, folder: Path) -> ExperimentFile:
    """A path in `data:` is relative to the experiment file; the run directory must find it too."""
    if experiment.data.path is None:
        return experiment
    data = experiment.data.model_copy(update={"path": str((folder / experiment.data.path).resolve())})
    return experiment.model_copy(update={"data": data})


def _topology(document: Document, experiment: ExperimentFile, settings: Sequence[tuple[str, Any]]) -> Topology:
    if isinstance(experiment.topology, str):
        path = document.folder / experiment.topology
        if not path.exists():
            raise UserError(f'no such file: "{path}"', document.where((_TOPOLOGY,)), _TOPOLOGY)
        if not settings and path.suffix not in (".yaml", ".yml"):
            return read(path, experiment.seed)
        if path.suffix not in (".yaml", ".yml"):
            raise UserError("only a YAML topology can be changed by settings", "--set", f"{_TOPOLOGY}.{settings[0][0]}")
        inner = read_document(path)
    else:
        inner = document.part(_TOPOLOGY)
    for key, value in settings:
        inner.set(key, value, "--set")
    return from_document(inner, experiment.seed)


def document_of(values: dict[str, Any], source: str) -> Document:
    """A document from Python values; problems name `source` instead of a file."""
    return empty_document(source, Path.cwd(), values)
