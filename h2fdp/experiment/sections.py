"""The `training:`, `privacy:`, `control:` and `faults:` sections of an experiment file.

A value that only a later version will honour is refused with those words: nothing that a user writes is ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from h2fdp.config.fields import (
    Count,
    Expect,
    Flag,
    Number,
    OpenProbability,
    Positive,
    Probability,
    Section,
    Share,
    Whole,
)

Zero = Annotated[float, Field(ge=0, le=0), Expect("0 (faults come with a later version)")]


ObserverName = Annotated[Literal["edge", "peer", "cloud", "public"], Expect("one of edge, peer, cloud, public")]


class TrainingSection(Section):
    """How devices train and how often subnets aggregate (H2FDP, Sec. 3)."""

    intervals: Count = 200
    local_steps: Count = 20
    aggregate_every: Count | None = 5
    aggregations_per_interval: Whole | None = None
    batch_size: Count | None = 32
    sampling_rate: Share | None = None
    step_size: Positive = 0.1
    step_decay: Annotated[Literal["sqrt", "none"], Expect("one of sqrt, none")] = "sqrt"
    clip_norm: Positive | None = 1.0
    clip_scope: Annotated[Literal["batch", "record"], Expect("one of batch, record")] = "batch"
    sampling: Annotated[Literal["poisson", "fixed"], Expect("one of poisson, fixed")] = "poisson"
    participation: Share = 1.0
    weights: Annotated[Literal["uniform", "by-size"], Expect("one of uniform, by-size")] = "uniform"
    evaluate_every: Count = 1

    @model_validator(mode="before")
    @classmethod
    def _one_of_each_pair(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for pair in (("aggregate_every", "aggregations_per_interval"), ("batch_size", "sampling_rate")):
            stated = [key for key in pair if key in value]
            given = [key for key in stated if value[key] is not None]
            if len(given) == 2 or (len(stated) == 2 and not given):
                raise ValueError(
                    f"expected exactly one of {pair[0]} and {pair[1]}, found "
                    + ("both; set the other one to null" if given else "neither")
                )
            if stated == [pair[0]] and not given:
                raise ValueError(f"{pair[0]} is null and {pair[1]} is not given; expected exactly one of them")
            if stated == [pair[1]] and given:
                value = {**value, pair[0]: None}
        return value


class PrivacySection(Section):
    """The target and the calibration of the noises (H2FDP, Prop. 3.1)."""

    epsilon: Positive = 1.0
    delta: OpenProbability = 1e-5
    calibration: Annotated[Literal["paper", "accounted"], Expect("one of paper, accounted")] = "paper"
    sensitivity: Annotated[Literal["paper", "tight"], Expect("one of paper, tight")] = "paper"
    c2: Positive = 2**0.5
    v2: Annotated[None, Expect("null (used by the bounds of a later version)")] = None
    accountant: Annotated[Literal["rdp", "pld", "prv", "classic-rdp"], Expect("one of rdp, pld, prv, classic-rdp")] = (
        "rdp"
    )
    target_observers: Annotated[list[ObserverName], Field(min_length=1), Expect("a list of observers")] = Field(
        default=["edge", "peer", "cloud", "public"]
    )
    budget: dict[ObserverName, Positive] = Field(default_factory=dict)


class ControlSection(Section):
    """Adaptive control; its keys mean nothing while it is not enabled."""

    enabled: Annotated[Literal[False], Expect("false (the controller comes with a later version)")] = False
    alpha1: Annotated[float, Field(ge=0), Expect("a finite number of at least 0")] = 1
    alpha2: Annotated[float, Field(ge=0), Expect("a finite number of at least 0")] = 1
    alpha3: Annotated[float, Field(ge=0), Expect("a finite number of at least 0")] = 1
    phi: Positive | None = None
    tau_max: Count = 40
    slots: Count | None = None
    solver: Annotated[Literal["exact", "two-level"], Expect("one of exact, two-level")] = "exact"
    allow_idle: Flag = False
    channel: Annotated[Literal["known", "expected"], Expect("one of known, expected")] = "known"
    estimates: Annotated[Literal["released", "private", "oracle"], Expect("one of released, private, oracle")] = (
        "released"
    )


class StragglerSection(Section):
    """Devices that finish part of their steps."""

    probability: Zero = 0
    fraction: Annotated[
        list[Probability], Field(min_length=2, max_length=2), Expect("a pair of numbers from 0 to 1")
    ] = Field(default=[0.1, 0.9])


class OutageSection(Section):
    """Edge servers that are offline for a while."""

    probability: Zero = 0
    intervals: Count = 1


class FaultsSection(Section):
    """Faults of the simulated world."""

    device_dropout: Zero = 0
    straggler: StragglerSection = StragglerSection()
    edge_outage: OutageSection = OutageSection()


Seed = Annotated[int, Field(ge=0, le=2**31 - 1), Expect("a whole number of at least 0")]
SweepAxis = list[Number | Flag | str | None]
