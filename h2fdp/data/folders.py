"""Data in folders: `images`, a folder for each class, as torchvision's `ImageFolder` takes them; `leaf`, by user.

LEAF (Caldas et al. 2018) writes FEMNIST and Sentiment140 so: a folder has `train/*.json` and `test/*.json`, each
{"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}. FEMNIST: x is 784 numbers from 0
to 1, y a class from 0 to 61. Sent140: x is a row of the original table whose fifth value is the tweet, or the tweet
itself; y is 0 or 1, in the original table 0 or 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect, FilePath
from h2fdp.data.partition import Partition
from h2fdp.data.records import Records, Scaling, as_records
from h2fdp.data.source import (
    TEST_SHARE,
    DataRequest,
    FromFiles,
    Pool,
    Pooled,
    WithOwners,
    part_of,
    pool_of,
    splits_of,
)
from h2fdp.errors import UserError, reason_of

_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
_GREY, _COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")  # what Pillow calls 8-bit images
_LITTER = ("thumbs.db", "desktop.ini", "__macosx")  # of operating systems, as names that begin with a point
_OWNERS = "metadata.csv"
_Side = Annotated[int, Field(ge=1, le=4096), Expect("a whole number from 1 to 4096")]


class Images(WithOwners, Pooled):
    """Images in a folder with a folder for each class; or in one with `train`, and perhaps `test` and `validation`.

    Each of these is such a folder. The names of classes and the size of images count as public. Owners of images are in
    metadata.csv, next to the folders of classes, whose column `file_name` has the image, as `cat/1.png`.

    Attributes:
        size: height and width in pixels to which images are resized; null: all have one size.
        channels: 1 makes images grey, 3 gives them colours; null: all are of one kind.
    """

    description: ClassVar[str] = "your images: a folder with a folder of images for each class"
    spread: ClassVar[Partition] = "iid"
    name: Literal["images"] = "images"
    size: _Side | None = None
    channels: Literal[1, 3] | None = None
    normalize: Literal["unit", "symmetric"] = "unit"

    def load(self, request: DataRequest) -> Pool:
        """All images as uint8, channels first; labels are numbers of classes in the order of their names.

        Raises:
            UserError: no such folder, no classes or no images in one, a file that is no image or is not like the
                others, a class that has no training images, an image without an owner.
        """
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            raise _wrong(folder, "no such folder")
        training, test, validation = splits_of({name: Part.of(part) for name, part in _parts(folder).items()})
        classes = list(training.images)
        like = self._pixels(training.images[classes[0]][0])
        train = self.records(training, classes, like)
        owners = None if self.by is None else training.owners(self.by)
        test_part: tuple[Records, NDArray[np.str_] | None] | float = TEST_SHARE
        if test is not None:
            has_owners = self.by is not None and (test.home / _OWNERS).is_file()  # tests need no owner
            test_part = self.records(test, classes, like), test.owners(self.by) if has_owners else None
        valid = None if validation is None else self.records(validation, classes, like)
        return pool_of((train, owners), test_part, valid, classes, str(folder))

    def records(self, part: Part, classes: list[str], like: NDArray[np.uint8]) -> Records:
        if strangers := [name for name in part.images if name not in classes]:
            text = f"a class without training images; the classes are {', '.join(classes)}"
            raise _wrong(part.home / strangers[0], text[:300])
        files = [(file, classes.index(name)) for name, listed in part.images.items() for file in listed]
        pixels = np.empty((len(files), *like.shape), np.uint8)
        for place, (file, _) in enumerate(files):
            image = self._pixels(file)
            if image.shape != like.shape:
                text = f"{_form(image)}, but the first image is {_form(like)}; expected one form, or data.size"
                raise _wrong(file, f"{text} and data.channels")
            pixels[place] = image
        return Records(pixels, np.array([label for _, label in files], dtype=np.int64))

    def _pixels(self, file: Path) -> NDArray[np.uint8]:
        """(channels, height, width)."""
        from PIL import Image  # 0.1 s, for those who read images

        try:
            with Image.open(file) as image:
                if image.mode not in _GREY + _COLOUR:
                    raise _wrong(file, f"expected 8 bits for each pixel and channel, found Pillow's mode {image.mode}")
                channels = self.channels or (1 if image.mode in _GREY else 3)
                pixels = image.convert("L" if channels == 1 else "RGB")
                if self.size is not None:
                    pixels = pixels.resize((self.size, self.size), Image.Resampling.BILINEAR)
        except (OSError, ValueError, SyntaxError, EOFError, MemoryError, Image.DecompressionBombError) as error:
            reason = str(error).replace(f" {str(file)!r}", "")
            raise _wrong(file, f"cannot be read as an image: {reason}"[:200]) from None
        array = np.asarray(pixels)
        return array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)


def _parts(folder: Path) -> dict[str, Path]:
    """The folders of train, and perhaps test and validation; the folder itself as train where it has the classes."""
    below = [each for each in _listed(folder) if each.is_dir()]
    parts: dict[str, Path] = {}
    strangers = [
        each for each in below if part_of(each.name) is None or parts.setdefault(part_of(each.name) or "", each) != each
    ]
    if "train" not in parts or not any(each.is_dir() for each in _listed(parts["train"])):
        return {"train": folder}
    if strangers:
        text = f"expected one folder each for train, test and validation alone, as {parts['train'].name} has classes"
        raise _wrong(strangers[0], text)
    return parts


class Part:
    """A folder with a folder of images for each class.

    Attributes:
        images: the files of each class, in the order of names.
    """

    def __init__(self, home: Path, images: dict[str, list[Path]]) -> None:
        self.home, self.images = home, images

    @classmethod
    def of(cls, home: Path) -> Part:
        """All images in a folder.

        Raises:
            UserError: no such folder, images outside the folders of classes, other files.
        """
        self = cls(home, {})
        for each in _listed(home):
            if each.is_dir():
                self.images[each.name] = list(_images(each))
                if not self.images[each.name]:
                    raise _wrong(each, "no images in this folder of a class")
            elif each.suffix.lower() in _SUFFIXES:
                raise _wrong(each, "an image outside the folders of classes; expected one folder for each class")
        if not self.images:
            raise _wrong(home, "expected a folder of images for each class, found no folders")
        return self

    def owners(self, by: str) -> NDArray[np.str_]:
        """The owner of each image, from the table in the folder of the classes."""
        import pandas as pd

        table = self.home / _OWNERS
        try:
            frame = pd.read_csv(table, dtype=str)
            named = dict(zip(frame["file_name"], frame[by], strict=True))
        except (OSError, ValueError) as error:
            raise _wrong(table, f"data.by needs this table, which cannot be read: {reason_of(error)}"[:300]) from None
        except KeyError as error:
            raise _wrong(table, f"there is no column {error.args[0]}; expected file_name and {by}") from None
        names = [file.relative_to(self.home).as_posix() for listed in self.images.values() for file in listed]
        if lost := [name for name in names if not isinstance(named.get(name), str)]:
            raise _wrong(table, f"expected a value of {by} for each image, found none for {lost[0]}")
        return np.array([named[name] for name in names])


def _images(folder: Path) -> Iterator[Path]:
    for each in _listed(folder):
        if each.is_dir():
            yield from _images(each)
        elif each.suffix.lower() in _SUFFIXES:
            yield each
        else:
            raise _wrong(each, f"not an image; expected a name that ends in {', '.join(_SUFFIXES)}")


def _listed(folder: Path) -> list[Path]:
    try:
        below = sorted(folder.iterdir())
    except OSError as error:
        raise _wrong(folder, f"cannot be read: {error.strerror}") from None
    return [each for each in below if not each.name.startswith(".") and each.name.lower() not in _LITTER]


def _form(image: NDArray[np.uint8]) -> str:
    kind = "grey" if len(image) == 1 else "in colour"
    return f"{kind} of {image.shape[1]}x{image.shape[2]} pixels"


def _wrong(place: Path, text: str) -> UserError:
    return UserError(f"{place}: {text}", key="data.path")


_TOKENS = re.compile(r"[\w']+|[.,!?;]")  # as LEAF cuts tweets


def word_numbers(
    texts: Sequence[str], length: int, words: int, vocabulary: Mapping[str, int] | None = None
) -> NDArray[np.float32]:
    """The first `length` words of each text as numbers, shape (n, length); 0 fills up what is shorter.

    Args:
        words: numbers go up to this one, 0 not counted.
        vocabulary: word -> its number from 1; a word that it lacks is 0. Null: a word's number is a hash of it, so
            some words share one (Weinberger et al. 2009).

    >>> word_numbers(["so good", ""], 3, 5, {"good": 2}).tolist()
    [[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    """
    numbers = np.zeros((len(texts), length), dtype=np.float32)
    for row, text in enumerate(texts):
        for place, word in enumerate(_TOKENS.findall(text.lower())[:length]):
            numbers[row, place] = word_number(word, words) if vocabulary is None else vocabulary.get(word, 0)
    return numbers


@lru_cache(maxsize=100_000)
def word_number(word: str, words: int) -> int:
    """A number from 1 to `words` by a hash of the word."""
    return 1 + int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") % words


_KEY = "data.path"
_SIDE = 28
_WORDS = 25  # of a tweet that count, as LEAF has it
_TWEET = 4  # the place of the text in a row of the original table
_FEMNIST_CLASSES, _SENTIMENTS = 62, 2
_FEMNIST = Scaling(1.0, (1.0,), (1.0,))  # paper, 1 in LEAF's files, becomes 0; with `normalize: unit` it stays 1

_Vocabulary = Annotated[int, Field(ge=1, le=1_000_000), Expect("a whole number from 1 to 1000000")]


class Leaf(FromFiles, Pooled):
    """LEAF's JSON files, in a folder with `train` and `test`, or one that has them under `data`.

    Attributes:
        vocabulary: Sent140: how many numbers words are hashed to.
        embeddings: Sent140: a public list of words instead, as LEAF's embs.json or GloVe's text files.
    """

    description: ClassVar[str] = "LEAF's JSON files of FEMNIST or Sentiment140, one owner for each user"
    suits: ClassVar[str | None] = "lstm"
    name: Literal["leaf"] = "leaf"
    vocabulary: _Vocabulary = 10_000
    embeddings: FilePath | None = None

    def load(self, request: DataRequest) -> Pool:
        """All records, of FEMNIST where x are numbers, else of Sent140; each user is an owner.

        Raises:
            UserError: no such folder, files of another form, no records.
        """
        folder = Path(self.path).expanduser()
        home = next((each for each in (folder, folder / "data") if (each / "train").is_dir()), None)
        if home is None:
            raise UserError(f"expected a folder with train/*.json and test/*.json: {folder}", key=_KEY)
        (users, x, y), (test_users, test_x, test_y) = (
            _records(users_of_json(home / part)) for part in ("train", "test")
        )
        texts = isinstance(x[0], str) or (isinstance(x[0], list) and any(isinstance(each, str) for each in x[0]))
        read = self._tweets if texts else femnist_digits
        train, test = read(x, y, f"{home / 'train'}"), read(test_x, test_y, f"{home / 'test'}")
        classes, scaling = (_SENTIMENTS, Scaling()) if texts else (_FEMNIST_CLASSES, _FEMNIST)
        owned = (train, np.array(users)), (test, np.array(test_users))
        return pool_of(*owned, None, classes, str(home), scaling=scaling)

    def _tweets(self, x: list[Any], y: list[Any], what: str) -> Records:
        """(n, words) numbers of words."""
        texts = [each[_TWEET] if isinstance(each, list) and len(each) > _TWEET else each for each in x]
        if not all(isinstance(each, str) for each in texts):
            raise UserError(f"{what}: expected in each x a tweet, or a row whose fifth value is the tweet", key=_KEY)
        labels = _labels(y, what)
        terms = None if self.embeddings is None else vocabulary_of(Path(self.embeddings).expanduser(), self.vocabulary)
        numbers = word_numbers(texts, _WORDS, self.vocabulary, terms)
        return as_records(numbers, np.where(labels == 4, 1, labels), what, _KEY)


def femnist_digits(x: Any, y: Any, what: str) -> Records:
    """(n, 1, 28, 28) from 0 to 1, of FEMNIST."""
    try:
        pixels = np.asarray(x, dtype=np.float32).reshape(-1, 1, _SIDE, _SIDE)
    except (ValueError, TypeError):
        raise UserError(f"{what}: expected {_SIDE * _SIDE} numbers in each x", key=_KEY) from None
    return as_records(pixels, _labels(y, what), what, _KEY)


def _labels(y: list[Any], what: str) -> np.ndarray:
    try:
        return np.array([int(each) for each in y], dtype=np.int64)
    except (ValueError, TypeError):
        raise UserError(f"{what}: expected whole numbers in y", key=_KEY) from None


def users_of_json(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each user of a folder's files, in the order of their names, with as many x as y.

    Raises:
        UserError: no files, files of another form, no records.
    """
    empty = True
    for file in sorted(folder.glob("*.json")):
        for user, own in _users(file):
            if len(own["x"]) != len(own["y"]):
                text = f"{file}: user {user} has {len(own['x'])} x and {len(own['y'])} y"
                raise UserError(text, key=_KEY)
            empty = empty and not own["y"]
            yield user, own
    if empty:
        raise UserError(f"no records in the .json files of {folder}", key=_KEY)


def _records(users: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[list[str], list[Any], list[Any]]:
    """The user, x and y of each record."""
    names, x, y = list[str](), list[Any](), list[Any]()
    for user, own in users:
        names += [user] * len(own["y"])
        x += own["x"]
        y += own["y"]
    return names, x, y


def _users(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        for user in values["users"]:
            own = values["user_data"][user]
            yield str(user), {"x": list(own["x"]), "y": list(own["y"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        text = 'expected LEAF\'s form, {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}'
        raise UserError(f"{file}: {text}; {type(error).__name__}: {error}"[:400], key=_KEY) from None


@lru_cache
def vocabulary_of(file: Path, most: int, key: str = "data.embeddings") -> Mapping[str, int]:
    """The first words of a public list, numbered from 1.

    Raises:
        UserError: it cannot be read, or has no words.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            listed = json.load(lines)["vocab"] if file.suffix == ".json" else [line.split(" ", 1)[0] for line in lines]
        words = [str(each).strip() for each in listed][:most]
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = 'expected JSON with a list "vocab", or a word at the start of each line'
        raise UserError(f"{file}: {text}; {type(error).__name__}: {error}"[:400], key=key) from None
    if not words:
        raise UserError(f"{file}: no words", key=key)
    return {word: number for number, word in enumerate(dict.fromkeys(words), 1)}
