"""What a page keeps, and what its cells say."""

import dataclasses
import math

import pytest

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import JudgedClaim, Row
from experiments.reproduction.quantities import Estimate, Finding
from experiments.reproduction.results import NO_RUNS
from experiments.reproduction.verdict import Verdict
from experiments.reproduction.verdict_store import CHANGED, Provenance, VerdictStore, read_verdicts

CLAIM = Claim(
    id="a",
    figure="one",
    source="s",
    words="w",
    measure="final accuracy",
    comparison="difference",
    points=[[{"method": "a"}, {"method": "b"}]],
    paper={"d": 6, "e": 6},
)
FOUND = JudgedClaim(
    Verdict.FAILS, Finding(Estimate(2.34, -0.12, math.inf), Estimate(2.0, -1.0, 5.0), 5), 51.2, "", "undecided"
)
COMPARES = {"a": CLAIM.compares}
NOTHING = JudgedClaim(Verdict.NOT_RUN, why=NO_RUNS)


def test_verdicts_are_kept_until_their_figure_is_made_anew(tmp_path):
    rows = [Row(CLAIM, data_set, {"claimed": FOUND, "accounted": NOTHING}) for data_set in ("d", "e")]
    fresh = {("one", "d"): Provenance(("`command` at commit",), {"claimed": 27.9}, COMPARES)}
    kept = VerdictStore({}, {}).updated(rows, fresh)
    kept.write(tmp_path / "verdicts.json", {"a": "one"})
    again = read_verdicts(tmp_path / "verdicts.json", ["one"])
    assert again == kept
    missing = [dataclasses.replace(row, columns={"claimed": NOTHING, "accounted": NOTHING}) for row in rows]
    first, second = again.completed(missing)
    assert first.columns["claimed"] == FOUND
    assert second.columns["claimed"] == NOTHING  # of a data set that was not made
    changed = JudgedClaim(Verdict.NOT_RUN, why="the configuration has changed")
    told = again.completed([Row(CLAIM, "d", {"claimed": changed})])
    assert told[0].columns["claimed"] == changed
    assert read_verdicts(tmp_path / "verdicts.json", ["two"]).judged == {}


def test_what_is_kept_is_judged_by_the_claim_as_it_stands():
    places = {("one", "d"): Provenance((), {}, COMPARES)}
    kept = VerdictStore(places, {("a", "d", "claimed"): FOUND})
    [row] = kept.completed([Row(CLAIM.model_copy(update={"relation": "at most"}), "d", {"claimed": NOTHING})])
    assert row.columns["claimed"].verdict is Verdict.FAILS  # 2.34 +- much, of at most 6
    finding = Finding(Estimate(2.0, 1.0, 3.0), Estimate(2.0, 1.0, 3.0), 5)
    kept = VerdictStore(places, {("a", "d", "claimed"): JudgedClaim(Verdict.HOLDS, finding)})
    [row] = kept.completed([Row(CLAIM, "d", {"claimed": NOTHING})])
    assert row.columns["claimed"] == JudgedClaim(Verdict.IN_DIRECTION, finding, remark="by less")
    assert kept.rejudged([row]).judged["a", "d", "claimed"].remark == "by less"


@pytest.mark.parametrize(
    "change",
    [
        {"measure": "volatility"},
        {"comparison": "saving"},
        {"target": 90.0},
        {"points": [[{"method": "a"}, {"method": "c"}]]},
        {"figure": "two"},
    ],
)
def test_what_is_kept_says_nothing_of_another_comparison(change):
    kept = VerdictStore({("one", "d"): Provenance((), {}, COMPARES)}, {("a", "d", "claimed"): FOUND})
    [row] = kept.completed([Row(CLAIM.model_copy(update=change), "d", {"claimed": NOTHING})])
    assert row.columns["claimed"] == JudgedClaim(Verdict.NOT_RUN, why=CHANGED)
    assert kept.rejudged([row]) == kept  # it is not lost
