"""What a page keeps, and what its cells say."""

import dataclasses
import json
import math

import pytest

from experiments.reproduction.claims import Claim
from experiments.reproduction.evaluation import JudgedClaim, Row
from experiments.reproduction.quantities import Estimate, Finding
from experiments.reproduction.results import NO_RUNS
from experiments.reproduction.verdict import Verdict
from experiments.reproduction.verdict_store import CHANGED, Provenance, VerdictStore, read_verdicts
from h2fdp.errors import UserError

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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"remark": []}, r"verdicts\.json:\d+: figures\.one\.d\.claims\.a\.claimed\.remark: expected undecided"),
        ({"target": "abc"}, r"\.target: expected a finite number, found \"abc\""),
        ({"seeds": -5}, r"\.seeds: expected a whole number of at least 1, found -5"),
        ({"size": [3, 2, 1]}, "size: expected a low end below the high end, found 2"),
        ({"size": [3, 2]}, r"\.size: expected a number and the ends of its interval"),
        ({"direction": None}, "expected size, direction and seeds, or none of them"),
        ({"absent": "abc"}, r"\.absent: expected true or false, found \"abc\""),
        ({"verdict": "good"}, r"\.verdict: expected holds, .* found \"good\""),
    ],
)
def test_damage_is_told_by_line_and_key(tmp_path, change, words):
    finding = {"verdict": "holds", "size": [2, 1, 3], "direction": [2, 1, "inf"], "seeds": 5} | change
    claims = {"a": {"compares": "x", "claimed": finding}}
    kept = {"figures": {"one": {"d": {"made": [], "accounted": {}, "claims": claims}}}}
    (tmp_path / "verdicts.json").write_text(json.dumps(kept, indent=1))
    with pytest.raises(UserError, match=words):
        read_verdicts(tmp_path / "verdicts.json", ["one"])
