"""`images`: a folder for each class, as torchvision's `ImageFolder` takes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from h2fdp.config.fields import Expect
from h2fdp.data.partition import Partition
from h2fdp.data.records import Records
from h2fdp.data.source import TEST_SHARE, DataRequest, Pool, Pooled, WithOwners, part_of, pool_of, splits_of
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
