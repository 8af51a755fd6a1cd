"""docs/reference.md and docs/reference-methods.md: nothing that users and authors of methods build on is missing."""

import inspect
import re
from importlib import import_module

import pytest

from tests.docs.reader import REPOSITORY

PAGES = [REPOSITORY / "docs" / f"{name}.md" for name in ("reference", "reference-methods")]
NAMED = {name for page in PAGES for name in re.findall(r"^\.\. auto\w+:: (\S+)$", page.read_text(), re.MULTILINE)}
ROOMS = [
    "algorithms",
    "schedules",
    "privacy",
    "privacy.accounting",
]


@pytest.mark.parametrize("module", ["h2fdp", *(f"h2fdp.{room}" for room in ROOMS)])
def test_every_public_class_and_function_is_in_the_reference(module):
    home = import_module(module)
    things = {f"{module}.{name}" for name in home.__all__ if inspect.isroutine(getattr(home, name))}
    things |= {f"{module}.{name}" for name in home.__all__ if inspect.isclass(getattr(home, name))}
    assert things - NAMED == set()


def test_nothing_is_there_twice():
    entries = [line for page in PAGES for line in page.read_text().splitlines() if line.startswith(".. auto")]
    assert len(entries) == len(set(entries))
