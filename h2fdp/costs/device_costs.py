"""The costs of devices: the power that each sends with, the power of sums over the air, and what their local steps
cost.

**Power control.** A message of b bits takes t = b / (W log2(1 + g p)) seconds and e = p t joules at power p, where g p
is the signal-to-noise ratio (H2FDP, Appendix D; the paper's devices all send with 24 dBm). Weighed with w1 for a joule
and w2 for a second it costs

    (b ln 2 / W) (w1 p + w2) / ln(1 + g p)

which falls and then rises in p, an affine function over a concave one. With u = ln(1 + g p) its minimum is where

    h(u) = e^u (u - 1) + 1 = w2 g / w1,    so u = 1 + W0((w2 g / w1 - 1) / e)

with Lambert's W, and the best power of a range is that one, or the end of the range that is nearest to it. Without w2
it is the least power, as the joules of a bit only fall with the power; without w1 it is the most.

W0 loses its digits near -1/e, where a second weighs little, and its argument may be too large for a float. So
ln h(u) = ln(w2 g / w1) is solved for ln u by Newton's method. All coefficients of h as a power series are positive, so
that ln h is convex in ln u: from the right Newton's steps never overshoot.

**Sums over the air.** Every number of a vector is one use of the channel, and a channel of W hertz has W uses in a
second: M numbers take M / W seconds, however many devices send at once (Zhu, Wang and Huang, IEEE TWC 2020). For the
sum, the access point has to hear all of them alike, so each inverts its channel. With P_j the power that a device may
send with, beta_j its mean gain and theta the truncation, device j of access point a sends with

    p_j = P_a / (beta_j |u_j|^2) where |u_j|^2 >= theta, P_a = theta min_j beta_j P_j over all devices of a,

the most that none of them exceeds its P_j for. Where its fading is below theta, a device takes no part in the interval.
What comes down is digital and has the bits of any other message. The receiver's noise on the sum is not simulated, and
no account counts it.

**Local steps.** With c cycles for each record, b records in a step, frequency f and switched capacitance alpha, m local
steps take

    T = m c b / f seconds and E = (alpha / 2) m c b f^2 joules

(Tran et al., INFOCOM 2019; Liu et al., ICC 2020, Eq. 6 and 7, HierFAVG). Others write kappa for alpha / 2. b is the
mean number of records of a batch, q_j D_j, so bills of energy reveal how many records a device has.

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
from typing import Any

import numpy as np

from h2fdp.network import Radio
from h2fdp.network.devices import OF_STEPS, Floats, Integers

_DECIBEL = float(np.log(10.0)) / 10  # of natural logarithms
_STEPS = 8  # after which the last one changes no digit
_SMALL = 0.5  # below this u, h is summed as a series
_TERMS = 14
_TINY = 1e-8  # below this u, e^u - 1 is u e^(u / 2) to all digits


@dataclass(frozen=True)
class PowerRule:
    """The rule by which a device chooses its power in each interval: between `least_dbm` and its own, at the least
    weighed cost.

    Attributes:
        least_dbm: below which no device sends.
        per_joule, per_second: w1 and w2, what a joule and a second weigh; at least 0. Where neither weighs anything,
            devices send with their own power.
    """

    least_dbm: float
    per_joule: float
    per_second: float

    def chosen_dbm(self, own_dbm: Floats, snr: Floats) -> Floats:
        """(I,) the power of each device, in decibels above a milliwatt.

        Args:
            own_dbm: (I,) the most that each sends with, above `least_dbm`.
            snr: (I,) the signal-to-noise ratio at that power, above 0.

        >>> PowerRule(0.0, 1.0, 0.0).chosen_dbm(np.array([24.0]), np.array([100.0])).tolist()
        [0.0]
        >>> PowerRule(0.0, 1.0, 0.25).chosen_dbm(np.array([24.0]), np.array([100.0])).round(2).tolist()
        [19.63]
        """
        if not self.per_joule:
            return own_dbm
        if not self.per_second:
            return np.full(own_dbm.shape, self.least_dbm)
        own_watts = _DECIBEL * (own_dbm - 30)  # its logarithm, as all below
        worth = np.log(snr) + np.log(self.per_second) - np.log(self.per_joule) - own_watts
        share = _growth(_solved(worth)) - np.log(snr)  # of the own power
        chosen: Floats = np.minimum(np.maximum(own_dbm + share / _DECIBEL, self.least_dbm), own_dbm)
        return chosen


def _solved(worth: Floats) -> Floats:
    """ln u at which ln h(u) is this.

    As h(u) >= u^2 / 2, and h(u) >= e^u from u = 2 on, Newton's method begins on the right.
    """
    root: Floats = np.minimum((worth + np.log(2.0)) / 2, np.log(np.maximum(worth, 2.0)))
    for _ in range(_STEPS):
        value, slope = _logarithm(np.exp(root))
        root = root - (value + 2 * root - worth) / slope
    return root


def _logarithm(u: Floats) -> tuple[Floats, Floats]:
    """ln(h(u) / u^2), and the slope of ln h in ln u, which is u^2 / (u - 1 + e^-u); also at u = 0."""
    small = np.minimum(u, _SMALL)
    series, term = np.zeros_like(u), np.full_like(u, 0.5)  # h / u^2 = sum_k u^k (k + 1) / (k + 2)!
    for place in range(_TERMS):
        series = series + (place + 1) * term
        term = term * small / (place + 3)
    large = np.maximum(u, _SMALL)
    rest = large - 1 + np.exp(-large)
    of_large = large + np.log(rest) - 2 * np.log(large)
    is_small = u < _SMALL
    return (
        np.where(is_small, np.log(series), of_large),
        np.where(is_small, np.exp(small) / series, large**2 / rest),
    )


def _growth(logarithm: Floats) -> Floats:
    """ln(e^u - 1) for u by its logarithm; also where u is too small for a float."""
    u = np.exp(logarithm)
    large = np.maximum(u, _TINY)
    return np.where(u < _TINY, logarithm + u / 2, large + np.log(-np.expm1(-large)))


@dataclass(frozen=True, eq=False)
class AnalogSums:
    """The uploads of a network whose access is `over-the-air`.

    Attributes:
        truncation: theta.
        seconds: M / W.
        watts, power_dbm: (I,) P_j.
        mean_snr: (I,) the signal-to-noise ratio at P_j where |u|^2 = 1.
        heard: (I,) P_a over the noise, of each one's access point.
    """

    truncation: float
    seconds: float
    watts: Floats
    power_dbm: Floats
    mean_snr: Floats
    heard: Floats

    def sends(self, fading: Floats) -> np.ndarray:
        """(I,) whether each device takes part under these |u|^2."""
        return np.asarray(fading >= self.truncation)

    def sent(self, fading: Floats) -> dict[str, Any]:
        """(I,) `seconds` and `joules` of an upload, `snr` and `power_dbm`; all 0 or least where a device is silent."""
        share = np.where(self.sends(fading), self.heard / (self.mean_snr * fading), 0.0)
        with np.errstate(divide="ignore"):
            power_dbm = self.power_dbm + 10 * np.log10(share)
        seconds = np.full(len(share), self.seconds)
        return {
            "seconds": seconds,
            "joules": self.watts * share * seconds,
            "snr": np.where(share > 0, self.heard, 0.0),
            "power_dbm": power_dbm,
        }

    def mean_joules(self, radio: Radio) -> Floats:
        """(I,) of an upload that a device makes, by quadrature over the fading."""
        powers, weights = (np.array(each) for each in radio.quadrature(max(self.truncation, radio.fading_floor)))
        if self.truncation > radio.least_fading():
            powers, weights = powers[1:], weights[1:]  # the first point has all fading below the truncation
        inverse = float(weights @ (1 / powers)) / float(weights.sum())
        return self.watts * self.heard / self.mean_snr * inverse * self.seconds


def analog_sums(
    radio: Radio, parameters: int, watts: Floats, power_dbm: Floats, mean_snr: Floats, sizes: Integers
) -> AnalogSums | None:
    """The sums over the air of a network; None where its access is another one.

    Args:
        parameters: M.
        sizes: (A,) devices of each access point, in the order of the network.
    """
    if radio.truncation is None:
        return None
    weakest = np.minimum.reduceat(mean_snr, np.cumsum(sizes) - sizes)
    heard = radio.truncation * np.repeat(weakest, sizes)
    return AnalogSums(radio.truncation, parameters / radio.bandwidth_hz, watts, power_dbm, mean_snr, heard)


_HERTZ = 1e9  # in a gigahertz


@dataclass(frozen=True)
class FrequencyRule:
    """The rule by which the devices of an interval choose frequencies: between `least_ghz` and their own, as above.

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


@dataclass(frozen=True, eq=False)
class StepCosts:
    """The cost of one local step: (I,) for each device or, where it costs all devices the same, one number.

    Attributes:
        seconds: of the simulated clock.
        joules: of the device.
        cycles, hertz, capacitance: (I,) of the processors, where their cycles are part of both.
        rule: how devices choose frequencies; None where `hertz` are theirs.
    """

    seconds: Floats | float = 0.0
    joules: Floats | float = 0.0
    cycles: Floats | None = None
    hertz: Floats | None = None
    capacitance: Floats | None = None
    rule: FrequencyRule | None = None

    def of(self, rows: np.ndarray) -> StepCosts:
        """The costs of some devices."""
        parts = {name: value[rows] for name, value in vars(self).items() if np.ndim(value)}
        return replace(self, **parts)

    def paced(self, steps: Floats, waits: Floats) -> StepCosts:
        """The costs at frequencies that these K devices choose.

        Args:
            steps: (K,) m, that are planned in the interval.
            waits: (K,) seconds of the interval in which a device does not compute, but those of its steps.
        """
        if self.rule is None or self.cycles is None or self.hertz is None or self.capacitance is None:
            return self
        fixed = self.seconds - self.cycles / self.hertz
        chosen = self.rule.chosen_hertz(steps * self.cycles, self.capacitance, self.hertz, waits + steps * fixed)
        joules = self.joules + self.capacitance / 2 * self.cycles * (chosen**2 - self.hertz**2)
        return replace(self, seconds=fixed + self.cycles / chosen, joules=joules, hertz=chosen)


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
