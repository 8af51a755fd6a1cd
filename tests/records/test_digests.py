"""What the digest of a file of code sees: everything that is computed, and neither comments nor docstrings."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.records import PACKAGE
from h2fdp.records.summary import digest_of_code

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


class _Changed(ast.NodeTransformer):
    """Changes the n-th number of a tree."""

    def __init__(self, number):
        self.left = number

    def visit_Constant(self, node):
        if isinstance(node.value, int | float):
            self.left -= 1
            if self.left == 0:
                return ast.Constant(2 * node.value + 1)  # 1e300 + 1 is 1e300
        return node


FILES = [file.read_text() for file in sorted((PACKAGE / "privacy").rglob("*.py"))]
NUMBERS = [
    (text, number)
    for text in FILES
    for number in range(
        1, 1 + sum(isinstance(getattr(n, "value", None), int | float) for n in ast.walk(ast.parse(text)))
    )
]


@settings(max_examples=30)
@given(st.sampled_from(NUMBERS))
def test_any_number_of_our_own_code_counts(place):
    text, number = place
    assert digest_of_code(text) == digest_of_code(ast.unparse(ast.parse(text)))
    assert digest_of_code(text) != digest_of_code(ast.unparse(_Changed(number).visit(ast.parse(text))))
