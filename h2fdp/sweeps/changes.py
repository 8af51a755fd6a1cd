"""What became of earlier runs: which stand, and which are of another configuration or of other code now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from h2fdp.config.check import quote
from h2fdp.errors import Problem, UserError
from h2fdp.records import RunDirectory
from h2fdp.run.fingerprint import changed_files, counted, stored_identity
from h2fdp.run.own_code import own_files_of, own_parts_of
from h2fdp.sweeps.directory import SweepDirectory, SweepEntry
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.study import PlannedRun, Study, configuration_of
from h2fdp.topology.yaml_text import yaml_text

_ABSENT = object()
_MOST_KEYS = 5
_MOST_PROBLEMS = 20


def changed_runs(
    study: Study, directory: SweepDirectory, entries: Mapping[str, SweepEntry], code: str, shared: SharedInputs
) -> dict[str, list[Problem]]:
    """The points whose run is there and would be another one now -> what changed."""
    found: dict[str, list[Problem]] = {}
    for planned in study.runs:
        name = planned.point.name
        entry = entries.get(name)
        if not directory.is_begun(name) or (entry and (entry.digest, entry.code) == (planned.digest, code)):
            continue
        same = entry is not None and entry.digest == planned.digest
        problems = [] if same else _differences(study, planned, directory, shared)
        parts = own_parts_of(*shared.experiment(study.document, planned.settings))
        if entry and not same and not problems and parts:
            files = changed_files(
                stored_identity(RunDirectory(directory.run(name))), own_files_of(each.part for each in parts)
            )
            which = f" ({', '.join(files)})" if files else ""
            text = f"the run was made by other code of your own than is there now{which}"
            problems.append(Problem(text, str(directory.run(name)), "code"))
        if entry is None or entry.code != code:
            text = "the code of h2fdp has changed since the run was made"
            problems.append(Problem(text, str(directory.run(name)), "code"))
        if problems:
            found[name] = problems
    return found


def refuse(changed: Mapping[str, Sequence[Problem]]) -> None:
    """Raise for runs that changed: which keys, what they were and what they are.

    Raises:
        UserError: one line for each key, with the first run that has it.
    """
    by_text: dict[tuple[str, str], list[Problem]] = {}
    for problems in changed.values():
        for problem in problems:
            by_text.setdefault((problem.key, problem.text), []).append(problem)
    lines = []
    for alike in list(by_text.values())[:_MOST_PROBLEMS]:
        first, more = alike[0], len(alike) - 1
        others = f", and of {more} more runs" if more > 1 else ", and of one more run" if more else ""
        lines.append(replace(first, text=first.text + others))
    runs = "1 run is" if len(changed) == 1 else f"{len(changed)} runs are"
    repeat = "add --overwrite (overwrite=True) to repeat these runs"
    hint = f"{runs} changed since it was made; {repeat}, or choose another --out"
    raise UserError([*lines, Problem(hint)])


def _differences(study: Study, planned: PlannedRun, directory: SweepDirectory, shared: SharedInputs) -> list[Problem]:
    """Keys that differ between a run's own files and what it would run now."""
    config, topology = shared.experiment(study.document, planned.settings)
    run = directory.run(planned.point.name)
    before = yaml.safe_load((run / "config.yaml").read_text())
    then, now = _flat(counted(before)), _flat(configuration_of(config))
    then.pop("topology", None)
    opened = [f"training.{key}" for key in config.training.left_open]  # chosen by the run itself, as a model is
    if config.model.name == "auto":
        opened.append("model")
    then, now = (
        {key: each for key, each in values.items() if not any(f"{key}.".startswith(f"{part}.") for part in opened)}
        for values in (then, now)
    )
    now.pop("training.extends", None)
    then["runtime.engine"], now["runtime.engine"] = before["runtime"]["engine"], config.runtime.engine
    if config.runtime.engine in ("auto", "fastest"):  # stands for one that the run chose by itself
        now["runtime.engine"] = then["runtime.engine"]
    found = _told(then, now, str(run))
    text = (run / "topology.yaml").read_text()
    if text != yaml_text(topology):
        before, after = (_flat({"topology": yaml.safe_load(each)}) for each in (text, yaml_text(topology)))
        found += _told(before, after, str(run))
    return found


def _told(then: Mapping[str, Any], now: Mapping[str, Any], where: str) -> list[Problem]:
    keys = [key for key in {**then, **now} if then.get(key, _ABSENT) != now.get(key, _ABSENT)]
    problems = [
        Problem(f"was {_word(then.get(key, _ABSENT))}, is {_word(now.get(key, _ABSENT))} now", where, key)
        for key in keys[:_MOST_KEYS]
    ]
    if len(keys) > _MOST_KEYS:
        problems.append(Problem(f"{len(keys) - _MOST_KEYS} more values differ", where, keys[0].partition(".")[0]))
    return problems


def _word(value: Any) -> str:
    return "not there" if value is _ABSENT else quote(value)


def _flat(values: Any, key: str = "") -> dict[str, Any]:
    """Dotted key -> value, down to what is neither a mapping nor a list."""
    if isinstance(values, Mapping) and values:
        return {k: v for name, part in values.items() for k, v in _flat(part, f"{key}.{name}" if key else name).items()}
    if isinstance(values, list) and values:
        return {k: v for number, part in enumerate(values) for k, v in _flat(part, f"{key}[{number}]").items()}
    return {key: values}
