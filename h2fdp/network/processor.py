"""A processor: local steps cost cycles, and a cycle costs the more the faster the clock ticks.

With c cycles for each record, D records in a step, frequency f and switched capacitance alpha, a local step takes

    T = c D / f seconds and E = (alpha / 2) c D f^2 joules

(Tran et al., INFOCOM 2019; Liu et al., ICC 2020, Eq. 6 and 7, HierFAVG). Others write kappa for alpha / 2. D is the
mean number of records of a batch, q_j D_j, so bills of energy tell how many records a device has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from h2fdp.config.fields import Positive
from h2fdp.network.devices import Column, Compute, Floats, StepCosts

_HERTZ = 1e9  # in a gigahertz


class Processor(Compute):
    """Each device computes at a frequency of its own, `devices.cpu_ghz`.

    Attributes:
        cycles_per_record: c, of one record in one local step.
        capacitance: alpha, the effective switched capacitance of the chip: joules are half of it times cycles times the
            square of the frequency in hertz.
    """

    columns: ClassVar[Mapping[str, Column]] = {
        "cpu_ghz": Column(1.0, "GHz", Positive, "frequency of the device's processor; read by `compute: processor`.")
    }

    name: Literal["processor"] = "processor"
    cycles_per_record: Positive
    capacitance: Positive = 2e-28

    def step(self, columns: Mapping[str, Floats], records: Floats) -> StepCosts:
        """(I,) seconds and joules of a local step of each device."""
        hertz, cycles = columns["cpu_ghz"] * _HERTZ, self.cycles_per_record * records
        return StepCosts(seconds=cycles / hertz, joules=self.capacitance / 2 * cycles * hertz**2)
