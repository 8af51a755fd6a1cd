"""docs/reference.md: nothing that users and authors of methods build on is missing."""

import inspect
import re
from importlib import import_module

import pytest

from tests.docs.reader import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference.md").read_text()
NAMED = {*re.findall(r"^\.\. auto\w+:: (\S+)$", PAGE, re.MULTILINE)}
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
    entries = [line for line in PAGE.splitlines() if line.startswith(".. auto")]
    assert len(entries) == len(set(entries))
