"""Tables as programs and people write them: each is read right, or refused in one line with what would be right."""

import numpy as np
import pandas as pd
import pytest

from h2fdp import UserError
from h2fdp.data.columns import Columns
from h2fdp.data.federate import DATA_SETS
from h2fdp.data.from_python import from_python


def pool_of(tmp_path, text, **stated):
    (tmp_path / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return DATA_SETS.read({"name": "table", "path": str(tmp_path / "t.csv"), "label": "y", **stated}).load(None)


DAY = 19_753  # 2024-01-31, in days since 1970-01-01
ROWS = "{}\n" * 5


def written(head, cells, tail="", mark=","):
    """A table of a column and a label that goes 0, 1, 0, 1, 0."""
    return f"{head}{tail}\n" + "".join(f"{each}{mark}{place % 2}{tail}\n" for place, each in enumerate(cells))


@pytest.mark.parametrize(
    ("text", "stated", "expected"),
    [
        pytest.param(written("a,y", ["1.5", "2", "-3e2", "+4", "5."]), {}, [1.5, 2, -300, 4, 5], id="numbers"),
        pytest.param(written("a;y", ["1,5", "2", "3,25", "4", "5"], mark=";"), {}, [1.5, 2, 3.25, 4, 5],
                     id="semicolons"),
        pytest.param("\ufeff" + written("a,y", range(5)), {}, range(5), id="byte order mark"),
        pytest.param(written('"a",y', ['"1"', '" 2 "', '"3"', '"4"', "5"]), {}, range(1, 6), id="quotes"),
        pytest.param(written("a,y", range(5)).replace("\n", "\r\n"), {}, range(5), id="lines of Windows"),
        pytest.param(written("a,y", range(5)).replace("\n", "\n\n") + "\n\n", {}, range(5), id="empty lines"),
        pytest.param(written("a,y", range(5), tail=","), {}, range(5), id="a separator at the end of all lines"),
        pytest.param(
            ",a,y\n" + "".join(f"{7 - place},{place},{place % 2}\n" for place in range(5)),
            {},
            range(5),
            id="row numbers of pandas",
        ),
        pytest.param(written("a,y", ["2024-01-31", "2024/02/01 12:00", "1970-01-01T06:00:00Z", "1969/12/31", ""]),
                     {}, [DAY, DAY + 1.5, 0.25, -1, np.nan], id="dates"),
        pytest.param(written("a,y", [2**53 + 1, 2**62, -(2**62), 0, 1]), {}, [2**53 + 1, 2**62, -(2**62), 0, 1],
                     id="beyond 53 bits"),
        pytest.param(written("a,y", [2**64 - 1, -1, 2**70, 0, 1]), {}, [2.0**64, -1, 2.0**70, 0, 1],
                     id="beyond 64 bits"),
        pytest.param(written("a,y", [2**64 - 1, -1, "", 0, 1]), {}, [2.0**64, -1, np.nan, 0, 1], id="and gaps"),
        pytest.param(written("a,y", ['"1,234,567"', '"1,234.5"', "-1 000", "2'500.25", "7"]), {},
                     [1_234_567, 1234.5, -1000, 2500.25, 7], id="thousands set apart"),
        pytest.param(written("a,y", ['"1,234"', "5", '"12,000"', "7", "8"]), {"decimal": "."}, [1234, 5, 12_000, 7, 8],
                     id="thousands, decimal marks stated"),
        pytest.param(written("a;y", ["1.234,5", "5", "12.000.000", "7,5", "8"], mark=";"), {},
                     [1234.5, 5, 12e6, 7.5, 8], id="thousands by points"),
        pytest.param(written("a,y", ["12%", "3.5 %", "-1%", "100%", ""]), {}, [12, 3.5, -1, 100, np.nan], id="percent"),
        pytest.param(written("a,y", ["12.0", "NA", "n/a", "null", "4"]), {}, [12, np.nan, np.nan, np.nan, 4],
                     id="gaps"),
        pytest.param(written("a|y", range(5), mark="|"), {}, range(5), id="bars"),
    ],
)  # fmt: skip
def test_numbers_are_read_as_they_are_meant(tmp_path, text, stated, expected):
    pool = pool_of(tmp_path, text, **stated)
    assert (pool.columns, pool.classes) == (Columns(("a",), ("open",)), 2)
    found = np.concatenate([pool.train.x, pool.test.x])[:, 0]
    order = [0, 1, 2, 4, 3]  # row 4 is the test record
    np.testing.assert_array_equal(found, np.array(list(expected))[order])
    np.testing.assert_array_equal(np.concatenate([pool.train.y, pool.test.y]), np.array([0, 1, 0, 1, 0])[order])


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        pytest.param(written("a,y", ['"1,234"', "5", "6", "7", "8"]), "data.decimal",
                     "column a has '1,234' in row 1 (the first is 1), which is no number; "
                     "decimal points were assumed; state data.decimal, one for all columns", id="1,234"),
        pytest.param(written("a,y", ["31.12.2024", "01.02.2024", "3.3.2024", "5", "6"]), "data",
                     "column a has '31.12.2024' in row 1 (the first is 1), as 2 more rows, which is no number; "
                     "data.missing has words for gaps, dates are as 2024-12-31 or 2024/12/31; "
                     "categories: {a: []} hashes all",
                     id="dates of one country"),
        pytest.param(written("a,y", ["12/31/2024", "1/2/2024", "", "", ""]), "data", "'12/31/2024' in row 1",
                     id="another's"),
        pytest.param(written("a,y", ["2024-13-31", "2024-01-31", "", "", ""]), "data", "'2024-13-31' in row 1",
                     id="no date"),
        pytest.param(written("a,y", range(5), tail=",").replace("a,y,", "a,y"), "data.path",
                     "lines have more cells than the first line has names, perhaps by a separator at their end; "
                     "expected as many", id="a separator at the end of all lines but the first"),
        pytest.param(written("a,a,y", ["1,2"] * 5), "data.path", "a is the name of two columns", id="one name twice"),
        pytest.param(written("größe,y", range(5)).encode("latin-1"), "data.path",
                     "expected text in UTF-8, found the byte 0xf6; save the file as UTF-8", id="latin-1"),
        pytest.param(written("a,y", ["1e999", "2", "3", "4", "5"]), "data", "column a has inf in row 1", id="huge"),
        pytest.param(written("a,y", [10**40, 2, 3, 4, 5]), "data", "column a has 1e+40 in row 1", id="beyond 32 bits"),
        pytest.param(written("a,y", range(4)) + ",,\n", "data.path", "Expected 2 fields in line 6, saw 3", id="ragged"),
        pytest.param(written("a,y", range(4)) + ",\n", "data.label",
                     "the column y has no value in row 5 (the first is 1); leave such rows out of the file",
                     id="no label"),
        pytest.param(written(",".join(f"c{place}" for place in range(1000)) + ",z", [",".join(["1"] * 1000)] * 5),
                     "data.label", "there is no column y; expected one of c0, c1, c2,", id="a thousand columns"),
    ],
)  # fmt: skip
def test_what_is_read_in_no_one_way_is_one_line(tmp_path, text, key, told):
    with pytest.raises(UserError) as caught:
        pool_of(tmp_path, text)
    (problem,) = caught.value.problems
    assert problem.key == key
    assert told in str(problem)
    assert len(str(problem)) < 600
    assert "\n" not in str(problem)


def test_columns_without_a_heading_are_left_out_with_a_note(tmp_path, capsys):
    text = ",a,,y\n" + "".join(f"{7 - place},{place},x,{place % 2}\n" for place in range(5))
    assert pool_of(tmp_path, text).columns.names == ("a",)
    said = "note: column 1 has no heading, as row numbers that pandas writes: it is left out"
    assert " ".join(capsys.readouterr().err.split()) == said
    assert pool_of(tmp_path, text, inputs=["Unnamed: 0", "a"]).columns.names == ("Unnamed: 0", "a")
    assert capsys.readouterr().err == ""


def test_true_and_false_are_words_in_all_spellings(tmp_path):
    one = pool_of(tmp_path, written("a,y", ["True", "False", "True", "False", ""]))
    two = pool_of(tmp_path, written("a,y", ["true", "FALSE", "TRUE", "false", ""]))
    three = pool_of(tmp_path, written("a,y", ["true", "FALSE", "TRUE", "perhaps", ""]))
    assert one.train.x.tobytes() == two.train.x.tobytes() == three.train.x.tobytes()
    assert np.square(one.train.x).sum(axis=1).round(6).tolist() == [1, 1, 1, 0]


def test_a_thousand_columns_are_a_thousand_features(tmp_path):
    heads = ",".join(f"c{place}" for place in range(1000))
    text = f"{heads},y\n" + "".join(",".join(map(str, range(row, row + 1000))) + f",{row % 2}\n" for row in range(5))
    pool = pool_of(tmp_path, text)
    assert pool.train.x.dtype == np.int64
    np.testing.assert_array_equal(pool.train.x[1], np.arange(1, 1001))


def test_values_of_other_libraries_are_numbers_too():
    """Dates, decimals and texts of a frame, as Parquet files have them."""
    from datetime import date
    from decimal import Decimal

    frame = pd.DataFrame(
        {
            "day": [date(2024, 1, 31), None, date(1970, 1, 2), date(1970, 1, 1)],
            "time": pd.to_datetime(["2024-01-31 12:00", None, "1970-01-02 00:00", "1970-01-01 00:00"]),
            "paid": [Decimal("1.25"), Decimal(2), None, Decimal("0.5")],
            "code": ["1", "2.5", "-3", "4"],
            "y": [0, 1, 0, 1],
        }
    )
    pool = from_python(frame, 0.25)
    expected = [[DAY, DAY + 0.5, 1.25, 1], [np.nan, np.nan, 2, 2.5], [1, 1, np.nan, -3], [0, 0, 0.5, 4]]
    found = np.concatenate([pool.pool.train.x, pool.pool.test.x])
    np.testing.assert_array_equal(found[found[:, 3].argsort()], np.array(expected)[[2, 0, 1, 3]])
    assert pool.pool.columns.unbounded == ("day", "time", "paid", "code")


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (["no", "yes"], ("no", "yes"), [0, 1]),
        (["True", "False"], (), [1, 0]),
        (["1", "2"], ("1", "2"), [0, 1]),
        (["1.0", "2.0"], ("1", "2"), [0, 1]),
        (["-1", "1"], ("-1", "1"), [0, 1]),
        (["10", "2"], ("2", "10"), [1, 0]),
        (["0", "2"], (), [0, 2]),
    ],
)
def test_classes_are_those_of_test_records_where_these_are_public(tmp_path, capsys, labels, classes, numbers):
    cells = "".join(f"{place},{labels[place % 2]}\n" for place in range(20))
    pool = pool_of(tmp_path, "a,y\n" + cells)
    assert pool.class_names == classes
    found = np.concatenate([pool.train.y, pool.test.y])[np.concatenate([pool.train.x, pool.test.x])[:, 0].argsort()]
    assert found.tolist() == numbers * 10
    said = f"note: {', '.join(classes)}: these classes are those of the test records, which are public; data.classes"
    assert (said in " ".join(capsys.readouterr().err.split())) == bool(classes)


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"by": "who"}, "labels are texts; state them in order, as [maybe, no, yes]: their list is public"),
        ({"test": 0.4}, "labels are texts; state them in order, as [maybe, no, yes]: their list is public"),
        ({}, "the label 'maybe' in row 1 (the first is 1) is none of the classes no, yes"),
        ({"task": "regression"}, "regression needs numbers as labels, found "),
    ],
)
def test_classes_that_are_not_public_have_to_be_stated(tmp_path, stated, told):
    cells = "".join(f"{place},w{place % 3},{('no', 'yes')[place % 2] if place else 'maybe'}\n" for place in range(20))
    with pytest.raises(UserError) as caught:
        pool_of(tmp_path, "a,who,y\n" + cells, **stated)
    (problem,) = caught.value.problems
    assert told in problem.text
