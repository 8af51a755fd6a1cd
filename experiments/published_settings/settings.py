"""The settings: file, paper, what the paper states, and how its statement is judged on the runs of the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.frontier.page import Mean
from experiments.published_settings.share import runs_of_associations
from experiments.questions.study import by_seed, clear, difference, mean
from h2fdp import Run

FOLDER = Path(__file__).parent
MEASURES = {
    "accuracy": "accuracy, %",
    "epsilon": "epsilon",
    "joules": "joules",
    "seconds": "seconds",
    "megabytes": "MB sent up",
    "noise": "noise, standard deviation",
    "joules_until": "joules until then",
    "seconds_until": "seconds until then",
}
Judge = Callable[[pd.DataFrame], str]


@dataclass(frozen=True)
class Setting:
    """A paper's setting.

    Attributes:
        name: of its file in this folder.
        paper: authors and year.
        statement: of the paper, in a sentence.
        judge: the table of the runs (columns `point`, `seed` and `MEASURES`) -> what came out.
        measures: columns that the page shows.
        target: the accuracy, in per cent, until which `joules_until` and `seconds_until` are counted.
        runs: (file, folder, data folder, jobs) -> values and run of each point; None for the file's sweep.
    """

    name: str
    paper: str
    statement: str
    judge: Judge
    measures: tuple[str, ...] = ("accuracy", "joules", "seconds")
    target: float = 100.0
    runs: Callable[..., Iterator[tuple[dict[str, Any], Run]]] | None = None

    @property
    def file(self) -> Path:
        """The sweep."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def stored(self) -> Path:
        """The table of its runs."""
        return FOLDER / f"{self.name}.csv"


def point_word(values: Mapping[str, Any]) -> str:
    """What a point of a sweep is called: its values without the seed, the last word of each key before it.

    >>> point_word({"seed": 3, "method.aggregation": "fednova"})
    'aggregation fednova'
    >>> point_word({"seed": 3})
    'as stated'
    """
    stated = {key.rpartition(".")[2]: value for key, value in values.items() if key != "seed"}
    return ", ".join(f"{key} {_short(value)}" for key, value in stated.items()) or "as stated"


def _short(value: Any) -> str:
    if isinstance(value, list):  # a network: by its size
        return f"{sum(each['devices']['count'] for each in value)} devices"
    if isinstance(value, Mapping):
        inner = [_short(each) if key in ("extends", "name") else f"{key} {_short(each)}" for key, each in value.items()]
        return " ".join(inner)
    if isinstance(value, str) and ":" in value:  # a part of one's own
        return value.rpartition(":")[2].lower()
    return "none" if value is None else str(value)


def _verdict(holds: bool, undecided: bool = False) -> str:
    return "**Holds**" if holds else "**Undecided**" if undecided else "**Does not hold**"


def _compared(measure: str, unit: str, first: str, second: str, *, more: bool = True) -> Judge:
    """Whether the first point has more (or less) of a measure than the second, seed by seed."""

    def judge(table: pd.DataFrame) -> str:
        gain = difference(*(by_seed(table, measure, point=each) for each in (first, second)))
        known = gain.seeds == 1 or clear(gain)  # costs of one seed follow from the file
        verdict = _verdict(known and (gain.value > 0) is more, undecided=not known)
        return f"{verdict}: `{first}` has {gain} {unit} against `{second}` (differences seed by seed)."

    return judge


def _equal(measure: str, expected: float, within: float, unit: str, point: str | None = None) -> Judge:
    """Whether every run has a number that was calculated by hand."""

    def judge(table: pd.DataFrame) -> str:
        rows = table if point is None else table[table["point"] == point]
        worst = max(rows[measure], key=lambda each: abs(each - expected))
        verdict = _verdict(abs(worst - expected) <= within)
        return f"{verdict}: {expected:g} {unit} by hand, {worst:.6g} in the run that is farthest from it."

    return judge


def _as_accurate(first: str, second: str, within: float) -> Judge:
    """Whether the interval of a difference lies within so many points."""

    def judge(table: pd.DataFrame) -> str:
        gain = difference(*(by_seed(table, "accuracy", point=each) for each in (first, second)))
        verdict = _verdict(abs(gain.value) + gain.half <= within, undecided=abs(gain.value) <= within)
        return f"{verdict}: `{first}` against `{second}` {gain} points; equal is within {within:g} points."

    return judge


def _quantised(table: pd.DataFrame) -> str:
    gap = difference(*(by_seed(table, point=f"quantise {bits}") for bits in (32, 8)))
    shares = [mean(by_seed(table, "megabytes", point=f"quantise {bits}")).value for bits in (8, 32)]
    verdict = _verdict(gap.value + gap.half <= 1)
    return f"{verdict}: 8 bits lose {gap} points against 32 for {shares[0] / shares[1]:.2f} of the bytes."


def _integers(table: pd.DataFrame) -> str:
    judge = [_as_accurate(f"rounding {bits}", "rounding none", 0.5)(table) for bits in (16, 20)]
    return f"{judge[0]} With 20 bits: {judge[1]}"


def _in_the_air(table: pd.DataFrame) -> str:
    growth = {}
    for access in ("ofdma", "over-the-air truncate_db -10"):
        few, many = (table[table["point"] == f"access {access}, edges {n} devices"]["seconds"].mean() for n in (5, 80))
        growth[access] = float(many / few)
    plain, air = growth.values()
    verdict = _verdict(plain > 4 and air < 1.5)
    words = f"{plain:.1f} times as long with OFDMA, {air:.2f} times over the air"
    return f"{verdict}: 80 devices in the place of 5 take {words}."


def _deadlines(table: pd.DataFrame) -> str:
    first, second = "method hfl-async", "method hfl"
    gain = difference(*(by_seed(table, point=each) for each in (first, second)))
    verdict = _verdict(clear(gain) and gain.value > 0, undecided=not clear(gain))
    return f"{verdict}: after 32 simulated seconds `hfl-async` is {gain} points above synchronous rounds."


def _journey(table: pd.DataFrame) -> str:
    one, three = (table[table["point"] == f"intervals {n}, epsilon {e}"] for n, e in ((10, 2), (30, 3.722)))
    ratio = float(three["noise"].mean() / one["noise"].mean())
    verdict = _verdict(abs(ratio - 1) <= 0.002)
    return f"{verdict}: three epochs at 3.722 have {ratio:.4f} times the noise of one at 2, which should be 1 to 0.2 %."


def figure_of(found: Mean) -> str:
    """A cell of a table, to four digits.

    >>> figure_of(Mean.of([0.0842, 0.0842]))
    '0.0842'
    """
    if math.isnan(found.value):
        return "not by all"
    if not found.half > 1e-9 * abs(found.value):
        return f"{found.value:.4g}"
    return f"{found.value:.4g} ± {found.half:.2g}"


_ALL = (
    Setting(
        "hierfavg", "HierFAVG (Liu, Zhang, Song and Letaief, ICC 2020)",
        "A local step takes 0.024 s and 2.4 mJ, an upload 0.123 s and 61.6 mJ; so 15 rounds of 60 steps of 20 "
        "devices take 15 x 60 x 20 x 0.0024 J + 15 x 20 x 0.0615 J = 61.65 J.",
        _equal("joules", 61.65, 0.01, "J"),
    ),
    Setting(
        "hfel", "HFEL (Luo, Chen, Wu, Zhou and Yu, TWC 2020)",
        "Frequencies and shares of the band that are chosen cost less than full speed and equal shares.",
        _compared(
            "joules", "J", "access equaltime, least_ghz 0.5", "access ofdma shares equal, least_ghz none", more=False
        ),
    ),
    Setting(
        "quantisation", "Hierarchical federated learning with quantisation (Liu et al., TWC 2022)",
        "Few bits a coordinate on both links lose next to no accuracy, for a fraction of what is sent.",
        _quantised, ("accuracy", "joules", "megabytes"),
    ),
    Setting(
        "fedasync", "FedAsync, FedBuff (Xie et al. 2019; Nguyen et al., AISTATS 2022)",
        "Where some are much slower, not to wait for them is more accurate after the same time.", _deadlines,
    ),
    Setting(
        "fednova", "FedNova (Wang et al., NeurIPS 2020)",
        "Where devices take unequally many steps, the normalised average is more accurate than the plain one.",
        _compared("accuracy", "points", "aggregation fednova", "aggregation average"), ("accuracy",),
    ),
    Setting(
        "discrete-gaussian", "Distributed discrete Gaussian (Kairouz, Liu and Steinke, ICML 2021)",
        "With 16 bits a coordinate, secure sums with discrete noise are as accurate as continuous noise at the same "
        "epsilon.",
        _integers, ("accuracy", "epsilon", "megabytes"),
    ),
    Setting(
        "cars", "Twenty cars past four roadside units (devices that move as in MACFL, Feng et al., TWC 2022)",
        "Three epochs that each cost a car an epsilon of 2 compose to 3.722 at delta 1e-5: one account for a journey.",
        _journey, ("accuracy", "epsilon", "noise", "joules"),
    ),
    Setting(
        "over-the-air", "Sums over the air (Zhu, Wang and Huang, TWC 2020)",
        "The time of an aggregation over the air does not depend on the number of devices; with OFDMA it grows.",
        _in_the_air,
    ),
    Setting(
        "share", "SHARE (Deng et al., ICDCS 2021)",
        "Devices that join edge servers so that each has the labels of all need less communication for an accuracy.",
        _compared("joules_until", "J until 90 %", "by data", "by nearest", more=False),
        ("accuracy", "joules_until", "seconds_until", "joules"), 90.0, runs_of_associations,
    ),
    Setting(
        "oort", "Oort (Lai, Zhu, Madhyastha and Chowdhury, OSDI 2021)",
        "Devices selected by speed and utility reach an accuracy sooner than drawn ones. (Here lengths of released "
        "vectors stand in for losses.)",
        _compared("seconds_until", "s until 70 %", "schedule utility", "schedule fixed", more=False),
        ("accuracy", "seconds_until", "joules", "epsilon"), 70.0,
    ),
)  # fmt: skip
SETTINGS: Mapping[str, Setting] = {each.name: each for each in _ALL}
