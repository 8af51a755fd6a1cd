"""`huggingface`: a folder of `Dataset.save_to_disk`, or Parquet files as on the hub; read without `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from h2fdp.config.fields import Text
from h2fdp.data.columns import VALIDATION, splits_of
from h2fdp.data.from_python import from_python
from h2fdp.data.source import DataRequest, Pool
from h2fdp.data.tabular import Tabular
from h2fdp.errors import UserError

_KEY = "data.path"


class HuggingFace(Tabular):
    """A Hugging Face data set on disk.

    Attributes:
        path: of the folder; `h2fdp` downloads nothing: `datasets.load_dataset(name).save_to_disk(path)` does.
        label: the column of labels; null for the usual names.
        inputs: the columns of inputs; null for the usual names.
        test: the share of the records that are test records, where there is no test and no validation split.
    """

    description: ClassVar[str] = "a Hugging Face data set in a folder (save_to_disk, or Parquet files)"
    name: Literal["huggingface"] = "huggingface"
    label: Text | None = None
    inputs: Text | None = None

    def load(self, request: DataRequest) -> Pool:
        """All records.

        Raises:
            UserError: no such folder, columns that are not there, values that are no numbers or images.
        """
        splits = read_folder(Path(self.path).expanduser())
        by = self.by if self.spread.natural else None
        classes = splits["train"].classes_of(self.label)
        test = self.test if splits_of(splits)[1] is None else None
        return from_python(splits, test, label=self.label, inputs=self.inputs, by=by, classes=classes).pool


class ArrowColumns:
    """A split's columns, as a `datasets.Dataset` has them.

    Args:
        features: what the schema says about columns, by name.
    """

    def __init__(self, table: pa.Table, features: dict[str, Any]) -> None:
        self._table = table
        self.features = features
        self.column_names = list(table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, name: str) -> list[Any]:
        values: list[Any] = self._table.column(name).to_pylist()
        return values

    def classes_of(self, label: str | None) -> int | None:
        """The number of classes that the schema states for the column of labels; null where it states none."""
        stated = [name for name, kind in self.features.items() if isinstance(kind, dict) and kind.get("names")]
        name = label if label is not None else next(iter(stated), None)
        return len(self.features[name]["names"]) if name in stated else None


def read_folder(folder: Path) -> dict[str, ArrowColumns]:
    """The splits of a folder; one that has none is `train`.

    Raises:
        UserError: no such folder, nothing in it that can be read, no training split.
    """
    if not folder.is_dir():
        raise UserError(f"no such folder: {folder}", key=_KEY)
    try:
        found = dict(_splits(folder))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise UserError(f"{folder}: cannot be read: {error}"[:300], key=_KEY) from None
    if "train" not in found:
        text = "expected a data set that save_to_disk wrote, or Parquet files whose names begin with train and test"
        raise UserError(f"{text}, in {folder}", key=_KEY)
    return found


def _splits(folder: Path) -> Iterator[tuple[str, ArrowColumns]]:
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
            yield name, _columns(pa.concat_tables([pq.read_table(file) for file in files]))


def _arrow(folder: Path) -> ArrowColumns:
    """What `state.json` names: files of Arrow's streaming format."""
    files = [each["filename"] for each in json.loads((folder / "state.json").read_text())["_data_files"]]
    tables = []
    for name in files:
        with pa.memory_map(str(folder / Path(name).name)) as source, pa.ipc.open_stream(source) as stream:
            tables.append(stream.read_all())
    return _columns(pa.concat_tables(tables))


def _columns(table: pa.Table) -> ArrowColumns:
    stated = (table.schema.metadata or {}).get(b"huggingface")
    features = json.loads(stated)["info"]["features"] if stated else {}
    return ArrowColumns(table, features)
