"""Random small settings of every bound that a row of the ledger names: the row, and the real mechanism on a line.

A setting is a device of a few records and the losses of an adversary, whose batches are all gone through: where its
upload is, with which probability, with the record and in the neighbouring data. Nothing here knows a mixture.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from h2fdp.privacy import GradientSumMechanism, Holder, Place, Release, Tolerance
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.privacy.accounts import release_type
from h2fdp.privacy.calibration import PaperCalibration
from h2fdp.privacy.gradient_bounds import ClippedBatches, ClippedRecords, LinearScores, StepsDoNotExpand
from h2fdp.privacy.mechanisms.device_unit import CentralMechanism
from h2fdp.privacy.mechanisms.dp_sgd import DpSgdMechanism
from h2fdp.privacy.mechanisms.perturbations import OutputPerturbationMechanism
from h2fdp.privacy.releases import under
from tests.privacy.accounting.hockey_stick import line_density
from tests.privacy.uploads import rows_of, uploads_of

ADJACENCIES = ("null-record", "add-remove", "replace")
KICK = 1e-6  # how little the attacked record moves a second coordinate, of its gradient's length
CALIBRATION = PaperCalibration(1.0, 1e-5, 1.0, 1, 1)


class Law(NamedTuple):
    """Where an upload is before noise: (n,) places and their probabilities."""

    places: np.ndarray
    chances: np.ndarray

    def times(self, factor: float) -> Law:
        return Law(self.places * factor, self.chances)

    def density(self, noise: float, grid: np.ndarray) -> np.ndarray:
        places, number = np.unique(self.places.round(9), return_inverse=True)
        return line_density(places, np.bincount(number.ravel(), self.chances), noise, grid)


@dataclass(frozen=True)
class Setting:
    """A mechanism whose rows are in question.

    Attributes:
        rows: of the ledger, of one observer about one device.
        spent: epsilon -> the larger hockey-stick divergence of both directions.
    """

    rows: list[Release]
    spent: Callable[[float], float]

    def exceeds(self, delta: float, credit: float = 1.0) -> bool:
        """Whether it spends more than the account says, if sensitivities were `credit` times what rows state."""
        kinds = Counter(release_type(replace(row, sensitivity=credit * row.sensitivity)) for row in self.rows)
        return self.spent(ACCOUNTANTS["pld"].epsilon(kinds, delta)) > delta * (1 + 2e-3)


def divergence(one: np.ndarray, other: np.ndarray, epsilon: float, cell: float) -> float:
    factor = math.exp(epsilon)
    return max(float(np.maximum(a - factor * b, 0).sum()) * cell for a, b in ((one, other), (other, one)))


def on_a_line(rows: list[Release], one: Law, other: Law, noise: float) -> Setting:
    ends = np.concatenate([one.places, other.places])
    grid = np.linspace(ends.min() - 9 * noise, ends.max() + 9 * noise, 801 + int(20 * np.ptp(ends) / noise))
    densities = one.density(noise, grid), other.density(noise, grid)
    return Setting(rows, lambda epsilon: divergence(*densities, epsilon, grid[1] - grid[0]))


def all_draws(rate: float, steps: int, records: int, sampling: str) -> tuple[np.ndarray, np.ndarray]:
    """(n, m, D) which records each step draws, and (n,) how likely that is; the last record is the attacked one."""
    size = steps * records
    drawn = (np.arange(1 << size)[:, None] >> np.arange(size)) & 1
    drawn = drawn.reshape(-1, steps, records)
    if sampling == "fixed":
        drawn = drawn[(drawn.sum(axis=2) == round(rate * records)).all(axis=1)]
        return drawn, np.full(len(drawn), 1 / len(drawn))
    number = drawn.sum(axis=(1, 2))
    return drawn, rate**number * (1 - rate) ** (size - number)


@dataclass(frozen=True)
class Losses:
    """Gradients of clipped records along one coordinate u, and a second one v that only the attacked record moves.

    Attributes:
        lengths: (D,) of gradients; the attacked record is the last one.
        turn: whether data turn round as soon as v has moved.
        wild: (D - 1,) frequencies at which data's gradients change their sign with u; 0 for never.
        phases: (D - 1,) of these.
    """

    lengths: np.ndarray
    turn: bool
    wild: np.ndarray
    phases: np.ndarray

    @classmethod
    def drawn(cls, random: np.random.Generator, data: int) -> Losses:
        worst = random.random() < 0.5
        far = 10.0 ** random.uniform(-1, 3, data)
        return cls(
            lengths=np.append(np.full(data, 1e3) if worst else far, 1e9 if worst else 10.0 ** random.uniform(0, 6)),
            turn=worst or random.random() < 0.5,
            wild=np.zeros(data) if worst else random.choice([0.0, 1.0, 30.0], data) * random.normal(size=data),
            phases=np.full(data, math.pi / 2) if worst else random.uniform(0, 2 * math.pi, data),
        )

    def upload(
        self, drawn: np.ndarray, attacked: float, expected: float, step_size: float, norm: float, by_record: bool
    ) -> np.ndarray:
        """(n,) how far u goes.

        Args:
            attacked: where the last record's gradient points, 1 or -1; 0 for a null record, which is not counted.
        """
        u, v = np.zeros(len(drawn)), np.zeros(len(drawn))
        most = norm if by_record else math.inf
        lengths = np.minimum(self.lengths, most)
        for step in drawn.transpose(1, 0, 2):
            turned = np.where(self.turn & (v != 0), -1.0, 1.0)
            signs = -np.sign(np.sin(np.multiply.outer(u, self.wild) + self.phases)) * turned[:, None]
            own = step[:, -1] * attacked
            along = (step[:, :-1] * signs) @ lengths[:-1] + own * lengths[-1]
            across = np.where(v == 0, np.abs(own) * lengths[-1] * KICK, 0.0)
            count = step[:, :-1].sum(axis=1) + np.abs(own)
            divisor = expected if by_record else np.maximum(count, 1)
            factor = norm / np.maximum(np.hypot(along, across) / divisor, norm)
            u, v = u + step_size * factor * along / divisor, v + step_size * factor * across / divisor
        return u


def of_gradients(by_record: bool, several: bool) -> Callable[[np.random.Generator], Setting]:
    """Sums of clipped gradients, seen by an untrusted edge server or under a trusted one's noise."""

    def setting(random: np.random.Generator) -> Setting:
        steps = int(random.integers(2, 4)) if several or not by_record else 1
        records = int(random.integers(1, 5 if steps < 3 else 4))
        sampling = str(random.choice(["poisson", "poisson", "poisson", "fixed"]))
        rate = int(random.integers(1, records + 1)) / records if sampling == "fixed" else float(random.uniform(0.1, 1))
        step_size, norm = random.uniform(0.1, 2, 2)
        losses = Losses.drawn(random, records - 1)
        drawn, chances = all_draws(rate, steps, records, sampling)
        adjacency = adjacency_of(random, sampling)
        places = [
            losses.upload(drawn, attacked, rate * records, step_size, norm, by_record)
            for attacked in (1.0, -1.0 if adjacency == "replace" else 0.0)
        ]
        bound = (ClippedRecords if by_record else ClippedBatches)(norm)
        laws = [Law(each, chances) for each in places]
        return under_noise(random, bound, laws, (rate, records, steps, sampling, step_size), adjacency)

    return setting


def adjacency_of(random: np.random.Generator, sampling: str) -> str:
    """Under add-remove batches of fixed size are refused."""
    return str(random.choice([each for each in ADJACENCIES if sampling == "poisson" or each != "add-remove"]))


def by_draws(random: np.random.Generator) -> Setting:
    """Softmax regression of two classes on one input without clipping, up to the largest step size: R5 and R6."""
    steps, records = int(random.integers(1, 4)), int(random.integers(1, 4))
    sampling = str(random.choice(["poisson", "poisson", "fixed"]))
    rate = int(random.integers(1, records + 1)) / records if sampling == "fixed" else float(random.uniform(0.1, 1))
    scores, mu = LinearScores(1.0, biased=False), float(random.choice([0.0, 0.3]))
    largest = scores.largest_step(np.array([1 / rate if sampling == "poisson" else 1.0]), mu)
    step_size = largest * random.choice([1.0, random.random()])
    x = random.choice([-1.0, 1.0], records) * random.choice([1.0, random.random()])
    start = random.choice([0.0, 3.0, 40.0]) * random.choice([-1, 1])
    x[-1] = -math.copysign(x[-1], start)  # scores are wrong about the attacked record
    drawn, chances = all_draws(rate, steps, records, sampling)
    adjacency = adjacency_of(random, sampling)
    laws = []
    for attacked in (1.0, -1.0 if adjacency == "replace" else 0.0):
        inputs, t = np.append(x[:-1], attacked * x[-1]), np.full(len(drawn), start)
        for step in drawn.transpose(1, 0, 2):
            # loss log(1 + exp(-sqrt(2) x t)) of t = (w_1 - w_2) / sqrt(2)
            slopes = (
                -math.sqrt(2) * inputs / (1 + np.exp(np.clip(math.sqrt(2) * np.multiply.outer(t, inputs), -99, 99)))
            )
            t = t - step_size * ((step * slopes).sum(axis=1) / (rate * records) + mu * (t - start))
        laws.append(Law(t - start, chances))
    bound = StepsDoNotExpand(scores.gradient)
    return under_noise(random, bound, laws, (rate, records, steps, sampling, step_size), adjacency)


def under_noise(random, bound, laws, planned, adjacency) -> Setting:
    """An upload under the device's own noise, or in an average under a trusted edge server's."""
    rate, records, steps, sampling, step_size = planned
    trusted = random.random() < 0.4
    weights = random.dirichlet(np.ones(3)) if trusted else np.ones(1)
    rates, sizes = np.full(len(weights), rate), np.full(len(weights), records)
    moved = float(bound.sensitivity(step_size, steps, np.array([rate * records]))[0])
    noise = random.uniform(0.4, 2.5) * moved * weights[0]
    row = rows_about(
        GradientSumMechanism(CALIBRATION, bound, "tight"),
        "cloud" if trusted else "edge",
        "edge" if trusted else "device",
        adjacency,
        weights,
        rates,
        np.full(1 if trusted else len(weights), noise),
        {"steps": np.full(len(weights), steps), "records": sizes, "step_size": step_size, "sampling": sampling},
    )
    return on_a_line(row, *(law.times(weights[0]) for law in laws), noise)


def rows_about(mechanism, observer, place, adjacency, weights, rates, noise, changes=None, **how) -> list[Release]:
    """What the ledger says that this observer has of the first device."""
    made = rows_of(mechanism, uploads_of(place, weights, rates, noise, **changes or {}), peers=len(weights) > 1, **how)
    rows = under(adjacency, iter(made))
    return [row for row in rows if row.observer == observer and row.devices.partition(",")[0].partition("-")[0] == "1"]


def inside(random: np.random.Generator) -> Setting:
    """Two noisy steps of DP-SGD; the second one's gradients point where the first one's output says."""
    records, rate = int(random.integers(1, 4)), float(random.uniform(0.1, 1))
    norm, noise_multiplier = random.uniform(0.1, 2), random.uniform(0.6, 2.5)
    drawn, chances = all_draws(rate, 1, records, "poisson")
    adjacency = adjacency_of(random, "poisson")
    mechanism = DpSgdMechanism(noise_multiplier, norm, 1e-5, None, 2, None)
    row = rows_about(
        mechanism, "edge", "step", adjacency, np.ones(1), np.array([rate]),
        np.array([noise_multiplier * norm]), {"steps": np.full(1, 2), "records": np.full(1, records)},
    )  # fmt: skip
    data = random.uniform(-1, 1, (3, records - 1)) * random.choice([0.0, 1.0])
    signs = random.choice([-1.0, 1.0], 2)
    noise = noise_multiplier * norm
    grid = np.linspace(-7 * noise - records * norm, 7 * noise + records * norm, 161 + int(20 / noise_multiplier))
    tables = []
    for attacked in (1.0, -1.0 if adjacency == "replace" else 0.0):
        first, low, high = (
            Law(norm * (drawn[:, 0, :-1] @ others + drawn[:, 0, -1] * attacked * sign), chances).density(noise, grid)
            for others, sign in zip(data, (1.0, *signs), strict=True)
        )
        tables.append(first[:, None] * np.where(grid[:, None] > 0, high, low))
    cell = (grid[1] - grid[0]) ** 2
    return Setting(row, lambda epsilon: divergence(*tables, epsilon, cell))


def central(random: np.random.Generator) -> Setting:
    """A device's whole update, clipped; the cloud's noise is on the average."""
    weights, norm = random.dirichlet(np.ones(3)), random.uniform(0.1, 2)
    share = random.uniform(0.1, 1)
    noise = random.uniform(0.4, 2.5) * norm * weights.max() * share
    adjacency = str(random.choice(["null-record", "replace"]))
    row = rows_about(
        CentralMechanism(1.0, lambda *_: norm, formula=CALIBRATION), "public", "cloud", adjacency, weights, np.ones(3),
        np.empty(0), cloud=(share, noise),
    )  # fmt: skip
    update = norm * random.choice([1.0, random.random()])
    one, other = (Law(np.array([each * weights[0] * share]), np.ones(1)) for each in (update, -update))
    return on_a_line(row, one, other if adjacency == "replace" else other.times(0.0), noise)


def output(random: np.random.Generator) -> Setting:
    """A whole model, scaled to a norm: one record may turn it round."""
    norm = random.uniform(0.1, 2)
    noise = random.uniform(0.4, 2.5) * 2 * norm
    mechanism = OutputPerturbationMechanism(norm, None, 1.0, 1e-5, np.ones(1))
    adjacency = str(random.choice(["null-record", "replace"]))
    options = {"steps": np.ones(1, dtype=int)}
    row = rows_about(mechanism, "edge", "device", adjacency, np.ones(1), np.ones(1), np.array([noise]), options)
    reached = norm * random.uniform(-1, 1) if random.random() < 0.5 else norm
    return on_a_line(row, *(Law(np.array([each]), np.ones(1)) for each in (norm, -reached)), noise)


def secure_sum(random: np.random.Generator) -> Setting:
    """One step of each device, summed; d may drop out, c others tell their shares, a peer knows its own."""
    begun = int(random.integers(2, 6))
    colluding = int(random.integers(0, begun))
    dropouts = int(random.integers(0, begun - colluding))
    observer = str(random.choice(["edge", "cloud", "peer"]))
    gone = random.choice(np.arange(1, begun), int(random.integers(0, dropouts + 1)), replace=False)
    there = ~np.isin(np.arange(begun), gone)
    records, step_size, norm = int(random.integers(1, 5)), random.uniform(0.1, 2), random.uniform(0.1, 2)
    rates, sizes = np.full(begun, float(random.uniform(0.1, 1))), np.full(begun, records)
    place, bound = Place(Holder.SHARE, tolerance=Tolerance(colluding, dropouts)), ClippedRecords(norm)
    weights = random.dirichlet(np.ones(begun))
    moved = float(bound.sensitivity(step_size, 1, rates[:1] * sizes[:1])[0])
    levels = place.levels(weights, np.full(begun, moved)) * random.uniform(0.4, 2.5)
    weights, rates, sizes, levels = (each[there] for each in (weights, rates, sizes, levels))
    weights /= weights.sum()
    adjacency = adjacency_of(random, "poisson")
    row = rows_about(
        GradientSumMechanism(CALIBRATION, bound, "tight"), observer, place, adjacency, weights, rates, levels,
        {"steps": np.ones(len(rates), dtype=int), "records": sizes, "step_size": step_size},
    )  # fmt: skip
    drawn, chances = all_draws(rates[0], 1, records, "poisson")
    losses = Losses.drawn(random, records - 1)
    laws = [
        Law(weights[0] * losses.upload(drawn, attacked, rates[0] * records, step_size, norm, True), chances)
        for attacked in (1.0, -1.0 if adjacency == "replace" else 0.0)
    ]
    others = range(1, len(weights))
    pooled = min(colluding + (observer == "peer"), len(weights) - 1)
    parts = (weights * levels) ** 2
    noise = min(math.sqrt(parts.sum() - parts[list(known)].sum()) for known in combinations(others, pooled))
    return on_a_line(row, *laws, noise) if row else secure_sum(random)  # a peer needs another device that is there


BOUNDS: dict[str, Callable[[np.random.Generator], Setting]] = {
    "batch": of_gradients(by_record=False, several=True),
    "record, one step": of_gradients(by_record=True, several=False),
    "record, several steps": of_gradients(by_record=True, several=True),
    "draws": by_draws,
    "noise inside": inside,
    "secure sum": secure_sum,
    "update, central": central,
    "update, output": output,
}
