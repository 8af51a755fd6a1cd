"""What README.md sums up is what the pages say."""

import re
from pydoc import locate

import pytest

import h2fdp
from experiments.reproduction.regions import RESULTS, begin
from experiments.reproduction.verdict import Verdict
from tests.docs.reader import REPOSITORY

README = (REPOSITORY / "README.md").read_text()


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_counts_of_verdicts_are_those_of_the_page():
    results = (REPOSITORY / "experiments" / "reproduction.md").read_text().split(begin(RESULTS))[1].splitlines()
    head = cells(results[1])
    shown = [number for number, cell in enumerate(head) if cell.startswith("Fashion-MNIST, ")]
    assert len(shown) == 2
    for verdict in Verdict:
        (row,) = [cells(line) for line in results[:10] if line.startswith(f"| {verdict} |")]
        assert f"| {verdict} | {row[shown[0]]} | {row[shown[1]]} |" in README


def test_the_figures_of_speed_are_those_of_the_page():
    page = (REPOSITORY / "docs" / "performance.md").read_text()
    section = README.split("## Speed")[1].split("## ")[0]
    for figure in ("38,823", "58,089", "3,499", "2,475", "18,565", "324", "125", "7.9", "21", "1.3 GB"):
        assert figure in section
        assert figure in page


def test_what_comes_back_by_account_is_counted_as_on_the_page():
    page = (REPOSITORY / "experiments" / "reproduction.md").read_text()
    section = page.split("The most plausible setting is number")[1].split("\nMade by")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| claim")]
    verdicts = [found[1] for line in lines if (found := re.search(r"\*\*([^*]*)\*\* \|$", line))]
    holds = sum(each.startswith("holds") for each in verdicts)
    assert f"{holds} of {len(verdicts)} claims hold at least in direction." in " ".join(README.split())
    numbered = [line for line in lines if re.search(r"\| [≥≤] [\d.]+ [^|]*\|", line) and line.rstrip().endswith("** |")]
    met = sum(line.endswith("**holds** |") for line in numbered)
    assert (len(numbered), met) == (8, 3)
    assert "Of the eight that state a number three are met" in " ".join(README.split())


PAGE = (REPOSITORY / "docs" / "reference.md").read_text()
NAMED = re.findall(r"^\.\. auto\w+:: (\S+)$", PAGE, re.MULTILINE)


def test_every_name_of_the_package_is_in_the_reference():
    assert {f"h2fdp.{name}" for name in h2fdp.__all__ if name != "__version__"} - {*NAMED} == set()


@pytest.mark.parametrize("name", NAMED)
def test_a_name_of_the_reference_can_be_imported(name):
    assert locate(name) is not None
