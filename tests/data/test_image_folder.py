"""Images in a folder for each class: what torchvision's `ImageFolder` reads, and every mistake in one line."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from h2fdp import Experiment
from h2fdp.data.federate import DATA_SETS, load
from h2fdp.errors import UserError
from h2fdp.streams import Streams

RNG = np.random.default_rng(1)


def images(folder, count=3, classes=("cat", "dog"), shape=(4, 6, 3)):
    """Images of random pixels."""
    for name in classes:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8)).save(folder / name / f"{number}.png")


def loaded(folder, devices=2, **options):
    return load(DATA_SETS.read({"name": "images", "path": str(folder), **options}), devices, Streams(1))


def refusal(folder, **options):
    with pytest.raises(UserError) as caught:
        loaded(folder, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_pixels_and_labels_are_those_of_torchvision(tmp_path):
    from torchvision.datasets import ImageFolder  # six seconds, for those who run this test
    from torchvision.transforms import ToTensor

    for part in ("train", "test"):
        images(tmp_path / part)
    found = loaded(tmp_path)
    for part, held in (("train", found.train), ("test", found.test)):
        theirs = [(x.numpy(), y) for x, y in ImageFolder(str(tmp_path / part), transform=ToTensor())]
        assert held.y.tolist() == [y for _, y in theirs]
        ours = held.x * found.scaling.scale + found.scaling.shift
        np.testing.assert_allclose(ours, np.stack([x for x, _ in theirs]), atol=1e-6)
    assert (found.classes, found.class_names, found.shape, found.validation) == (2, ("cat", "dog"), (3, 4, 6), None)
    symmetric = loaded(tmp_path, normalize="symmetric").scaling
    assert (np.array([0, 255]) * symmetric.scale + symmetric.shift).tolist() == pytest.approx([-1, 1])


def test_without_parts_a_share_is_for_tests_and_a_validation_part_is_used(tmp_path):
    images(tmp_path / "whole", 5)
    found = loaded(tmp_path / "whole")
    assert (int(found.sizes.sum()), len(found.test)) == (8, 2)
    assert sorted(loaded(tmp_path / "whole", test=0.4).test_owners.tolist()) == [0, 0, 1, 1]
    for part in ("train", "test", "validation"):
        images(tmp_path / "parts" / part)
    assert len(loaded(tmp_path / "parts").validation) == 6


def test_images_are_resized_and_made_grey_where_that_is_stated(tmp_path):
    images(tmp_path, shape=(4, 6))
    assert loaded(tmp_path).shape == (1, 4, 6)
    images(tmp_path, 1, ("elk",), (9, 5, 3))
    found = loaded(tmp_path, size=5, channels=1)
    assert (found.shape, found.classes) == ((1, 5, 5), 3)
    with Image.open(tmp_path / "elk" / "0.png") as image:
        elk = np.asarray(image.convert("L").resize((5, 5), Image.Resampling.BILINEAR))
    every = np.concatenate([found.train.x[found.train.y == 2], found.test.x[found.test.y == 2]])
    np.testing.assert_array_equal(every[0, 0], elk)


def test_a_table_says_who_holds_an_image(tmp_path):
    images(tmp_path / "train", 2)
    images(tmp_path / "test", 1)
    rows = [("cat/0.png", "north"), ("cat/1.png", "south"), ("dog/0.png", "south"), ("dog/1.png", "south")]
    pd.DataFrame(rows, columns=["file_name", "site"]).to_csv(tmp_path / "train" / "metadata.csv", index=False)
    found = loaded(tmp_path, by="site")
    assert (found.holders, found.sizes.tolist(), found.test_owners) == (("north", "south"), [1, 3], None)
    assert loaded(tmp_path, by="site", partition="iid").sizes.tolist() == [2, 2]
    pd.DataFrame(rows[::3], columns=["file_name", "site"]).replace("dog/1.png", "dog/0.png").to_csv(
        tmp_path / "test" / "metadata.csv", index=False
    )
    assert loaded(tmp_path, by="site").test_owners.tolist() == [0, 1]
    assert "there is no column place; expected file_name and place" in refusal(tmp_path, by="place")
    images(tmp_path / "train", 3)
    assert "expected a value of site for each image, found none for cat/2.png" in refusal(tmp_path, by="site")


def test_what_is_no_folder_of_images_is_told_in_one_line(tmp_path):
    assert "no such folder" in refusal(tmp_path / "none")
    assert "expected a folder of images for each class" in refusal(tmp_path)
    images(tmp_path)
    (tmp_path / ".DS_Store").write_text("litter of an operating system")
    assert loaded(tmp_path).classes == 2
    (tmp_path / "elk").mkdir()
    assert "elk: no images in this folder of a class" in refusal(tmp_path)
    (tmp_path / "elk" / "notes.txt").write_text("not yet")
    assert "notes.txt: not an image; expected a name that ends in .png" in refusal(tmp_path)
    (tmp_path / "elk" / "notes.txt").rename(tmp_path / "elk" / "0.png")
    assert "0.png: cannot be read as an image" in refusal(tmp_path)
    whole = (tmp_path / "dog" / "0.png").read_bytes()
    (tmp_path / "elk" / "0.png").write_bytes(whole[: len(whole) // 2])
    assert "0.png: cannot be read as an image" in refusal(tmp_path)
    images(tmp_path, 1, ("elk",), (4, 5, 3))
    assert "0.png: in colour of 4x5 pixels, but the first image is in colour of 4x6 pixels" in refusal(tmp_path)
    images(tmp_path, 1, ("elk",), (4, 6))
    assert "0.png: grey of 4x6 pixels, but the first image is in colour of 4x6 pixels" in refusal(tmp_path)
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(tmp_path / "elk" / "0.png")
    assert "expected 8 bits for each pixel and channel" in refusal(tmp_path)
    images(tmp_path, 1, ("elk",))
    (tmp_path / "elk" / "0.png").rename(tmp_path / "0.png")
    (tmp_path / "elk").rmdir()
    assert "0.png: an image outside the folders of classes" in refusal(tmp_path)


@pytest.mark.run
def test_a_path_begins_at_the_file_and_the_images_train(tmp_path):
    images(tmp_path / "png", 8)
    text = """
        topology: {edges: [{name: a, trusted: true, devices: {count: 2}}]}
        data: {name: images, path: png}
        method: hfl
        training: {intervals: 1}
    """
    (tmp_path / "e.yaml").write_text(text)
    experiment = Experiment.from_file(tmp_path / "e.yaml")
    assert list(experiment.holdings().columns) == ["cat", "dog"]
    assert len(experiment.run(tmp_path / "r").metrics) == 1
