"""Settings next to those of an experiment, each calibrated to the same accounted epsilon, and what their noise does.

Compared is the noise on a step, `NoiseOnModel.per_step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from h2fdp.errors import UserError
from h2fdp.experiment.rhythm import aggregation_times
from h2fdp.experiment.sections import ExperimentFile
from h2fdp.privacy.statement import epsilons
from h2fdp.run.forecast import rough_accounts
from h2fdp.run.noise_on_model import joules_of, noise_on_model
from h2fdp.run.prepare import with_settings
from h2fdp.run.setup import RunSetup
from h2fdp.schedules import AggregationTimes

_STATED_NOISE = ("noise_multiplier", "noise_std", "rate")


@dataclass(frozen=True)
class Neighbour:
    """A setting next to the present one.

    Attributes:
        key: of the setting, as in an experiment file.
        value: what it would be.
        noise: its noise on a step over the present one's; below 1 is better.
        energy: joules of all messages over the present ones, of a first interval times the intervals.
    """

    key: str
    value: Any
    noise: float
    energy: float

    def as_row(self) -> dict[str, Any]:
        """For tables and JSON."""
        return {"setting": self.key, "value": self.value, "noise": self.noise, "energy": self.energy}


def worst_epsilon(setup: RunSetup) -> float:
    """What the worst of the target observers will hold of the worst device, by `pld`; 0 where they receive nothing.

    As if all intervals were like the first one, and devices took turns.
    """
    accounts = rough_accounts(setup)
    found = [0.0]
    for observer in setup.target_observers:
        if held := [each.composition for each in accounts.classes(observer)]:
            found.append(epsilons("pld", held, setup.config.privacy.delta)[1])
    return max(found)


def at_epsilon(setup: RunSetup, epsilon: float, config: ExperimentFile | None = None) -> RunSetup:
    """The run with these settings, by default its own, and the noise that brings the target observers to `epsilon`.

    Raises:
        UserError: nothing does, or the settings mean nothing.
    """
    config = config or setup.config
    target = {"calibration": "accounted", "accountant": "pld", "epsilon": epsilon}
    noise = config.method.privacy
    stated = {key: None for key in _STATED_NOISE if getattr(noise, key, None) is not None}
    method = config.method.model_copy(update={"privacy": noise.model_copy(update=stated)})
    privacy = config.privacy.model_copy(update=target)
    return with_settings(setup, config.model_copy(update={"method": method, "privacy": privacy}), rough_accounts)


def neighbours(setup: RunSetup) -> list[Neighbour]:
    """The settings next to the present one, by their noise; empty where no account is known before the run.

    Halved and doubled, each by itself: the sampling rate or batch size, intervals, local steps, and how often edge
    servers aggregate; and the clip norm halved, whose gain only gradients have that are not clipped.
    All are calibrated to what the worst target observer holds after the planned run, by `pld`, as if all intervals were
    like the first one and devices took turns.
    """
    if not comparable(setup):
        return []
    epsilon = worst_epsilon(setup)
    present = at_epsilon(setup, epsilon)
    base, joules = noise_on_model(present).per_step, joules_of(present)
    found = []
    for key, value in _changes(setup):
        try:
            other = at_epsilon(setup, epsilon, _changed(setup, key, value))
        except UserError:  # outside what the method is made for
            continue
        noise = noise_on_model(other).per_step / base
        found.append(Neighbour(key, value, noise, joules_of(other) / joules if joules else 1.0))
    return sorted(found, key=lambda each: each.noise)


def comparable(setup: RunSetup) -> bool:
    """Whether the noise of other settings can be calibrated before the run, by an account."""
    if setup.noise is None or setup.leaks or not setup.placement.accounted:
        return False
    return setup.traits.foreseen and not setup.traits.controlled and not setup.traits.varies_tau


def _changed(setup: RunSetup, key: str, value: Any) -> ExperimentFile:
    training = setup.config.training.model_copy(update={key: value})
    return setup.config.model_copy(update={"training": training})


def _changes(setup: RunSetup) -> Iterator[tuple[str, Any]]:
    training = setup.config.training
    if training.sampling_rate is not None:
        yield from _both("sampling_rate", training.sampling_rate, largest=1.0)
    elif training.batch_size is not None:
        yield from _both("batch_size", training.batch_size, largest=int(setup.data.sizes.max()))
    yield from _both("intervals", training.intervals)
    if training.local_steps is not None:
        yield from _both("local_steps", training.local_steps)
        yield from _rhythms(setup)
    norm = None if training.adaptive is not None else training.first_clip_norm
    if norm is not None and training.clipping == "clip":  # normalised ones shrink as much as the noise
        yield "clip_norm", norm / 2


def _both(key: str, value: float, largest: float = math.inf) -> Iterator[tuple[str, Any]]:
    """Half of it and twice it; whole numbers stay whole."""
    for other in (value / 2, min(value * 2, largest)):
        found = type(value)(other)
        if found != value and found > 0:
            yield key, found


def _rhythms(setup: RunSetup) -> Iterator[tuple[str, Any]]:
    """Half and twice as many steps between aggregations, where that makes any difference."""
    training, steps = setup.config.training, setup.local_steps
    changes: list[tuple[str, Any]]
    if training.aggregate_every is None:
        key = "aggregations_per_interval"
        changes = [(key, _each(training.aggregations_per_interval, change)) for change in (_half, _twice)]
    else:
        key = "aggregate_every"
        changes = [
            (key, _each(training.aggregate_every, lambda every: max(every // 2, 1))),
            (key, _each(training.aggregate_every, lambda every: min(every * 2, steps))),
        ]
    for key, value in changes:
        if not _is_rhythm(key, value):
            continue
        times = aggregation_times(_changed(setup, key, value), setup.drawn)
        if any(
            _segments(times, subnet.name, steps) != _segments(setup.aggregation_times, subnet.name, steps)
            for subnet in setup.topology.subnets
        ):
            yield key, value


def _segments(times: AggregationTimes, edge: str, steps: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    of_edge = times.of(edge)
    return of_edge.segments(steps), of_edge.heights(steps, 10)


def _half(value: int) -> int:
    return value // 2


def _twice(value: int) -> int:
    return value * 2


def _each(stated: Any, change: Callable[[int], int]) -> Any:
    if isinstance(stated, Mapping):
        return {name: change(each) for name, each in stated.items()}
    if isinstance(stated, list):
        return [change(each) for each in stated]
    return None if stated is None else change(stated)


def _is_rhythm(key: str, value: Any) -> bool:
    """Whether the numbers of neighbouring tiers go together."""
    if not isinstance(value, list):
        return value is not None
    if key == "aggregate_every":
        return all(above % below == 0 for below, above in pairwise(value))
    return all(above == 0 or (below > 0 and below % above == 0) for below, above in pairwise(value))
