"""What the digest of a file of code sees: everything that is computed, and neither comments nor docstrings."""

import pytest

from h2fdp.arithmetic import flushing
from h2fdp.records.atomic import digest_of_code

CODE = '''
"""Rules."""
import numpy as np
from functools import cache

FACTOR = 2.5

@cache
def step(x, rate=0.1):
    """One step."""
    y = np.sum(x) * FACTOR  # the sum
    z = y - rate
    return y + z

class Table:
    """Rows."""
    rows: int = 3
    """How many."""
'''


def changed(text, other):
    assert text in CODE
    return digest_of_code(CODE.replace(text, other))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ('"""One step."""', '"""A step\n    of the method."""'),
        ('    """One step."""\n', ""),
        ('"""Rules."""', '"""All rules."""'),
        ('    """How many."""\n', ""),
        ("# the sum", "# the sum of all\n    # of them\n"),
        ("np.sum(x) * FACTOR", "(\n        np.sum(x) * FACTOR\n    )"),
    ],
)
def test_what_is_said_about_code_leaves_the_digest_alone(text, other):
    assert changed(text, other) == digest_of_code(CODE) == digest_of_code(CODE.encode())


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("FACTOR = 2.5", "FACTOR = 2.5\nUNUSED = 1"),
        ("rate=0.1", "rate=0.2"),
        ("y + z", "y - z"),
        ("np.sum", "np.prod"),
        ("import numpy as np", "import torch as np"),
        ("@cache\n", ""),
        ("rows: int = 3", "rows: int = True"),
        ("    z = y - rate\n    return y + z", "    return y + z\n    z = y - rate"),
    ],
)
def test_what_computes_something_else_has_another_digest(text, other):
    assert changed(text, other) != digest_of_code(CODE)


@pytest.mark.parametrize("number", ["5e-324", "1e-310", "-5e-324", "0.0", "5e-324j"])
def test_numbers_that_a_run_counts_as_0_have_one_digest_within_it_and_outside(number):
    digests = []
    for on in (True, False):
        digest_of_code.cache_clear()
        with flushing(on):
            digests.append(digest_of_code(f"TINY = {number}"))
    assert digests[0] == digests[1] != digest_of_code("TINY = 1e-323")
