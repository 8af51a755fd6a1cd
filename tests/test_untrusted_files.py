"""Nothing of a user's files is unpickled or executed, and secrets are their owner's alone (docs/cluster.md)."""

import ast
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.records import noise_key
from h2fdp.records.checkpoint import save_checkpoint
from h2fdp.records.directory import RunDirectory

PACKAGE = Path(h2fdp.__file__).parent
FORBIDDEN = {"eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "os.system", "shelve.open"}
FORBIDDEN |= {"yaml.unsafe_load", "yaml.full_load", "joblib.load", "torch.jit.load", "pd.read_pickle"}
STATED = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}


def calls():
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                yield f"{file.relative_to(PACKAGE)}:{node.lineno}", ast.unparse(node.func), node


def test_no_call_executes_what_is_read():
    assert [(where, name) for where, name, _ in calls() if name in FORBIDDEN] == []


def test_every_load_says_that_it_unpickles_nothing():
    found = [(where, name, node) for where, name, node in calls() if name in STATED]
    assert {name for _, name, _ in found} == set(STATED)
    for where, name, node in found:
        key, value = STATED[name]
        stated = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
        assert stated.get(key) is value, where


class Trap:
    """Unpickled, it would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_model_with_code_in_it_is_refused(tmp_path):
    torch.save({"1.weight": Trap(tmp_path / "executed")}, tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"model\.from.*found .*, which cannot be read"):
        Experiment(model={"name": "softmax", "from": str(tmp_path / "model.pt")}, intervals=1).prepare()
    (tmp_path / "config.yaml").write_text("model: {name: softmax}\n")
    with pytest.raises(UserError, match=r"model\.pt: damaged: UnpicklingError"):
        h2fdp.load_model(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_arrays_with_code_in_them_are_refused(tmp_path):
    objects = np.array([Trap(tmp_path / "executed")], dtype=object)
    np.savez(tmp_path / "data.npz", x_train=objects, y_train=[0], x_test=objects, y_test=[0])
    with pytest.raises(UserError, match=r"data\.path"):
        Experiment(data={"name": "npz", "path": str(tmp_path / "data.npz")}, intervals=1).prepare()
    assert not (tmp_path / "executed").exists()


def test_checkpoints_and_the_noise_key_are_their_owners_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        directory = RunDirectory(tmp_path)
        noise_key.store(directory, bytes(16))
        path = save_checkpoint(directory.checkpoints, 1, {})
    finally:
        os.umask(before)
    modes = [each.stat().st_mode & 0o777 for each in (directory.checkpoints, directory.noise_key, path)]
    assert modes == [0o700, 0o600, 0o600]


def test_a_network_of_one_is_all_that_a_local_cluster_listens_on():
    from ray._private import ray_constants, services

    from h2fdp.runtime.ray_session import _loopback

    before = ray_constants.ENABLE_RAY_CLUSTER
    with _loopback():
        assert services.get_node_ip_address() == "127.0.0.1"
    assert ray_constants.ENABLE_RAY_CLUSTER is before


def test_nobody_else_enters_the_folder_of_a_local_cluster():
    """Ray opens the folder that it is told to use to everybody."""
    from h2fdp.runtime.ray_session import _own_folder

    with _own_folder() as folder:
        folder.chmod(0o777)  # as Ray does with the folder that it is given
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert folder.parent.parent == Path("/tmp")
    assert not folder.parent.exists()
