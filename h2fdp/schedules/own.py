"""What a user's own schedule derives from, and how what it decides is checked."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast, get_args

import numpy as np
import torch
from torch import Tensor

from h2fdp.config.own_answers import Origin, Words, is_number, is_true_or_false, is_whole, unstorable
from h2fdp.schedules.context import ScheduleContext
from h2fdp.schedules.control_section import Horizon
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import Measured, ScheduleTraits

_FLAGS = [name for name, value in vars(ScheduleTraits).items() if isinstance(value, bool)]
_RECEIVING = ("observe", "scored", "kept", "returned", "build")  # `build` may make another object, which receives


class OwnSchedule(ScheduleTraits, Schedule):
    """A schedule that states its traits and decides, in one class; only `choose` has to be written.

    Options in the file are arguments of its `__init__`. Where it varies tau, `longest_interval` bounds it: the noise is
    made for that many local steps, and no decision may exceed it. Where it does not state `reads_releases`, it reads
    them if it defines a method that is handed any: `observe`, `scored`, `kept` or `returned`.

    >>> class Halved(OwnSchedule):
    ...     def choose(self, interval, slot):
    ...         step_size = self.context.step_size / 2**interval
    ...         return Decision(self.context.local_steps, step_size, self.context.participation)
    >>> Halved().varies_tau, Halved().measures
    (False, 'nothing')
    """

    context: ScheduleContext

    def build(self, context: ScheduleContext) -> Schedule:
        """The same object, with the run's context at hand."""
        self.context = context
        return self

    @abstractmethod
    def choose(self, interval: int, slot: int) -> Decision:
        """The decision for `interval`, counted from 0, which begins at `slot`; the same when asked again."""

    def decide(self, interval: int, slot: int) -> Decision:
        """What is chosen; a run checks it (`CheckedSchedule`)."""
        return self.choose(interval, slot)

    @property
    def measures_secants(self) -> bool:
        """As its traits state."""
        return self.measures == "secants"


class CheckedSchedule:
    """A user's own schedule, its traits and its decisions, with its mistakes named.

    What is not checked here is asked of the user's object as it is.

    Raises:
        UserError: it is no schedule, or states no traits.
    """

    def __init__(self, own: Any, origin: Origin) -> None:
        self._own, self._origin = own, origin
        if not isinstance(own, OwnSchedule):
            raise origin.wrong("", "an object derived from `h2fdp.schedules.OwnSchedule`", own)
        for flag in _FLAGS:
            if not is_true_or_false(found := origin.call(flag, getattr, own, flag)):
                raise origin.wrong(flag, "True or False", found)
        if (found := origin.call("measures", getattr, own, "measures")) not in get_args(Measured):
            raise origin.wrong("measures", f"one of {', '.join(get_args(Measured))}", found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not (hasattr(type(self._own), name) or name in vars(self._own)):
            raise AttributeError(name)
        value = self._origin.call(name, getattr, self._own, name)
        return partial(self._origin.call, name, value) if callable(value) else value

    def build(self, context: ScheduleContext) -> Schedule:
        """See `ScheduleTraits.build`.

        Raises:
            UserError: the user's code fails, or builds something else.
        """
        built = self._origin.call("build", self._own.build, context)
        return cast(Schedule, CheckedSchedule(built, self._origin))

    def longest_interval(self, horizon: Horizon) -> int:
        """See `ScheduleTraits.longest_interval`.

        Raises:
            UserError: the user's code fails, or gives no number of local steps.
        """
        found = self._origin.call("longest_interval", self._own.longest_interval, horizon)
        if not is_whole(found) or found < 1:
            raise self._origin.wrong("longest_interval", "a whole number of at least 1", found)
        return int(found)

    def largest_step_size(self, step_size: float, local_steps: int | None, intervals: int) -> float:
        """See `ScheduleTraits.largest_step_size`.

        Raises:
            UserError: the user's code fails, or gives no step size.
        """
        stated = step_size, local_steps, intervals
        found = self._origin.call("largest_step_size", self._own.largest_step_size, *stated)
        if not is_number(found) or found <= 0:
            raise self._origin.wrong("largest_step_size", "a finite number above 0", found)
        return float(found)

    def lengths(self, horizon: Horizon) -> range:
        """See `ScheduleTraits.lengths`.

        Raises:
            UserError: the user's code fails, or gives no range of numbers of local steps.
        """
        longest = self.longest_interval(horizon)
        found: Any = self._origin.call("lengths", self._own.lengths, horizon)
        if not isinstance(found, range) or not found or not 1 <= min(found) <= max(found) <= longest:
            words = Words(repr(found)) if isinstance(found, range) else found
            raise self._origin.wrong("lengths", f"a range of whole numbers from 1 to {longest}", words)
        return found

    def steps_to_cover(self, horizon: Horizon) -> int:
        """See `ScheduleTraits.steps_to_cover`.

        Raises:
            UserError: the user's code fails, or gives no number of local steps.
        """
        self.longest_interval(horizon)
        found = self._origin.call("steps_to_cover", self._own.steps_to_cover, horizon)
        if not is_whole(found) or found < 1:
            raise self._origin.wrong("steps_to_cover", "a whole number of at least 1", found)
        return int(found)

    @property
    def reads_releases(self) -> bool:
        """See `ScheduleTraits.reads_releases`; where it does not say, whether it has a method that is handed any.

        It may read them elsewhere all the same, as from an own part in its module. So this counts only where a run is
        held to its forecast, whatever its schedule reads; elsewhere what it `states_reading` does.
        """
        stated = self.states_reading
        return any(map(self._defines, _RECEIVING)) if stated is None else stated

    @property
    def states_reading(self) -> bool | None:
        """Whether it reads releases as its class or its `__init__` says; None where they do not say."""
        return bool(self._own.reads_releases) if self._defines("reads_releases") else None

    @property
    def repeats(self) -> bool:
        """See `Schedule.repeats`."""
        return self._stated("repeats")

    @property
    def observes(self) -> bool:
        """See `Schedule.observes`."""
        return self._stated("observes")

    @property
    def measures_secants(self) -> bool:
        """No more than its checked `measures` states, which the devices were prepared for."""
        return self._own.measures == "secants" and self._stated("measures_secants")

    @property
    def scores(self) -> bool:
        """See `Schedule.scores`."""
        return self._stated("scores")

    def ends(self, slot: int) -> bool:
        """See `Schedule.ends`.

        Raises:
            UserError: the user's code fails, or answers neither true nor false.
        """
        return self._true_or_false("ends", self._origin.call("ends", self._own.ends, slot))

    def decide(self, interval: int, slot: int) -> Decision:
        """What was chosen, within what the noise was made for.

        Raises:
            UserError: the user's code fails, or chooses no interval, one that is longer, or other devices.
        """
        found: Any = self._origin.call("choose", self._own.decide, interval, slot)
        if not isinstance(found, Decision):
            raise self._wrong(interval, "a Decision", found)
        context, own = self._own.context, self._own
        longest = self.longest_interval(context.horizon)
        if not is_whole(found.local_steps) or not 1 <= found.local_steps <= longest:
            raise self._wrong(interval, f"1 to {longest} local steps", found.local_steps)
        largest = self.largest_step_size(context.step_size, context.local_steps, context.intervals)
        if not is_number(found.step_size) or not 0 < found.step_size <= largest:
            raise self._wrong(interval, f"a step size above 0 and at most {largest:g}", found.step_size)
        if not is_number(found.noise_factor) or found.noise_factor <= 0:
            raise self._wrong(interval, "a noise factor above 0", found.noise_factor)
        if found.noise_factor != 1 and not own.scales_noise:
            raise self._wrong(interval, "a noise factor of 1, since its `scales_noise` is False", found.noise_factor)
        if found.intervals is not None and (not is_whole(found.intervals) or found.intervals < 1):
            raise self._wrong(interval, "a whole number of intervals of at least 1, or None,", found.intervals)
        self._check_reasons(found.reasons, interval)
        counts = self._counts(found.participation, interval)
        return replace(
            found,
            local_steps=int(found.local_steps),
            step_size=float(found.step_size),
            participation=counts,
            noise_factor=float(found.noise_factor),
            devices=self._rows(found.devices, counts, interval),
        )

    def state(self) -> dict[str, Any]:
        """See `Schedule.state`.

        Raises:
            UserError: the user's code fails, or gives what no checkpoint can hold.
        """
        found = self._origin.call("state", self._own.state)
        if not isinstance(found, dict) or unstorable(found):
            expected = "a dict of plain values, arrays and tensors"
            raise self._origin.wrong("state", expected, Words(unstorable(found)) if isinstance(found, dict) else found)
        return found

    def kept(self, model: Tensor) -> Tensor:
        """See `Schedule.kept`.

        Raises:
            UserError: the user's code fails, gives no model, or changes the one that it was given.
        """
        given = model.clone()
        found = self._model("kept", self._own.kept, given)
        if not torch.equal(given, model) and not given.isnan().any():
            words = Words("the model that it was given, changed in place")
            raise self._origin.wrong("kept", "a model in memory of its own", words)
        return model if found is given else found

    def returned(self, model: Tensor) -> Tensor:
        """See `Schedule.returned`.

        Raises:
            UserError: the user's code fails, or gives no model.
        """
        return self._model("returned", self._own.returned, model)

    def _defines(self, name: str) -> bool:
        """Whether the user's class, or its object, has this of its own."""
        kinds = type(self._own).__mro__
        theirs = kinds[: kinds.index(OwnSchedule)]
        return name in vars(self._own) or any(name in vars(kind) for kind in theirs)

    def _stated(self, name: str) -> bool:
        return self._true_or_false(name, self._origin.call(name, getattr, self._own, name))

    def _true_or_false(self, method: str, found: Any) -> bool:
        if not is_true_or_false(found):
            raise self._origin.wrong(method, "True or False", found)
        return bool(found)

    def _model(self, method: str, rule: Callable[[Tensor], Any], model: Tensor) -> Tensor:
        found = self._origin.call(method, rule, model)
        if not isinstance(found, Tensor) or found.shape != model.shape or found.dtype != model.dtype:
            raise self._origin.wrong(method, f"a tensor of shape {tuple(model.shape)} and type {model.dtype}", found)
        if found.requires_grad:
            raise self._origin.wrong(method, f"a tensor of shape {tuple(model.shape)}, detached,", found)
        return found

    def _counts(self, stated: Any, interval: int) -> np.ndarray:
        """(N,) the devices that take part."""
        sizes = self._own.context.sizes
        expected = f"a whole number of devices of each edge server, within {sizes.tolist()}"
        try:
            counts = np.asarray(stated)
        except ValueError:
            raise self._wrong(interval, expected, stated) from None
        if counts.dtype.kind not in "iu" or counts.shape != sizes.shape:
            raise self._wrong(interval, expected, stated if counts.dtype == object else Words(counts.tolist()))
        if (counts < 0).any() or (counts > sizes).any():
            raise self._wrong(interval, expected, Words(counts.tolist()))
        return counts

    def _rows(self, stated: Any, counts: np.ndarray, interval: int) -> list[np.ndarray] | None:
        """For each subnet the rows that take part, as many as its participation says."""
        if stated is None:
            return None
        sizes = self._own.context.sizes
        expected = f"for each edge server ascending rows of devices, {counts.tolist()} of them, below {sizes.tolist()},"
        try:
            rows = [np.asarray(each) for each in stated]
        except (TypeError, ValueError):
            raise self._wrong(interval, expected, stated) from None
        for each, count, size in zip(rows, counts.tolist(), sizes.tolist(), strict=len(rows) == len(counts)):
            whole = each.size == 0 or each.dtype.kind in "iu"
            if not whole or each.shape != (count,) or (np.diff(each, prepend=-1) <= 0).any() or (each >= size).any():
                raise self._wrong(interval, expected, Words(str([part.tolist() for part in rows])))
        if len(rows) != len(counts):
            raise self._wrong(interval, expected, Words(str([part.tolist() for part in rows])))
        return [each.astype(np.int64) for each in rows]

    def _check_reasons(self, reasons: Any, interval: int) -> None:
        if reasons is None:
            return
        try:
            json.dumps(dict(reasons))
        except (TypeError, ValueError):
            raise self._wrong(interval, "reasons that are a dict of values that JSON holds, or None", reasons) from None

    def _wrong(self, interval: int, expected: str, found: Any) -> Exception:
        return self._origin.wrong("choose", f"{expected} for interval {interval + 1}", found)
