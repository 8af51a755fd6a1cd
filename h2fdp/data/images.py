"""`digits`, which come with scikit-learn; `fashion-mnist`, `mnist`, `cifar10`, `cifar100`, by torchvision from ROOT."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from h2fdp.data.records import Records, Scaling
from h2fdp.data.source import DataRequest, Pool, Pooled
from h2fdp.errors import UserError

# URLError and BadGzipFile are OSErrors; torchvision itself raises RuntimeErrors.
_FAILURES = (OSError, RuntimeError, ValueError, EOFError, http.client.HTTPException, tarfile.TarError, zlib.error)
SILENCE_AT_MOST_S = 10.0  # for a connection and for each read of one
_IDX_OF_IMAGES, _IDX_OF_LABELS = 0x803, 0x801  # unsigned bytes in three dimensions, in one
_IDX_FILES = tuple(
    f"{each}-ubyte" for part in ("train", "t10k") for each in (f"{part}-images-idx3", f"{part}-labels-idx1")
)
_CIFAR_FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")


# Pixels count from 0 to 16; mean and deviation of all 1,797 images after division by 16, in four digits.
_DIGITS = Scaling(16.0, (0.3053,), (0.3761,))
_DIGITS_TESTS = 0.2


class Digits(Pooled):
    """Scikit-learn's scanned digits (Alpaydin and Kaynak 1998, UCI repository): nothing to download."""

    description: ClassVar[str] = "1,797 scanned digits of 8x8 pixels, bundled with scikit-learn"
    name: Literal["digits"] = "digits"

    def load(self, request: DataRequest) -> Pool:
        """1,438 training and 359 test records, x of shape (n, 1, 8, 8), uint8 from 0 to 16."""
        values = _shuffled(bundled("the data set digits comes") / "data" / "digits.csv.gz")
        x, y = values[:, :-1].reshape(-1, 1, 8, 8), values[:, -1].astype(np.int64)
        first_test = len(y) - int(_DIGITS_TESTS * len(y))
        return Pool(Records(x[:first_test], y[:first_test]), Records(x[first_test:], y[first_test:]), 10, _DIGITS)


@cache  # a tenth of a megabyte, which each run of a search would read anew
def _shuffled(file: Path) -> np.ndarray:
    """The lines of a table, ordered by a hash of their number: the same in every run, under every version of NumPy."""
    values = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return values[sorted(range(len(values)), key=lambda place: blake2b(place.to_bytes(4, "little")).digest())]


def bundled(what: str) -> Path:
    """The data that come with scikit-learn; it is not imported, which would take a second.

    Args:
        what: it is wanted for, in the message where it is not installed.
    """
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{what} with scikit-learn, which is not installed")
    return Path(spec.origin).parent / "datasets"


class ImageSet(Pooled):
    """One of torchvision's data sets, and how its files lie under the root.

    Attributes:
        reader: torchvision's class.
        folder: the folder under the root.
        files: names of the files.
        scaling: the published mean and deviation of the training pixels, for each channel.
    """

    reader: ClassVar[str]
    folder: ClassVar[str]
    files: ClassVar[tuple[str, ...]]
    scaling: ClassVar[Scaling]
    classes: ClassVar[int] = 10

    def load(self, request: DataRequest) -> Pool:
        """All images as uint8, channels first.

        Raises:
            UserError: the files are not there and cannot be downloaded, or are damaged; it says what to put where.
        """
        root = request.root if request.root is not None else default_root()
        if self.missing(root):
            reason = download(self.reader, root, self.folder, self.files)
            if missing := self.missing(root):
                raise UserError(self._advice(root, missing, reason), key="data.name")
        try:
            return Pool(self._read(root, train=True), self._read(root, train=False), self.classes, self.scaling)
        except (OSError, RuntimeError, ValueError, AssertionError, EOFError) as error:
            what = str(error) or type(error).__name__
            text = f"the files of {self.name} in {root / self.folder} are damaged ({what}); delete them"
            raise UserError(text, key="data.name") from None

    def missing(self, root: Path) -> list[str]:
        """The files that are absent."""
        return [name for name in self.files if not (root / self.folder / name).is_file()]

    def _read(self, root: Path, train: bool) -> Records:
        images, labels = self._idx(root, train) if self.files is _IDX_FILES else self._by_torchvision(root, train)
        channels_first = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        if len(labels) != len(images) or labels.min() < 0 or labels.max() >= self.classes:
            raise ValueError(f"labels are not 0 to {self.classes - 1}, one for each image")
        return Records(np.ascontiguousarray(channels_first, dtype=np.uint8), labels)

    def _idx(self, root: Path, train: bool) -> tuple[np.ndarray, np.ndarray]:
        """The idx files by themselves, a header and bytes: to import torchvision takes longer than many a run."""
        split = "train" if train else "t10k"
        images = np.fromfile(root / self.folder / f"{split}-images-idx3-ubyte", np.uint8)
        labels = np.fromfile(root / self.folder / f"{split}-labels-idx1-ubyte", np.uint8)
        magic, count, height, width = images[:16].view(">u4").tolist()
        if magic != _IDX_OF_IMAGES or labels[:8].view(">u4").tolist() != [_IDX_OF_LABELS, count]:
            raise ValueError("the headers are not those of images and their labels")
        return images[16:].reshape(count, height, width), labels[8:].astype(np.int64)

    def _by_torchvision(self, root: Path, train: bool) -> tuple[np.ndarray, np.ndarray]:
        data_set = getattr(_torchvision(), self.reader)(str(root), train=train)
        return np.asarray(data_set.data), np.asarray(data_set.targets, dtype=np.int64)

    def _advice(self, root: Path, missing: list[str], reason: str) -> str:
        return (
            f"{self.name} could not be downloaded ({reason}): put {', '.join(missing)} into "
            f"{root / self.folder}, or name the folder that holds {self.folder} by --data-root or H2FDP_DATA"
        )


class FashionMnist(ImageSet):
    """Zalando's articles of clothing (Xiao et al. 2017)."""

    description: ClassVar[str] = "70,000 images of clothes, 28x28, 10 classes"
    name: Literal["fashion-mnist"] = "fashion-mnist"
    reader: ClassVar[str] = "FashionMNIST"
    folder: ClassVar[str] = "FashionMNIST/raw"
    files: ClassVar[tuple[str, ...]] = _IDX_FILES
    scaling: ClassVar[Scaling] = Scaling(255.0, (0.2860,), (0.3530,))


class Mnist(ImageSet):
    """Handwritten digits (LeCun et al. 1998)."""

    description: ClassVar[str] = "70,000 handwritten digits, 28x28"
    name: Literal["mnist"] = "mnist"
    reader: ClassVar[str] = "MNIST"
    folder: ClassVar[str] = "MNIST/raw"
    files: ClassVar[tuple[str, ...]] = _IDX_FILES
    scaling: ClassVar[Scaling] = Scaling(255.0, (0.1307,), (0.3081,))


class Cifar10(ImageSet):
    """Colour images of ten kinds of things (Krizhevsky 2009)."""

    description: ClassVar[str] = "60,000 colour images, 3x32x32, 10 classes"
    name: Literal["cifar10"] = "cifar10"
    reader: ClassVar[str] = "CIFAR10"
    folder: ClassVar[str] = "cifar-10-batches-py"
    files: ClassVar[tuple[str, ...]] = _CIFAR_FILES
    scaling: ClassVar[Scaling] = Scaling(255.0, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


class Cifar100(ImageSet):
    """Colour images of a hundred kinds of things (Krizhevsky 2009)."""

    description: ClassVar[str] = "60,000 colour images, 3x32x32, 100 classes"
    name: Literal["cifar100"] = "cifar100"
    reader: ClassVar[str] = "CIFAR100"
    folder: ClassVar[str] = "cifar-100-python"
    files: ClassVar[tuple[str, ...]] = ("train", "test", "meta")
    scaling: ClassVar[Scaling] = Scaling(255.0, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    classes: ClassVar[int] = 100


def default_root() -> Path:
    """The folder of data sets by default: H2FDP_DATA, else the user's cache."""
    if stated := os.environ.get("H2FDP_DATA"):
        return Path(stated).expanduser()
    return user_cache()


def user_cache() -> Path:
    """The folder of the user for what can be had again."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "h2fdp"


def download(reader: str, root: Path, folder: str, files: Sequence[str]) -> str:
    """Download torchvision's data set `reader` and put its files into root/folder.

    Torchvision writes where it reads and would take an interrupted file for a whole one at the next start. So it
    works in a folder of its own next to the destination, from which whole files are moved.

    Returns:
        why it failed, in a few words; empty when it did not.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as workshop:
            with _time_limit(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                getattr(_torchvision(), reader)(workshop, download=True)
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name in files:
                os.replace(Path(workshop) / folder / name, root / folder / name)
    except _FAILURES as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1].strip("<>") if lines else type(error).__name__
    return ""


def _torchvision() -> Any:
    """The data sets of torchvision.

    Raises:
        UserError: it cannot be imported with this torch.
    """
    try:
        return import_module("torchvision.datasets")
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        text = f"torchvision cannot be imported ({error}): it has to be that of torch {version('torch')}"
        raise UserError(f"{text}; install both anew, from one index", key="data.name") from None


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Torchvision sets no time limit of its own, and a firewall that drops packets would hold it for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE_AT_MOST_S)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
