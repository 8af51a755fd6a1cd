"""What a page carries of runs with a guarantee: no seed, and nothing about private records outside every account.

Under `noise_key: seed` the seed is as good as the noise. The accuracy on each device's own records, and on a validation
split held out of them, is computed without noise, and no account covers it. Nor does one cover the accuracy on test
records, where these belong to devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from h2fdp.privacy import noise_placement_of
from h2fdp.reports.figures import Column
from h2fdp.reports.run_view import RunView
from h2fdp.reports.sweep_view import SEED, GridPoint, SweepView

_OF_VALIDATION = "validation_"
_OF_TESTS = ("accuracy", "loss", "best_accuracy", "accuracy_mean_last_", "personal_")
_LEFT_OUT = "left out"
_SEED_IN_NAME = re.compile(r"(?<![\w.])seed=\d+")


def is_guaranteed(run: RunView) -> bool:
    """Whether somebody adds noise, so that a guarantee is asked for."""
    section = run.setting("method", "privacy")
    return section is not None and noise_placement_of(section).private


def published(run: RunView) -> RunView:
    """The run without what no epsilon covers; all of it where no guarantee was asked for."""
    if not is_guaranteed(run):
        return run
    return replace(
        run,
        summary=_without(run.summary, _private_names(run.summary)) | {SEED: None},
        configuration={key: value for key, value in run.configuration.items() if key != SEED},
        configuration_text=without_seeds(run.configuration_text),
        metrics=_public(run.metrics, _private_names(run.summary)),
        devices={},
        withheld=True,
    )


def published_sweep(sweep: SweepView) -> SweepView:
    """The sweep without what no epsilon covers; all of it where no run has an account."""
    if not any(summary.get("privacy") for point in sweep.points for summary in point.summaries):
        return sweep
    points = [_published_point(point) for point in sweep.points]
    errors = {_SEED_IN_NAME.sub(f"seed {_LEFT_OUT}", name): error for name, error in sweep.errors.items()}
    return replace(sweep, points=points, errors=errors, study=without_seeds(sweep.study))


def without_seeds(text: str) -> str:
    """A configuration or a study as it is written, with its seeds left out.

    >>> print(without_seeds("name: trust\\nseed: 17\\nsweep: {seed: [1, 2]}\\n"), end="")
    name: trust
    seed: left out
    sweep:
      seed: left out
    """
    values = yaml.safe_load(text)
    if not isinstance(values, dict):
        return text
    swept = values.get("sweep")
    places = [(values, SEED)] if SEED in values else []
    places += [(swept, key) for key in swept if SEED in _keys(key)] if isinstance(swept, dict) else []
    for section, key in places:
        section[key] = _LEFT_OUT
    return yaml.safe_dump(values, sort_keys=False, width=120) if places else text


def _keys(linked: Any) -> Sequence[str]:
    """The keys of a line of a sweep, which may link several."""
    return [key.strip() for key in str(linked).split(",")]


def _published_point(point: GridPoint) -> GridPoint:
    private = max((_private_names(summary) for summary in point.summaries), key=len, default=())
    columns = _public(point.series.columns, private)
    summaries = [_without(summary, private) for summary in point.summaries]
    return replace(point, series=replace(point.series, columns=columns), summaries=summaries)


def _private_names(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """How the names of scores begin that are measured on devices' records."""
    return (_OF_VALIDATION, *_OF_TESTS) if summary.get("tested_on_devices") else (_OF_VALIDATION,)


def _without(summary: Mapping[str, Any], private: tuple[str, ...]) -> dict[str, Any]:
    return {name: None if name.startswith(private) else value for name, value in summary.items()}


def _public(columns: Mapping[str, Column], private: tuple[str, ...]) -> dict[str, Column]:
    return {name: values for name, values in columns.items() if not name.startswith(private)}
