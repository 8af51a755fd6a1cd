"""Records in the forms that people have them in: all give the same arrays, and any partition spreads them."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from h2fdp import Experiment, Topology, UserError
from h2fdp.data.federate import load
from h2fdp.data.from_python import from_python
from h2fdp.data.source import Given
from h2fdp.streams import Streams

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 4
TEST = (X[:8], Y[:8])
WHO = np.array(["ann", "bob", "eve", "zoe"])[np.arange(40) // 10]
NETWORK = Topology.regular(edges=2, devices=2, trust=1)


class Columns:
    """What h2fdp asks of a Hugging Face `Dataset`."""

    def __init__(self, **columns):
        self.columns, self.column_names, self.features = columns, list(columns), dict.fromkeys(columns)

    def __getitem__(self, name):
        return list(self.columns[name])

    def __len__(self):
        return len(next(iter(self.columns.values())))


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return len(Y)

    def __getitem__(self, place):
        return {"x": torch.from_numpy(X[place]), "y": int(Y[place])}


FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(label=Y)


@pytest.mark.parametrize(
    "source",
    [
        (X, Y),
        [X.tolist(), Y.tolist()],
        (torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)),
        torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        Pairs(),
        Columns(x=X.tolist(), label=Y.tolist()),
        FRAME,
        {"train": Columns(x=X, label=Y), "test": Columns(x=TEST[0], label=TEST[1])},
    ],
    ids=["arrays", "lists", "tensors", "TensorDataset", "items that are mappings", "columns", "frame", "splits"],
)
def test_every_form_gives_the_same_records(source):
    pool = from_python(source, None if isinstance(source, dict) else TEST).pool
    np.testing.assert_array_equal(pool.train.x, X)
    np.testing.assert_array_equal(pool.train.y, Y)
    np.testing.assert_array_equal(pool.test.y, TEST[1])
    assert pool.classes == 4


def test_columns_of_a_frame_are_scaled_by_stated_bounds_and_categories_alone():
    sex = pd.Categorical(["f", "m", "f"], categories=["f", "m", "x"])
    columns = {"age": [10.0, 60.0, 160.0], "sex": sex, "paid": [1, 0, 1], "grade": ["low", "high", "low"]}
    bounds = {"age": (10, 110)}
    pool = from_python(pd.DataFrame(columns), 0.4, label="grade", classes=["low", "high"], ranges=bounds).pool
    rows = {(*row, y) for part in (pool.train, pool.test) for row, y in zip(part.x.tolist(), part.y, strict=True)}
    assert rows == {(0, 1, 0, 0, 1, 0), (0.5, 0, 1, 0, 0, 1), (1, 1, 0, 0, 1, 0)}


@given(st.sampled_from(["iid", {"dirichlet": 0.3}, {"labels_per_device": 2}, {"shards": 8, "per_device": 2}]))
@settings(max_examples=4)
def test_any_partition_spreads_any_of_them(partition):
    experiment = Experiment(topology=NETWORK, data=(X, Y), test_data=TEST, partition=partition)
    counts = experiment.holdings()
    assert list(counts.index) == ["edge-1/1", "edge-1/2", "edge-2/1", "edge-2/2"]
    assert (counts.sum(axis=1) > 0).all()
    assert counts.to_numpy().sum() == 40
    if partition == {"labels_per_device": 2}:
        assert ((counts > 0).sum(axis=1) == 2).all()


def test_by_user_each_device_is_one_user_and_other_partitions_ignore_them():
    data = from_python(FRAME.assign(who=WHO), TEST_FRAME, by="who", inputs=["a", "b", "c"])
    held = load(Given(**data.options).holding(data.pool), 4, Streams(1))
    for device, name in enumerate(("ann", "bob", "eve", "zoe")):
        np.testing.assert_array_equal(held.device(device).x, X[name == WHO])
    assert held.test_owners.tolist() == [1] * 8
    mixed = Experiment(topology=NETWORK, data=data, partition="iid").holdings()
    assert mixed.sum(axis=1).tolist() == [10] * 4
    assert not np.array_equal(mixed.to_numpy(), [np.bincount(Y[name == WHO]) for name in ("ann", "bob", "eve", "zoe")])


TEST_FRAME = pd.DataFrame(TEST[0], columns=["a", "b", "c"]).assign(label=TEST[1], who="bob")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"source": (X, Y)}, "expected test data: test_data=(inputs, labels), or a share"),
        ({"source": 7, "test": 0.2}, "expected (inputs, labels), a torch Dataset"),
        ({"source": (X, Y), "test": 1.5}, "expected a share that leaves records on both sides, found 1.5 of 40"),
        ({"source": (X, Y), "test": TEST, "by": WHO[:3]}, "by: expected a value for each of the 40 records"),
        ({"source": FRAME, "test": FRAME, "label": "lable"}, "there is no column lable; did you mean `label`?"),
        (
            {"source": FRAME.assign(a=["x", *range(39)]), "test": 0.2},
            "a has 'x' in row 1 (the first is 1), which is no number; data.missing has words for gaps, dates "
            "are as 2024-12-31 or 2024/12/31; categories: {a: []} hashes all",
        ),
        (
            {"source": FRAME.assign(label="x"), "test": 0.2},
            "data.classes: the training data: labels are texts; state them in order",
        ),
        (
            {"source": (X, Y), "test": TEST, "classes": [0, 1]},
            "the label 2 in row 3 (the first is 1), as 19 more rows is none of the classes 0, 1",
        ),
    ],
)
def test_mistakes_are_told(arguments, told):
    with pytest.raises(UserError) as caught:
        from_python(**arguments)
    assert told in str(caught.value)


def test_gaps_among_numbers_are_nan_and_no_features_and_are_refused_where_nothing_fills_them():
    gap = FRAME.index == 4
    frame = FRAME.assign(b=FRAME.b.mask(gap), c=range(40), d=[None] * 40, e=pd.array([1, None] * 20, dtype="Int64"))
    data = from_python(frame, TEST_FRAME.assign(d=0, e=1), inputs=list("abcde"), ranges={"a": (-9, 9)})
    x = data.pool.train.x
    assert (x.dtype, x.shape, data.pool.columns.names) == (np.float64, (40, 5), tuple("abcde"))
    np.testing.assert_array_equal(np.isnan(x[:, :3]), np.outer(gap, [False, True, False]))
    assert np.isnan(x[:, 3]).all()
    np.testing.assert_array_equal(x[:, 4], [1, np.nan] * 20)
    with pytest.raises(UserError) as caught:
        Experiment(topology=NETWORK, data=data, method="hfl").prepare()
    (problem,) = caught.value.problems
    said = (
        "no value (or NaN) in some rows of the columns b, d, e; state what a gap counts as, the third number of ranges"
    )
    assert (problem.key, problem.text) == ("data.ranges.b", f"{said}; or fill in, or drop rows")
    filled = from_python(frame[["b", "label"]], 0.2, ranges={"b": (-1, 1, 0.5)}).pool  # with a feature of its own
    rows = np.concatenate([filled.train.x, filled.test.x])
    assert (filled.columns.names, rows[rows[:, 1] == 1].tolist()) == (("b", "b"), [[0.75, 1.0]])
    whole = from_python(frame[["c", "label"]], 0.2).pool
    assert (whole.train.x.dtype, whole.columns.names) == (np.int64, ("c",))
    with pytest.raises(
        UserError, match="inputs must be finite in 32 bits; found NaN"
    ):  # arrays have no ranges to state
        from_python((frame[["b"]].to_numpy(), Y), 0.2)


@pytest.mark.run
def test_a_run_continues_with_the_same_records_and_refuses_to_without(tmp_path):
    from h2fdp import resume

    settings = {"method": "hfl", "intervals": 2, "local_steps": 2, "aggregate_every": 2}
    experiment = Experiment(topology=NETWORK, data=(X, Y), test_data=TEST, partition="iid", **settings)

    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(tmp_path / "run", on_interval=stop)
    with pytest.raises(UserError, match=r"the run began with records from Python; resume it from Python"):
        resume(tmp_path / "run")
    whole = experiment.run(tmp_path / "whole").metrics["loss"].tolist()
    assert resume(tmp_path / "run", data=(X, Y), test_data=TEST).metrics["loss"].tolist() == whole


NORTH = {"name": "north", "trusted": True, "devices": [{"name": "zoe"}, {"name": "bob"}]}
OTHERS = [{"name": "south", "trusted": False, "devices": [{"name": "ann"}]}, {"name": "eve", "devices": {"count": 1}}]
TREE = {"edges": [{"name": "city", "trusted": True, "edges": [NORTH]}, *OTHERS]}


@pytest.mark.parametrize("method", ["hfl", "fedavg"])
def test_in_a_tree_and_its_star_each_device_has_the_records_of_its_name(method):
    data = from_python(FRAME.assign(who=WHO), TEST_FRAME, by="who", inputs=["a", "b", "c"])
    experiment = Experiment(topology=TREE, data=data, method=method)
    assert experiment.holdings().attrs["owners"] == ["zoe", "bob", "ann", "eve"]
    held = experiment.prepare().data
    for device, name in enumerate(("zoe", "bob", "ann", "eve")):
        np.testing.assert_array_equal(held.device(device).y, Y[name == WHO])
    assert held.test_owners.tolist() == [1] * 8


def test_owners_are_not_dealt_without_a_word():
    data = from_python(FRAME.assign(who=WHO), TEST_FRAME, by="who", inputs=["a", "b", "c"])
    told = "owners of records are dealt to devices, as no device has the name of one"
    assert Experiment(topology=NETWORK, data=data, method="hfl").prepare().chosen[-1] == told
    assert told not in Experiment(topology=TREE, data=data, method="hfl").prepare().chosen
    other = {**NORTH, "devices": [{"name": "Zoe"}, {"name": "bob"}]}
    with pytest.raises(UserError, match="no device has the name of the owners 'zoe'; no owner has that of 'Zoe'"):
        Experiment(topology={"edges": [other, *OTHERS]}, data=data, method="hfl").prepare()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["edge-1/1"], "data: no records of device edge-1/2, found those of edge-1/1"),
        (["edge-1/1", "edge-1/2", "edge-9"], "data: records of edge-9, which is no device; the devices are edge-1/1"),
    ],
)
def test_a_mapping_has_records_of_all_devices_and_of_no_others(names, told):
    network = Topology.regular(edges=1, devices=2, trust=1)
    with pytest.raises(UserError) as caught:
        Experiment(topology=network, data=dict.fromkeys(names, (X, Y)), test_data=TEST, method="hfl").prepare()
    assert str(caught.value).startswith(f"Experiment: {told}")
    assert "federate" not in str(caught.value)


@pytest.mark.parametrize("offset", [0, 1_700_000_000, 2**60])
def test_columns_are_standardised_before_they_are_rounded(offset):
    numbers = np.arange(100) * 37 % 100
    frame = pd.DataFrame({"t": offset + numbers, "label": (numbers > 50).astype(int)})
    settings = {"test_data": 0.2, "method": "hfl", "model": {"name": "logistic", "standardize": True}}
    seen = Experiment(topology=NETWORK, data=frame, **settings).prepare()
    small = Experiment(topology=NETWORK, data=frame.assign(t=numbers), **settings).prepare()
    assert (seen.data.train.x.dtype, seen.given.train.x.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(seen.data.train.x, small.data.train.x)


def test_gaps_are_the_mean_of_public_test_records_and_leave_no_trace_in_other_rows():
    numbers = np.arange(100.0) * 37 % 100
    frame = pd.DataFrame({"t": 50 + numbers, "n": numbers, "none": np.nan, "label": (numbers > 50).astype(int)})
    frame.loc[::7, "t"] = np.nan
    settings = {"test_data": 0.2, "method": "hfl", "model": {"name": "logistic", "standardize": True}}
    run = Experiment(topology=NETWORK, data=frame, **settings).prepare()
    for found, stored in ((run.data.train, run.given.train), (run.data.test, run.given.test)):
        tests, gaps = run.given.test.x[:, 0], np.isnan(stored.x[:, 0])
        assert 0 < gaps.sum() < len(gaps)
        assert not found.x[gaps, 0].any()
        assert not found.x[:, 2].any()
        expected = (stored.x[~gaps, 0] - np.nanmean(tests)) / np.nanstd(tests)
        np.testing.assert_allclose(found.x[~gaps, 0], expected, rtol=1e-5)
    other = frame.assign(t=frame["t"].mask(frame.index == np.flatnonzero(frame["n"] == run.given.train.x[1, 1])[0]))
    again = Experiment(topology=NETWORK, data=other, **settings).prepare()
    assert (again.data.train.x != run.data.train.x).any(axis=1).nonzero()[0].tolist() == [1]


def test_columns_have_numbers_for_names_but_no_name_twice():
    plain = from_python(FRAME, TEST_FRAME.drop(columns="who")).pool
    numbers = from_python(FRAME.rename(columns={"a": 0, "b": 1, "c": 2}), 0.2, ranges={0: (-9, 9)}, exclude=[2]).pool
    assert numbers.train.x.shape[1:] == (2,)
    assert (plain.columns.unbounded, numbers.columns.unbounded) == (("a", "b", "c"), ("1",))
    frame = FRAME.set_axis(["a", "a", "b", "label"], axis=1)
    with pytest.raises(UserError, match="the name a is that of two columns"):
        from_python(frame, 0.2)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.arange(80) * 800, "for real values state data.task: regression"),
        (np.zeros(80, int), "all test records have the label 0, so accuracy says nothing"),
        (np.arange(80) % 4, ""),
    ],
    ids=["prices", "one class", "four classes"],
)
def test_labels_that_are_no_classes_are_told(labels, told, capsys):
    from_python((np.ones((80, 2)), labels), 0.3, classes=65_536 if labels.max() > 999 else None)
    said = " ".join(capsys.readouterr().err.split())
    assert told in said if told else said == ""


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.linspace(0, 1, 40), "for real values state data.task: regression"),
        (np.ones((40, 3), int), "state data.task: multilabel for labels of 0 or 1 each, or tokens"),
    ],
)
def test_other_targets_are_refused(labels, told):
    with pytest.raises(UserError, match=told):
        from_python((X, labels), 0.2)
