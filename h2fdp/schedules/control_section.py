"""The `control:` section of an experiment file, and the horizon that Algorithm 1 plans for (H2FDP, Secs. 9-10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from h2fdp.config import Section
from h2fdp.config.fields import Count, Expect, Flag, Magnitude, NonNegative, Positive, Share
from h2fdp.radio import PowerRule

TURNS = 0.2  # the share of edge servers in an interval, of runs that are planned as a whole
Estimates = Literal["released", "private", "oracle"]
Weight = Annotated[float, Field(ge=0, le=1e12), Expect("a number from 0 to 1e12")]


class BudgetForm(Section):
    """What a run may spend; what is not stated is unlimited.

    Attributes:
        joules: energy of the whole run.
        seconds: delay of the whole run, added up over devices as problem P does.
        epsilon: the same as `privacy.epsilon`, the target of the account.
    """

    joules: Positive | None = None
    seconds: Positive | None = None
    epsilon: Magnitude | None = None

    @model_validator(mode="after")
    def _of_something(self) -> BudgetForm:
        if self.joules is None and self.seconds is None:
            raise ValueError("expected joules, seconds, or both")
        return self


class TargetForm(Section):
    """A test accuracy, and what is to be least until it is reached: joules, seconds, or joules + seconds weighed so.

    Attributes:
        accuracy: the run ends with the first interval whose model has it on the test data.
        joules: weight of energy.
        seconds: weight of delay.
        noise: the most that there may be in the model, as a share of the way that it goes; null weighs cost against
            noise.
    """

    accuracy: Annotated[float, Field(gt=0, le=1), Expect("a number above 0 and at most 1")]
    joules: NonNegative = 1.0
    seconds: NonNegative = 0.0
    noise: Magnitude | None = None

    @model_validator(mode="after")
    def _of_something(self) -> TargetForm:
        if not self.joules and not self.seconds:
            raise ValueError("expected a weight above 0 for joules, seconds, or both")
        return self


class PowerForm(Section):
    """How devices choose their transmit power; the most is each one's own, `power_dbm` of the topology file.

    Attributes:
        least_dbm: the least power, in decibels above a milliwatt; below that of every device.
    """

    least_dbm: Annotated[float, Field(ge=-300, le=300), Expect("a number from -300 to 300")]


_SHORT = ("joules", "seconds", "accuracy")


class ControlSection(Section):
    """Adaptive control, Algorithm 1; all but `enabled` means nothing while it is off, when `power` is refused.

    `control: {joules: 3}` is short for a budget, `control: {accuracy: 0.8}` for a target: {enabled: true, budget:
    {joules: 3}}. With either of them the whole run is planned beforehand, with edge servers in turns.

    Attributes:
        enabled: let the cloud plan each interval: its length, who takes part, the step size.
        joules: short for a budget of energy, see above.
        seconds: short for a budget of delay.
        accuracy: short for a target.
        budget: instead of the alphas: least noise for what may be spent.
        target: instead of the alphas: least cost until an accuracy is reached.
        turns: with a budget or a target, the share of the edge servers in each interval, in turns; null takes 0.2.
        trust: with a budget or a target, whether trusted edge servers are `used`, so that they add one noise to the
            sum of their devices, or it is `weighed` whether devices rather add noise to their own steps and send less.
        power: let each device choose its transmit power in each interval, by its channel and by what a joule and a
            second weigh; null sends with that of the topology file.
        alpha1: weight of energy in problem P.
        alpha2: weight of delay in problem P.
        alpha3: weight of the privacy gap in problem P.
        phi: brings the gap to the range of the other two; null chooses it so that they start alike.
        tau_max: the longest interval.
        slots: T, the local steps of the whole run; null is intervals x local_steps.
        solver: `exact`, or `two-level` as in the paper: one level of participation for all trusted subnets, one for the
            others.
        allow_idle: whether a whole subnet may skip an interval.
        channel: `known` plans with the fading of the coming interval, `expected` with its mean.
        estimates: where beta, sigma, zeta and zeta_c come from (Sec. 10).
    """

    enabled: Flag = False
    joules: Positive | None = None
    seconds: Positive | None = None
    accuracy: Annotated[float, Field(gt=0, le=1), Expect("a number above 0 and at most 1")] | None = None
    alpha1: Weight = 1.0
    alpha2: Weight = 1.0
    alpha3: Weight = 1.0
    phi: Magnitude | None = None
    tau_max: Annotated[int, Field(ge=1, le=10_000), Expect("a whole number from 1 to 10000")] = 40
    slots: Count | None = None
    solver: Literal["exact", "two-level"] = "exact"
    allow_idle: Flag = False
    channel: Literal["known", "expected"] = "known"
    estimates: Estimates = "released"
    budget: BudgetForm | None = None
    target: TargetForm | None = None
    turns: Share | None = None
    trust: Literal["used", "weighed"] = "used"
    power: PowerForm | None = None

    @model_validator(mode="before")
    @classmethod
    def _write_out(cls, value: Any) -> Any:
        """What the short keys stand for, and the turns of what is planned as a whole; a written-out file has all."""
        if not isinstance(value, dict):
            return value
        amounts = {key: value.get(key) for key in _SHORT}
        short = {key: amount for key, amount in amounts.items() if isinstance(amount, int | float) and amount > 0}
        if not short:
            planned = value.get("turns") is None and (value.get("budget") or value.get("target")) is not None
            return {**value, "turns": TURNS} if planned else value
        budget = {key: amount for key, amount in short.items() if key != "accuracy"}
        meant = {"budget": budget, "target": {"accuracy": short["accuracy"]} if "accuracy" in short else {}}
        for key, schema in (("budget", BudgetForm), ("target", TargetForm)):
            stated = value.get(key)
            if stated is not None and not (
                meant[key] and schema.model_validate(stated) == schema.model_validate(meant[key])
            ):
                raise ValueError(f"expected {', '.join(short)} or {key}, found both")
        others = {key: each for key, each in value.items() if each is not None and key not in meant}
        return {"enabled": True, "turns": TURNS, **{key: each for key, each in meant.items() if each}, **others}

    @property
    def is_algorithm_1(self) -> bool:
        """Whether the operator states the weights, not a budget or a target: then the step size is Theorem 4.3's."""
        return self.budget is None and self.target is None

    @property
    def cost_weights(self) -> tuple[float, float]:
        """What a joule and a second weigh beside each other, as the form states it: 1 over a budget, 0 where it has
        none; the weights of a target; alpha1 and alpha2."""
        if self.target is not None:
            return self.target.joules, self.target.seconds
        if self.budget is None:
            return self.alpha1, self.alpha2
        joules, seconds = self.budget.joules, self.budget.seconds
        return 0.0 if joules is None else 1 / joules, 0.0 if seconds is None else 1 / seconds

    @property
    def power_rule(self) -> PowerRule | None:
        """How devices choose their power; None where each sends with its own."""
        return None if self.power is None else PowerRule(self.power.least_dbm, *self.cost_weights)

    @model_validator(mode="after")
    def _idle_needs_exact(self) -> ControlSection:
        if self.allow_idle and self.solver != "exact":
            raise ValueError("allow_idle needs solver exact; two levels leave no subnet out")
        return self

    @model_validator(mode="after")
    def _one_form(self) -> ControlSection:
        fields = type(self).model_fields
        weights = [key for key in ("alpha1", "alpha2", "alpha3", "phi") if getattr(self, key) != fields[key].default]
        if self.budget is not None and self.target is not None:
            raise ValueError("expected budget or target, found both")
        if self.is_algorithm_1:
            if self.turns is not None:
                raise ValueError("turns need a budget or a target")
            if self.trust == "weighed":
                raise ValueError("trust: weighed needs a budget or a target")
            return self
        if weights:
            raise ValueError(f"budget and target find the weights; expected no {', '.join(weights)}")
        if self.channel != "known":
            raise ValueError("budget and target need channel: known, found expected")
        if self.slots is not None:
            raise ValueError("turns choose the slots; expected no slots")
        return self


@dataclass(frozen=True)
class Horizon:
    """What is planned in advance.

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
        """As an experiment file has it; T is K_g tau_0 unless `control.slots` says otherwise."""
        slots = intervals * local_steps if control.slots is None else control.slots
        return cls(intervals, slots, local_steps, step_size, min(control.tau_max, slots))

    @property
    def least_beta(self) -> float:
        """The beta at which gamma = min{1/tau_0, 1/K_g} / beta is the operator's step size."""
        return 1.0 / (self.step_size * max(self.local_steps, self.intervals))

    @property
    def largest_beta(self) -> float:
        """The largest that is believed: estimates from released vectors err upwards, private ones need a range."""
        return 10 * self.least_beta
