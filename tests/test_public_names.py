"""What `import h2fdp` offers, in an interpreter that has imported nothing else."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import h2fdp
from h2fdp import UserError


def test_every_package_of_the_reference_is_a_name_of_the_package():
    page = (Path(__file__).parents[1] / "docs" / "reference.md").read_text()
    documented = set(re.findall(r"h2fdp\.([a-z_]+)\.", page))
    assert documented <= set(dir(h2fdp))
    for name in documented:  # as in a fresh interpreter: not found as an attribute that some import left there
        assert h2fdp.__getattr__(name) is importlib.import_module(f"h2fdp.{name}")


@pytest.mark.process
def test_documented_names_work_where_nothing_else_was_imported():
    """Each in a child of its own of one interpreter: what one name imports, the next one lacks."""
    script = """
import os, h2fdp
for name in ("network.read", "run.RunPrivacy"):
    if not (child := os.fork()):
        eval(f"h2fdp.{name}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_run_is_opened_by_its_path_as_text(tmp_path):
    (tmp_path / "config.yaml").touch()
    assert h2fdp.Run(str(tmp_path)).directory == tmp_path
    with pytest.raises(UserError, match=r"nowhere: no such directory"):
        h2fdp.Run("nowhere")
