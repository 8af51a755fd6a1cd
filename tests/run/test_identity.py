"""Digests of code: of our own as far as runs are made by it, and of a user's own parts with all files that they use."""

import importlib
import shutil
import sys

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp.arithmetic import flushing
from h2fdp.records.directory import PACKAGE, _version
from h2fdp.run import identity
from h2fdp.run.identity import code_of, package_digests, untrained

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


def test_buffers_and_frozen_parameters_count_and_trained_ones_do_not():
    def digest(**changed):
        module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
        module[0].requires_grad_(False)
        module.register_buffer("table", torch.arange(3))
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensor.data.fill_(changed.get(name.replace(".", "_"), 1))
        return untrained(module)

    assert set(digest()) == {"0.weight", "0.bias", "table"}
    assert digest(**{"1_weight": 2}) == digest()
    for name in ("0_weight", "0_bias", "table"):
        assert digest(**{name: 2}) != digest()


def test_a_dataclass_object_is_all_of_its_values(models):
    """The text of an array shows a few of its values, and four digits of them."""
    models("from dataclasses import dataclass\n@dataclass\nclass Scaled:\n    by: object\nscale = 1\n")
    scaled = sys.modules["net_helper"].Scaled
    one, other = np.ones(5000), np.ones(5000)
    other[2000] += 1e-7
    assert repr(scaled(one)) == repr(scaled(other))
    assert code_of([scaled(one)]) == code_of([scaled(one.copy())])
    assert code_of([scaled(one)]) != code_of([scaled(other)])
    assert code_of([scaled(object())]) != code_of([scaled(object())])


def test_digests_that_were_kept_in_another_form_are_not_taken(digest, tmp_path):
    before, _ = digest()
    (kept,) = (tmp_path / "cache" / "h2fdp").iterdir()
    kept.write_text("1" * 32 + " " + "2" * 32)  # as versions before kept one for all files
    assert digest() == (before, 4)
    with flushing(True):
        kept.unlink()
        assert digest() == (before, 4)


def test_what_a_part_imports_of_the_users_own_belongs_to_it(models):
    assert code_of([models().A]) != code_of([models("def scale(x):\n    return 2 * x\n").A])


def test_libraries_that_a_part_imports_belong_to_it_and_others_do_not(models, monkeypatch):
    helper = "import filelock\ndef scale(x):\n    return filelock.FileLock(x)\n"
    before = code_of([models(helper).A])
    original = _version
    for library, same in (("pandas", True), ("filelock", False)):
        monkeypatch.setattr(
            "h2fdp.records.directory._version", lambda name, library=library: "2" if name == library else original(name)
        )
        assert (code_of([models(helper).A]) == before) == same


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """A process that has some of our own files is asked for their digest -> it, and how many files were parsed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "package"
    for name in ("wording.py", "errors.py", "__init__.py", "records/log.py", "records/atomic.py", "cli/main.py"):
        (package / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(PACKAGE / name, package / name)
    parsed, original = [], identity.digest_of_code
    monkeypatch.setattr(identity, "digest_of_code", lambda text: parsed.append(text) or original(text))

    def ask(name="wording.py", more=""):
        with (package / name).open("a") as file:
            file.write(more)
        parsed.clear()
        package_digests.cache_clear()
        return package_digests(package), len(parsed)

    yield ask
    package_digests.cache_clear()


@pytest.mark.parametrize(
    "change", [("cli/main.py", "MORE = 1\n"), ("__init__.py", "MORE = 1\n"), ("wording.py", "# Nothing.\n")]
)
def test_of_the_package_only_what_makes_a_run_counts(digest, change):
    before, _ = digest()
    assert digest(*change)[0] == before
    assert digest(more="MORE = 1\n")[0] != before
