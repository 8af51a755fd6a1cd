"""The schema of `method.schedule`: who decides the coming interval, and what he is told in advance."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from h2fdp.config.choice import Choice
from h2fdp.config.fields import Count, Expect, Magnitude, NonNegative, Positive, Share

# A default of None means: measured by the devices (constants of the losses), taken from the rest of the file (R_s, R_c,
# prices), or unlimited (budgets).
_ALI = {"curvature": None, "heterogeneity": None, "curvature_from": "parameters", "form": "program", "iterations": None}
_DRIFT = {"lipschitz": None, "smoothness": None, "divergence": None}
_BUDGETS = {"joules": None, "seconds": None, "units": None, "step_cost": None, "aggregation_cost": None}
_SEARCH = {"control_parameter": 0.025, "growth": 10.0, "longest": 100}
_DECAY = {"factor": 0.9, "patience": 2, "least": 0.1}

ADAPTIVE = "h2fdp"
Fraction = Annotated[float, Field(gt=0, lt=1), Expect("a number above 0 and below 1")]
Growth = Annotated[float, Field(ge=1, le=1e6), Expect("a number from 1 to 1e6")]


class ScheduleSection(Choice):
    """A schedule with its parameters; a word alone stands for its defaults.

    Attributes:
        curvature, heterogeneity: `ali-dpfl`'s mu and Gamma; null has devices measure them.
        curvature_from: measure mu by `gradients`, as ALI-DPFL's paper, or by `parameters`, as its program.
        form: 2 + 1/T as in the `paper`, or 2 + 2/T as in the `program`.
        iterations: R_c; null is what the privacy budget allows.
        lipschitz, smoothness, divergence: rho, beta and delta (or xi); null has devices measure them.
        nearness, least_gap: `ali-dpfl-v1`'s omega and lambda.
        joules, seconds, units: budgets of `resource-budget`; seconds are those of the simulated clock.
        step_cost, aggregation_cost: c and b of `units`.
        control_parameter, growth, longest: phi, gamma and tau_max.
        factor, patience, least: of `noise-decay`, which multiplies the noise by `factor` each time the loss has fallen
            for `patience` intervals in a row, down to `least` of it.

    >>> ScheduleSection.model_validate("noise-decay").options()
    {'factor': 0.9, 'patience': 2, 'least': 0.1}
    """

    choices: ClassVar = {
        "fixed": {},
        ADAPTIVE: {},
        "ali-dpfl": _ALI,
        "ali-dpfl-v1": {"nearness": 1.0, "least_gap": 1.0, "iterations": None, **_DRIFT},
        "resource-budget": {**_BUDGETS, **_SEARCH, **_DRIFT},
        "noise-decay": _DECAY,
    }

    curvature: Positive | None = None
    heterogeneity: NonNegative | None = None
    curvature_from: Annotated[Literal["gradients", "parameters"], Expect("one of gradients, parameters")] | None = None
    form: Annotated[Literal["paper", "program"], Expect("one of paper, program")] | None = None
    iterations: Count | None = None
    nearness: Magnitude | None = None
    least_gap: Magnitude | None = None
    lipschitz: NonNegative | None = None
    smoothness: Positive | None = None
    divergence: NonNegative | None = None
    joules: Positive | None = None
    seconds: Positive | None = None
    units: Positive | None = None
    step_cost: NonNegative | None = None
    aggregation_cost: NonNegative | None = None
    control_parameter: Magnitude | None = None
    growth: Growth | None = None
    longest: Annotated[int, Field(ge=1, le=10_000), Expect("a whole number from 1 to 10000")] | None = None
    factor: Fraction | None = None
    patience: Count | None = None
    least: Share | None = None

    @property
    def measures(self) -> bool:
        """Whether devices measure constants of their losses for it, raw."""
        if self.name == "ali-dpfl":
            return self.curvature is None or self.heterogeneity is None
        return self.name in ("ali-dpfl-v1", "resource-budget") and self.lipschitz is None

    @model_validator(mode="after")
    def _whole_sets(self) -> ScheduleSection:
        drift = [self.lipschitz, self.smoothness, self.divergence]
        if any(each is None for each in drift) and any(each is not None for each in drift):
            raise ValueError("expected all of lipschitz, smoothness and divergence, or none of them")
        if self.name == "resource-budget":
            if self.joules is None and self.seconds is None and self.units is None:
                raise ValueError("expected a budget: joules, seconds, or units with step_cost and aggregation_cost")
            prices: list[Any] = [self.step_cost, self.aggregation_cost]
            if (self.units is None) != all(each is None for each in prices) or (None in prices and self.units):
                raise ValueError("expected units, step_cost and aggregation_cost together")
        return self
