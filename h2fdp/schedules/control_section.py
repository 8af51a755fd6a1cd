"""The `control:` section of an experiment file, and the horizon that Algorithm 1 plans for (H2FDP, Secs. 9-10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect, Flag, Magnitude, Positive, Share
from h2fdp.costs.device_costs import FrequencyRule, PowerRule
from h2fdp.costs.kinds import budgets
from h2fdp.errors import EXPERIMENT_REFUSALS, refused

TURNS = 0.2  # the share of edge servers in an interval, of runs that are planned as a whole
Weight = Annotated[float, Field(ge=0, le=1e12), Expect("a number from 0 to 1e12")]


BUDGETS = budgets()


class ControlSection(Section):
    """Adaptive control: Algorithm 1, by the alphas; or a run that is planned as a whole, with edge servers in turns.

    Stating `joules`, `seconds`, `gco2` or `accuracy` turns it on, and plans the whole run. Otherwise all but `enabled`
    means nothing while it is off, when `least_dbm` is refused; `least_ghz` needs no plan.

    Attributes:
        enabled: let the cloud plan each interval: its length, who takes part, the step size.
        joules: budget: the energy of the whole run; the plan has least noise.
        seconds: budget: the delay of the whole run, summed over devices.
        gco2: budget: grams of CO2 of the whole run, by `carbon` of the topology; turns are where a kilowatt-hour now
            brings less than on average.
        accuracy: instead of a budget: a test accuracy that ends the run, at least cost: `alpha1` joules + `alpha2`
            seconds, where alpha2 is 0 unless stated.
        noise: with `accuracy`: the most noise in the model, as a share of its way; null weighs cost against noise.
        turns: with a budget or an accuracy: share of the edge servers in each interval, in turns; null: 0.2.
        trust: with a budget or an accuracy: `used` relies on trusted edge servers; `weighed` also considers noise on
            devices' own steps, with fewer messages.
        least_dbm: each device chooses its transmit power in each interval, from this to its own; null: its own.
        least_ghz: each processor chooses its frequency in each interval, from this to its own `cpu_ghz`; null: its own.
        alpha1: weight of energy in problem P.
        alpha2: weight of delay in problem P.
        alpha3: weight of the privacy gap in problem P.
        phi: scale of the gap; null: equal to the other two terms at the start.
        tau_max: the longest interval.
        slots: T, the local steps of the whole run; null is intervals x local_steps.
        solver: `exact`, or `two-level` as in the paper: one level of participation for all trusted subnets, one for the
            others.
        channel: `known` plans with the fading of the coming interval, `expected` with its mean.
    """

    gone: ClassVar[Mapping[str, str]] = {
        "estimates": "estimates are those of released vectors: leave the line out",
        "allow_idle": "all edge servers take part: leave the line out, or state accuracy, joules or seconds for turns",
    }

    enabled: Flag = False
    joules: Positive | None = None
    seconds: Positive | None = None
    gco2: Positive | None = None
    accuracy: Annotated[float, Field(gt=0, le=1), Expect("a number above 0 and at most 1, as 0.75")] | None = None
    noise: Magnitude | None = None
    alpha1: Weight = 1.0
    alpha2: Weight = 1.0
    alpha3: Weight = 1.0
    phi: Magnitude | None = None
    tau_max: Annotated[int, Field(ge=1, le=10_000), Expect("a whole number from 1 to 10000")] = 40
    slots: Count | None = None
    solver: Literal["exact", "two-level"] = "exact"
    channel: Literal["known", "expected"] = "known"
    turns: Share | None = None
    trust: Literal["used", "weighed"] = "used"
    least_dbm: Annotated[float, Field(ge=-300, le=300), Expect("a number from -300 to 300")] | None = None
    least_ghz: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _planned_as_a_whole(cls, value: Any) -> Any:
        """The section with what follows from a budget or an accuracy; a written-out file has all of it."""
        if not isinstance(value, dict) or all(value.get(key) is None for key in (*BUDGETS, "accuracy")):
            return value
        seconds = {} if value.get("accuracy") is None else {"alpha2": 0.0}
        turns = TURNS if value.get("turns") is None else value["turns"]
        return {"enabled": True, **seconds, **value, "turns": turns}

    @property
    def has_budget(self) -> bool:
        """Whether joules, seconds or grams of the whole run are limited."""
        return any(getattr(self, key) is not None for key in BUDGETS)

    @property
    def is_algorithm_1(self) -> bool:
        """Whether the operator states the weights, not a budget or an accuracy: the step size is Theorem 4.3's."""
        return not self.has_budget and self.accuracy is None

    @property
    def cost_weights(self) -> tuple[float, float]:
        """The weights of a joule and a second: 1 over a budget, 0 where it has none; else the alphas.

        Where grams alone are limited, a joule weighs 1, as every gram comes of one.
        """
        if not self.has_budget:
            return self.alpha1, self.alpha2
        if self.joules is None and self.seconds is None:
            return 1.0, 0.0
        return 0.0 if self.joules is None else 1 / self.joules, 0.0 if self.seconds is None else 1 / self.seconds

    @property
    def power_rule(self) -> PowerRule | None:
        """The rule by which devices choose their power; None where each sends with its own."""
        return None if self.least_dbm is None else PowerRule(self.least_dbm, *self.cost_weights)

    @property
    def frequency_rule(self) -> FrequencyRule | None:
        """The rule by which devices choose their frequency; None where each does it as fast as it can."""
        return None if self.least_ghz is None else FrequencyRule(self.least_ghz, *self.cost_weights)

    @model_validator(mode="after")
    def _one_form(self) -> ControlSection:
        if self.has_budget and self.accuracy is not None:
            raise ValueError(f"expected a budget ({', '.join(BUDGETS)}) or an accuracy, found both")
        if self.noise is not None and self.accuracy is None:
            raise ValueError("noise needs an accuracy")
        if self.is_algorithm_1:
            if self.turns is not None or self.trust == "weighed":
                raise ValueError("turns and trust: weighed need joules, seconds or an accuracy")
            return self
        keys = ("alpha1", "alpha2", "alpha3", "phi") if self.has_budget else ("alpha3", "phi")
        fields = type(self).model_fields
        if weights := [key for key in keys if getattr(self, key) != fields[key].default]:
            raise ValueError(f"a run that is planned as a whole finds these weights; expected no {', '.join(weights)}")
        if not any(self.cost_weights):
            raise ValueError("expected a weight above 0 as alpha1, alpha2, or both")
        if self.channel != "known":
            raise ValueError("a run that is planned as a whole needs channel: known, found expected")
        if self.slots is not None:
            raise ValueError("turns choose the slots; expected no slots")
        return self


@dataclass(frozen=True)
class Horizon:
    """The length of a run that is planned in advance.

    Attributes:
        intervals: K_g.
        slots: T.
        local_steps: tau_0.
        step_size: the largest gamma; it bounds beta from below.
        longest: the longest interval that the controller considers: tau_max, or T where that is less.
    """

    intervals: int
    slots: int
    local_steps: int
    step_size: float
    longest: int

    @classmethod
    def planned(cls, intervals: int, local_steps: int, step_size: float, control: ControlSection) -> Horizon:
        """The horizon of an experiment file; T is K_g tau_0 unless `control.slots` says otherwise."""
        slots = intervals * local_steps if control.slots is None else control.slots
        return cls(intervals, slots, local_steps, step_size, min(control.tau_max, slots))

    @property
    def least_beta(self) -> float:
        """The beta at which gamma = min{1/tau_0, 1/K_g} / beta is the operator's step size."""
        return 1.0 / (self.step_size * max(self.local_steps, self.intervals))

    @property
    def largest_beta(self) -> float:
        """The largest that is believed: estimates from released vectors err upwards."""
        return 10 * self.least_beta


@EXPERIMENT_REFUSALS.register
def refusals(experiment: Any) -> Iterator[tuple[str, str]]:
    """Refusals of settings that Algorithm 1, or a plan of the whole run, decides or does not know."""
    control, training, placement = experiment.control, experiment.training, experiment.method.privacy
    on, least, until = experiment.method.traits.controlled, control.least_dbm, training.until or {}
    first, planned = on and control.is_algorithm_1, on and not control.is_algorithm_1
    times, part, decay = training.aggregate_every, training.participation, training.step_decay
    falls = "step_decay" in training.model_fields_set and decay != "sqrt"
    noisy_steps = placement.name == "hierarchical" and placement.noise == "steps"
    weighed = planned and control.trust == "weighed" and not noisy_steps
    ends = planned and control.accuracy not in (None, until.get("accuracy", control.accuracy))
    every = "one number for all edge servers"
    yield from refused(
        "the controller plans by its own model of costs, steps and noise",
        ("control.least_dbm", not on and least is not None, "null, or control.enabled: true", least),
        ("training.clip_norm", on and training.gamma is not None, "a number, for estimates", training.clip_norm),
        ("training.step_decay", first and falls, "sqrt", decay),
        ("training.aggregate_every", first and isinstance(times, dict), every, "a mapping"),
        ("control.solver", planned and control.solver != "exact", "exact", control.solver),
        ("training.participation", planned and part != 1, "1, as all devices of an edge server take part", f"{part:g}"),
        ("control.trust", weighed, "used, or method.privacy hierarchical with noise: steps", control.trust),
        ("training.until", ends, f"the same as control.accuracy, {control.accuracy}", until.get("accuracy")),
    )
