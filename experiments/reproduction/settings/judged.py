"""The claims in every setting, by the rule that judges the figures; how often each holds, and with what it goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from scipy.stats import spearmanr

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import JudgedClaim, judge, numbers_at
from experiments.reproduction.figures_file import Column
from experiments.reproduction.points import Point, is_at, points_of
from experiments.reproduction.quantities import Estimate
from experiments.reproduction.results import Results
from experiments.reproduction.settings.design import Axis, Setting
from experiments.reproduction.settings.file import Requirement
from experiments.reproduction.settings.stored_runs import StoredRun, in_words_of_claims, results_from
from experiments.reproduction.verdict import OPEN, Verdict

_LEAST_SETTINGS = 6  # below, no correlation is worth a word
_LEVEL = 0.05


@dataclass(frozen=True)
class JudgedSetting:
    """What the runs in one setting say.

    Attributes:
        why: it does not work, for this reason; empty where it does.
        accuracies: label of a method -> its mean final accuracy in points, where it was run.
        plausibility: that of the point by which the most plausible setting is chosen; None where it was not run.
        judged: claim -> what was found, of those with runs.
    """

    number: int
    setting: Setting
    why: str = ""
    accuracies: Mapping[str, float] = field(default_factory=dict)
    plausibility: float | None = None
    judged: Mapping[str, JudgedClaim] = field(default_factory=dict)


def within(claim: Claim, results: Results) -> Claim | None:
    """A claim as far as a smaller grid has its points: steps between those that are there, pairs of which both are.

    None where nothing is left.
    """
    ladders = []
    for ladder in claim.points:
        points = points_of(ladder)
        there = [point for point in points if any(is_at(values, point) for values in results.values.values())]
        enough = len(there) == len(points) if claim.how.exact else len(there) >= claim.how.points
        if enough:
            ladders.append(there)
    return claim.model_copy(update={"points": ladders}) if ladders else None


def judged_in(claims: Iterable[Claim], data_set: str, runs: Sequence[StoredRun]) -> dict[str, JudgedClaim]:
    """The claims about figures of which there are runs, in one setting and one column."""
    found = {}
    by_figure = {
        figure: results_from(run for run in runs if run.figure == figure) for figure in {run.figure for run in runs}
    }
    for claim in claims:
        results = by_figure.get(claim.figure)
        smaller = None if results is None else within(claim, results)
        if results is not None and smaller is not None:
            found[claim.id] = judge(smaller, data_set, results)
    return found


def accuracy_at(point: Point, runs: Iterable[StoredRun]) -> float | None:
    """Mean final accuracy in points; None where there is no such run."""
    results = results_from(runs)
    words = in_words_of_claims(point)
    if not results.seeds_at([words]):
        return None
    return float(numbers_at("final accuracy", [words], results).mean())


def why_not(requirements: Iterable[Requirement], trial: Sequence[StoredRun]) -> str:
    """Why training does not work in a setting; empty where it does."""
    for required in requirements:
        found = accuracy_at(required.at, trial)
        if found is None or found < required.least:
            return required.otherwise
    return ""


@dataclass(frozen=True)
class ClaimOverSettings:
    """One claim in all settings in which it could be judged.

    Attributes:
        holds: in how many it holds, at least in direction; in `fully` of them by as much as the paper says.
        undecided: in how many the interval is too wide to say.
        signs: in how many the mean alone has the claimed sign; for a claim "at most", is as small as the paper says.
        reached: in how many the mean alone is as large as the paper says, and `best` which of them is the most so.
        goes_with: the axis whose ranks agree best with those of what was found, and their correlation; None where none
            differs from chance at 5 %, all axes considered (Bonferroni).
    """

    claim: Claim
    judged: int
    holds: int
    fully: int
    undecided: int
    signs: int
    reached: int
    best: int | None
    goes_with: tuple[str, float] | None


def over_settings(
    claim: Claim,
    data_set: str,
    settings: Sequence[JudgedSetting],
    axes: Mapping[str, Axis],
    products: Mapping[str, Sequence[str]],
) -> ClaimOverSettings:
    """Count a claim's verdicts, and find which of the axes that matter to its figure they go with."""
    found = {
        each.number: (each, judged)
        for each in settings
        if (judged := each.judged.get(claim.id)) is not None and judged.verdict is not Verdict.NOT_RUN
    }
    mattering = [name for name, axis in axes.items() if axis.matters_to(claim.figure)]
    verdicts = [judged.verdict for _, judged in found.values()]
    fully = verdicts.count(Verdict.HOLDS)
    sign = 1 if claim.relation == "at least" else -1
    findings = {number: judged.finding for number, (_, judged) in found.items() if judged.finding is not None}
    reached = [number for number, finding in findings.items() if meets(claim, data_set, finding.size)]
    sizes = {number: finding.size.value for number, finding in findings.items()}
    signs = len(reached) if sign < 0 else sum(finding.direction.value > 0 for finding in findings.values())
    return ClaimOverSettings(
        claim,
        len(found),
        fully + verdicts.count(Verdict.IN_DIRECTION),
        fully,
        sum(judged.remark in OPEN for _, judged in found.values()),
        signs,
        len(reached),
        max(reached, key=lambda number: sign * sizes[number], default=None),
        _strongest(
            [_numbers_of(found[number][0].setting, mattering, products) for number in sizes], list(sizes.values())
        ),
    )


def _numbers_of(setting: Setting, axes: Iterable[str], products: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The values of a setting that are numbers, and products of these."""
    found = {name: float(setting[name]) for name in axes if isinstance(setting.get(name), (int, float))}
    for name, factors in products.items():
        if {*factors} <= {*found}:
            found[name] = math.prod(found[factor] for factor in factors)
    return found


def _strongest(settings: Sequence[Mapping[str, float]], sizes: Sequence[float]) -> tuple[str, float] | None:
    """Spearman's rank correlation with each column."""
    if len(settings) < _LEAST_SETTINGS or len(set(sizes)) < 2:
        return None
    columns = {name: [each[name] for each in settings] for name in settings[0]}
    tested = {name: spearmanr(values, sizes) for name, values in columns.items() if len(set(values)) > 1}
    name = max(tested, key=lambda each: abs(float(tested[each].statistic)), default=None)
    if name is None or float(tested[name].pvalue) * len(tested) > _LEVEL:
        return None
    return name, float(tested[name].statistic)


def meets(claim: Claim, data_set: str, found: Estimate) -> bool:
    """Whether a mean alone is as the paper says, whatever its interval."""
    sign = 1 if claim.relation == "at least" else -1
    return sign * (found.value - (claim.paper[data_set] or 0)) + claim.tolerance >= 0


FAVOURABLE, PLAUSIBLE = "most favourable", "most plausible"


def chosen(claims: Sequence[Claim], data_set: str, settings: Sequence[JudgedSetting]) -> dict[str, int]:
    """Which settings are run again, by rules that were fixed before any was tried.

    The most favourable one is that in which most claims are met by their means; among equals, the one in which the
    first claim is met by most. The most plausible one is that of the highest `plausibility`, whatever it says of the
    claims; where both are the same, the next most plausible one.
    """
    able = [each for each in settings if not each.why and each.judged]

    def met(each: JudgedSetting) -> tuple[int, float]:
        findings = [(claim, each.judged[claim.id].finding) for claim in claims if claim.id in each.judged]
        known = [(claim, finding.size) for claim, finding in findings if finding is not None]
        return sum(meets(claim, data_set, size) for claim, size in known), known[0][1].value if known else 0.0

    if not able:
        return {}
    favourable = max(able, key=met)
    others = [each for each in able if each is not favourable and each.plausibility is not None]
    plausible = max(others, key=lambda each: each.plausibility or 0.0, default=favourable)
    return {FAVOURABLE: favourable.number, PLAUSIBLE: plausible.number}


def never_together(
    claims: Sequence[Claim], data_set: str, settings: Sequence[JudgedSetting]
) -> list[tuple[Claim, Claim]]:
    """Pairs of a figure's claims with numbers of the paper's that no setting meets both by its means, though each is
    met in some."""
    met = {}
    for claim in claims:
        findings = {each.number: each.judged[claim.id].finding for each in settings if claim.id in each.judged}
        met[claim.id] = {
            number for number, found in findings.items() if found is not None and meets(claim, data_set, found.size)
        }
    return [
        (one, other)
        for one, other in combinations(claims, 2)
        if one.figure == other.figure and None not in (one.paper[data_set], other.paper[data_set])
        if met[one.id] and met[other.id] and not met[one.id] & met[other.id]
    ]


@dataclass(frozen=True)
class SettingsResults:
    """Everything that is known of claims over settings.

    Attributes:
        settings: all that were tried, in the order of the design.
        decisions: those of the controller's own parameters.
        chosen: role -> the number of a setting that was run again.
        confirmed: (role, column) -> claim -> what was found under fresh seeds at full length.
        would_choose: role -> the number that the same rule finds among all settings.
    """

    settings: Sequence[JudgedSetting]
    decisions: Sequence[JudgedSetting]
    chosen: Mapping[str, int]
    confirmed: Mapping[tuple[str, Column], Mapping[str, JudgedClaim]]
    made: Sequence[str] = ()
    would_choose: Mapping[str, int] = field(default_factory=dict)
