"""`table`: CSV and Parquet files, and the `data:` section of one, to be filled in."""

from __future__ import annotations

import json
import shlex
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import yaml
from pydantic import Field

from h2fdp.config.fields import Expect, Number, Text
from h2fdp.config.parsing import DECIMAL_COMMA, separated, separated_by
from h2fdp.data.columns import holds_words, listed, numbers_of, stated_column, usual_label
from h2fdp.data.files import KEY, Columned
from h2fdp.data.source import TEST_SHARE, DataRequest, Pool, part_of, split_off, splits_of
from h2fdp.errors import UserError, reason_of
from h2fdp.wording import counted, note

if TYPE_CHECKING:
    import pandas as pd

_PARQUET = (".parquet", ".pq")


class Table(Columned):
    """A table in a file, or a folder with train.csv and perhaps test.csv and validation.csv (or .parquet).

    Attributes:
        ranges: column -> lowest and highest value, public; such columns are cut to them and go from 0 to 1. A third
            number is what a gap counts as, and another feature is 1 there. With `regression`, also of the label.
        categories: column -> its values, public; each becomes a feature that is 0 or 1. A null among them is for gaps.
            Values of an empty list, and of columns of words that are in neither of these, become 256 numbers by a hash.
        exclude: columns that are no inputs, as numbers of patients.
        text: columns whose texts become 256 numbers each, by public vectors of their tokens where `h2fdp[text]` is
            installed, else by hashes of their words.
        separator: of columns of a CSV file; null: a comma, semicolon, tab or bar, whichever the first line has most of.
        decimal: point or comma of numbers of a CSV file; null: a comma where columns are not separated by commas and
            have such numbers.
        missing: words or numbers of a CSV file that mean a gap, as an empty cell does; null: NA, N/A, NaN, null, None
            and a few more. A word that is stated as a category or a class is no gap.
    """

    description: ClassVar[str] = (
        "a CSV or Parquet table, or a folder of train and test; columns are scaled by bounds that you state"
    )
    name: Literal["table"] = "table"
    categories: dict[Text, list[Any]] = Field(default_factory=dict)
    exclude: list[Text] = Field(default_factory=list)
    text: list[Text] = Field(default_factory=list)
    separator: Annotated[str, Field(min_length=1, max_length=1), Expect('one character, as ";" or "\\t"')] | None = None
    decimal: Annotated[Literal[".", ","], Expect('a point or a comma, as "." or ","')] | None = None
    missing: list[Annotated[Text | int | Number, Expect("a word or a number")]] | None = None

    def load(self, request: DataRequest) -> Pool:
        """All records.

        Raises:
            UserError: no such file, columns that are not there, values that are neither numbers nor stated categories.
        """
        path = Path(self.path).expanduser()
        divided = path.is_dir() and path.suffix not in _PARQUET  # some programs write one table as a folder
        files = _tables(path) if divided else {"train": path}
        frames = {name: self.frame(file) for name, file in files.items()}
        public = self.by is None and self.test is None and self.stated_task == "classification"
        classes = self._shown(frames) if public and self.classes is None else self.classes
        try:
            return self.pool(frames, classes)
        except UserError as error:
            if len(error.problems) < 2:
                raise
            *others, last = error.problems
            text = f"{last.text}; h2fdp data {shlex.quote(str(files['train']))} prints a data section to fill in"
            raise UserError([*others, replace(last, text=text)]) from None

    def _shown(self, frames: dict[str, pd.DataFrame]) -> list[Any] | None:
        """The labels of test records, which are public, in order: where they are texts, or do not begin with 0."""
        train, test, _ = splits_of(frames)
        if test is None and len(train) * TEST_SHARE >= 1:
            test = train.iloc[split_off(len(train), TEST_SHARE)[1]]
        label = self.label or usual_label(train.columns)
        if test is None or label not in test or test[label].dtype.kind == "b" or hasattr(test[label], "cat"):
            return None
        found, numbers = test[label].dropna().unique().tolist(), test[label].dtype.kind in "iuf"
        if numbers and (0 in found or not 1 < len(found) <= _MOST_KINDS or any(each % 1 for each in found)):
            return None
        classes = sorted(map(int, found)) if numbers else sorted(found, key=str)
        shown = listed([str(each) for each in classes])
        note(f"{shown}: these classes are those of the test records, which are public; data.classes states others")
        return classes

    def frame(self, file: Path) -> pd.DataFrame:
        """A table as pandas reads it.

        Raises:
            UserError: there is no such file, or it is no table.
        """
        import pandas as pd

        try:
            with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
                frame = self._parquet(file) if file.suffix in _PARQUET else self._csv(file)
        except FileNotFoundError:
            raise UserError(f"there is no file {file}", key=KEY) from None
        except pd.errors.EmptyDataError:
            frame = pd.DataFrame()
        except pd.errors.ParserWarning:
            text = "lines have more cells than the first line has names, perhaps by a separator at their end"
            raise UserError(f"{text}; expected as many", str(file), KEY) from None
        except (OSError, ValueError) as error:
            reason = reason_of(error).removeprefix("Error tokenizing data. C error: ")
            raise UserError(f"cannot be read as a table: {reason}"[:300], str(file), KEY) from None
        if frame.empty:
            raise UserError("expected a line of column names and a line for each record, found none", str(file), KEY)
        return frame

    def _parquet(self, file: Path) -> pd.DataFrame:
        import pandas as pd

        for key in ("separator", "decimal", "missing"):
            if getattr(self, key) is not None:
                raise UserError(f"means nothing for {file.name}, which is no CSV file; leave it out", key=f"data.{key}")
        return pd.read_parquet(file)

    def _csv(self, file: Path) -> pd.DataFrame:
        import pandas as pd

        if self.separator == self.decimal == ",":
            raise UserError("separates columns too; expected a point, or no stated separator", key="data.decimal")

        def cells(mark: str) -> list[str]:
            return list(pd.read_csv(file, sep=mark, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0])

        separator, line = separated(cells, self.separator)
        better, more = separated(cells)
        if self.separator is not None and len(more) > len(line):
            counts = (
                f"the first line of {file.name} has {counted(len(line), 'column')} by it, and {len(more)} by {better!r}"
            )
            if len(line) == 1:
                raise UserError(f"{counts}; expected data.separator: {json.dumps(better)}", key="data.separator")
            note(f"data.separator {separator!r}: {counts}")
        heads = [name or f"Unnamed: {place}" for place, name in enumerate(line)]
        if repeated := [name for name in heads if heads.count(name) > 1]:
            raise UserError(f"{file}: {repeated[0]} is the name of two columns; expected different names", key=KEY)
        named = self.classes if isinstance(self.classes, list) else []
        label = self.label if isinstance(self.label, str) else usual_label(heads)
        words = {**self.categories, **({} if self.task == "regression" else {label: named})}
        gaps = {"", *(_GAPS.split("|") if self.missing is None else map(str, self.missing))}
        stated = {column: [each for each in words.get(column, ()) if isinstance(each, str)] for column in heads}

        def read(decimal: str) -> pd.DataFrame:
            return pd.read_csv(
                file,
                sep=separator,
                header=0,
                names=heads,
                decimal=decimal,
                na_values={column: list(gaps.difference(stated[column])) for column in heads},
                keep_default_na=False,
                dtype={column: str for column in heads if stated[column] or column in self.text},
                index_col=False,
                low_memory=False,
            )

        frame, decimal = read(self.decimal or "."), self.decimal
        used = [each for each in heads if each not in (*words, *self.text, self.by, *self.exclude)]
        texts = [x for x in used if frame[x].dtype.kind not in "buif" and not holds_words(frame[x])]
        for each in texts:  # among whole numbers beyond 64 bits pandas leaves gaps as they are
            frame[each] = frame[each].mask(frame[each].isin(gaps))
        commas = [each for each in texts if frame[each].astype(str).str.fullmatch(DECIMAL_COMMA).any()]
        if commas and decimal is None and separator != ",":
            frame, decimal = read(","), ","
        how = f"guessed from column {commas[0]}" if decimal != self.decimal else "stated" if decimal else "assumed"
        text = f"decimal {'commas' if decimal == ',' else 'points'} were {how}; state data.decimal, one for all columns"
        frame.attrs["decimal"] = decimal == ",", self.decimal is not None, text
        if self.separator is None and separator != ",":
            note(f"{separated_by(file, separator, decimal != self.decimal)} (data.separator, data.decimal)")
        return frame


# Those of pandas.
_GAPS = "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null"


_MOST_KINDS = 50  # values of a column of texts that are taken for categories

_WHY = """\
# Fill in what you know without these records (ages go from 0 to 110); what is left empty is standardised, or hashed.
# All that stands here is public: a range or a list that follows from the records reveals some, and no account covers
# that. So no lowest and highest numbers are printed, and the values after # are for your eyes.
"""


def section_of(file: Path, table: Table) -> str:
    """The `data:` section of a table as YAML, to be filled in: which columns there are, of what kind, with which gaps.

    Args:
        table: what is stated already; its columns of labels and owners are in none of the lists.

    Raises:
        UserError: it is no table, or has no such column.
    """
    frame = table.frame(file)
    rows: dict[str, list[str]] = {"exclude": [], "text": [], "categories": [], "ranges": []}
    label, kinds = table.label or usual_label(frame.columns), ""
    labels, heads = label if isinstance(label, list) else [label], list(map(str, frame.columns))
    for key, named in (("label", labels), ("by", [table.by]), ("exclude", table.exclude), ("text", table.text)):
        for each in filter(None, named):
            stated_column(each, heads, key, str(file))
    for name in (each for each in heads if each != table.by):
        values = frame[name].dropna()
        gaps, different = len(frame) - len(values), values.unique()
        few = len(different) <= min(_MOST_KINDS, max(2, len(frame) // 4))
        words_of = ", ".join(sorted(map(_scalar, different.tolist()))) if few else ""
        said = f", gaps in {gaps} of {len(frame)} rows" if gaps else ""
        pairs = () if values.dtype.kind in "buif" else zip(different, numbers_of(values.drop_duplicates()), strict=True)
        words = [each for each, number in pairs if number is None]
        if name in (*table.exclude, *table.text):
            rows["exclude" if name in table.exclude else "text"].append(f"    - {_scalar(name)}")
        elif name in labels and (table.task == "regression" or (values.dtype.kind in "iuf" and not few)):
            kinds = "regression"
            rows["ranges"].append(f"    {_scalar(name)}: []  # the label's lowest and highest value")
        elif name in labels:
            kinds = f"  # {words_of}; in order" if values.dtype.kind not in "buif" else f"  # {words_of or 'numbers'}"
        elif not holds_words(values):
            kind = "0 or 1" if set(different) <= {0, 1} else "whole numbers" if values.dtype.kind in "iu" else "numbers"
            kind += f" but for {', '.join(map(repr, words))} (a gap? then in missing)" if words else ""
            told = f"{said}: the mean, or a third number, stands for them" if gaps else ""
            rows["ranges"].append(f"    {_scalar(name)}: []  # {kind}{told}")
        elif few:
            told = f"{said}: null stands for them" if gaps else ""
            rows["categories"].append(f"    {_scalar(name)}: []  # {words_of}{told}")
        else:
            key = "text" if sum(" " in str(each) for each in different) > len(different) / 2 else "exclude"
            rows[key].append(f"    - {_scalar(name)}  # {len(different)} different texts{said}")
    stated = "" if label else "  # which column? --set data.label=COLUMN takes it out of the lists"
    lines = [f"  {key}:\n" + "\n".join(each) for key, each in rows.items() if each]
    head = f"# {len(frame):,} records in {len(frame.columns)} columns.\n{_WHY}data:"
    kinds = kinds or "  # its values in order, if texts"
    task = "multilabel" if isinstance(label, list) else kinds if kinds == "regression" else ""
    columns = f"  label: {label and _scalar(label)}{stated}\n  {'task' if task else 'classes'}: {task or kinds}"
    why = "  # the column that says who holds a record, if any: --set data.by=COLUMN"
    by = f"  by: {_scalar(table.by)}" if table.by else f"  by:{why}"
    read = [(key, getattr(table, key)) for key in ("separator", "decimal", "missing")]
    rest = [f"  {key}: {_scalar(value)}" for key, value in read if value is not None]
    return "\n".join([head, "  name: table", f"  path: {_scalar(str(file))}", *rest, columns, by, *lines])


def _scalar(value: Any) -> str:
    """The value as YAML writes it."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10_000)
    return text.removesuffix("...\n").strip()


def _tables(folder: Path) -> dict[str, Path]:
    """The tables of a folder by what they are: train, and perhaps test and validation.

    Raises:
        UserError: no training table, or two tables of one name.
    """
    tables: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        part = part_of(file.stem)
        if part is not None and file.suffix in (".csv", ".tsv", *_PARQUET):
            if part in tables:
                raise UserError(f"{folder}: expected {tables[part].name} or {file.name}, found both", key=KEY)
            tables[part] = file
    if "train" not in tables:
        text = "expected a table, or a folder with train.csv and perhaps test.csv and validation.csv (or .parquet)"
        raise UserError(f"{text}, found no train.csv in {folder}", key=KEY)
    return tables
