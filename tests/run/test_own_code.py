"""What a user's own parts are known by when a run goes on: their names and all own files that they come from."""

import importlib
import sys
from pathlib import Path

import pytest

from h2fdp.records import summary
from h2fdp.run.own_code import code_of, own_files_of

MODELS = "from net_helper import scale\nclass A:\n    pass\nclass B:\n    pass\ndef made(n):\n    return lambda: n\n"


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A module of the user's, imported afresh from what its files say."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "net_models.py").write_text(MODELS)

    def imported(helper="def scale(x):\n    return x\n"):
        (tmp_path / "net_helper.py").write_text(helper)
        for name in ("net_models", "net_helper"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("net_models")

    yield imported
    for name in ("net_models", "net_helper"):
        sys.modules.pop(name, None)


def test_two_classes_of_one_file_are_two_parts(models):
    module = models()
    assert code_of([module.A]) == code_of([models().A])
    assert code_of([module.A]) != code_of([module.B])


def test_what_a_part_imports_of_the_users_own_belongs_to_it(models):
    assert code_of([models().A]) != code_of([models("def scale(x):\n    return 2 * x\n").A])


def test_what_is_said_about_a_part_does_not_belong_to_it(models):
    before = code_of([models().A])
    assert code_of([models('def scale(x):\n    """As it is."""\n    return x  # no more\n').A]) == before


def test_a_part_is_the_same_in_a_file_of_another_name(tmp_path, models, monkeypatch):
    before = code_of([models().A])
    (tmp_path / "net_models.py").rename(tmp_path / "net_others.py")
    try:
        assert code_of([importlib.import_module("net_others").A]) == before
    finally:
        sys.modules.pop("net_others")


def test_what_a_part_imports_when_it_is_called_belongs_to_it(tmp_path, models):
    texts = [f"def late():\n    return {value}\n" for value in (1, 2)]
    digests = []
    for text in texts:
        (tmp_path / "net_late.py").write_text(text)
        digests.append(code_of([models("def scale(x):\n    from net_late import late\n    return late()\n").A]))
    assert digests[0] != digests[1]
    assert "net_late" not in sys.modules


def test_libraries_that_a_part_imports_belong_to_it_and_others_do_not(models, monkeypatch):
    helper = "import filelock\ndef scale(x):\n    return filelock.FileLock(x)\n"
    before = code_of([models(helper).A])
    original = summary._version
    for library, same in (("pandas", True), ("filelock", False)):
        monkeypatch.setattr(summary, "_version", lambda name, library=library: name == library or original(name))
        assert (code_of([models(helper).A]) == before) == same


def test_a_function_with_values_of_its_own_is_never_the_same(models):
    made = models().made(3)
    assert code_of([made]) != code_of([made])


def test_no_part_has_no_code():
    assert code_of([]) == ""


def test_the_files_of_a_part_are_those_that_it_uses_but_for_the_script_that_is_run(tmp_path, models, monkeypatch):
    before = own_files_of([models().A])
    assert {Path(file).name for file in before} == {"net_models.py", "net_helper.py"}
    after = own_files_of([models("def scale(x):\n    return 2 * x\n").A])
    assert [Path(file).name for file in before if before[file] != after[file]] == ["net_helper.py"]
    assert own_files_of([models("# a comment\ndef scale(x):\n    return x\n").A]) == before
    script = models()
    for each in (script.A, script.B, script.made):
        each.__module__ = "__main__"
    script.__name__ = "__main__"
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert {Path(file).name for file in own_files_of([script.A])} == {"net_helper.py"}
