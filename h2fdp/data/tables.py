"""`table`: a CSV or Parquet file with a column of labels; columns are scaled by public bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from h2fdp.config.fields import Expect, Number, Text
from h2fdp.data.frames import frame_arrays
from h2fdp.data.from_python import numbered
from h2fdp.data.records import Scaling, as_records
from h2fdp.data.source import DataRequest, Pool, split_off
from h2fdp.data.tabular import Tabular
from h2fdp.errors import UserError

_KEY = "data.path"
_Bounds = Annotated[list[Number], Field(min_length=2, max_length=2), Expect("a pair of numbers")]
_Words = Annotated[list[Any], Field(min_length=1), Expect("a list of values")]


class Table(Tabular):
    """A table in a file.

    Attributes:
        label: the column of labels.
        classes: the labels in order, public.
        inputs: columns; null for all others.
        ranges: column -> lowest and highest value, public; such columns are cut to them and go from 0 to 1.
        categories: column -> its values, public; each becomes a feature that is 0 or 1.
    """

    description: ClassVar[str] = "a CSV or Parquet table; columns are scaled by bounds that you state"
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
        import pandas as pd

        path = Path(self.path).expanduser()
        try:
            frame = pd.read_parquet(path) if path.suffix in (".parquet", ".pq") else pd.read_csv(path)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot be read as a table: {error}"[:300], str(path), _KEY) from None
        for column, values in self.categories.items():
            if column in frame.columns:
                frame[column] = pd.Categorical(frame[column], categories=values)
        try:
            x, y, owners = frame_arrays(
                frame, self.label, self.inputs, self.by, self.classes, self.ranges, f"the table {path.name}"
            )
        except UserError as error:
            raise UserError(error.problems[0].text, key="data") from None
        records = as_records(x, y, f"the table {path.name}", _KEY)
        kept, rest = split_off(len(records), self.test, "data.test")
        numbers, test_numbers = (None, None)
        if self.spread.natural and owners is not None:
            names = np.asarray(owners)
            numbers, test_numbers = numbered(names[kept], names[rest])
        return Pool(records.part(kept), records.part(rest), max(2, len(self.classes)), Scaling(), numbers, test_numbers)
