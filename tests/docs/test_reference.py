"""docs/reference.md: what users and authors of methods write with, and nothing else."""

import re
from pydoc import locate

import pytest

import h2fdp
from tests.docs.reader import REPOSITORY

PAGE = (REPOSITORY / "docs" / "reference.md").read_text()
NAMED = re.findall(r"^\.\. auto\w+:: (\S+)$", PAGE, re.MULTILINE)


def test_every_name_of_the_package_is_in_the_reference():
    assert {f"h2fdp.{name}" for name in h2fdp.__all__ if name != "__version__"} - {*NAMED} == set()


@pytest.mark.parametrize("name", NAMED)
def test_a_name_of_the_reference_can_be_imported(name):
    assert locate(name) is not None
