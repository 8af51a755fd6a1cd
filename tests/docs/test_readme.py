"""What README.md sums up is what the pages say."""

import re
from pydoc import locate

import pytest

import h2fdp
from tests.docs.reader import REPOSITORY

README = (REPOSITORY / "README.md").read_text()


def test_the_figures_of_speed_are_those_of_the_page():
    page = (REPOSITORY / "docs" / "performance.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| h2fdp, 10 subnets")]
    pfl, flower = int(float(rows[0][4])), int(float(rows[1][5]))
    stated = (
        f"{pfl} times as many local steps a second as pfl on one core, 18 to {flower} times as many as Flower on two"
    )
    assert stated in " ".join(README.split())
    assert "11.4 times pfl, 1.8 times JAX and, with two threads, 18 times Flower" in " ".join(page.split())


def test_what_comes_back_by_account_is_counted_as_on_the_page():
    page = (REPOSITORY / "experiments" / "reproduction" / "README.md").read_text()
    section = page.split("The most plausible setting is number")[1].split("\nMade by")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| claim")]
    verdicts = [found[1] for line in lines if (found := re.search(r"\*\*([^*]*)\*\* \|$", line))]
    holds = sum(each.startswith("holds") for each in verdicts)
    assert f"{holds} of {len(verdicts)} claims hold at least in direction." in " ".join(page.split())
    numbered = [line for line in lines if re.search(r"\| [≥≤] [\d.]+ [^|]*\|", line) and line.rstrip().endswith("** |")]
    met = sum(line.endswith("**holds** |") for line in numbered)
    assert (len(numbered), met) == (8, 3)
    assert "Of the eight that state a number three are met" in " ".join(page.split())


PAGE = (REPOSITORY / "docs" / "reference.md").read_text()
NAMED = re.findall(r"^\.\. auto\w+:: (\S+)$", PAGE, re.MULTILINE)


def test_every_name_of_the_package_is_in_the_reference():
    assert {f"h2fdp.{name}" for name in h2fdp.__all__ if name != "__version__"} - {*NAMED} == set()


@pytest.mark.parametrize("name", NAMED)
def test_a_name_of_the_reference_can_be_imported(name):
    assert locate(name) is not None
