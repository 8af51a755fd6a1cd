"""What a page keeps, and what its cells say."""

import dataclasses
import json
import math

import pytest

from h2fdp.errors import UserError
from h2fdp.reproduction.cells import cell, share_cell
from h2fdp.reproduction.claims import Claim
from h2fdp.reproduction.evaluation import JudgedClaim, Row
from h2fdp.reproduction.quantities import Estimate, Finding
from h2fdp.reproduction.results import NO_RUNS
from h2fdp.reproduction.verdict import Verdict
from h2fdp.reproduction.verdict_store import Provenance, VerdictStore, read_verdicts
from h2fdp.reproduction.wording import found_words

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
NOTHING = JudgedClaim(Verdict.NOT_RUN, why=NO_RUNS)


def test_verdicts_are_kept_until_their_figure_is_made_anew(tmp_path):
    rows = [Row(CLAIM, data_set, {"claimed": FOUND, "accounted": NOTHING}) for data_set in ("d", "e")]
    fresh = {("one", "d"): Provenance(("`command` at commit",), {"claimed": 27.9})}
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
    kept = VerdictStore({}, {("a", "d", "claimed"): FOUND})
    [row] = kept.completed([Row(CLAIM.model_copy(update={"relation": "at most"}), "d", {"claimed": NOTHING})])
    assert row.columns["claimed"].verdict is Verdict.FAILS  # 2.34 +- much, of at most 6
    finding = Finding(Estimate(2.0, 1.0, 3.0), Estimate(2.0, 1.0, 3.0), 5)
    kept = VerdictStore({}, {("a", "d", "claimed"): JudgedClaim(Verdict.HOLDS, finding)})
    [row] = kept.completed([Row(CLAIM, "d", {"claimed": NOTHING})])
    assert row.columns["claimed"] == JudgedClaim(Verdict.IN_DIRECTION, finding, remark="by less")


def test_what_a_sign_is_judged_by_is_told_where_it_is_another_number():
    rises = CLAIM.model_copy(update={"comparison": "least rise"})
    found = JudgedClaim(Verdict.IN_DIRECTION, Finding(Estimate(0.5, -1.1, 1.5), Estimate(3.2, 2.3, 4.4), 5))
    assert found_words(rises, found) == "0.5 [−1.1, 1.5]; first to last 3.2 [2.3, 4.4]; n = 5"
    assert found_words(CLAIM, found) == "0.5 [−1.1, 1.5], n = 5"


def test_a_remark_that_is_no_text_is_damage(tmp_path):
    kept = {
        "one": {"d": {"made": [], "accounted": {}, "claims": {"a": {"claimed": {"verdict": "holds", "remark": []}}}}}
    }
    (tmp_path / "verdicts.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match="damaged"):
        read_verdicts(tmp_path / "verdicts.json", ["one"])


def test_a_cell_has_a_sign_a_number_and_everything_else_on_hover():
    text = cell(CLAIM, FOUND, 'the "first"')
    assert text.startswith(
        '<td class="undecided" title="the &quot;first&quot;: undecided; 2.3 [−0.1, ∞], n = 5, at 51.2 %"'
    )
    assert text.endswith(">?&nbsp;2.3</td>")
    assert cell(CLAIM, NOTHING, "x") == f'<td class="none" title="x: not run; {NO_RUNS}">–</td>'
    assert cell(CLAIM, None, "x") == '<td class="none"></td>'


def test_a_share_is_a_bar_of_what_holds_and_of_what_may_yet():
    text = share_cell(3, 2, 10, "told")
    assert "--green: 30%; --yellow: 50%" in text
    assert text.endswith(">3 of 10</td>")
