"""Rows of the metrics: what goes in comes out, from memory, from a checkpoint, from the file."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from h2fdp.records.tables import (
    METRICS_SCHEMA,
    MetricsRows,
    accountant_of_metrics,
    column_of,
    known_in,
    metrics_schema,
    numbers_in,
    read_table,
    words_of,
)

ROWS = [
    {"interval": 1, "slot": 4, "accuracy": 0.1, "loss": math.nan, "wall_s": 0.5},
    {"interval": 2, "slot": 2**53 + 1, "epsilon_edge": None, "loss": math.inf, "wall_s": 1e-300},
    {"interval": 3, "accuracy": 1 / 3, "wall_s": 0},
]


@pytest.fixture
def rows():
    found = MetricsRows(METRICS_SCHEMA)
    for row in ROWS:
        found.append(row)
    return found


def known(row):
    return {key: value for key, value in row.items() if value is not None}


def test_rows_come_back_without_their_nulls(rows):
    assert len(rows) == 3
    assert str(next(iter(rows))) == str(known(rows[-3]))
    assert rows[1] == known(ROWS[1])
    assert rows[-1] == ROWS[2]
    assert isinstance(rows[0]["interval"], int)
    assert rows.column("accuracy") == [0.1, 1 / 3]


def test_a_state_restores_them_and_more_can_follow(rows):
    other = MetricsRows(METRICS_SCHEMA)
    other.append({"interval": 99})
    other.load(rows.state())
    other.append({"interval": 4})
    assert [str(row) for row in other] == [str(row) for row in rows] + ["{'interval': 4}"]


def test_the_table_tells_nan_from_null(rows, tmp_path):
    rows.write(tmp_path / "metrics.parquet")
    table = pd.read_parquet(tmp_path / "metrics.parquet", dtype_backend="pyarrow")
    assert list(table.columns) == METRICS_SCHEMA.names
    assert table["loss"].to_list()[0] != table["loss"].to_list()[0]  # NaN
    assert table["loss"].to_list()[1] == math.inf
    assert table["loss"].isna().tolist()[2]
    assert table["slot"].to_list()[1] == 2**53 + 1
    assert table["epsilon_edge"].isna().all()


def test_a_table_names_the_accountant_of_its_epsilons_and_its_columns_have_plain_names(tmp_path):
    rows = MetricsRows(metrics_schema(accountant="pld"))
    rows.append({"interval": 1, "epsilon_claimed": 1.0, "epsilon_edge": 2.5})
    rows.write(tmp_path / "metrics.parquet")
    assert accountant_of_metrics(read_table(tmp_path / "metrics.parquet")) == "pld"
    table = pd.read_parquet(tmp_path / "metrics.parquet")
    assert table.columns.name is None
    assert list(table.melt(id_vars="interval").columns) == ["interval", "variable", "value"]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
def test_columns_are_what_pyarrow_makes_of_the_same_values(count):
    stream = np.random.default_rng(count)
    values, known = stream.normal(size=count), stream.random(count) < 0.7
    column = column_of(values, known)
    column.validate(full=True)
    assert column.equals(pa.array(values, mask=~known))
    part = pa.array(values, mask=~known)[count // 3 :]  # begins within a byte
    assert known_in(part).tolist() == known[count // 3 :].tolist()
    assert numbers_in(part).tolist() == np.where(known, values, 0.0)[count // 3 :].tolist()
    words = ["", "naïve", "a" * count] * count
    assert words_of(words).equals(pa.array(words, pa.string()))
    words_of(words).validate(full=True)
