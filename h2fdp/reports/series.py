"""A run as columns that figures draw."""

from __future__ import annotations

from h2fdp.privacy import OBSERVERS
from h2fdp.records import RunDirectory, read_json_lines
from h2fdp.reports.decisions import decision_columns
from h2fdp.reports.figures import Column, Series, places
from h2fdp.reports.ledger_noise import noise_columns
from h2fdp.reports.run_view import RunView
from h2fdp.topology.trust import TRUSTS

MOST_POINTS = 2000  # of a curve: more are closer together than pixels
_QUANTILES = 200


def series_of(run: RunView) -> Series:
    """The metrics of a run, its noises, its decisions, and how accuracy is spread over its devices.

    Columns of intervals are thinned out evenly to `MOST_POINTS`.
    """
    intervals = run.metrics.get("interval", [])
    ledger = RunDirectory(run.path).ledger
    columns: dict[str, Column] = dict(run.metrics)
    if run.target is not None:  # then nothing is claimed
        columns["epsilon_claimed"] = [None] * len(intervals)
        if tuple(run.setting("privacy", "target_observers")) == OBSERVERS:
            columns["epsilon_target"] = [run.target] * len(intervals)
    if intervals and ledger.is_file():
        columns |= noise_columns(read_json_lines(ledger), intervals)
    columns |= decision_columns(run.decisions, intervals)
    kept = places(len(intervals), MOST_POINTS)
    thinned = {name: [values[place] for place in kept] for name, values in columns.items()}
    return Series(run.name, thinned | spread_of_accuracy(run.devices))


def spread_of_accuracy(devices: dict[str, Column]) -> dict[str, Column]:
    """Quantiles of the devices' accuracy under edge servers of each level of trust.

    Returns:
        `share` (of the devices, from 0 to 1), and `accuracy_trusted`, `accuracy_secure-sum`, `accuracy_untrusted`: that
        share of the devices has at most this accuracy.
    """
    found: dict[str, Column] = {}
    rows = list(zip(devices.get("accuracy", []), devices.get("trust", []), strict=True))
    for level in TRUSTS:
        values = sorted(value for value, trust in rows if trust == level and value is not None and value == value)
        if values:
            found["share"] = [place / _QUANTILES for place in range(_QUANTILES + 1)]
            found[f"accuracy_{level}"] = [values[_at(place, len(values))] for place in range(_QUANTILES + 1)]
    return found


def _at(place: int, count: int) -> int:
    """The first of `count` sorted values that as large a share of them does not exceed."""
    return max(0, -(-place * count // _QUANTILES) - 1)
