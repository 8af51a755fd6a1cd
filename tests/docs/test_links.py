"""Links between pages lead to a file of the repository, and to a heading of it."""

import re

import pytest

from tests.docs.reader import REPOSITORY

FOLDERS = ("*.md", "docs/**/*.md", "experiments/**/*.md", "benchmarks/*.md")
PAGES = sorted(page for each in FOLDERS for page in REPOSITORY.glob(each) if "_build" not in page.parts)


def text_of(page):
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors_of(page):
    """The anchors that GitHub and Sphinx give to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


def links_of(page):
    return re.findall(r"\]\(([^()\s]+)\)", text_of(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_leads_somewhere(page):
    broken = []
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []
