"""The numbers of a sweep's finished runs, and their means over seeds at each point of the grid.

Intervals of means are Student's of 95 % (Student 1908, "The probable error of a mean"): mean -+ t s / sqrt(n), with s
the deviation of the n runs about their mean, and t the 97.5 % quantile of Student's distribution with n - 1 degrees of
freedom: 12.7 for two runs, 4.30 for three, 2.78 for five, 2.26 for ten. Such an interval covers the mean of normal
values in 95 % of cases for every n; a percentile bootstrap of five runs in 83 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from h2fdp.costs.kinds import COSTS
from h2fdp.errors import UserError, no_directory, not_one_of
from h2fdp.records.directory import read_summary, worst_epsilons
from h2fdp.records.tables import read_table
from h2fdp.reports.sweep_view import SEED, STATE, SweepView, choices_of, footnote_of, is_sweep, shortened_keys, word
from h2fdp.wording import SCORES, Score, judged_by

CONFIDENCE = 0.95

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeanIntervals:
    """Means over runs and their intervals.

    Attributes:
        mean, low, high: shape (columns,); NaN without a value, low and high also where one run is all.
    """

    mean: Floats
    low: Floats
    high: Floats


def means_with_intervals(values: NDArray[Any]) -> MeanIntervals:
    """Means over the values of each column, and Student's intervals.

    Args:
        values: shape (runs, columns); NaN where a run has no value.

    >>> means = means_with_intervals(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    >>> means.mean.tolist(), means.low.round(3).tolist(), means.high.round(3).tolist()
    ([2.0, 5.0], [-0.484, 5.0], [4.484, 5.0])
    """
    from scipy.special import stdtrit  # takes a third of a second to import

    values = np.asarray(values, dtype=np.float64)
    valid = ~np.isnan(values)
    counts = valid.sum(axis=0)
    # Measured from the first value: where runs agree, rounding would otherwise make them differ.
    origin = np.take_along_axis(values, valid.argmax(axis=0)[None], axis=0)[0] if len(values) else counts * np.nan
    moved = np.where(valid, values - origin, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(valid, values, 0.0).sum(axis=0) / counts
        spread = np.where(valid, moved - moved.sum(axis=0) / counts, 0.0)
        deviation = np.sqrt((spread**2).sum(axis=0) / (counts - 1))
        margin = stdtrit(np.maximum(counts - 1, 1), (1 + CONFIDENCE) / 2) * deviation / np.sqrt(counts)
    margin = np.where(counts > 1, margin, np.nan)
    return MeanIntervals(mean, mean - margin, mean + margin)


TABLE = "sweep.parquet"
_NAN = math.nan


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        title: with its unit; `{target}` stands for the score that costs are counted up to.
        column: of the metrics; `factor` multiplies it.
        largest: over seeds the largest matters, not the mean.
        to_target: in the first interval that has the target, else in the last one with a value.
        bounds: of the measure; null for no bound.
    """

    title: str
    column: str
    factor: float = 1.0
    largest: bool = False
    to_target: bool = False
    bounds: tuple[float | None, float | None] = (0.0, None)


MEASURES: Mapping[str, Measure] = {
    **{
        name: Measure(each.title, name, each.factor, bounds=(each.least, each.factor * each.most))
        for name, each in SCORES.items()
    },
    "loss": Measure("test loss", "loss", bounds=(None, None)),
    "worst_tenth": Measure("accuracy of the worst tenth, %", "device_accuracy_worst_tenth", 100.0, bounds=(0.0, 100.0)),
    "epsilon": Measure("epsilon (pld)", "epsilon", largest=True),
    "intervals": Measure("intervals", "interval"),
    **{column: Measure(f"{each.name}, {each.unit}", column) for column, each in COSTS.items()},
    "target_intervals": Measure("intervals to {target}", "interval", to_target=True),
    **{
        f"target_{column}": Measure(f"{each.short} to {{target}}", column, to_target=True)
        for column, each in COSTS.items()
        if each.so_far
    },
}


def title_of(measure: str, target: float | None, *, difference: bool = False, score: Score = SCORES["accuracy"]) -> str:
    """The title of a measure, or of a difference in it, with its unit.

    Args:
        target: the value of the `score` that costs are counted up to.

    >>> title_of("target_energy_j", 0.7), title_of("accuracy", None, difference=True)
    ('J to 70 %', 'difference in test accuracy, points')
    """
    title = MEASURES[measure].title.format(target="" if target is None else score.wanted(target))
    return f"difference in {title.replace(', %', ', points')}" if difference else title


@dataclass(frozen=True)
class Cell:
    """A measure at a point of the grid.

    Attributes:
        mean, low, high: over the runs, Student's 95 % interval; NaN without a value, or where one run is all.
        runs: how many there are; `known`: how many have the number.
    """

    mean: float
    low: float
    high: float
    runs: int
    known: int

    @property
    def half(self) -> float:
        """Half of the interval's width; NaN where there is none."""
        return self.high - self.mean


@dataclass(frozen=True)
class SweepNumbers:
    """Means over seeds at each point.

    Attributes:
        keys: swept, without the seed, in full; `heads`: the same as short as is clear.
        points: in the order of the grid: the values of `keys`, and a cell for each measure.
        target: the score that costs are counted up to.
        against: a key and its value, as words: cells are then differences from the runs that have it, seed by seed.
        summaries: the words of a point's values -> the summaries of its runs.
    """

    keys: tuple[str, ...]
    points: tuple[tuple[Mapping[str, Any], Mapping[str, Cell]], ...]
    target: float | None
    against: tuple[str, str] | None = None
    summaries: Mapping[tuple[str, ...], Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def score(self) -> Score:
        """The one that its runs are judged by."""
        return judged_by({name: True for _, cells in self.points for name in SCORES if cells[name].known})

    @property
    def choices(self) -> dict[str, list[str]]:
        """Numbers in which runs of these points differ although no swept key states them, see `choices_of`."""
        return choices_of(self.keys, [self.summaries[tuple(map(word, values.values()))] for values, _ in self.points])

    @property
    def footnote(self) -> str:
        """A sentence about `choices`; empty where there are none."""
        return footnote_of(self.choices)

    @property
    def heads(self) -> dict[str, str]:
        """Key -> its last word, where that is clear."""
        return dict(zip(self.keys, shortened_keys(self.keys), strict=True))

    def key(self, name: str, option: str, others: Sequence[str] = ()) -> str:
        """The swept key that a user means by its full or its short name.

        Args:
            option: which names it, for the message.
            others: what else the option takes.

        Raises:
            UserError: there is none.
        """
        by_name = {short: key for key, short in self.heads.items()} | {key: key for key in self.keys}
        if name not in by_name:
            raise UserError(not_one_of(name, [*self.keys, *others] or ["(no key is swept)"]), option)
        return by_name[name]

    def varying(self) -> list[str]:
        """The keys that have more than one value."""
        return [key for key in self.keys if len({word(values[key]) for values, _ in self.points}) > 1]

    def where(self, conditions: Sequence[str]) -> SweepNumbers:
        """The points that have these values.

        Args:
            conditions: `key=value` each.

        Raises:
            UserError: another form, a key that is not swept, or a value that no point has.
        """
        selected = self
        for condition in conditions:
            key, value = selected.condition(condition, "--where")
            selected = replace(selected, points=tuple(each for each in selected.points if word(each[0][key]) == value))
        return selected

    def condition(self, text: str, option: str) -> tuple[str, str]:
        """The key and the value, as a word, of `key=value`; the errors are those of `where`."""
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"expected KEY=VALUE, found {text}", option)
        key = self.key(name.strip(), option)
        values_of_key = list(dict.fromkeys(word(values[key]) for values, _ in self.points))
        if plain_word(value) not in values_of_key:
            raise UserError(not_one_of(value, values_of_key), option, key)
        return key, plain_word(value)


def plain_word(value: str) -> str:
    """A value of the command line as `word` writes it: 1.0 is 1."""
    try:
        return word(float(value))
    except ValueError:
        return value.strip()


def sweep_numbers(sweep: Path, target: float | None = None, against: str | None = None) -> SweepNumbers:
    """The numbers of a sweep's finished runs.

    Args:
        target: an accuracy from 0 to 1, or what else the runs are judged by; null for no costs to reach one.
        against: `key=value`: at each other point the differences from the one that has this value and is alike in all
            other keys, seed by seed. Runs of one seed have one network and the same records, so that the interval of
            their differences is without the spread of these.

    Raises:
        UserError: not a sweep's directory, no finished run in it, or a damaged file; no such key, or no run that has
            the value.
    """
    if not is_sweep(sweep):
        raise no_directory(f"not a sweep directory (expected {STATE})", sweep)
    keys = tuple(SweepView.read(sweep).keys)
    table = read_table(sweep / TABLE).to_pandas() if (sweep / TABLE).is_file() else None
    if table is None or table.empty:
        raise UserError("no run of this sweep is finished; continue it with h2fdp sweep", str(sweep))
    score = judged_by({name: True for name in SCORES if name in table and table[name].notna().any()})
    if target is not None and not 0 < target <= score.most:
        expected = "above 0" if math.isinf(score.most) else f"from 0 to {score.most:g}"
        raise UserError(f"expected a number {expected} for {score.column}, found {target:g}", "--target")
    first_rows = table.drop_duplicates("run").astype(object)
    summaries = {name: read_summary(sweep / "runs" / str(name)) or {} for name in first_rows["run"]}
    numbers_of = _numbers(table, summaries, score, target)
    points: dict[tuple[str, ...], tuple[dict[str, Any], dict[str, list[float]]]] = {}
    of_points: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in first_rows.where(first_rows.notna(), None).to_dict("records"):
        values = {key: row[key] for key in keys}
        place = tuple(map(word, values.values()))
        runs = points.setdefault(place, (values, {}))[1]
        of_points.setdefault(place, []).append(summaries[row["run"]])
        runs[word(row[SEED]) if SEED in row else row["run"]] = numbers_of.loc[row["run"]].tolist()
    means = tuple((values, _cells(np.array(list(runs.values())))) for values, runs in points.values())
    numbers = SweepNumbers(keys, means, target, summaries=of_points)
    if against is None:
        return numbers
    key, value = numbers.condition(against, "--against")
    others = [each for each in points.values() if word(each[0][key]) != value]
    if not others:
        raise UserError(f"every run has {value}, expected other values to compare with it", "--against", key)
    compared = []
    for values, runs in others:  # with the runs that differ in this key alone, if they have run, by seed
        place = tuple(value if each == key else word(found) for each, found in values.items())
        partner = points[place][1] if place in points else {}
        pairs = [np.subtract(own, partner[seed]) for seed, own in runs.items() if seed in partner]
        compared.append((values, _cells(np.array(pairs).reshape(-1, len(MEASURES)), differences=True)))
    return SweepNumbers(keys, tuple(compared), target, (key, value), of_points)


def _numbers(
    table: pd.DataFrame, summaries: Mapping[str, Mapping[str, Any]], score: Score, target: float | None
) -> pd.DataFrame:
    """A row for each run, a column for each measure; NaN where a run does not have it."""
    table = table.reindex(columns=["run", *dict.fromkeys(measure.column for measure in MEASURES.values())])
    last = table.groupby("run", sort=False).last()  # the last value of each column
    worst = [worst_epsilons(summaries[name]).values() for name in last.index]
    last["epsilon"] = [_NAN if None in several else max(several, default=_NAN) for several in worst]  # none is infinite
    arrived = table[score.reached(table[score.column], _NAN if target is None else target)]
    reached = arrived.drop_duplicates("run").set_index("run").reindex(last.index)
    columns = {
        name: measure.factor * (reached if measure.to_target else last)[measure.column].astype(float)
        for name, measure in MEASURES.items()
    }
    return pd.DataFrame(columns)


def _cells(numbers: np.ndarray, *, differences: bool = False) -> dict[str, Cell]:
    """(runs, measures) -> a cell for each measure."""
    means, counts = means_with_intervals(numbers), (~np.isnan(numbers)).sum(axis=0)
    cells = {}
    for place, (name, measure) in enumerate(MEASURES.items()):
        ends = (float(means.mean[place]), float(means.low[place]), float(means.high[place]))
        if measure.largest and not differences:
            ends = (float(np.nanmax(numbers[:, place])) if counts[place] else _NAN, _NAN, _NAN)
        if measure.to_target and counts[place] < len(numbers):
            ends = (_NAN, _NAN, _NAN)  # a mean over those that got there would flatter
        cells[name] = Cell(*ends, len(numbers), int(counts[place]))
    return cells
