"""What is stated to be deletable: its files, rows and tests are there, and nothing else of the package imports it."""

import ast
from pathlib import Path

import pytest

from benchmarks.deletable import CAPABILITIES, delete

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "h2fdp"


def imported(text):
    """Full names of all that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            before = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from (f"{before}{alias.name}." for alias in node.names)


@pytest.mark.parametrize("capability", CAPABILITIES.values(), ids=CAPABILITIES)
def test_its_files_rows_and_tests_are_there_and_its_rows_alone_import_it(capability):
    assert capability.files
    for path in (*(f"h2fdp/{each}" for each in capability.files), *capability.tests):
        assert (ROOT / path.partition("::")[0]).is_file(), path
    for path, row in capability.rows:
        assert (PACKAGE / path).read_text().count(row) == 1, (path, row)
    modules = tuple(f"h2fdp.{each.removesuffix('.py').replace('/', '.')}." for each in capability.files)
    for file in PACKAGE.rglob("*.py"):
        path, text = file.relative_to(PACKAGE).as_posix(), file.read_text()
        if path in capability.files or not any(Path(each).stem in text for each in capability.files):
            continue
        for other, row in capability.rows:
            text = text.replace(row, "") if other == path else text
        assert [name for name in imported(text) if name.startswith(modules)] == [], path


def test_what_is_deleted_is_its_modules_rows_and_whole_test_files(tmp_path):
    files = {"h2fdp/a/__init__.py": "from h2fdp.a import (\n    fedopt,  # noqa: F401\n    plain,\n)\n"}
    files |= {"h2fdp/a/fedopt.py": "", "tests/test_it.py": "", "tests/test_all.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    row, tests = ("a/__init__.py", "    fedopt,  # noqa: F401\n"), ("tests/test_it.py", "tests/test_all.py::test_it")
    delete(type(CAPABILITIES["moon"])(("a/fedopt.py",), (row,), tests), tmp_path)
    left = {file.relative_to(tmp_path).as_posix(): file.read_text() for file in tmp_path.rglob("*.py")}
    assert left == {"h2fdp/a/__init__.py": "from h2fdp.a import (\n    plain,\n)\n", "tests/test_all.py": ""}
