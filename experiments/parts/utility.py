"""`utility:Utility`: in each interval those devices of a subnet take part that score best: by channel, age, released
vectors.

A device's score is rate^channel x age^age x length^norm: the rate of its channel in the coming interval, the intervals
since it was last selected, and the length of the last released vector that it had a part in. It has the form of Oort's
utility (Lai, Zhu, Madhyastha and Chowdhury, OSDI 2021), whose statistical part is made of losses on devices; those
would be releases of their own, so lengths of vectors that are released anyway, under noise, stand in for them.

Channels and ages depend on no record. So without lengths all decisions are known before the run, and the noise is made
for the releases of those who will be selected. With them decisions depend on releases, and a privacy filter keeps the
run to its target. No amplification is claimed for who is selected.

    method: {extends: h2fdp, schedule: {name: "../parts/utility:Utility", channel: 1, age: 1, norm: 0}}
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from h2fdp.network.devices import Floats, Integers
from h2fdp.schedules import Decision, IntervalObservation, OwnSchedule, ScheduleContext
from h2fdp.schedules.aggregation_times import share_of
from h2fdp.schedules.fixed import FixedOptions

LARGEST = 100.0
_NEVER = -1
_SHORTEST = 1e-30  # a released vector of zeros has a logarithm, too


class Utility(OwnSchedule):
    """Intervals and step sizes of `fixed`; the share of devices that takes part, `training.participation`, is not
    drawn: it is those of each subnet that score best.

    What has been decided is played again where it is asked for, but for lengths of vectors, which a checkpoint has.

    Args:
        channel: exponent of the rate of the device's channel in the coming interval.
        age: exponent of the intervals since the device was last selected.
        norm: exponent of the length of the last released vector with a contribution of the device; above 0 decisions
            depend on releases.

    Raises:
        ValueError: an exponent below 0 or above 100, or none above 0.
    """

    allows_epochs: ClassVar[bool] = True
    keeps_to_iterations: ClassVar[bool] = True

    def __init__(self, channel: float = 1.0, age: float = 1.0, norm: float = 0.0) -> None:
        for name, exponent in {"channel": channel, "age": age, "norm": norm}.items():
            if not (math.isfinite(exponent) and 0 <= exponent <= LARGEST):
                raise ValueError(f"{name}: expected a number from 0 to {LARGEST:g}, found {exponent:g}")
        if not (channel or age or norm):
            raise ValueError("expected an exponent above 0 as channel, age or norm")
        self._channel, self._age, self._norm = channel, age, norm

    @property
    def foreseen(self) -> bool:  # type: ignore[override]  # by its options
        """Where no released vectors count."""
        return not self._norm

    @property
    def reads_releases(self) -> bool:  # type: ignore[override]
        """Where they do."""
        return self._norm > 0

    def problems(self, clips: str, calibration: str) -> Iterator[tuple[str, str]]:
        """See `ScheduleTraits.problems`: what cannot select devices by what was released."""
        if self._norm and clips == "update":
            text = "the cloud releases one average alone, whose length tells no device from another"
            yield "method.schedule.norm", f"{text}; expected 0, or devices or edge servers that add the noise"
        if self._norm and calibration == "paper":
            text = "who sends would depend on what was released, which the formula does not know"
            yield "privacy.calibration", f"{text}; expected accounted, or method.schedule.norm: 0"

    def build(self, context: ScheduleContext) -> Utility:
        """A schedule at the start of a run, with nothing learned: a forecast and its run have one each."""
        built = copy.copy(self)
        built.context, built._fixed = context, FixedOptions().build(context)
        built._counts = share_of(context.sizes, context.share)
        built._firsts = np.concatenate([[0], np.cumsum(context.sizes)])
        built._begin()
        return built

    def _begin(self) -> None:
        devices = int(self._firsts[-1])
        self._passed = 0  # intervals whose participants are in `_last`
        self._last: Integers = np.full(devices, _NEVER, dtype=np.int64)
        self._lengths: Floats = np.full(devices, np.nan)
        self._newest: tuple[int, list[Integers]] | None = None  # interval, and who was selected for it

    @property
    def observes(self) -> bool:
        """Where released vectors count."""
        return self._norm > 0

    def ends(self, slot: int) -> bool:
        return self._fixed.ends(slot)

    def choose(self, interval: int, slot: int) -> Decision:
        """Those that score best, with the interval of `fixed`."""
        if interval < self._passed:
            assert not self.observes, "lengths of later vectors are not those that an earlier decision was made by"
            self._begin()
        self._pass(interval)
        selected = self._selected(interval)
        rows = [each - first for each, first in zip(selected, self._firsts.tolist(), strict=False)]
        return replace(self._fixed.decide(interval, slot), devices=rows)

    def observe(self, seen: IntervalObservation) -> None:
        """Keep the length of each child's upload, as a mean gradient, with the devices below that were selected."""
        self._pass(seen.interval + 1)
        took, network = self._last == seen.interval, self.context.topology
        if len(seen.children) != len(seen.uploads):
            return  # their average alone was released: it tells no device from another
        for name, upload, steps in zip(seen.children, seen.uploads, seen.mean_steps.tolist(), strict=True):
            below = network.below(name)
            at = slice(int(self._firsts[below.start]), int(self._firsts[below.stop]))
            length = float(upload.double().norm()) / (seen.step_size * max(steps, 1.0))
            self._lengths[at] = np.where(took[at], max(length, _SHORTEST), self._lengths[at])
        self._newest = None

    def skipped(self, interval: int, local_steps: int, spent: Mapping[str, float]) -> None:
        self._pass(interval + 1)

    def state(self) -> dict[str, Any]:
        state = {"last": torch.from_numpy(self._last.copy()), "lengths": torch.from_numpy(self._lengths.copy())}
        return {"passed": self._passed, **state}

    def load(self, state: Mapping[str, Any]) -> None:
        self._passed, self._newest = state["passed"], None
        self._last, self._lengths = state["last"].numpy().copy(), state["lengths"].numpy().copy()

    def _pass(self, interval: int) -> None:
        """Let all intervals before this one pass."""
        for each in range(self._passed, interval):
            self._last[np.concatenate(self._selected(each))] = each
            self._passed = each + 1

    def _selected(self, interval: int) -> list[Integers]:
        """(N,) ascending numbers of the devices of each subnet that score best; of equals who waits longest."""
        if self._newest is None or self._newest[0] != interval:
            waited = np.split(self._last, self._firsts[1:-1])
            parts = zip(self._scores(interval), waited, self._firsts.tolist(), self._counts.tolist(), strict=False)
            best = [first + np.sort(np.lexsort((last, -scores))[:count]) for scores, last, first, count in parts]
            self._newest = interval, best
        return self._newest[1]

    def _scores(self, interval: int) -> list[Floats]:
        """(N,) the logarithms of the scores of each subnet's devices in this interval."""
        log_scores = self._age * np.log(interval - self._last)
        if self._channel:
            log_scores = log_scores - self._channel * np.log(self.context.costs.drawn(interval).seconds)
        parts = np.split(log_scores, self._firsts[1:-1])
        if not self._norm:
            return parts
        return [
            scores + self._norm * np.log(_known(lengths))
            for scores, lengths in zip(parts, np.split(self._lengths, self._firsts[1:-1]), strict=True)
        ]


def _known(lengths: Floats) -> Floats:
    """Lengths, for devices without one the largest of their subnet, 1 where none has one; so all are tried, as of equal
    devices those go first that have waited longest.

    >>> _known(np.array([2.0, np.nan, 3.0])).tolist(), _known(np.array([np.nan])).tolist()
    ([2.0, 3.0, 3.0], [1.0])
    """
    unknown = np.isnan(lengths)
    largest = 1.0 if unknown.all() else float(lengths[~unknown].max())
    return np.where(unknown, largest, lengths)
