"""What a user's own parts are known by when a run goes on: their names and all own files that they come from."""

import importlib
import sys

import pytest

from h2fdp.run.fingerprint import code_of

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


def test_a_function_with_values_of_its_own_is_never_the_same(models):
    made = models().made(3)
    assert code_of([made]) != code_of([made])


def test_no_part_has_no_code():
    assert code_of([]) == ""
