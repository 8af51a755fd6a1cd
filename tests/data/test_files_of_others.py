"""LEAF's JSON, Hugging Face folders and tables, on small files written in these formats."""

import json
import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

from h2fdp.data.federate import DATA_SETS, load
from h2fdp.errors import UserError
from h2fdp.streams import Streams


def loaded(section, devices=2):
    return load(DATA_SETS.read(section), devices, Streams(1))


def leaf(folder, users, part="train", name="all_data_0.json"):
    """A file as LEAF's `split_data.py` writes it."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    values = {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}
    (folder / part / name).write_text(json.dumps(values))


INK = [[0.0] + [1.0] * 783, [1.0] * 783 + [0.5]]
TWEETS = [["1", "Mon", "NO_QUERY", "ann", "So GOOD, today!", "training"], ["2", "Tue", "NO_QUERY", "ann", "bad", "x"]]


def test_femnist_of_leaf_is_one_device_for_each_user_and_the_paper_is_zero(tmp_path):
    leaf(tmp_path, {"f0001": (INK, [61, 3]), "f0002": (INK[:1], [5])})
    leaf(tmp_path, {"f0003": (INK[1:], [0])}, name="all_data_1.json")
    leaf(tmp_path, {"f0002": (INK[:1], [5])}, "test")
    found = loaded({"name": "leaf", "path": str(tmp_path)}, devices=3)
    assert (found.shape, found.classes) == ((1, 28, 28), 62)
    assert found.sizes.tolist() == [2, 1, 1]
    seen = found.device(0).x[0].ravel() * found.scaling.scale + found.scaling.shift
    assert (seen[0], seen[1]) == (-1.0, 0.0)
    assert found.test_owners.tolist() == [1]
    mixed = loaded({"name": "leaf", "path": str(tmp_path), "partition": "iid"}, devices=4)
    assert mixed.sizes.tolist() == [1, 1, 1, 1]
    assert mixed.test_owners is None
    assert mixed.holders == ()


def test_tweets_are_the_words_of_a_public_list_or_hashes(tmp_path):
    leaf(tmp_path, {"ann": (TWEETS, ["4", "0"]), "bob": (["good"], [1])})
    leaf(tmp_path, {"zoe": (["so"], [0])}, "test")  # a user who trains nothing
    (tmp_path / "embs.json").write_text(json.dumps({"vocab": ["good", "bad", "so"], "emba": []}))
    (tmp_path / "glove.txt").write_text("good 0.1 0.2\nbad 0.3 0.1\nso 0.1 0.1\n")
    section = {"name": "leaf", "path": str(tmp_path)}
    for words in ("embs.json", "glove.txt"):
        found = loaded(section | {"embeddings": str(tmp_path / words)})
        assert found.device(0).x[:, :4].tolist() == [[3, 1, 0, 0], [2, 0, 0, 0]]
        assert found.shape == (25,)
        assert found.device(0).y.tolist() == [1, 0]
        assert found.test_owners is None
    hashed = loaded(section | {"vocabulary": 1000})
    assert hashed.device(1).x[0, 0] == hashed.device(0).x[0, 1]  # "good" is the same word everywhere
    assert 1 <= hashed.device(0).x[0, :4].min() <= hashed.device(0).x.max() <= 1000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "expected LEAF's form"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": []}}}', "user a has 1 x and 0 y"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1]], "y": [0]}}}', "expected 784 numbers in each x"),
    ],
)
def test_files_of_another_form_are_told(tmp_path, text, told):
    leaf(tmp_path, {"a": (INK, [0, 1])}, "test")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.json").write_text(text)
    with pytest.raises(UserError, match=r"data\.path") as caught:
        loaded({"name": "leaf", "path": str(tmp_path)})
    assert told in str(caught.value)


def hugging_face(folder, columns, features=None):
    """A split as `Dataset.save_to_disk` writes it."""
    folder.mkdir(parents=True)
    table = pa.table(columns)
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))


NAMES = {"label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}


def test_a_hugging_face_folder_with_splits(tmp_path):
    columns = {"features": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], "label": [0, 1, 1], "writer": ["q", "p", "q"]}
    hugging_face(tmp_path / "train", columns, NAMES)
    hugging_face(tmp_path / "test", {"features": [[9.0, 9.0]], "label": [0], "writer": ["p"]}, NAMES)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    found = loaded({"name": "huggingface", "path": str(tmp_path), "by": "writer"})
    assert found.classes == 3  # as the schema says
    assert found.device(1).x.tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert found.test.x.tolist() == [[9.0, 9.0]]
    assert loaded({"name": "huggingface", "path": str(tmp_path)}).sizes.tolist() == [2, 1]


def test_a_table_in_a_file_with_stated_bounds_and_categories(tmp_path):
    rows = [(20, "f", "low", "ohio"), (70, "m", "high", "iowa"), (45, "f", "low", "iowa"), (30, "m", "high", "ohio")]
    frame = pd.DataFrame(rows * 3, columns=["age", "sex", "income", "state"])
    frame.to_csv(tmp_path / "people.csv", index=False)
    section = {"name": "table", "path": str(tmp_path / "people.csv"), "label": "income", "classes": ["low", "high"],
               "ranges": {"age": [20, 70]}, "categories": {"sex": ["f", "m"]}, "by": "state"}  # fmt: skip
    found = loaded(section)
    assert (found.shape, found.classes, len(found.test), int(found.sizes.sum())) == ((3,), 2, 2, 10)
    assert {tuple(row) for row in found.device(0).x.tolist()} <= {(1.0, 0.0, 1.0), (0.5, 1.0, 0.0)}  # iowa
    with pytest.raises(UserError, match="there is no column incme; did you mean `income`"):
        loaded(section | {"label": "incme"})
    with pytest.raises(UserError, match=r"data.path: there is no file .*none.csv"):
        loaded(section | {"path": str(tmp_path / "none.csv")})
    with pytest.raises(UserError, match=r"column sex has 'm' in row 2 .*, which is none of its categories 'f', 'x'"):
        loaded(section | {"categories": {"sex": ["f", "x"]}})
    with pytest.raises(UserError, match="there is no column sx; did you mean `sex`"):
        loaded(section | {"categories": {"sx": ["f", "m"]}})
    with pytest.raises(UserError, match=r"column age has '70' in row 2 .* none of its categories '20', '30'"):
        loaded(section | {"ranges": {}, "categories": {"sex": ["f", "m"], "age": ["20", "30"]}})
    frame.assign(sex=["f", None, *frame["sex"][2:]]).to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(UserError, match="column sex has no value in row 2"):
        loaded(section)
    assert np.isin(found.device(1).y, [0, 1]).all()


def tables(folder, suffix=".csv", **parts):
    """A folder of tables with inputs x and y and labels."""
    folder.mkdir(exist_ok=True)
    for name, rows in parts.items():
        frame = pd.DataFrame(rows, columns=["x", "y", "label"])
        frame.to_parquet(folder / f"{name}{suffix}") if suffix != ".csv" else frame.to_csv(
            folder / f"{name}{suffix}", index=False
        )
    return {"name": "table", "path": str(folder), "label": "label", "classes": [0, 1]}


ROWS = [(1, 2, 0), (2, 1, 1)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_folder_of_tables_is_read_part_by_part(tmp_path, suffix):
    section = tables(tmp_path / "t", suffix, train=ROWS, test=[(1, 1, 0)])
    found = loaded(section)
    assert sorted(map(tuple, found.train.x.tolist())) == [(1, 2), (2, 1)]
    assert (found.test.x.tolist(), found.validation) == ([[1, 1]], None)
    tables(tmp_path / "t", suffix, validation=[(4, 2, 1), (5, 5, 0)])
    assert loaded(section).validation.x.tolist() == [[4, 2], [5, 5]]
    (tmp_path / "t" / f"test{suffix}").unlink()
    assert loaded(section).test.x.tolist() == [[4, 2], [5, 5]]  # they test where nothing else does
    (tmp_path / "t" / f"validation{suffix}").unlink()
    tables(tmp_path / "t", suffix, train=ROWS * 5)
    assert (len(loaded(section).test), loaded(section).test_owners) == (2, None)  # a fifth
    owned = loaded(section | {"test": 0.4})
    assert (owned.sizes.tolist(), sorted(owned.test_owners)) == ([3, 3], [0, 0, 1, 1])  # a share of each device's


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"data.csv": "x,label\n1,0\n"}, "expected a table, or a folder with train.csv"),
        ({"train.csv": "x,label\n1,0\n", "train.parquet": ""}, "expected train.csv or train.parquet, found both"),
        ({"train.csv": "x,label\n1,0\n", "test.csv": "x\n1\n"}, ": there is no column label"),
        (
            {"train.csv": "x,label\n1,0,\n2,1,\n"},
            "train.csv: data.path: lines have more cells than the first line has names, perhaps by a separator",
        ),
        (
            {"train.csv": "x,label\n1,0\n2,1,9,9\n"},
            "train.csv: data.path: cannot be read as a table: Expected 2 fields in line 3",
        ),
        ({"train.csv": "x,label\n"}, "expected a line of column names and a line for each record, found none"),
        (
            {"train.csv": "x,label\n1,0\none,1\n"},
            "the column x has 'one' in row 2 (the first is 1), which is no number",
        ),
        ({"train.csv": "x,label\n1,0\n2,7\n"}, "the label 7 in row 2 (the first is 1) is none of the classes 0, 1"),
    ],
)
def test_what_is_wrong_with_a_table_is_told_by_column_and_row(tmp_path, files, told):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        loaded({"name": "table", "path": str(tmp_path), "label": "label", "classes": [0, 1]})
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


EXCEL = """\ufeffid;clinic;age;dose;smoker;cellar;label
a1;south;20,0;1,5;never;NA;0
a2;north;70,0;;;good;1
a3;south;45,0;2,5;former;NA;1
a4;north;30,0;?;never;good;0
a5;north;30,0;0,5;never;good;1
"""
STATED = {
    "exclude": ["id"],
    "by": "clinic",
    "missing": ["?", "NA"],
    "ranges": {"age": [20, 70], "dose": [0.5, 2.5, 1.5]},
    "categories": {"smoker": ["never", "former", None], "cellar": ["NA", "good"]},
}


def excel(tmp_path, text=EXCEL, **stated):
    (tmp_path / "excel.csv").write_text(text, encoding="utf-8")
    return {"name": "table", "path": str(tmp_path / "excel.csv"), "classes": 2, **stated}


def test_semicolons_decimal_commas_gaps_and_excluded_columns(tmp_path, capsys):
    found = loaded(excel(tmp_path, **STATED))
    told = " ".join(capsys.readouterr().err.split())
    assert "excel.csv: columns are separated by semicolons and have decimal commas" in told
    rows = np.concatenate([found.train.x, found.test.x])
    expected = [  # age, dose, its gap, never, former, no word, NA, good
        [0.0, 0.5, 0, 1, 0, 0, 1, 0],
        [1.0, 0.5, 1, 0, 0, 1, 0, 1],
        [0.5, 1.0, 0, 0, 1, 0, 1, 0],
        [0.2, 0.5, 1, 1, 0, 0, 0, 1],
        [0.2, 0.0, 0, 1, 0, 0, 0, 1],
    ]
    assert sorted(rows.round(6).tolist()) == sorted(expected)
    assert found.columns.unbounded == ()
    assert found.holders == ("north", "south")
    stated = loaded(excel(tmp_path, **STATED, separator=";", decimal=","))
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(stated.train.x, found.train.x)


@pytest.mark.parametrize("mark", [",", "\t", "|"])
def test_other_separators_give_the_same_records(tmp_path, mark):
    same = loaded(excel(tmp_path, **STATED)).train.x
    text = EXCEL.replace(",", ".").replace(";", mark)
    np.testing.assert_array_equal(loaded(excel(tmp_path, text, **STATED)).train.x, same)


@pytest.mark.parametrize(
    ("written", "stated", "right"), [(";", ",", '";"'), (",", ";", '","'), ("\t", ",", '"\\t"'), ("|", "\t", '"|"')]
)
def test_a_stated_separator_that_separates_nothing_is_refused_with_the_one_that_fits(tmp_path, written, stated, right):
    text = EXCEL.replace(",", ".").replace(";", written)
    with pytest.raises(UserError) as caught:
        loaded(excel(tmp_path, text, **STATED, separator=stated))
    (problem,) = caught.value.problems
    said = f"the first line of excel.csv has 1 column by it, and 7 by {written!r}; expected data.separator: {right}"
    assert (problem.key, problem.text) == ("data.separator", said)
    assert yaml.safe_load(right) == written


def test_a_stated_separator_by_which_there_are_fewer_columns_is_noted(tmp_path, capsys):
    text = "a;b,c;y\n1;2;0\n2;3;1\n"
    with pytest.raises(UserError, match="there is no column y"):
        loaded(excel(tmp_path, text, label="y", separator=","))
    said = "note: data.separator ',': the first line of excel.csv has 2 columns by it, and 3 by ';'"
    assert said in " ".join(capsys.readouterr().err.split())


def test_all_problems_of_a_table_are_told_at_once(tmp_path):
    with pytest.raises(UserError) as caught:
        loaded(excel(tmp_path, by="clinic", ranges={"age": [70, 20]}, categories={"smoker": ["never"]}))
    told = [str(each) for each in caught.value.problems]
    for text, words in zip(told, ["column age: expected", "column dose has '?'", "column smoker has"], strict=True):
        assert words in text
    assert "data.missing has words for gaps" in told[1]
    assert f"h2fdp data {shlex.quote(str(tmp_path / 'excel.csv'))} prints a data section to fill in" in told[-1]


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"inputs": ["age"]}, "data.exclude: .*expected inputs, or what to exclude, found both"),
        ({"inputs": ["age"], "exclude": []}, "data.ranges.dose: .*dose is no input; inputs are age"),
        (
            {"ranges": {"age": [20, 70], "dose": [0.5, 2.5, 7]}},
            r"data.ranges.dose: .*between them, found \[0.5, 2.5, 7",
        ),
        ({"exclude": ["nowhere"]}, "data.exclude: .*there is no column nowhere"),
        ({"ranges": {"ages": [20, 70]}}, "data.ranges.ages: .*there is no column ages; did you mean `age`"),
        ({"categories": {"smokes": ["a"]}}, "data.categories.smokes: .*there is no column smokes"),
        ({"label": "sick"}, "data.label: .*there is no column sick"),
        ({"ranges": {"age": [70, 20], "dose": [0, 3, 0]}}, "data.ranges.age: .*expected .lowest, highest"),
        (
            {"categories": {**STATED["categories"], "smoker": ["never", "former"]}},
            "a null among them counts gaps as one",
        ),
    ],
)
def test_columns_that_are_stated_wrongly_are_refused(tmp_path, stated, told):
    with pytest.raises(UserError, match=told):
        loaded(excel(tmp_path, **{**STATED, **stated}))


def test_a_wrong_column_of_owners_is_one_problem(tmp_path):
    """The column that is meant may be taken for an input of ill-formed numbers, which is no second mistake."""
    text = EXCEL.replace("south", "1.5.2").replace("north", "7.5.1")
    with pytest.raises(UserError) as caught:
        loaded(excel(tmp_path, text, **{**STATED, "by": "hospital"}))
    assert [each.key for each in caught.value.problems] == ["data.by"]


@pytest.mark.parametrize(
    ("text", "stated", "told"),
    [
        (
            "a;b;y\n0,64;0.27;1\n0,5;0.5;0\n",
            {},
            "column b has '0.27' in row 1 (the first is 1), as 1 more row, which is no number; decimal commas were "
            "guessed from column a; state data.decimal",
        ),
        ("a;b;y\n1.100;0,5;1\n1.200;1,5;0\n", {}, "column a has '1.100' in row 1 "),
        ("a;b;y\n1,5;1;1\n3;2;0\n2.5;3;0\n", {}, "column a has '2.5' in row 3 "),
        ("a;b;y\n0,64;1;1\n0,5;2;0\n", {"decimal": "."}, "decimal points were stated; state data.decimal"),
        ("a,b,y\n0.64,1,1\n0.5,2,0\n", {"decimal": ","}, "decimal commas were stated; state data.decimal"),
        (
            "a,b,y\n0.6,1,1\n",
            {"decimal": ",", "separator": ","},
            "data.decimal: separates columns too; expected a point",
        ),
    ],
)
def test_decimal_marks_of_two_kinds_are_told_by_value_and_remedy(tmp_path, text, stated, told):
    with pytest.raises(UserError) as caught:
        loaded(excel(tmp_path, text, label="y", **stated))
    assert told in str(caught.value)
    assert all(each.key == "data.decimal" for each in caught.value.problems)


@pytest.mark.parametrize("text", ["a;b;label\n-99,5;1;0\n1,5;-999;1\n", "a,b,label\n-99.5,1,0\n1.5,-999.0,1\n"])
def test_gaps_may_be_numbers(tmp_path, text):
    stated = {"missing": [-99.5, -999], "ranges": {"a": [1, 2, 1.5], "b": [0, 2, 1]}}
    head, *rows = text.splitlines(keepends=True)
    found = loaded(excel(tmp_path, head + "".join(rows * 5), **stated), devices=1)
    assert {tuple(row) for row in found.train.x.tolist()} == {(0.5, 1, 0.5, 0), (0.5, 0, 0.5, 1)}


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"decimal": "comma"}, 'data.decimal: expected a point or a comma, as "." or ",", found "comma"'),
        ({"missing": [None]}, "data.missing[0]: expected a word or a number, found "),
    ],
)
def test_wrong_marks_and_gaps_are_told_with_what_would_be_right(tmp_path, stated, told):
    from h2fdp.experiment.file import read_experiment

    (tmp_path / "e.yaml").write_text(json.dumps({"topology": {"edges": []}, "data": excel(tmp_path, **stated)}))
    with pytest.raises(UserError) as caught:
        read_experiment(tmp_path / "e.yaml")
    assert told in str(caught.value)


def test_a_table_in_another_encoding_is_refused_with_what_would_be_right(tmp_path):
    section = excel(tmp_path)
    for encoding, byte in (("latin-1", "f6"), ("utf-16", "ff")):
        (tmp_path / "excel.csv").write_bytes("größe,label\n1,0\n".replace("ß", "ss").encode(encoding))
        with pytest.raises(UserError, match=f"excel.csv: .*: expected text in UTF-8, found the byte 0x{byte}; save"):
            loaded(section)


def test_what_means_nothing_for_a_table_is_refused(tmp_path):
    pd.DataFrame({"x": [1, 2], "label": [0, 1]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(UserError, match=r"data.decimal: means nothing for t.parquet, which is no CSV file"):
        loaded({"name": "table", "path": str(tmp_path / "t.parquet"), "decimal": ","})
    with pytest.raises(UserError, match="x is the name of two columns"):
        loaded(excel(tmp_path, "x,x,label\n1,2,0\n3,4,1\n"))


def test_the_section_of_a_table_has_its_columns_and_no_numbers_of_records(tmp_path):
    import yaml

    from h2fdp.data.tables import Table, section_of

    excel(tmp_path)
    file = tmp_path / "excel.csv"
    text = section_of(file, Table.model_validate({"name": "table", "path": str(file)}))
    section = yaml.safe_load(text)["data"]
    assert section["exclude"] == ["id"]
    assert section["categories"] == {"clinic": [], "smoker": [], "cellar": []}
    assert (section["label"], section["ranges"]) == ("label", {"age": [], "dose": []})
    for number in ("20", "70", "45"):
        assert number not in text.replace(str(tmp_path), "")
    assert "dose: []  # numbers but for '?' (a gap? then in missing), gaps in 1 of 5 rows" in text


def test_the_section_of_a_table_lists_neither_its_label_nor_its_owners_nor_what_is_excluded(tmp_path):
    import yaml
    from typer.testing import CliRunner

    from h2fdp.cli.main import app

    excel(tmp_path, EXCEL.replace("label", "outcome"))

    def printed(*stated):
        settings = [word for each in stated for word in ("--set", f"data.{each}")]
        return CliRunner().invoke(app, ["data", str(tmp_path / "excel.csv"), *settings])

    assert "--set data.label=COLUMN" in printed().stdout
    told = printed("label=outcome", "by=clinic", "exclude=[cellar]", "separator=';'").stdout
    section = yaml.safe_load(told)["data"]
    assert (section["label"], section["by"], section["separator"]) == ("outcome", "clinic", ";")
    assert section["exclude"] == ["id", "cellar"]
    assert section["categories"] == {"smoker": []}
    assert section["ranges"] == {"age": [], "dose": []}
    with pytest.raises(UserError, match="there is no column clinc; did you mean `clinic`"):
        raise printed("by=clinc").exception


def test_owners_of_several_types_are_refused_in_a_sentence():
    from h2fdp.data.from_python import from_python

    frame = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "label": [0, 1, 0, 1], "who": ["a", 1, "a", 1]})
    with pytest.raises(UserError, match=r"data.by: .*owners are of the types int and str; expected one"):
        from_python(frame, 0.5, by="who", label=None, inputs=None, classes=None, place="here")


def test_folders_of_parts_in_any_spelling(tmp_path):
    told = tables(tmp_path / "parts", Training=ROWS * 4, TEST=ROWS)
    assert len(loaded(told).test) == 2
    tables(tmp_path / "parts", train=ROWS)
    with pytest.raises(UserError, match=r"expected Training.csv or train.csv, found both"):
        loaded(told)


def test_configurations_of_the_hub_are_not_put_together(tmp_path):
    frame = pd.DataFrame({"inputs": [[float(i), 1.0] for i in range(8)], "label": [0, 1] * 4})
    for name in ("en", "de"):
        (tmp_path / name).mkdir()
        frame.to_parquet(tmp_path / name / "train-00000-of-00001.parquet")
    with pytest.raises(
        UserError, match=f"configurations de, en have train records.*expected the path of one, as {tmp_path}/de"
    ):
        loaded({"name": "huggingface", "path": str(tmp_path), "inputs": "inputs"})
    assert len(loaded({"name": "huggingface", "path": str(tmp_path / "en"), "inputs": "inputs"}).test) == 1


TYPED = """visit,age,dose,site,smoker,paid,zip,label
{}
v2,41.5,2,north,never,True,8001,1
v3,38.25,7,south,former,False,3005,0
v4,70.0,0,,never,True,8001,1
v5,55.5,1,north,,False,8400,0
v6,,3,east,never,True,,1
"""
FIRST = ["v1", "23.5", "4", "north", "former", "True", "8400", "0"]


@pytest.mark.parametrize(
    ("column", "cell"),
    [("age", "99.75"), ("age", ""), ("dose", "-3"), ("dose", "1.5"), ("dose", ""), ("site", ""), ("site", "14"),
     ("site", "a place never seen"), ("smoker", "True"), ("paid", "perhaps"), ("paid", ""), ("zip", "none of these")],
)  # fmt: skip
def test_what_a_record_becomes_depends_on_no_other_record(tmp_path, capsys, column, cell):
    """Neighbouring tables have the same columns, notes and, but for one row, the same numbers, to the bit."""
    head = TYPED.partition("\n")[0].split(",")
    other = [cell if name == column else each for name, each in zip(head, FIRST, strict=True)]
    found, told = [], []
    for row in (FIRST, other):
        section = excel(tmp_path, TYPED.format(",".join(row)), exclude=["visit"], categories={"zip": []})
        pool = DATA_SETS.read(section).load(None)
        found.append(pool)
        told.append(capsys.readouterr().err)
    one, two = found
    assert told[0] == told[1]
    assert "site, smoker, paid: words are hashed to 256 numbers a column" in told[0]
    assert one.columns.unbounded == two.columns.unbounded == ("age", "dose")
    assert one.columns == two.columns
    assert one.columns.names == ("age", "dose", *np.repeat(["site", "smoker", "paid", "zip"], 256))
    assert one.train.x.shape == two.train.x.shape == (5, 2 + 4 * 256)
    assert one.train.x.dtype == two.train.x.dtype
    assert one.test.x.tobytes() == two.test.x.tobytes()
    assert one.train.x[1:].tobytes() == two.train.x[1:].tobytes()
    assert one.train.x[0].tobytes() != two.train.x[0].tobytes()


def test_hashed_words_are_the_same_in_every_file_process_and_spelling(tmp_path):
    """Two signed hashes by hand, each of 128 places, by the column's name; a gap has none."""
    from hashlib import blake2b

    text = "place,label\nnorth,0\n North,1\nwest,0\n,1\nWEST ,0\n"
    found = DATA_SETS.read(excel(tmp_path, text)).load(None)
    x = np.concatenate([found.train.x, found.test.x])  # the test record is the last
    digests = [blake2b(f"place\0{each}".encode(), digest_size=8).digest() for each in ("north", "west")]
    places = [divmod(int.from_bytes(each) % 256**2, 256) for each in digests]
    north, west = ([first % 128, 128 + second % 128] for first, second in places)
    assert north != west
    assert [row.nonzero()[0].tolist() for row in x] == [north, north, west, west, []]
    signs = [[1 if place < 128 else -1 for place in each] for each in places]
    assert [(np.sign(x[row, each])).tolist() for row, each in ((0, north), (2, west))] == signs
    np.testing.assert_allclose(np.linalg.norm(x[:4], axis=1), 1, rtol=1e-6)
    assert found.columns.unbounded == ()
    tables = {"train.csv": text, "test.csv": "place,label\n7,0\n,1\n"}  # numbers alone, here
    (tmp_path / "t").mkdir()
    for name, each in tables.items():
        (tmp_path / "t" / name).write_text(each)
    parts = DATA_SETS.read({"name": "table", "path": str(tmp_path / "t")}).load(None)
    assert np.linalg.norm(parts.test.x, axis=1).round(6).tolist() == [1, 0]


def test_a_few_words_among_numbers_are_a_mistake_and_a_few_numbers_among_words_are_not(tmp_path):
    head = "a,label\n"
    for words, right in ((2, False), (3, True)):
        rows = "".join(f"{'x' if place < words else place},{place % 2}\n" for place in range(5))
        section = excel(tmp_path, head + rows)
        if right:
            assert DATA_SETS.read(section).load(None).train.x.shape == (4, 256)
            continue
        with pytest.raises(UserError, match=r"column a has 'x' in row 1 .*categories: {a: \[\]} hashes all"):
            DATA_SETS.read(section).load(None)


def test_the_section_of_a_table_asks_for_columns_of_text(tmp_path):
    from h2fdp.data.tables import Table, section_of

    text = "id,note,label\n" + "".join(f"p{place},a text of row {place},{place % 2}\n" for place in range(9))
    section = excel(tmp_path, text)
    printed = yaml.safe_load(section_of(tmp_path / "excel.csv", Table.model_validate(section)))["data"]
    assert (printed["exclude"], printed["text"]) == (["id"], ["note"])
    stated = Table.model_validate(section | {"text": ["id"], "exclude": ["note"]})
    printed = yaml.safe_load(section_of(tmp_path / "excel.csv", stated))["data"]
    assert (printed["exclude"], printed["text"]) == (["note"], ["id"])
