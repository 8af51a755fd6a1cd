"""What several local steps between releases cost, next to one step and to noise inside the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from h2fdp.errors import UserError
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy import Release
from h2fdp.privacy.noise_placement_options import DpSgdOptions, HierarchicalOptions, LocalOptions
from h2fdp.run.forecast import forecast
from h2fdp.run.neighbours import at_epsilon, comparable, worst_epsilon
from h2fdp.run.noise_on_model import joules_of, noise_on_model
from h2fdp.run.setup import RunSetup


def costliest_release(run: RunSetup) -> Release | None:
    """The release of the first interval with the least noise for its sensitivity; None where there is none."""
    rows = [row for row in _distinct_releases(run) if row.kind != "estimate"]
    return min(rows, key=lambda row: row.noise_std / row.sensitivity, default=None)


def rhythm_costs(run: RunSetup) -> list[dict[str, Any]]:
    """Rows for the present setting and for others with as many local steps; empty where it releases every step anyway,
    where its bound is another, and where no account is known before the run.

    The others release after each step, clip records instead of batches if it clips batches, or add noise inside
    untrusted devices (DP-SGD), which then send as often as now. All are calibrated to what the worst target observer
    holds after the planned run, by `pld`.

    Returns:
        rows of `setting`, in words; `bound` and `multiplier`, noise over sensitivity, of its costliest release;
        `noise`, that on a step (`NoiseOnModel.per_step`); `times`, the same over the present one's; `energy`, joules
        of messages over the present ones.
    """
    method = run.config.method.privacy
    if not (isinstance(method, (HierarchicalOptions, LocalOptions)) and comparable(run)):
        return []
    costly = costliest_release(run)
    longest = max((row.steps for row in _distinct_releases(run)), default=1)
    if costly is None or costly.bound not in ("batch", "record") or longest == 1:
        return []
    epsilon = worst_epsilon(run)
    present = at_epsilon(run, epsilon)
    rows = [_row(f"{longest} steps between releases, as here", present)]
    for words, config in _others(run, longest):
        try:
            rows.append(_row(words, at_epsilon(run, epsilon, config)))
        except UserError:  # outside what the method is made for
            continue
    base, joules = rows[0]["noise"], rows[0]["energy"]
    for row in rows:
        row["times"], row["energy"] = row["noise"] / base, row["energy"] / joules if joules else 1.0
    return rows


def _distinct_releases(run: RunSetup) -> Iterator[Release]:
    """Those of the first interval, if nothing fails in it, of one of the subnets that look alike."""
    return (row for alike in next(forecast(run.without_faults())).alike() for row in alike.releases)


def _row(words: str, run: RunSetup) -> dict[str, Any]:
    """What `rhythm_costs` says of a setting, with its own joules."""
    costly = costliest_release(run)
    assert costly is not None, "there are noisy releases in every setting of this method"
    return {
        "setting": words,
        "bound": costly.bound,
        "multiplier": costly.noise_std / costly.sensitivity,
        "noise": noise_on_model(run).per_step,
        "times": 1.0,
        "energy": joules_of(run),
    }


def _others(run: RunSetup, longest: int) -> Iterator[tuple[str, ExperimentFile]]:
    config = run.config
    single = _with(config, **_every_step(run))
    yield "one step between releases", single
    if config.training.clip_scope == "batch":
        yield "the same, clip_scope: record", _with(single, clip_scope="record")
    method = config.method.privacy
    if config.training.momentum or getattr(method, "noise", "uploads") == "steps":
        return  # the variance of noise that momentum mixes is not known
    inside = DpSgdOptions() if isinstance(method, LocalOptions) else method.model_copy(update={"noise": "steps"})
    changed = _with(config, clip_scope="record", **_inside(run, longest))
    placed = config.method.model_copy(update={"privacy": inside})
    yield (
        f"noise inside devices ({'dp-sgd' if isinstance(method, LocalOptions) else 'noise: steps'})",
        (changed.model_copy(update={"method": placed})),
    )


def _every_step(run: RunSetup) -> dict[str, Any]:
    """Settings with as many local steps and a release after each; in a star only the cloud aggregates."""
    training = run.config.training
    if run.config.method.topology == "star":
        return {"local_steps": 1, "intervals": training.intervals * run.local_steps}
    return {"aggregate_every": 1, "aggregations_per_interval": None}


def _inside(run: RunSetup, longest: int) -> dict[str, Any]:
    """Noisy steps may be as many as now between two messages; trusted edge servers should add up single ones."""
    if run.config.method.topology == "star" or not any(each.one_noise for each in _trust_models(run)):
        return {}
    if run.topology.depth > 1:
        return _every_step(run)
    often = {"trusted": 1, "secure-sum": 1, "untrusted": longest}
    return {"aggregate_every": often, "aggregations_per_interval": None}


def _trust_models(run: RunSetup) -> list[Any]:
    return [each.trust_model for each in run.blueprint.facts]


def _with(config: ExperimentFile, **training: Any) -> ExperimentFile:
    return config.model_copy(update={"training": config.training.model_copy(update=training)})
