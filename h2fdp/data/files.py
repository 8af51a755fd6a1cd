"""Records in files of the user's: `npz` archives, `table` (CSV, Parquet), `huggingface` folders."""

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
from pydantic import Discriminator, Field, Tag

from h2fdp.config.fields import Expect, Number, Text, shape
from h2fdp.config.own_parts import OwnPart
from h2fdp.data.from_python import LABELS, first_row, from_python, stated_column
from h2fdp.data.partition import Partition
from h2fdp.data.records import Scaling, as_records
from h2fdp.data.source import (
    LABELS_3,
    TEST_SHARE,
    VALIDATION,
    Classes,
    DataOptions,
    DataRequest,
    FromFiles,
    Pool,
    WithOwners,
    pool_of,
    splits_of,
)
from h2fdp.errors import UserError, near_file, not_one_of

_KEY = "data.path"
_PARQUET = (".parquet", ".pq")
_REQUIRED = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("device_train", "device_test", "x_validation", "y_validation")
_Bounds = Annotated[list[Number], Field(min_length=2, max_length=2), Expect("a pair of numbers")]
_Words = Annotated[list[Any], Field(min_length=1), Expect("a list of values")]
_Labels = Annotated[
    Annotated[Classes | None, Tag("scalar")] | Annotated[_Words, Tag("list")],
    Discriminator(shape),
    Expect("a whole number from 2 to 65536, or the labels in order"),
]
_Inputs = Annotated[
    Annotated[Text | None, Tag("scalar")] | Annotated[list[Text], Field(min_length=1), Tag("list")],
    Discriminator(shape),
    Expect("a column, or a list of columns"),
]


class Described(FromFiles):
    """Records in files, whose labels a user describes.

    Attributes:
        classes: the number of labels, or for columns the labels in order; public. Null is what the files state, or what
            the test labels show.
    """

    classes: _Labels = None


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
            if x not in arrays and y not in arrays:
                return None
            if x not in arrays or y not in arrays:
                raise UserError(f"{path}: expected both {x} and {y}", key=_KEY)
            return as_records(arrays[x], arrays[y], f"{x} and {y} of {path}", _KEY)

        train, test = part("train"), part("test")
        owners = _owners(arrays, "device_train", len(train), path)
        test_owners = None if owners is None else _owners(arrays, "device_test", len(test), path)
        stored = Scaling(255.0 if train.x.dtype == np.uint8 else 1.0)
        pool = pool_of((train, owners), (test, test_owners), part("validation"), self.classes, stored, str(path))
        if test_owners is not None and pool.test_owners is None:
            raise UserError(f"{path}: device_test names a device that holds no training record", key=_KEY)
        return pool


def _archive(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise UserError(f"no such file: {path}{near_file(path)}", key=_KEY)
    try:
        with path.open("rb") as file:  # opened here, for NumPy leaves a broken archive open
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise UserError(f"{path} is a single array; expected an archive made by numpy.savez", key=_KEY)
            for name in archive.files:
                if name not in _REQUIRED + _OPTIONAL:
                    raise UserError(f"{path}: array: {not_one_of(name, _REQUIRED + _OPTIONAL)}", key=_KEY)
            if lacking := [name for name in _REQUIRED if name not in archive.files]:
                raise UserError(f"{path}: the arrays {', '.join(lacking)} are missing", key=_KEY)
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        reason = str(error).split(". ")[0]  # NumPy then advises unpickling, which no file from outside deserves
        raise UserError(f"{path} cannot be read as a NumPy archive of plain arrays: {reason}", key=_KEY) from None


def _owners(arrays: dict[str, NDArray[Any]], name: str, records: int, path: Path) -> NDArray[Any] | None:
    owners = arrays.get(name)
    if owners is not None and (owners.shape != (records,) or owners.dtype.kind not in "ui"):
        text = f"{path}: {name} must hold one whole number for each of the {records} records"
        raise UserError(f"{text}, found shape {owners.shape}, type {owners.dtype}", key=_KEY)
    return owners


class Columned(Described, WithOwners):
    """Records with columns, in files.

    Attributes:
        label: the column of labels; null for the usual names, as `label`.
        inputs: the column of inputs, or several; null: the usual names, as `image`, or all other columns of a table.
    """

    label: Text | None = None
    inputs: _Inputs = None

    def _pool(self, parts: dict[str, Any], classes: Any, ranges: dict[str, list[float]]) -> Pool:
        test = TEST_SHARE if splits_of(parts)[1] is None else None
        return from_python(
            parts,
            test,
            label=self.label,
            inputs=self.inputs,
            by=self.by,
            classes=classes,
            ranges=ranges,
            place=self.path,
        ).pool


class Table(Columned):
    """A table in a file, or a folder with train.csv and perhaps test.csv and validation.csv (or .parquet).

    Attributes:
        ranges: column -> lowest and highest value, public; such columns are cut to them and go from 0 to 1.
        categories: column -> its values, public; each becomes a feature that is 0 or 1.
    """

    description: ClassVar[str] = (
        "a CSV or Parquet table, or a folder of train and test; columns are scaled by bounds that you state"
    )
    name: Literal["table"] = "table"
    ranges: dict[Text, _Bounds] = Field(default_factory=dict)
    categories: dict[Text, _Words] = Field(default_factory=dict)

    def load(self, request: DataRequest) -> Pool:
        """All records.

        Raises:
            UserError: no such file, columns that are not there, values that are neither numbers nor stated categories.
        """
        path = Path(self.path).expanduser()
        divided = path.is_dir() and path.suffix not in _PARQUET  # some programs write one table as a folder
        files = _tables(path) if divided else {"train": path}
        return self._pool({name: self._frame(file) for name, file in files.items()}, self.classes, self.ranges)

    def _frame(self, file: Path) -> Any:
        import pandas as pd

        try:
            frame = pd.read_parquet(file) if file.suffix in _PARQUET else pd.read_csv(file)
        except FileNotFoundError:
            raise UserError(f"there is no file {file}", key=_KEY) from None
        except pd.errors.EmptyDataError:
            frame = pd.DataFrame()
        except (OSError, ValueError) as error:
            reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
            raise UserError(f"cannot be read as a table: {reason}"[:300], str(file), _KEY) from None
        if frame.empty:
            raise UserError("expected a line of column names and a line for each record, found none", str(file), _KEY)
        columns = list(map(str, frame.columns))
        for column, values in self.categories.items():
            stated_column(column, columns, f"the table {file.name}: categories")
            if (outside := ~np.asarray(frame[column].isin(values))).any():
                value = frame[column].tolist()[outside.argmax()]
                what = "no value" if pd.isna(value) else repr(value)
                text = f"the table {file.name}: the column {column} has {what} in {first_row(outside)}"
                raise UserError(f"{text}, which is none of its categories {', '.join(map(repr, values))}", key="data")
            frame[column] = pd.Categorical(frame[column], categories=values)
        return frame


def is_bounded(section: DataOptions | OwnPart, shape: tuple[int, ...]) -> bool:
    """Whether every column of a table goes from 0 to 1, as public ranges or categories are stated for it."""
    if not isinstance(section, Table):
        return False
    stated = [section.inputs] if isinstance(section.inputs, str) else section.inputs
    others = {section.by, *(LABELS if section.label is None else [section.label])}
    inputs = [column for column in section.categories if column not in others and (stated is None or column in stated)]
    return shape == (len(section.ranges) + sum(len(section.categories[column]) for column in inputs),)


def _tables(folder: Path) -> dict[str, Path]:
    """The tables of a folder by what they are: train, and perhaps test and validation.

    Raises:
        UserError: no training table, or two tables of one name.
    """
    tables: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.stem in ("train", "test", *VALIDATION) and file.suffix in (".csv", *_PARQUET):
            if file.stem in tables:
                raise UserError(f"{folder}: expected {tables[file.stem].name} or {file.name}, found both", key=_KEY)
            tables[file.stem] = file
    if "train" not in tables:
        text = "expected a table, or a folder with train.csv and perhaps test.csv and validation.csv (or .parquet)"
        raise UserError(f"{text}, found no train.csv in {folder}", key=_KEY)
    return tables


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
            raise UserError(f"no such folder: {folder}", key=_KEY)
        try:
            splits = dict(_splits(folder))
            stated = _stated_classes(splits["train"], self.label) if "train" in splits else None
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise UserError(f"{folder}: cannot be read: {error}"[:300], key=_KEY) from None
        if "train" not in splits:
            text = "expected a data set that save_to_disk wrote, or Parquet files whose names begin with train and test"
            raise UserError(f"{text}, in {folder}", key=_KEY)
        return self._pool(splits, self.classes or stated, {})


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
        if files := [file for file in parquet if file.name.startswith(name)]:
            yield name, pa.concat_tables([pq.read_table(file) for file in files])


def _arrow(folder: Path) -> pa.Table:
    """What `state.json` names: files of Arrow's streaming format."""
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
