"""A user's own parts by name, `module:Name`: where they are found, and what is said when they are not."""

import sys

import pytest

from h2fdp.config.own_parts import OwnKind, own_part, resolve

FUNCTION = OwnKind("a function")
SERVER = OwnKind("a server update", ("apply",))


@pytest.fixture
def folder(tmp_path):
    """A folder whose modules are forgotten afterwards."""
    known, path = set(sys.modules), list(sys.path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.startswith("part_"):
            del sys.modules[name]
    sys.path[:] = path


def refusal(reference, folder, kind=FUNCTION, **options):
    with pytest.raises(ValueError, match=r".") as caught:
        own_part({"name": reference, **options}, folder, kind)
    return str(caught.value)


def test_a_module_beside_the_file_comes_first(folder):
    (folder / "part_beside.py").write_text("value = 'beside'\n")
    assert resolve("part_beside:value", folder) == (f"{folder}/part_beside:value", "beside")


@pytest.mark.parametrize("reference", ["sub/part_sub:value", "sub/part_sub.py:value", "part_sub_of.inner:value"])
def test_folders_packages_and_file_names_work_too(folder, reference):
    (folder / "sub").mkdir()
    (folder / "sub" / "part_sub.py").write_text("value = 3\n")
    (folder / "part_sub_of").mkdir()
    (folder / "part_sub_of" / "__init__.py").write_text("")
    (folder / "part_sub_of" / "inner.py").write_text("value = 3\n")
    assert resolve(reference, folder)[1] == 3


def test_modules_of_equal_names_in_two_folders_are_two_modules(folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "part_twice.py").write_text("from part_helper import value\n")
        (folder / name / "part_helper.py").write_text(f"value = '{name}'\n")
    assert [resolve("part_twice:value", folder / name)[1] for name in ("a", "b", "a")] == ["a", "b", "a"]


def test_a_module_whose_file_changed_is_read_again(folder):
    (folder / "part_change.py").write_text("from part_below import value\n")
    (folder / "part_below.py").write_text("value = 'before'\n")
    assert resolve("part_change:value", folder)[1] == "before"
    (folder / "part_below.py").write_text("value = 'afterwards'\n")
    assert resolve("part_change:value", folder)[1] == "afterwards"


def test_a_file_with_the_name_of_a_loaded_library_is_refused(folder):
    (folder / "json.py").write_text("def f():\n    return 1\n")
    assert "is loaded under that name; expected a file of another name" in refusal("json:f", folder)


def test_a_missing_module_is_told_with_where_it_was_looked_for(folder):
    text = refusal("part_missing:Net", folder)
    assert text == (f"there is no module `part_missing` in {folder} or on Python's path")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import math\nvalue = 1 / 0\n", "part_broken.py:2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "part_broken.py:1: SyntaxError"),
    ],
)
def test_a_module_that_fails_is_told_with_the_users_own_line(folder, text, words):
    (folder / "part_broken.py").write_text(text)
    found = refusal("part_broken:f", folder)
    assert found.startswith("the module part_broken cannot be imported: ")
    assert words in found


def test_a_class_without_the_methods_of_its_kind_is_refused(folder):
    (folder / "part_class.py").write_text("class Rule:\n    pass\n")
    text = refusal("part_class:Rule", folder, SERVER)
    assert text == "expected a server update, found part_class:Rule, which has no `apply`"


def test_options_that_a_class_does_not_take_are_refused(folder):
    (folder / "part_options.py").write_text(
        "class Rule:\n    def __init__(self, size, step=1):\n        pass\n    def apply(self):\n        pass\n"
    )
    text = refusal("part_options:Rule", folder, SERVER, size=1, stepp=2)
    assert text == "the options do not fit part_options:Rule(size, step=1): got an unexpected keyword argument 'stepp'"
    assert "missing a required argument: 'size'" in refusal("part_options:Rule", folder, SERVER)


def test_the_name_that_was_meant_is_suggested(folder):
    (folder / "part_near.py").write_text("import math\n\nclass FedLion:\n    def apply(self):\n        pass\n")
    assert refusal("part_near:FedLyon", folder).endswith("part_near.py has no `FedLyon`; did you mean `FedLion`?")
    assert refusal("part_near:FedLion.aply", folder).endswith("has no `aply`; did you mean `apply`?")
    assert refusal("part_near:Other", folder).endswith("part_near.py has no `Other`")


@pytest.mark.parametrize("reference", ["a:", "a b"])
def test_what_is_no_reference_is_refused(folder, reference):
    assert refusal(reference, folder).startswith("expected module:Name, as mymodule:Net, found")
