"""What is installed with h2fdp is what it imports; the lock file has versions that are allowed."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = {canonicalize_name(each.name): each for each in map(Requirement, PROJECT["dependencies"])}
EXTRAS = [
    each for name in ("mlflow", "tensorboard", "text", "wandb") for each in PROJECT["optional-dependencies"][name]
]
EXTRA = {canonicalize_name(Requirement(each).name) for each in EXTRAS}


def imported():
    """Distribution -> a file that imports it, by a statement or by `import_module` of a text."""
    found = {}
    alike = {name: [name] for name in ("opacus", "safetensors", "tokenizers", "wandb")}
    homes = packages_distributions() | alike | {"mlflow": ["mlflow-skinny"]}
    for file in (ROOT / "h2fdp").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module" and node.args:
                names = [node.args[0].value] if isinstance(node.args[0], ast.Constant) else []
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top != "h2fdp":
                    for home in homes[top]:
                        found.setdefault(canonicalize_name(home), file)
    return found


def test_what_is_imported_is_stated_and_what_is_stated_is_imported():
    found = imported()
    assert {name: file for name, file in found.items() if name not in NEEDED and name not in EXTRA} == {}
    assert set(NEEDED) - set(found) == set()


def test_every_dependency_has_a_lowest_version():
    assert all([bound.operator for bound in each.specifier] == [">="] for each in NEEDED.values())


def test_the_lock_file_pins_every_dependency_to_an_allowed_version():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert all(re.fullmatch(r"[0-9][0-9.a-z]*", version) for version in pinned.values())
    assert set(NEEDED) - set(pinned) == set()
    assert [name for name, each in NEEDED.items() if not each.specifier.contains(pinned[name])] == []
