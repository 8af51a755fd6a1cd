"""From a file and `--set` settings to a checked experiment and its topology."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from h2fdp.config import Document, empty_document, parse, read_document
from h2fdp.config.check import quote
from h2fdp.errors import Problem, UserError
from h2fdp.experiment.schema import ExperimentFile, check_experiment
from h2fdp.topology import Topology, from_document, read

Settings = Sequence[tuple[str, Any]]
_TOPOLOGY = "topology"
_WORDS = {"data": "name", "model": "name", "method": "extends"}


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
    document: Document, settings: Settings = (), seed: int | None = None
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
            _write_out_word(document, key)
            document.set(
                key, str(Path(value).resolve()) if key == _TOPOLOGY and isinstance(value, str) else value, "--set"
            )
    if seed is not None:
        document.set("seed", seed, "--seed")
    try:
        experiment = _with_absolute_data_path(check_experiment(document), document)
    except UserError as error:
        raise UserError([*error.problems, *_inline_problems(document, reaching)]) from None
    return experiment, _topology(document, experiment.topology, experiment.seed, reaching)


def _write_out_word(document: Document, key: str) -> None:
    """`data.validation` below `data: digits` needs the mapping that the word is short for."""
    section, dot, _ = key.partition(".")
    content = document.root.content
    if dot and section in _WORDS and isinstance(content, dict) and section in content:
        word = content[section]
        if isinstance(word.content, str):
            document.set(section, {_WORDS[section]: word.content}, word.where)


def _inline_problems(document: Document, settings: Settings) -> tuple[Problem, ...]:
    """The problems of an inline topology, to be told together with those of the rest of the file."""
    content = document.root.content
    if not isinstance(content, dict) or _TOPOLOGY not in content or not isinstance(content[_TOPOLOGY].content, dict):
        return ()
    try:
        _topology(document, {}, 0, settings)
    except UserError as error:
        return error.problems
    return ()


def _with_absolute_data_path(experiment: ExperimentFile, document: Document) -> ExperimentFile:
    """A path in `data:` is relative to the experiment file; the run directory must find it too."""
    if experiment.data.path is None:
        return experiment
    try:
        path = (document.folder / experiment.data.path).resolve()
    except (OSError, ValueError) as error:
        raise UserError(f"no path: {error}", document.where(("data", "path")), "data.path") from None
    return experiment.model_copy(update={"data": experiment.data.model_copy(update={"path": str(path)})})


def _topology(document: Document, wanted: str | dict[str, Any], seed: int, settings: Settings) -> Topology:
    if isinstance(wanted, str):
        path = document.folder / wanted
        if not _exists(path):
            raise UserError(f"no such file: {quote(str(path))}", document.where((_TOPOLOGY,)), _TOPOLOGY)
        if not settings:
            return read(path, seed)
        if path.suffix not in (".yaml", ".yml"):
            raise UserError("only a YAML topology can be changed by settings", "--set", f"{_TOPOLOGY}.{settings[0][0]}")
        inner = read_document(path)
    else:
        inner = document.part(_TOPOLOGY)
    for key, value in settings:
        inner.set(key, value, "--set")
    return from_document(inner, seed)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name longer than the file system takes
        return False


def document_of(values: dict[str, Any], source: str) -> Document:
    """A document from Python values; problems name `source` instead of a file."""
    return empty_document(source, Path.cwd(), values)
