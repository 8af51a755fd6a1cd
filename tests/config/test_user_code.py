"""What counts as a library, and what as a user's own code, which travels to the workers of a cluster."""

import sys

import pytest

from h2fdp.config.own_answers import is_installed


@pytest.mark.parametrize("folder", ["lib/python3.11/site-packages", "usr/lib/python3/dist-packages"])
def test_libraries_of_any_environment_are_installed(tmp_path, folder):
    assert is_installed(tmp_path / folder / "urllib3" / "exceptions.py")


def test_a_folder_of_pip_install_target_holds_libraries_and_a_project_does_not(tmp_path, monkeypatch):
    target, project = tmp_path / "target", tmp_path / "project"
    for folder in (target, project):
        (folder / "package" / "below" / "further").mkdir(parents=True)
    (target / "package-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(target), str(project), *sys.path])
    assert is_installed(target / "package" / "module.py")
    assert is_installed(target / "package" / "below" / "further" / "module.py")
    assert is_installed(target / "single.py")
    assert not is_installed(project / "package" / "module.py")
    assert not is_installed(project / "package" / "below" / "further" / "module.py")
    assert not is_installed(project / "single.py")
