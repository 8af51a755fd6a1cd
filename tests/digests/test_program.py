"""What the digest of code sees: everything that is computed, and nothing else."""

import ast
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp.digests import Program
from h2fdp.records import PACKAGE
from h2fdp.run.fingerprint import _digests_of, package_digest

PROGRAM = {
    "a.__init__": "from a.rules import step as step\n__all__ = ['step']\n",
    "a.rules": '''
"""Rules."""
import numpy as np
from functools import cache
from a.tables import LENGTHS, scaled as by

FACTOR = 2.5

@cache
def step(x, rate=0.1):
    """One step."""
    y = np.sum(x) * FACTOR  # the sum
    z = by(y) - rate
    return y + z
''',
    "a.tables": '''
LENGTHS = [1, 2, 3]
LENGTHS.append(4)
LENGTHS.extend(LENGTHS)

def scaled(x):
    return x / len(LENGTHS)

class Table:
    """Rows."""
    rows: int = 3

    def first(self):
        from a.rules import FACTOR
        return self.rows * FACTOR
''',
}


def digest(**edits):
    """The digest of the program after edits: name of a module (dots as _) = (text, other text)."""
    program = dict(PROGRAM)
    for name, (text, other) in edits.items():
        module = name.replace("_", ".")
        assert text in program[module]
        program[module] = program[module].replace(text, other)
    return Program(program).digest()


@pytest.mark.parametrize(
    "edits",
    [
        {"a_rules": ('"""One step."""', '"""A step\n    of the method."""')},
        {"a_rules": ('    """One step."""\n', "")},
        {"a_rules": ('"""Rules."""', '"""All rules."""')},
        {"a_tables": ('    """Rows."""\n', "")},
        {"a_rules": ("# the sum", "# the sum of all\n    # of them\n")},
        {"a_rules": ("np.sum(x) * FACTOR", "(\n        np.sum(x) * FACTOR\n    )")},
        {
            "a_rules": (
                "import numpy as np\nfrom functools import cache\n",
                "from functools import cache\nimport numpy as np\n",
            )
        },
        {
            "a_tables": (
                "LENGTHS = [1",
                "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nLENGTHS = [1",
            )
        },
    ],
)
def test_what_is_said_about_code_leaves_the_digest_alone(edits):
    assert digest(**edits) == digest()


@pytest.mark.parametrize(
    "edits",
    [
        {"a_rules": ("FACTOR = 2.5", "FACTOR = 2.6")},
        {"a_rules": ("FACTOR = 2.5", "FACTOR: float = 2.5")},
        {"a_rules": ("FACTOR = 2.5", "FACTOR = 2.5\nUNUSED = 1")},  # unless `globals()` finds it: nobody can say
        {"a_rules": ("rate=0.1", "rate=0.2")},
        {"a_rules": ("y + z", "y - z")},
        {"a_rules": ("y = np", "y = z = np")},
        {"a_rules": ("np.sum", "np.prod")},
        {"a_rules": ("import numpy as np", "import torch as np")},
        {"a_rules": ("from functools import cache", "from a.tables import scaled as cache")},
        {"a_rules": ("@cache\n", "")},
        {"a_rules": ("import LENGTHS, scaled as by", "import scaled, LENGTHS as by")},
        {"a_tables": ("rows: int = 3", "rows: int = True")},
        {"a_tables": ("from a.rules import FACTOR", "from a.tables import LENGTHS as FACTOR")},
        {"a_tables": ("LENGTHS.append(4)\nLENGTHS.extend(LENGTHS)", "LENGTHS.extend(LENGTHS)\nLENGTHS.append(4)")},
        {
            "a_rules": (
                "    y = np.sum(x) * FACTOR  # the sum\n    z = by(y) - rate\n",
                "    z = by(y) - rate\n    y = np.sum(x) * FACTOR\n",
            )
        },
    ],
)
def test_what_computes_something_else_has_another_digest(edits):
    assert digest(**edits) != digest()


def test_a_moved_function_leaves_the_digest_alone():
    moved = dict(PROGRAM)
    scaled = "def scaled(x):\n    return x / len(LENGTHS)\n"
    moved["a.tables"] = moved["a.tables"].replace(scaled, "")
    moved["b"] = "from a.tables import LENGTHS\n" + scaled
    moved["a.rules"] = moved["a.rules"].replace(
        "from a.tables import LENGTHS, scaled as by", "from b import scaled as by"
    )
    assert Program(moved).digest() == digest()


def test_a_function_that_moves_to_where_its_names_mean_something_else_is_another():
    two = {"a": "S = 1\ndef f():\n    return S\n", "b": "S = 2\ndef g():\n    return S\n"}
    other = {"a": "S = 1\ndef g():\n    return S\n", "b": "S = 2\ndef f():\n    return S\n"}
    assert Program(two).digest() != Program(other).digest()


def test_renamed_files_leave_the_digest_alone():
    renamed = {name.replace("rules", "updates"): text.replace("a.rules", "a.updates") for name, text in PROGRAM.items()}
    assert Program(renamed).digest() == digest()


def test_a_name_may_come_by_way_of_a_package():
    direct = PROGRAM | {"c": "from a.rules import step\nclass Run:\n    def go(self):\n        return step(1)"}
    by_package = PROGRAM | {"c": "from a import step\nclass Run:\n    def go(self):\n        return step(1)"}
    by_module = PROGRAM | {"c": "import a\nclass Run:\n    def go(self):\n        return a.step(1)"}
    assert Program(direct).digest() == Program(by_package).digest() != Program(by_module).digest()
    changed = PROGRAM | {"a.rules": PROGRAM["a.rules"].replace("2.5", "2.6")}
    assert Program(by_module).digest() != Program(by_module | changed | {"c": by_module["c"]}).digest()


def test_two_functions_of_one_name_that_change_places_are_noticed():
    one, other = "def fold(x):\n    return x + 1\n", "def fold(x):\n    return x - 1\n"
    use = "def used():\n    return fold(1)\n"
    assert Program({"a": one + use, "b": other}).digest() != Program({"a": other + use, "b": one}).digest()


def test_one_table_of_two_users_is_not_two_tables():
    table, users = "SEEN = []\n", ("def f(x):\n    SEEN.append(x)\n", "def g(x):\n    return x in SEEN\n")
    shared = {"a": table + users[0], "b": table, "c": "from a import SEEN\n" + users[1]}
    apart = {"a": table + users[0], "b": table, "c": "from b import SEEN\n" + users[1]}
    assert Program(shared).digest() != Program(apart).digest()


@pytest.mark.parametrize("name", ["import numpy.linalg as x", "from numpy import linalg as x", "from scipy import x"])
def test_what_a_name_stands_for_counts_outside_the_program_too(name):
    use = "def norm(v):\n    return x.norm(v)\n"
    assert Program({"a": f"import torch.linalg as x\n{use}"}).digest() != Program({"a": f"{name}\n{use}"}).digest()


def test_the_order_in_which_alternatives_are_tried_counts():
    tried = "try:\n    from {} import fft\nexcept ImportError:\n    from {} import fft\ndef f(x):\n    return fft(x)\n"
    assert (
        Program({"a": tried.format("scipy", "numpy")}).digest()
        != Program({"a": tried.format("numpy", "scipy")}).digest()
    )


def test_constants_without_calls_may_change_places():
    assert Program({"a": "A = 1\nB = 'x'\n"}).digest() == Program({"a": "B = 'x'\nA = 1\n"}).digest()


@pytest.mark.parametrize(
    "two",
    ["A = f()\nB = g()\n", "A = [1]\nA += [2]\n", "A = 1\nA = 2\n", "A = [0]\nA[0] = 1\n", "A = 1\ndel A\n"],
)
def test_statements_that_do_something_may_not(two):
    first, second = two.splitlines(keepends=True)
    assert Program({"a": first + second}).digest() != Program({"a": second + first}).digest()


def test_the_order_in_which_functions_register_themselves_counts():
    begin = "ALL = {}\ndef register(f):\n    ALL[f.__name__] = f\n    return f\n"
    one, other = "@register\ndef f(x):\n    return x\n", "@register\ndef g(x):\n    return -x\n"
    assert Program({"a": begin + one + other}).digest() != Program({"a": begin + other + one}).digest()


def test_a_module_that_reads_docstrings_keeps_them():
    text = "def f():\n    '''{}'''\n\nHELP = f.__doc__\n"
    assert Program({"a": text.format("one")}).digest() != Program({"a": text.format("two")}).digest()


def test_everything_that_is_imported_with_a_star_is_known():
    use = "from a import *\ndef used():\n    return fold(1)\n"
    with_one, with_other = ({"a": f"def fold(x):\n    return {value}\n", "b": use} for value in (1, 2))
    assert Program(with_one).of("b", "used") != Program(with_other).of("b", "used")


def test_recursion_and_circles_come_to_an_end():
    circle = {
        "a": "from b import odd\ndef even(n):\n    return n == 0 or odd(n - 1)\n",
        "b": "from a import even\ndef odd(n):\n    return n != 0 and even(n - 1)\n",
    }
    assert Program(circle).digest() == Program(dict(reversed(circle.items()))).digest()
    assert Program(circle).digest() != Program(circle | {"b": circle["b"].replace("!=", ">")}).digest()


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


ROOM = {
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file.read_text()
    for file in sorted((PACKAGE / "privacy").rglob("*.py"))
}
NUMBERS = [
    (name, number)
    for name, text in ROOM.items()
    for number in range(
        1, 1 + sum(isinstance(getattr(n, "value", None), int | float) for n in ast.walk(ast.parse(text)))
    )
]


@settings(max_examples=30)
@given(st.sampled_from(NUMBERS))
def test_any_number_of_our_own_code_counts(place):
    name, number = place
    changed = ast.unparse(_Changed(number).visit(ast.parse(ROOM[name])))
    assert Program({name: ROOM[name]}).digest() == Program({name: ast.unparse(ast.parse(ROOM[name]))}).digest()
    assert Program({name: ROOM[name]}).digest() != Program({name: changed}).digest()


@pytest.fixture
def package(tmp_path):
    """A copy of some of our own files."""
    for name in ("rows.py", "errors.py", "__init__.py", "records/log.py", "records/atomic.py", "cli/main.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PACKAGE / name, tmp_path / name)
    yield tmp_path
    _digests_of.cache_clear()


def digest_of(package, name, text):
    """The package's digest after an addition to a file."""
    with (package / name).open("a") as file:
        file.write(text)
    _digests_of.cache_clear()
    return package_digest(package)


@pytest.mark.parametrize(
    "change", [("cli/main.py", "MORE = 1\n"), ("__init__.py", "MORE = 1\n"), ("rows.py", "# Nothing.\n")]
)
def test_of_the_package_only_what_makes_a_run_counts(package, change):
    before = package_digest(package)
    assert digest_of(package, *change) == before
    assert digest_of(package, "rows.py", "MORE = 1\n") != before
