"""Data sets of papers, on small files in the layouts in which these are published."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from h2fdp import Experiment, Topology
from h2fdp.data import published_sets
from h2fdp.data.federate import DATA_SETS, load
from h2fdp.data.targets import PADDING
from h2fdp.errors import UserError
from h2fdp.streams import Streams


def loaded(section, devices=2, root=None):
    return load(DATA_SETS.read(section), devices, Streams(1), root)


def leaf(folder, users, part="train"):
    """A file as LEAF's `split_data.py` writes it."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    values = {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}
    (folder / part / "all_data_0.json").write_text(json.dumps(values))


class Values:
    """A data set of HDF5, as h5py gives it: all of it by `[()]`."""

    def __init__(self, values):
        self.values = np.array(values)

    def __getitem__(self, key):
        return self.values[key]


@pytest.fixture
def hdf5(tmp_path, monkeypatch):
    """Writes files of TensorFlow Federated's layout, by h5py where it is installed, else as it would read them."""
    try:
        import h5py
    except ImportError:
        h5py = None
    stored = {}

    class File:
        def __init__(self, path, mode):
            self.groups = {"examples": stored[path.name]}

        def __enter__(self):
            return self.groups

        def __exit__(self, *error):
            return None

    if h5py is None:
        monkeypatch.setattr(published_sets, "import_module", lambda _: type("H5", (), {"File": File}))

    def write(name, clients):
        if h5py is not None:
            with h5py.File(tmp_path / name, "w") as file:
                for client, columns in clients.items():
                    for column, values in columns.items():
                        file[f"examples/{client}/{column}"] = values
            return
        (tmp_path / name).write_bytes(b"")
        stored[name] = {
            client: {name: Values(each) for name, each in columns.items()} for client, columns in clients.items()
        }

    return write


def test_cifar100_is_read_from_its_folder(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR100

    monkeypatch.setattr(CIFAR100, "_check_integrity", lambda self: True)
    monkeypatch.setattr(CIFAR100, "meta", {**CIFAR100.meta, "md5": None})
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 200), ("test", 100)):
        pixels = np.random.default_rng(0).integers(0, 256, (count, 3_072), dtype=np.uint8)
        values = {"data": pixels, "fine_labels": [each % 100 for each in range(count)], "coarse_labels": [0] * count}
        (folder / name).write_bytes(pickle.dumps(values))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"kind {each}" for each in range(100)]}))
    found = loaded({"name": "cifar100", "partition": "iid"}, 4, tmp_path)
    assert (found.shape, found.classes, found.sizes.tolist()) == ((3, 32, 32), 100, [50] * 4)
    assert found.test.x[0].ravel().tolist() == pixels[0].tolist()  # red, green and blue one after another
    assert found.test.y.tolist() == list(range(100))


def test_tiny_imagenet_is_read_from_its_folder(tmp_path):
    home = tmp_path / "tiny-imagenet-200"
    classes = ["n02", "n01"]
    for place, name in enumerate(classes):
        (home / "train" / name / "images").mkdir(parents=True)
        (home / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG\t0\t0\t1\t1\n")
        for number in range(2):
            kind = "L" if number else "RGB"  # some are grey
            Image.new(kind, (64, 64), 100 * place).save(home / "train" / name / "images" / f"{name}_{number}.JPEG")
    (home / "wnids.txt").write_text("\n".join(classes))
    (home / "val" / "images").mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (64, 64)).save(home / "val" / "images" / f"val_{number}.JPEG")
    (home / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t0\t1\t1\nval_1.JPEG\tn02\t0\t0\t1\t1\n")
    found = loaded({"name": "tiny-imagenet", "partition": "iid"}, 2, tmp_path)
    assert (found.shape, found.classes, len(found.train)) == ((3, 64, 64), 2, 4)
    assert found.train.y.tolist() == [0, 0, 1, 1]
    assert sorted(found.test.y.tolist()) == [0, 1]
    assert found.class_names == ("n02", "n01")
    with pytest.raises(UserError, match=r"expected the folder of tiny-imagenet-200.zip, with wnids.txt"):
        loaded("tiny-imagenet", 2, tmp_path / "elsewhere")


INK = np.linspace(0, 1, 784)


def test_femnist_of_leaf_and_of_tensorflow_federated_are_the_same_records(tmp_path, hdf5):
    images = {"f0": ([INK.tolist(), INK[::-1].tolist()], [61, 3]), "f1": ([INK.tolist()], [5])}
    leaf(tmp_path / "leaf", images)
    leaf(tmp_path / "leaf", {"f1": images["f1"]}, "test")
    of_json = loaded({"name": "femnist", "path": str(tmp_path / "leaf")})
    for part, users in (("train", images), ("test", {"f1": images["f1"]})):
        columns = {
            user: {"pixels": np.reshape(x, (-1, 28, 28)).astype(np.float32), "label": np.array(y, np.int32)}
            for user, (x, y) in users.items()
        }
        hdf5(f"fed_emnist_{part}.h5", columns)
    of_hdf5 = loaded({"name": "femnist", "path": str(tmp_path)})
    for found in (of_json, of_hdf5):
        assert (found.shape, found.classes, found.sizes.tolist()) == ((1, 28, 28), 62, [2, 1])
        assert found.holders == ("f0", "f1")
        assert found.test_owners.tolist() == [1]
        np.testing.assert_allclose(found.device(0).x[0].ravel(), INK, rtol=1e-6)
        assert found.device(0).y.tolist() == [61, 3]


TEXT = ("to be or not to be " * 5)[:80]


def test_shakespeare_of_leaf_has_80_characters_and_the_next_one_of_80(tmp_path):
    leaf(tmp_path, {"HAMLET": ([TEXT, "\n" * 80], ["}", "~"]), "OPHELIA": ([TEXT], ["a"])})
    leaf(tmp_path, {"HAMLET": ([TEXT], [" "])}, "test")
    found = loaded({"name": "shakespeare", "path": str(tmp_path)})
    first = found.device(0)
    assert (found.shape, found.classes, first.x.dtype.name) == ((80,), 80, "int64")
    alphabet = published_sets._LEAF
    assert "".join(alphabet[each] for each in first.x[0]) == TEXT
    assert first.x[1].tolist() == [0] * 80
    assert first.y.tolist() == [79, 79]  # an unknown one counts as the last, as LEAF's own program has it
    assert found.holders == ("HAMLET", "OPHELIA")
    leaf(tmp_path, {"HAMLET": (["short"], ["a"])}, "test")
    with pytest.raises(UserError, match="user HAMLET: expected 80 characters in each x, and one in each y"):
        loaded({"name": "shakespeare", "path": str(tmp_path)})


def test_shakespeare_of_tensorflow_federated_is_cut_into_sequences_whose_labels_come_next(tmp_path, hdf5):
    line = TEXT + "~"  # one beyond the alphabet; with start and end 83 characters: rows of 81 and 2
    hdf5("shakespeare_train.h5", {"KING": {"snippets": [line.encode()]}, "FOOL": {"snippets": [b"dh"]}})
    hdf5("shakespeare_test.h5", {"KING": {"snippets": [b"d"]}})
    found = loaded({"name": "shakespeare", "path": str(tmp_path)})
    assert found.holders == ("FOOL", "KING")
    fool, king = found.device(0), found.device(1)
    assert (found.shape, found.classes, found.target.task) == ((80,), 90, "tokens")
    assert fool.x[0, :4].tolist() == [87, 1, 2, 88]  # start, d, h, end, as TensorFlow Federated numbers them
    assert fool.y[0, :4].tolist() == [1, 2, 88, PADDING]
    assert king.x.shape == (2, 80)
    assert king.y[0, -1] == king.x[0, -1] or king.y[0, 0] == king.x[0, 1]
    np.testing.assert_array_equal(king.y[0, :-1], king.x[0, 1:])
    assert king.x[1, :2].tolist() == [89, 88]
    assert (king.y[1] == PADDING).sum() == 79


def test_sentences_of_stack_overflow_are_words_of_a_public_list_or_hashes(tmp_path, hdf5):
    hdf5("stackoverflow_train.h5", {"7": {"tokens": [b"how do i", b"why"]}, "8": {"tokens": [b"do do"]}})
    hdf5("stackoverflow_test.h5", {"7": {"tokens": [b"how"]}})
    (tmp_path / "stackoverflow.word_count").write_text("do 90\nhow 80\nwhy 70\n")
    section = {"name": "stackoverflow", "path": str(tmp_path), "words": 2, "length": 3}
    found = loaded({**section, "vocabulary": str(tmp_path / "stackoverflow.word_count")})
    assert (found.shape, found.classes) == ((3,), 6)
    x, y = found.device(0).x.tolist(), found.device(0).y.tolist()
    assert (x[0], y[0]) == ([4, 2, 1], [2, 1, 3])  # start, how, do; how, do, another word
    assert (x[1], y[1]) == ([4, 3, 5], [3, 5, PADDING])  # the second of the list's two words is the last one known
    hashed = loaded({**section, "words": 1000}).device(1)
    assert hashed.x[0, 1] == hashed.x[0, 2]
    assert 1 <= hashed.x[0, 1] <= 1000


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("shakespeare", r"shakespeare: expected train/\*.json, as LEAF has them, or one file \*_train.h5"),
        ({"name": "femnist", "path": "."}, r"or one file \*_train.h5, as TensorFlow Federated has it; found none"),
    ],
)
def test_files_that_are_not_there_are_told(section, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=told):
        loaded(section, root=tmp_path)


def test_another_layout_is_told_by_its_columns(tmp_path, hdf5):
    hdf5("a_train.h5", {"7": {"title": [b"how do i"]}})
    with pytest.raises(UserError, match=r"user 7 has no 'tokens', only title; expected the layout of stackoverflow"):
        loaded({"name": "stackoverflow", "path": str(tmp_path)})


def test_h5py_is_named_where_it_is_missing(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    (tmp_path / "a_train.h5").write_bytes(b"")
    monkeypatch.setattr(published_sets, "import_module", missing)
    with pytest.raises(UserError, match=r"a_train\.h5 is read by h5py; expected it: pip install h5py"):
        loaded({"name": "femnist", "path": str(tmp_path)})


@pytest.mark.run
@pytest.mark.parametrize("protects", ["record", "device"])
@pytest.mark.parametrize("name", ["femnist", "shakespeare", "shakespeare of leaf", "stackoverflow"])
def test_a_private_run_of_each(name, protects, tmp_path, hdf5):
    """`auto` chooses a model of sequences; small ones are stated here."""
    lines = [b"to be or not to be", b"that is"]
    columns = {
        "femnist": {"pixels": np.ones((2, 28, 28), np.float32) * INK.reshape(28, 28), "label": [1, 2]},
        "shakespeare": {"snippets": lines},
        "stackoverflow": {"tokens": lines},
    }
    if name == "shakespeare of leaf":
        leaf(tmp_path, {user: ([TEXT, TEXT], ["a", "b"]) for user in "abcd"})
        leaf(tmp_path, {"a": ([TEXT], ["a"])}, "test")
    else:
        for part, users in (("train", "abcd"), ("test", "a")):
            hdf5(f"own_{part}.h5", dict.fromkeys(users, columns[name]))
    model = {
        "femnist": "softmax",
        "shakespeare": {"name": "char-lstm", "hidden": 4},
        "stackoverflow": {"name": "text-transformer", "width": 8, "heads": 2, "layers": 1},
    }[name.partition(" ")[0]]
    data = {"name": name.partition(" ")[0], "path": str(tmp_path)} | ({"words": 20} if name == "stackoverflow" else {})
    run = Experiment(
        topology=Topology.regular(edges=2, devices=2, trust=1),
        data=data,
        model=model,
        method="h2fdp",
        epsilon=4,
        delta=1e-3,
        intervals=2,
        local_steps=1,
        batch_size=1,
        clip_norm=0.5,
        step_size=0.1,
        calibration="accounted",
        protects=protects,
    ).run(tmp_path / "run")
    assert np.isfinite(run.metrics["loss"]).all()
    assert 3.9 < run.privacy.epsilon("public") <= 4
