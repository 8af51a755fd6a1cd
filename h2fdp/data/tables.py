"""`table`: a CSV or Parquet file with a column of labels; columns are scaled by public bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect, Number, Text
from h2fdp.data.columns import VALIDATION, splits_of
from h2fdp.data.frames import first, frame_arrays, named
from h2fdp.data.from_python import numbered
from h2fdp.data.records import Records, Scaling, as_records, class_count
from h2fdp.data.source import DataRequest, Pool, split_off
from h2fdp.data.tabular import Tabular
from h2fdp.errors import UserError

_KEY = "data.path"
_PARQUET = (".parquet", ".pq")
_Bounds = Annotated[list[Number], Field(min_length=2, max_length=2), Expect("a pair of numbers")]
_Words = Annotated[list[Any], Field(min_length=1), Expect("a list of values")]


class Table(Tabular):
    """A table in a file.

    Attributes:
        path: of the table, or of a folder with train.csv and perhaps test.csv and validation.csv (or .parquet).
        label: the column of labels.
        classes: the labels in order, public.
        inputs: columns; null for all others.
        ranges: column -> lowest and highest value, public; such columns are cut to them and go from 0 to 1.
        categories: column -> its values, public; each becomes a feature that is 0 or 1.
    """

    description: ClassVar[str] = (
        "a CSV or Parquet table, or a folder of train and test; columns are scaled by bounds that you state"
    )
    name: Literal["table"] = "table"
    label: Text
    classes: _Words
    inputs: Annotated[list[Text], Field(min_length=1), Expect("a list of columns")] | None = None
    ranges: dict[Text, _Bounds] = Field(default_factory=dict)
    categories: dict[Text, _Words] = Field(default_factory=dict)

    def load(self, request: DataRequest) -> Pool:
        """All records.

        Raises:
            UserError: no such file, columns that are not there, values that are neither numbers nor stated categories.
        """
        folder = Path(self.path).expanduser()
        divided = folder.is_dir() and folder.suffix not in _PARQUET  # some programs write one table as a folder
        training, tests, valid = splits_of(_parts(folder) if divided else {"train": folder})
        frame = self._frame(training)
        train, owners = self._records(training, frame, self.inputs, self.by)
        inputs = self.inputs or [each for each in map(str, frame.columns) if each not in (self.label, self.by)]
        test, test_owners = (None, None) if tests is None else self._beside(tests, inputs)
        validation = None if valid is None else self._beside(valid, inputs)[0]
        if test is None:
            kept, rest = split_off(len(train), self.test, "data.test")
            train, test = train.part(kept), train.part(rest)
            owners, test_owners = (None, None) if owners is None else (owners[kept], owners[rest])
        classes = class_count(train, test, max(2, len(self.classes)), str(folder), validation)
        called = tuple(map(str, self.classes))
        if owners is None or not self.spread.natural:
            return Pool(train, test, classes, Scaling(), validation=validation, class_names=called)
        names = tuple(map(str, np.unique(owners)))
        return Pool(train, test, classes, Scaling(), *numbered(owners, test_owners), validation, called, names)

    def _frame(self, file: Path) -> Any:
        import pandas as pd

        try:
            frame = pd.read_parquet(file) if file.suffix in _PARQUET else pd.read_csv(file)
        except FileNotFoundError:
            raise UserError(f"there is no file {file}", key=_KEY) from None
        except (OSError, ValueError) as error:
            raise UserError(f"cannot be read as a table: {error}"[:300], str(file), _KEY) from None
        there = list(map(str, frame.columns))
        for column, values in self.categories.items():
            named(column, there, f"the table {file.name}: categories")
            if (outside := ~np.asarray(frame[column].isin(values))).any():
                found = frame[column].tolist()[outside.argmax()]
                what = "no value" if pd.isna(found) else repr(found)
                text = f"the table {file.name}: the column {column} has {what} in {first(outside)}"
                raise UserError(f"{text}, which is none of its categories {', '.join(map(repr, values))}", key="data")
            frame[column] = pd.Categorical(frame[column], categories=values)
        return frame

    def _beside(self, file: Path, inputs: list[str]) -> tuple[Records, NDArray[Any] | None]:
        """The records of a table beside that of training records, which need no owners."""
        frame = self._frame(file)
        return self._records(file, frame, inputs, self.by if self.by in frame.columns else None)

    def _records(
        self, file: Path, frame: Any, inputs: list[str] | None, by: str | None
    ) -> tuple[Records, NDArray[Any] | None]:
        """The records of a table and, where a column states them, their owners."""
        what = f"the table {file.name}"
        try:
            x, y, owners = frame_arrays(frame, self.label, inputs, by, self.classes, self.ranges, what)
        except UserError as error:
            raise UserError(error.problems[0].text, key="data") from None
        return as_records(x, y, what, _KEY), owners


def _parts(folder: Path) -> dict[str, Path]:
    """The tables of a folder by what they are: train, and perhaps test and validation.

    Raises:
        UserError: no training table, or two tables of one name.
    """
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        if file.stem in ("train", "test", *VALIDATION) and file.suffix in (".csv", *_PARQUET):
            if file.stem in found:
                raise UserError(f"{folder}: expected {found[file.stem].name} or {file.name}, found both", key=_KEY)
            found[file.stem] = file
    if "train" not in found:
        text = "expected a table, or a folder with train.csv and perhaps test.csv and validation.csv (or .parquet)"
        raise UserError(f"{text}, found no train.csv in {folder}", key=_KEY)
    return found
