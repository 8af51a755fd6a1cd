"""What data sets of columns share: who holds a record, which of them are test records, and how they are spread."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, ClassVar

from pydantic import Field

from h2fdp.config.fields import Expect, FilePath, Text
from h2fdp.data.partition import PartitionSection
from h2fdp.data.source import DataOptions, DataRequest

_Share = Annotated[float, Field(gt=0, lt=1), Expect("a number between 0 and 1")]


class Tabular(DataOptions):
    """Records with columns, in files.

    Attributes:
        validation: the share of the training records that is held out; 0: the validation part that the files have, if
            they have one.
        path: of the file or folder.
        by: the column that names the device of a record; null: no column does.
        test: the share of the records that are test records, where the files have neither a test nor a validation part.
        partition: null: by `by` where it is stated, else `iid`.
    """

    nulls: ClassVar[bool] = False
    path: FilePath
    by: Text | None = None
    test: _Share = 0.2
    partition: PartitionSection | None = None

    @property
    def spread(self) -> PartitionSection:
        """As stated, else by owner or at random."""
        if self.partition is not None:
            return self.partition
        return PartitionSection(iid=True) if self.by is None else PartitionSection(natural=True)

    def depends_on(self, request: DataRequest) -> Hashable:
        """The files, and how they are read."""
        return repr(self.model_dump(exclude={"partition", "validation", "public"})), self.spread.natural
