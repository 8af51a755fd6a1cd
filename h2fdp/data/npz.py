"""`npz`: the user's own arrays from a NumPy archive."""

from __future__ import annotations

import difflib
import zipfile
import zlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from h2fdp.config.fields import FilePath
from h2fdp.data.partition import PartitionSection
from h2fdp.data.records import Scaling, as_records, class_count
from h2fdp.data.source import Classes, DataOptions, DataRequest, Pool
from h2fdp.errors import UserError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
OPTIONAL = ("device_train", "device_test", "x_validation", "y_validation")
_KEY = "data.path"


class Npz(DataOptions):
    """The user's own arrays.

    Attributes:
        path: of the archive.
        classes: their public number; null is what the test labels show.
        partition: null: by owner where the archive names owners, else `iid`.
    """

    description: ClassVar[str] = "your arrays: x_train, y_train, x_test, y_test and optionally device_train"
    name: Literal["npz"] = "npz"
    path: FilePath
    classes: Classes | None = None
    partition: PartitionSection | None = None

    @property
    def spread(self) -> PartitionSection:
        """As stated, else the default."""
        return super().spread if self.partition is None else self.partition

    def depends_on(self, request: DataRequest) -> Hashable:
        """The archive."""
        return self.path, self.classes, self.partition is None or self.partition.natural

    def load(self, request: DataRequest) -> Pool:
        """x_train, y_train, x_test, y_test, and optionally x_validation and y_validation, and who holds each record.

        8-bit inputs are divided by 255, others taken as they are.
        `device_test` matters to personal models alone: each is evaluated on the test records of its device.

        Raises:
            UserError: not such an archive; arrays that are no records, or that do not fit each other or the topology.
        """
        path = Path(self.path).expanduser()
        arrays = _read(path)
        train = as_records(arrays["x_train"], arrays["y_train"], f"x_train and y_train of {path}", _KEY)
        test = as_records(arrays["x_test"], arrays["y_test"], f"x_test and y_test of {path}", _KEY)
        owners = arrays.get("device_train")
        if owners is not None and not (self.partition is None or self.partition.natural):
            text = "the archive's device_train already says who holds what: expected natural, or leave it out"
            raise UserError(text, key="data.partition")
        test_owners = None if owners is None else arrays.get("device_test")
        if owners is not None:
            _check_owners("device_train", owners, len(train), path)
        if owners is not None and test_owners is not None:
            _check_owners("device_test", test_owners, len(test), path)
            if strangers := sorted(set(test_owners.tolist()) - set(owners.tolist())):
                text = f"{path}: device_test names {strangers[0]}, which holds no training record"
                raise UserError(text, key=_KEY)
        valid = None
        if found := [name for name in ("x_validation", "y_validation") if name in arrays]:
            if len(found) == 1:
                raise UserError(f"{path}: {found[0]} alone; expected x_validation and y_validation", key=_KEY)
            what = f"x_validation and y_validation of {path}"
            valid = as_records(arrays["x_validation"], arrays["y_validation"], what, _KEY)
        count = class_count(train, test, self.classes, str(path), valid)
        stored = Scaling(255.0 if train.x.dtype == np.uint8 else 1.0)
        return Pool(train, test, count, stored, owners, test_owners, valid)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise UserError(f"no such file: {path}", key=_KEY)
    try:
        with path.open("rb") as file:  # opened here, for NumPy leaves a broken archive open
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError(f"{path} is a single array; expected an archive made by numpy.savez", key=_KEY)
            _check_names(archive.files, path)
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        reason = str(error).split(". ")[0]  # NumPy then advises unpickling, which no file from outside deserves
        raise UserError(f"{path} cannot be read as a NumPy archive of plain arrays: {reason}", key=_KEY) from None


def _check_names(found: list[str], path: Path) -> None:
    for name in found:
        if name not in REQUIRED + OPTIONAL:
            close = difflib.get_close_matches(name, REQUIRED + OPTIONAL, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(REQUIRED + OPTIONAL)}"
            raise UserError(f"{path}: unknown array {name}; {hint}", key=_KEY)
    if lacking := [name for name in REQUIRED if name not in found]:
        raise UserError(f"{path}: the arrays {', '.join(lacking)} are missing", key=_KEY)


def _check_owners(name: str, owners: NDArray[Any], records: int, path: Path) -> None:
    if owners.shape != (records,) or owners.dtype.kind not in "ui":
        whose = "training" if name == "device_train" else "test"
        text = f"{path}: {name} must hold one whole number for each of the {records} {whose} records"
        raise UserError(f"{text}, found shape {owners.shape}, type {owners.dtype}", key=_KEY)
