"""What labels are: real values in a public range, several labels, sequences; how each form of data says so."""

import numpy as np
import pandas as pd
import pytest
import torch

from h2fdp.data.federate import DATA_SETS, from_function, load
from h2fdp.data.federated import label_counts
from h2fdp.data.from_python import from_python
from h2fdp.data.targets import Target
from h2fdp.errors import UserError
from h2fdp.streams import Streams
from h2fdp.training.device_records import device_records

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
PRICES = np.round(RNG.uniform(-50, 600, 40), 2)
LABELS = RNG.integers(0, 2, (40, 2))
WORDS = RNG.integers(0, 7, (40, 5))
REAL = {"task": "regression", "ranges": {"y": [0, 500]}}


def read(section, devices=4):
    return load(DATA_SETS.read(section), devices, Streams(1))


def table(folder, text="", separator=",", **columns):
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})
    file = folder / "table.csv"
    file.write_text(text or frame.to_csv(index=False, sep=separator))
    return {"name": "table", "path": str(file)}


def test_real_values_of_a_table_are_seen_on_a_public_scale_and_cut_where_devices_train(tmp_path):
    data = read(table(tmp_path, price=PRICES) | {"label": "price", "task": "regression", "ranges": {"price": [0, 500]}})
    assert (data.classes, data.target.outputs(data.classes), data.target) == (
        1,
        (1,),
        Target("regression", None, 250.0, 250.0),
    )
    assert data.columns.unbounded == ("a", "b"), "the label's range is none of the inputs'"
    raw = np.sort(np.concatenate([data.train.y, data.test.y]))
    np.testing.assert_array_equal(raw, np.sort(PRICES))
    seen = device_records(data, data.train).y
    np.testing.assert_allclose(seen, np.clip((data.train.y - 250) / 250, -1, 1), rtol=1e-6)
    uncut = device_records(data, data.test, cut=False).y
    np.testing.assert_allclose(uncut, (data.test.y - 250) / 250, rtol=1e-6)
    assert label_counts(data).tolist() == data.sizes[:, None].tolist()


def test_the_range_is_that_of_the_column_in_any_form(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=X[:30], y_train=PRICES[:30], x_test=X[30:], y_test=PRICES[30:])
    archive = read({"name": "npz", "path": str(tmp_path / "a.npz"), **REAL})
    arrays = from_python((X, PRICES), 0.2, **REAL).pool
    frame = from_python(pd.DataFrame({"a": X[:, 0], "y": PRICES}), 0.2, **REAL).pool
    items = from_python([(x, y) for x, y in zip(X, PRICES, strict=True)], 0.2, **REAL).pool
    whole = from_python((X, np.arange(40)), 0.2, task="regression", ranges={"y": [0, 500]}).pool
    for pool in (archive, arrays, frame, items, whole):
        assert pool.target == Target("regression", None, 250.0, 250.0)
        assert pool.train.y.dtype == np.float64


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ranges": {"price": [5, 5]}}, r"data.ranges.price: .*; found \[5.0, 5.0\]"),
        ({"task": None}, "for real values state data.task: regression; found float64 with fractions"),
        ({"label": "kind"}, "regression needs numbers as labels, found .*, as 'x'"),
        ({"label": ["price", "kind"]}, "expected one column of labels for regression"),
        ({"classes": 3}, "data.classes: data: means nothing for regression, leave it out; found 3"),
        (
            {"partition": {"dirichlet": 0.5}},
            "data.partition: spreads records by their classes, and regression has none",
        ),
    ],
)
def test_what_does_not_fit_real_values_is_told(tmp_path, changes, told):
    section = table(tmp_path, price=PRICES, kind=["x"] * 40)
    stated = {"label": "price", "task": "regression", "ranges": {"price": [0, 500]}, **changes}
    with pytest.raises(UserError, match=told):
        read(section | {key: value for key, value in stated.items() if value is not None})


def test_real_values_with_decimal_commas(tmp_path):
    text = "a;price\n" + "\n".join(f"{row};{row + 1},5" for row in range(10))
    section = table(tmp_path, text) | {"label": "price", "task": "regression", "ranges": {"price": [0, 20]}}
    data = read(section, devices=2)
    assert set(np.concatenate([data.train.y, data.test.y])) == {row + 1.5 for row in range(10)}


def test_several_columns_are_several_labels(tmp_path):
    stated = {"label": ["left", "right"]}
    data = read(table(tmp_path, left=LABELS[:, 0], right=LABELS[:, 1]) | stated)
    assert (data.target, data.classes, data.target.outputs(data.classes)) == (Target("multilabel", 2), 2, (2,))
    assert (data.class_names, data.shape) == (("left", "right"), (2,))
    assert label_counts(data).sum(axis=0).tolist() == data.train.y[data.order].sum(axis=0).tolist()
    arrays = from_python((X, LABELS > 0), 0.2, task="multilabel")
    assert (arrays.pool.target, arrays.pool.classes) == (Target("multilabel", 2), 2)
    assert arrays.options == {"task": "multilabel"}
    with pytest.raises(UserError, match="several labels must be 0 or 1 each, found others"):
        from_python((X, LABELS * 2), 0.2, task="multilabel")


def test_rows_of_whole_numbers_are_sequences(tmp_path):
    padded = np.where(np.arange(5) < RNG.integers(1, 6, 40)[:, None], WORDS, -1)
    np.savez(tmp_path / "a.npz", x_train=X[:30], y_train=padded[:30], x_test=X[30:], y_test=WORDS[30:])
    data = read({"name": "npz", "path": str(tmp_path / "a.npz"), "classes": 7})
    assert (data.target, data.target.outputs(data.classes)) == (Target("tokens", 5), (5, 7))
    assert data.train.y.tolist() == np.where(padded[:30] < 0, -100, padded[:30]).tolist()
    assert label_counts(data).sum() == (padded[:30] >= 0).sum()
    for labels, told in (
        (np.full((40, 5), -1), "a sequence has no label of at least 0"),
        (np.where(WORDS == 0, -2, WORDS), "labels must be at least 0, or -1 or -100 where a position is not"),
        (WORDS + 0.5, "labels are numbers of classes"),
    ):
        with pytest.raises(UserError, match=told):
            from_python((X, labels), 0.2, task="tokens")


def test_a_function_by_device_gives_classes():
    with pytest.raises(UserError, match="real values come in arrays or files, with task: regression"):
        from_function(lambda name: (X[:4], PRICES[:4]), ["a", "b"], (X, PRICES))


def test_measures_are_those_of_all_records_by_means():
    """Against NumPy, on sets of unequal records."""
    target, scores = Target("regression", None, 3.0, 2.0), RNG.normal(size=(40, 1))
    values = target.seen(PRICES / 100, cut=False)
    means = [float(each.mean()) for each in target.points(torch.from_numpy(scores), torch.from_numpy(values))]
    errors = scores[:, 0] * 2 + 3 - PRICES / 100
    expected = {"rmse": np.sqrt((errors**2).mean()), "r2": 1 - (errors**2).mean() / (PRICES / 100).var()}
    assert target.measures(means) == pytest.approx(expected, rel=1e-5)
    assert target.measures([0.25, 0.5, 0.25]) == {"rmse": 1.0}, "equal values have no spread to explain"
    tokens, logits = Target("tokens", 2), torch.log(torch.tensor([[[0.5, 0.5], [0.9, 0.1]], [[0.2, 0.8], [0.3, 0.7]]]))
    labels = torch.tensor([[0, 1], [1, -100]])
    losses = [-(np.log(0.5) + np.log(0.1)) / 2, -np.log(0.8)]
    found = tokens.measures([float(each.double().mean()) for each in tokens.points(logits, labels)])
    assert found == pytest.approx({"perplexity": np.exp(np.mean(losses)), "accuracy": (0.5 + 1) / 2}, rel=1e-6)
    several = Target("multilabel", 2).points(torch.tensor([[1.0, -1.0], [2.0, 2.0]]), torch.tensor([[1, 1], [1, 1]]))
    assert several[0].tolist() == [0.5, 1.0]
