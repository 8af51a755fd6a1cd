"""The schedule of a method: one by name, or a user's own, derived from `OwnSchedule`, whose decisions are checked."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from h2fdp.config.own_answers import (
    Checked,
    Origin,
    Rule,
    Words,
    count_rule,
    flag_rule,
    is_number,
    is_whole,
    state_rule,
    tensor_rule,
)
from h2fdp.config.own_parts import OwnPart
from h2fdp.errors import UserError
from h2fdp.schedules.control_section import ControlSection, Horizon
from h2fdp.schedules.h2fdp_controller import H2fdpOptions
from h2fdp.schedules.measuring import Measure
from h2fdp.schedules.schedule import Decision, Schedule
from h2fdp.schedules.traits import SCHEDULES, ScheduleContext, ScheduleOptions, ScheduleTraits

ScheduleSection = Annotated[ScheduleOptions | OwnPart, SCHEDULES]


def chosen(section: ScheduleOptions | OwnPart) -> ScheduleTraits:
    """The traits, known before a run, of the schedule that a `method.schedule` names, and how it is built.

    Raises:
        UserError: a user's own schedule that cannot be made.
    """
    if isinstance(section, OwnPart):
        return cast(ScheduleTraits, CheckedSchedule(section.make(), section.origin))
    return section


def reconciled(
    schedule: ScheduleOptions | OwnPart, control: ControlSection
) -> tuple[ScheduleOptions | OwnPart, ControlSection]:
    """`control.enabled` and the schedule `h2fdp` are two ways to say the same: here either one implies the other.

    Raises:
        UserError: they contradict each other.
    """
    adaptive, traits = H2fdpOptions(), chosen(schedule)
    controlled = traits.controlled
    if controlled and "enabled" in control.model_fields_set and not control.enabled:
        text = f"the method's schedule is {adaptive.name}; expected true, or a method with schedule fixed"
        raise UserError(text, key="control.enabled")
    if not controlled and not control.enabled:
        return schedule, control
    if not controlled and not traits.as_stated:
        text = f"the method's schedule is {schedule.name}; expected false, or a method with schedule {adaptive.name}"
        raise UserError(text, key="control.enabled")
    return schedule if controlled else adaptive, control.model_copy(update={"enabled": True})


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
    (False, None)
    """

    context: ScheduleContext

    def build(self, context: ScheduleContext) -> Schedule:
        """This object, with the run's context at hand."""
        self.context = context
        return self

    @abstractmethod
    def choose(self, interval: int, slot: int) -> Decision:
        """The decision for `interval`, counted from 0, which begins at `slot`; the same when asked again."""

    def decide(self, interval: int, slot: int) -> Decision:
        """The decision that is chosen; a run checks it (`CheckedSchedule`)."""
        return self.choose(interval, slot)


def _measure_rule(value: Any) -> str:
    return "" if value is None or callable(value) else "a function of the devices, or None"


def _step_size_rule(value: Any, *given: Any) -> str:
    return "" if is_number(value) and value > 0 else "a finite number above 0"


class CheckedSchedule(Checked):
    """A user's own schedule, its traits and its decisions, with its mistakes named.

    Raises:
        UserError: it is no schedule, states no traits, fails, or answers what `Schedule` does not.
    """

    rules: ClassVar[Mapping[str, Rule]] = {
        **dict.fromkeys(_FLAGS, flag_rule),
        **dict.fromkeys(("repeats", "observes", "scores", "ends"), flag_rule),
        "measures": _measure_rule,
        "longest_interval": count_rule,
        "steps_to_cover": count_rule,
        "largest_step_size": _step_size_rule,
        "state": state_rule,
        "returned": tensor_rule,
        "kept": tensor_rule,
    }

    def __init__(self, own: Any, origin: Origin) -> None:
        super().__init__(own, origin)
        if not isinstance(own, OwnSchedule):
            raise origin.wrong("", "an object derived from `h2fdp.schedules.OwnSchedule`", own)
        for name in (*_FLAGS, "measures"):
            self._right(name, origin.call(name, getattr, own, name))

    def build(self, context: ScheduleContext) -> Schedule:
        """The schedule at the start of a run, checked."""
        return cast(Schedule, CheckedSchedule(self._origin.call("build", self._own.build, context), self._origin))

    def lengths(self, horizon: Horizon) -> range:
        """The local steps that an interval can have."""
        longest = self.longest_interval(horizon)
        lengths: Any = self._origin.call("lengths", self._own.lengths, horizon)
        if not isinstance(lengths, range) or not lengths or not 1 <= min(lengths) <= max(lengths) <= longest:
            raise self._origin.wrong("lengths", f"a range of whole numbers from 1 to {longest}", Words(repr(lengths)))
        return lengths

    @property
    def reads_releases(self) -> bool:
        """Whether it reads releases; where it does not say, whether it has a method that is handed any.

        It may read them elsewhere all the same, as from an own part in its module. So this counts only where a forecast
        bounds the run, whatever its schedule reads; elsewhere what it `states_reading` does.
        """
        stated = self.states_reading
        return any(map(self._defines, _RECEIVING)) if stated is None else stated

    @property
    def states_reading(self) -> bool | None:
        """Whether it reads releases as its class or its `__init__` says; None where they do not say."""
        return bool(self._own.reads_releases) if self._defines("reads_releases") else None

    @property
    def measures(self) -> Measure | None:
        """The measuring function, see `ScheduleTraits`; the function alone travels to hosts, and its failures are
        named."""
        measure = self._right("measures", self._own.measures)
        return None if measure is None else partial(self._origin.call, "measures", measure)

    def decide(self, interval: int, slot: int) -> Decision:
        """The decision that was chosen, within what the noise was made for.

        Raises:
            UserError: the user's code fails, or chooses no interval, one that is longer, or other devices.
        """
        answer: Any = self._origin.call("choose", self._own.decide, interval, slot)
        if expected := self._mistake(answer):
            words = Words(str(answer)[:200]) if isinstance(answer, Decision) else answer
            raise self._origin.wrong("choose", f"{expected} for interval {interval + 1}", words)
        decided: Decision = replace(
            answer,
            local_steps=int(answer.local_steps),
            step_size=float(answer.step_size),
            participation=np.asarray(answer.participation),
            noise_factor=float(answer.noise_factor),
            devices=None if answer.devices is None else [np.asarray(rows, dtype=np.int64) for rows in answer.devices],
        )
        return decided

    def _mistake(self, value: Any) -> str:
        """The words for what was expected in place of a decision; empty where it is one that the noise was made for."""
        if not isinstance(value, Decision):
            return "a Decision"
        context = self._own.context
        longest = self.longest_interval(context.horizon)
        if not is_whole(value.local_steps) or not 1 <= value.local_steps <= longest:
            return f"1 to {longest} local steps"
        largest = self.largest_step_size(context.step_size, context.local_steps, context.intervals)
        if not is_number(value.step_size) or not 0 < value.step_size <= largest:
            return f"a step size above 0 and at most {largest:g}"
        if not is_number(value.noise_factor) or value.noise_factor <= 0:
            return "a noise factor above 0"
        if value.noise_factor != 1 and not self._own.scales_noise:
            return "a noise factor of 1, since its `scales_noise` is False,"
        if value.intervals is not None and count_rule(value.intervals):
            return "a whole number of intervals of at least 1, or None,"
        if value.arrivals is not None:
            return "no arrivals, which the schedule `buffered` alone decides,"
        if not _is_written(value.reasons):
            return "reasons that are a dict of values that JSON holds, or None,"
        sizes = context.sizes.tolist()
        counts = _whole_numbers(value.participation)
        if counts is None or counts.shape != (len(sizes),) or (counts < 0).any() or (counts > sizes).any():
            return f"a whole number of devices of each edge server, within {sizes},"
        if value.devices is None:
            return ""
        rows = [_whole_numbers(each) for each in value.devices]
        if len(rows) != len(sizes) or not all(map(_are_rows, rows, counts.tolist(), sizes)):
            return f"for each edge server ascending rows of devices, {counts.tolist()} of them, below {sizes},"
        return ""

    def kept(self, model: Tensor) -> Tensor:
        """Hand over the model that is kept; see `Schedule.kept`.

        Raises:
            UserError: the user's code fails, gives no model, or changes the one that it was given.
        """
        given = model.clone()
        returned: Tensor = self._ask("kept", self._own.kept, given)
        if not torch.equal(given, model) and not given.isnan().any():
            raise self._origin.problem("kept changed the model in place; expected a tensor of its own")
        return model if returned is given else returned

    def _defines(self, name: str) -> bool:
        """Whether the user's class, or its object, has this of its own."""
        kinds = type(self._own).__mro__
        theirs = kinds[: kinds.index(OwnSchedule)]
        return name in vars(self._own) or any(name in vars(kind) for kind in theirs)


def _whole_numbers(stated: Any) -> np.ndarray | None:
    """Stated numbers as an array of integers; None where they are none."""
    try:
        numbers = np.asarray(stated)
    except ValueError:  # of different lengths
        return None
    return numbers if numbers.dtype.kind in "iu" or numbers.size == 0 else None


def _are_rows(rows: np.ndarray | None, count: int, size: int) -> bool:
    """Whether these are so many ascending rows of a subnet of so many devices."""
    if rows is None or rows.shape != (count,):
        return False
    return bool((np.diff(rows, prepend=-1) > 0).all() and (rows < size).all())


def _is_written(reasons: Any) -> bool:
    """Whether `control.jsonl` can hold the reasons of a decision."""
    try:
        json.dumps(None if reasons is None else dict(reasons))
    except (TypeError, ValueError):
        return False
    return True
