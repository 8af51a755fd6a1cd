"""Tables of runs that a program of their own made: read, judged, written into the page, and never run."""

import json

import pytest

from tests.reproduction.small import folder
from tests.reproduction.test_reproducing import reproduce

TABLE = """\
# hand
data_set,method,seed,accuracy
plain,new,1,0.824
plain,new,2,0.816
plain,old,1,0.80
plain,old,2,0.79
hard,new,1,0.40
hard,old,1,0.41
"""
FIGURE = """
  table:
    table: table.csv
    keys: [method]
    apart: true
    title: a table of another paper
    data_sets: [plain, hard]
"""
CLAIM = """
  - id: newer-is-better
    figure: table
    source: Table 1
    words: new beats old
    measure: final accuracy
    comparison: difference
    points: [[{method: new}, {method: old}]]
    paper: {plain: 2, hard: 1}
    tolerance: 1
"""


@pytest.fixture
def experiments(tmp_path):
    path = folder(
        tmp_path / "experiments", figures=("other: {", "plain: {title: Plain}\n  hard: {title: Hard}\n  other: {")
    )
    (path / "table.csv").write_text(TABLE)
    (path / "figures.yaml").write_text((path / "figures.yaml").read_text().rstrip() + FIGURE)
    (path / "claims.yaml").write_text((path / "claims.yaml").read_text().rstrip() + CLAIM)
    return path


def test_a_table_is_judged_seed_by_seed_without_a_run(experiments):
    answer = reproduce(experiments.parent, "table", "--json")
    assert answer.exit_code == 0, answer.output
    plain, hard = json.loads(answer.stdout)
    # 82.4 - 80 and 81.6 - 79: 2.5 points, and 12.71 times a standard error of 0.1.
    assert plain["claimed"]["value"] == pytest.approx(2.5)
    assert (plain["claimed"]["low"], plain["claimed"]["high"]) == pytest.approx((2.5 - 1.271, 2.5 + 1.271), abs=0.07)
    assert plain["claimed"]["verdict"] == "holds"
    assert hard["claimed"]["verdict"] == plain["accounted"]["verdict"] == "not run"
    assert not list((experiments.parent / "out").glob("full/*/*/table"))


def test_what_a_verdict_leaves_out_is_said_everywhere(experiments):
    """84 - 80 and 79.2 - 79 points: 2.1, and an interval about it that reaches far beyond both 0 and 2."""
    table, page = experiments / "table.csv", experiments.parent / "page.md"
    table.write_text(TABLE.replace("0.824", "0.84").replace("0.816", "0.792"))
    answer = reproduce(experiments.parent, "table", "--json", "--check", "--page", str(page))
    plain = json.loads(answer.stdout)[0]["claimed"]
    assert (plain["verdict"], plain["remark"]) == ("does not hold", "undecided")
    assert "**undecided**" in page.read_text()
    totals = "| undecided | 0 | 0 | 1 |\n| by less, if at all | 0 | 0 | 0 |\n| does not hold | 0 | 0 | 0 |"
    assert totals in page.read_text()
    table.write_text(TABLE.replace("0.824", "0.805").replace("0.816", "0.795"))
    plain = json.loads(reproduce(experiments.parent, "table", "--json").stdout)[0]["claimed"]
    assert (plain["verdict"], plain["remark"]) == ("holds in direction", "by less")
    shown = " ".join(reproduce(experiments.parent, "table").stdout.split())
    assert "less)" in shown
    assert "undecided" not in shown
