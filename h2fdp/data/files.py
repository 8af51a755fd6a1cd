"""Records in files of the user's: `npz` archives, `huggingface` folders; and what all files of columns state."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import BY_SHAPE, Expect, Number, Text
from h2fdp.data.from_python import from_python
from h2fdp.data.partition import Partition
from h2fdp.data.records import as_records
from h2fdp.data.source import (
    LABELS_3,
    TEST_SHARE,
    VALIDATION,
    Classes,
    DataRequest,
    FromFiles,
    Pool,
    WithOwners,
    pool_of,
    splits_of,
)
from h2fdp.data.targets import Task
from h2fdp.errors import UserError, near_file, not_one_of

KEY = "data.path"
_REQUIRED = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("device_train", "device_test", "x_validation", "y_validation")
_Bounds = Annotated[
    list[Number],
    Field(max_length=3),
    Expect("the lowest and highest number, and perhaps what a gap counts as"),
]
_Words = Annotated[list[Any], Field(min_length=1), Expect("a list of values")]
_Labels = Annotated[Classes | _Words | None, BY_SHAPE, Expect("a whole number from 2 to 65536, or the labels in order")]
_Columns = Annotated[list[Text], Field(min_length=1)]
_Inputs = Annotated[Text | _Columns | None, BY_SHAPE, Expect("a column, or a list of columns")]


class Described(FromFiles):
    """Records in files, whose labels a user describes.

    Attributes:
        classes: the number of labels, or for columns the labels in order; public. Null is what the files state, or what
            the test labels show, texts only where no device has the test records.
        task: what a label is: `classification`; `regression`, real values in a public range; `multilabel`, several of 0
            or 1; `tokens`, a class at each position of a sequence. Null: classes, or what lists of labels show.
        ranges: of real values the lowest and highest, public: `{y: [0, 500]}`, y or the name of their column.
    """

    classes: _Labels = None
    task: Task | None = None
    ranges: dict[Text, _Bounds] = Field(default_factory=dict)


class Npz(Described):
    """The user's own arrays in an archive."""

    description: ClassVar[str] = "your arrays: x_train, y_train, x_test, y_test and optionally device_train"
    spread: ClassVar[Partition] = LABELS_3
    name: Literal["npz"] = "npz"

    def load(self, request: DataRequest) -> Pool:
        """x_train, y_train, x_test, y_test, and optionally x_validation and y_validation, and who holds each record.

        8-bit inputs are divided by 255, others taken as they are.
        `device_test` matters to personal models alone: each is evaluated on the test records of its device.

        Raises:
            UserError: not such an archive; arrays that are no records, or that do not fit each other or the topology.
        """
        path = Path(self.path).expanduser()
        arrays = _archive(path)

        def part(name: str) -> Any:
            x, y = f"x_{name}", f"y_{name}"
            if (x in arrays) != (y in arrays):
                raise UserError(f"{path}: expected both {x} and {y}", key=KEY)
            what = f"{x} and {y} of {path}"
            return as_records(arrays[x], arrays[y], what, KEY, task=self.task) if x in arrays else None

        train, test = part("train"), part("test")
        owners = _owners(arrays, "device_train", len(train), path)
        test_owners = None if owners is None else _owners(arrays, "device_test", len(test), path)
        valid, bounds = part("validation"), ("y", self.ranges.get("y"))
        pool = pool_of((train, owners), (test, test_owners), valid, self.classes, str(path), self.task, bounds)
        if test_owners is not None and pool.test_owners is None:
            raise UserError(f"{path}: device_test names a device that holds no training record", key=KEY)
        return pool


def _archive(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise UserError(f"no such file: {path}{near_file(path)}", key=KEY)
    try:
        with path.open("rb") as file:  # opened here, for NumPy leaves a broken archive open
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError(f"{path} is a single array; expected an archive made by numpy.savez", key=KEY)
            for name in archive.files:
                if name not in _REQUIRED + _OPTIONAL:
                    raise UserError(f"{path}: array: {not_one_of(name, _REQUIRED + _OPTIONAL)}", key=KEY)
            if lacking := [name for name in _REQUIRED if name not in archive.files]:
                raise UserError(f"{path}: the arrays {', '.join(lacking)} are missing", key=KEY)
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        reason = str(error).split(". ")[0]  # NumPy then advises unpickling, which no file from outside deserves
        raise UserError(f"{path} cannot be read as a NumPy archive of plain arrays: {reason}", key=KEY) from None


def _owners(arrays: dict[str, NDArray[Any]], name: str, records: int, path: Path) -> NDArray[Any] | None:
    owners = arrays.get(name)
    if owners is not None and (owners.shape != (records,) or owners.dtype.kind not in "ui"):
        text = f"{path}: {name} must hold one whole number for each of the {records} records"
        raise UserError(f"{text}, found shape {owners.shape}, type {owners.dtype}", key=KEY)
    return owners


_OF_COLUMNS = ("label", "inputs", "by", "task", "ranges", "categories", "exclude", "text")


class Columned(Described, WithOwners):
    """Records with columns, in files.

    Attributes:
        label: the column of labels, or for `multilabel` several; null for the usual names, as `label`.
        inputs: the column of inputs, or several; null: the usual names, as `image`, or all other columns of a table.
    """

    label: _Inputs = None
    inputs: _Inputs = None

    @property
    def stated_task(self) -> Task:
        """The task as far as the file says; a list of columns has several labels."""
        return self.task or ("multilabel" if isinstance(self.label, list) else "classification")

    def pool(self, parts: dict[str, Any], classes: Any) -> Pool:
        """The records of parts, of which those for tests are a fifth where there are none.

        Raises:
            UserError: see `from_python`.
        """
        test = TEST_SHARE if splits_of(parts)[1] is None else None
        stated = {key: getattr(self, key) for key in _OF_COLUMNS if hasattr(self, key)}
        return from_python(parts, test, **stated, classes=classes, place=self.path).pool


class HuggingFace(Columned):
    """A Hugging Face data set on disk: a folder of `Dataset.save_to_disk`, or Parquet files as on the hub."""

    description: ClassVar[str] = "a Hugging Face data set in a folder (save_to_disk, or Parquet files)"
    name: Literal["huggingface"] = "huggingface"

    def load(self, request: DataRequest) -> Pool:
        """All records; the package `datasets` is not needed.

        Raises:
            UserError: no such folder, columns that are not there, values that are no numbers or images.
        """
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise UserError(f"no such folder: {folder}", key=KEY)
        try:
            splits = dict(_splits(folder))
            one = self.label if isinstance(self.label, str) else None
            stated = _stated_classes(splits["train"], one) if "train" in splits else None
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise UserError(f"{folder}: cannot be read: {error}"[:300], key=KEY) from None
        if "train" not in splits:
            text = "expected a data set that save_to_disk wrote, or Parquet files whose names begin with train and test"
            raise UserError(f"{text}, in {folder}", key=KEY)
        return self.pool(splits, self.classes or (stated if self.stated_task == "classification" else None))


def _splits(folder: Path) -> Iterator[tuple[str, pa.Table]]:
    """The splits of a folder; one that has none is `train`."""
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        for name in json.loads(splits.read_text())["splits"]:
            yield str(name), _arrow(folder / str(name))
        return
    if (folder / "state.json").is_file():
        yield "train", _arrow(folder)
        return
    parquet = sorted(folder.rglob("*.parquet"))
    for name in ("train", "test", *VALIDATION):
        files = [file for file in parquet if file.name.lower().startswith(name)]
        homes = sorted({str(file.parent.relative_to(folder)) for file in files})
        if len(homes) > 1:
            text = f"{folder}: the configurations {', '.join(homes)} have {name} records each, perhaps the same"
            raise UserError(f"{text}; expected the path of one, as {folder / homes[0]}", key=KEY)
        if files:
            yield name, pa.concat_tables([pq.read_table(file) for file in files])


def _arrow(folder: Path) -> pa.Table:
    """The table of the files that `state.json` names, in Arrow's streaming format."""
    files = [each["filename"] for each in json.loads((folder / "state.json").read_text())["_data_files"]]
    tables = []
    for name in files:
        with pa.memory_map(str(folder / Path(name).name)) as source, pa.ipc.open_stream(source) as stream:
            tables.append(stream.read_all())
    return pa.concat_tables(tables)


def _stated_classes(table: pa.Table, label: str | None) -> int | None:
    """The number of classes that the schema states for the column of labels; None where it states none."""
    stated = (table.schema.metadata or {}).get(b"huggingface")
    features = json.loads(stated)["info"]["features"] if stated else {}
    named = [name for name, kind in features.items() if isinstance(kind, dict) and kind.get("names")]
    name = label if label is not None else next(iter(named), None)
    return len(features[name]["names"]) if name in named else None
