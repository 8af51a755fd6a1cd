"""Fashion-MNIST, MNIST and CIFAR-10 from files, and what is told when they are not there."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from h2fdp.data import images
from h2fdp.data.federate import DATA_SETS, load
from h2fdp.data.images import FashionMnist, download
from h2fdp.errors import UserError
from h2fdp.streams import Streams

FILES = list(FashionMnist.files)


def read(name: str, root: Path, devices: int = 50) -> Any:
    return load(DATA_SETS.read(name), devices, Streams(1), root)


@pytest.mark.parametrize("name", ["fashion-mnist", "mnist"])
def test_grey_pictures_are_bytes_of_one_channel_and_standardised(name, data_root):
    data = read(name, data_root)
    assert (data.train.x.shape, data.test.x.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert data.train.x.dtype == np.uint8
    assert np.bincount(data.test.y).tolist() == (
        [1000] * 10 if name == "fashion-mnist" else [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )
    x = data.train.x * data.scaling.scale + data.scaling.shift
    assert abs(x.mean()) < 1e-3
    assert abs(x.std() - 1) < 1e-3


def test_the_papers_fifty_devices_hold_1200_records_of_three_labels(data_root):
    data = read("fashion-mnist", data_root)
    assert data.sizes.tolist() == [1200] * 50
    assert all(len(np.unique(data.device(device).y)) == 3 for device in range(50))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name can be resolved, as on a machine without a network."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("offline")
def test_missing_files_are_told_with_their_names_and_folder(tmp_path, capfd):
    with pytest.raises(UserError) as caught:
        read("fashion-mnist", tmp_path)
    (problem,) = caught.value.problems
    assert re.search("Name or service not known|Error downloading", problem.text)  # by version
    assert str(tmp_path / "FashionMNIST/raw") in problem.text
    assert all(name in problem.text for name in [*FILES, "--data-root", "H2FDP_DATA"])
    assert "\n" not in problem.text
    assert capfd.readouterr() == ("", "")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("size", [0, 12, 10_008])
def test_files_with_other_content_are_called_damaged(tmp_path, size):
    folder = tmp_path / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_bytes(bytes(size))
    with pytest.raises(UserError, match=r"the files of fashion-mnist in .* are damaged"):
        read("fashion-mnist", tmp_path)


def fake_torchvision(monkeypatch: pytest.MonkeyPatch, failure: Exception | None = None) -> None:
    """A torchvision that writes each file, talks a lot, and may fail after the first one."""

    def reader(root: str, download: bool) -> None:
        assert download
        assert socket.getdefaulttimeout() is not None
        folder = Path(root) / "FashionMNIST" / "raw"
        folder.mkdir(parents=True)
        for name in FILES:
            print("progress", name)
            print("100%", file=sys.stderr)
            (folder / name).write_bytes(name.encode())
            if failure is not None:
                raise failure

    monkeypatch.setattr(images, "import_module", lambda _: SimpleNamespace(FashionMNIST=reader))


def test_a_broken_download_leaves_nothing_behind(tmp_path, monkeypatch):
    fake_torchvision(monkeypatch, RuntimeError("Error:\nTried https://x, got:\n<urlopen error timed out>\n"))
    assert download("FashionMNIST", tmp_path, "FashionMNIST/raw", FILES) == "urlopen error timed out"
    assert not any(tmp_path.iterdir())


def test_a_torchvision_that_does_not_fit_torch_is_named(tmp_path, monkeypatch):
    def broken(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(images, "import_module", broken)
    with pytest.raises(UserError, match=r"torchvision cannot be imported .operator torchvision::nms.*that of torch"):
        images.download("MNIST", tmp_path, "MNIST/raw", [])
