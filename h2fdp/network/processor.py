"""A device as a machine: what a local step takes of its time and energy, and at which frequency it should run.

With c cycles for each record, b records in a step, frequency f and switched capacitance alpha, m local steps take

    T = m c b / f seconds and E = (alpha / 2) m c b f^2 joules

(Tran et al., INFOCOM 2019; Liu et al., ICC 2020, Eq. 6 and 7, HierFAVG). Others write kappa for alpha / 2. b is the
mean number of records of a batch, q_j D_j, so bills of energy tell how many records a device has.

A device that is done before the others of its interval waits for them, and could have run slower. With w1 for a
joule and w2 for a second, and t_j for what a device's messages take, the frequencies between f_min and the device's own
of the least

    w1 sum_j E_j + w2 t    where T_j + t_j <= t for all j

(HFEL, Luo et al. 2020; Yang et al. 2021) are f_j = clip(m c b / (t - t_j), f_min, own) for the best deadline t, where

    w1 sum_j alpha_j (m c b)_j^3 / (t - t_j)^3 = w2,

the sum being over devices between their two ends. It falls in t, which bisection finds. A device without messages, and
alone, has f = (w2 / (alpha w1))^(1/3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from h2fdp.config.fields import Expect, Positive
from h2fdp.network.devices import Column, Cost, Floats
from h2fdp.network.shares import JointPlan, JointProblem, PlannedUploads

_HERTZ = 1e9  # in a gigahertz
Cycles = Annotated[float, Field(ge=0, le=1e18), Expect("a number from 0 to 1e18")]
OF_STEPS: Mapping[str, Column] = {
    "seconds_per_step": Column(0.0, "s", Cost, "of a local step, whatever the batch.", decimals=None),
    "joules_per_step": Column(0.0, "J", Cost, "of a local step, whatever the batch.", decimals=None),
    "cycles_per_record": Column(0.0, "cycles", Cycles, "c, cycles of the processor for one record in one local step."),
    "cpu_ghz": Column(1.0, "GHz", Positive, "f, the frequency of the processor; needs `cycles_per_record`."),
    "capacitance": Column(
        2e-28,
        "",
        Positive,
        "alpha, the effective switched capacitance of the processor: joules are half of it times cycles times the "
        "square of the frequency in hertz; needs `cycles_per_record`.",
        decimals=None,
    ),
}


@dataclass(frozen=True)
class FrequencyRule:
    """How the devices of an interval choose their frequencies: between `least_ghz` and their own, as above.

    Attributes:
        least_ghz: below which no processor runs, unless its own frequency is less.
        per_joule, per_second: w1 and w2, what a joule and a second of the interval weigh; at least 0. Without a weight
            of joules all run as fast as they can, without one of seconds as slowly.
    """

    least_ghz: float
    per_joule: float
    per_second: float

    def chosen_hertz(self, cycles: Floats, capacitance: Floats, own_hertz: Floats, waits: Floats) -> Floats:
        """(K,) the frequency of each device.

        Args:
            cycles: (K,) m c b, of the whole interval.
            capacitance: (K,) alpha.
            own_hertz: (K,) the highest frequency.
            waits: (K,) t_j, seconds of the interval in which a device does not compute.

        >>> alone = FrequencyRule(0.5, per_joule=2.0, per_second=0.4), np.array([2e-28]), np.array([4e9]), np.zeros(1)
        >>> (alone[0].chosen_hertz(np.array([1e9]), *alone[1:]) / 1e9).round(6).tolist()
        [1.0]
        """
        if not self.per_joule:
            return own_hertz
        least = np.minimum(self.least_ghz * _HERTZ, own_hertz)
        low, high = (float((cycles / hertz + waits).max(initial=0.0)) for hertz in (own_hertz, least))
        if not self.per_second:
            return least

        def frequencies(deadline: float) -> Floats:
            with np.errstate(divide="ignore", invalid="ignore"):
                hertz = np.where(cycles > 0, cycles / (deadline - waits), 0.0)
            return np.clip(hertz, least, own_hertz)

        while low < (middle := (low + high) / 2) < high:  # until no float lies between the ends
            hertz = frequencies(middle)
            saved = self.per_joule * float((capacitance * hertz**3)[hertz > least].sum())  # joules a second, weighed
            low, high = (middle, high) if saved > self.per_second else (low, middle)
        return frequencies(high)

    def chosen_plan(
        self, cycles: Floats, capacitance: Floats, own_hertz: Floats, waits: Floats, uploads: PlannedUploads
    ) -> JointPlan | None:
        """Frequencies and shares of the bandwidth, of uploads after these `waits`; None where joules weigh nothing."""
        if not self.per_joule:
            return None
        least, weights = np.minimum(self.least_ghz * _HERTZ, own_hertz), (self.per_joule, self.per_second)
        return JointProblem(uploads, cycles, capacitance, least, own_hertz, waits, *weights).solved()


@dataclass(frozen=True, eq=False)
class StepCosts:
    """What one local step costs: (I,) for each device or, where it costs all devices the same, one number.

    Attributes:
        seconds: of the simulated clock.
        joules: of the device.
        cycles, hertz, capacitance: (I,) of the processors, where their cycles are part of both.
        rule: how devices choose frequencies; None where `hertz` are theirs.
        parts: (I,) of the bandwidth, which were chosen with the frequencies; None where they were not.
    """

    seconds: Floats | float = 0.0
    joules: Floats | float = 0.0
    cycles: Floats | None = None
    hertz: Floats | None = None
    capacitance: Floats | None = None
    rule: FrequencyRule | None = None
    parts: Floats | None = None

    def of(self, rows: np.ndarray) -> StepCosts:
        """Those of some devices."""
        parts = {name: value[rows] for name, value in vars(self).items() if np.ndim(value)}
        return replace(self, **parts)

    def paced(self, steps: Floats, waits: Floats, uploads: PlannedUploads | None = None) -> StepCosts:
        """At frequencies that these K devices choose.

        Args:
            steps: (K,) m, that are planned in the interval.
            waits: (K,) seconds of the interval in which a device does not compute, but those of its steps.
            uploads: over shares of the bandwidth that are chosen with the frequencies; then `waits` are without them.
        """
        if self.rule is None or self.cycles is None or self.hertz is None or self.capacitance is None:
            return self
        fixed = self.seconds - self.cycles / self.hertz
        planned = steps * self.cycles, self.capacitance, self.hertz, waits + steps * fixed
        plan = None if uploads is None else self.rule.chosen_plan(*planned, uploads)
        chosen = self.rule.chosen_hertz(*planned) if plan is None else plan.hertz
        joules = self.joules + self.capacitance / 2 * self.cycles * (chosen**2 - self.hertz**2)
        parts = None if plan is None else plan.parts
        return replace(self, seconds=fixed + self.cycles / chosen, joules=joules, hertz=chosen, parts=parts)


def step_costs(columns: Mapping[str, Floats], records: Floats, rule: FrequencyRule | None = None) -> StepCosts:
    """The cost of one local step at the devices' own frequencies.

    Args:
        columns: (I,) the numbers of the devices; those of `OF_STEPS` that are missing have their defaults.
        records: (I,) b, the mean number of records in a batch of each device.
        rule: how they choose other frequencies.
    """
    seconds, joules = (_one_or_all(columns.get(name)) for name in ("seconds_per_step", "joules_per_step"))
    if "cycles_per_record" not in columns:
        return StepCosts(seconds, joules)
    cycles = columns["cycles_per_record"] * records
    ghz, capacitance = (
        columns.get(name, np.full(len(records), OF_STEPS[name].default)) for name in ("cpu_ghz", "capacitance")
    )
    hertz = ghz * _HERTZ
    computing = capacitance / 2 * cycles * hertz**2
    return StepCosts(seconds + cycles / hertz, joules + computing, cycles, hertz, capacitance, rule)


def _one_or_all(values: Floats | None) -> Floats | float:
    """One number where all are equal, which sums of energy multiply once."""
    if values is None:
        return 0.0
    return float(values[0]) if (values == values[0]).all() else values
