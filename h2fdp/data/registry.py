"""All data sets by name: a new one is its own file and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2fdp.config.named_options import Choices
from h2fdp.config.own_parts import OwnKind, OwnPart
from h2fdp.data.digits import Digits
from h2fdp.data.from_python import Given
from h2fdp.data.huggingface import HuggingFace
from h2fdp.data.image_folder import Images
from h2fdp.data.images import Cifar10, FashionMnist, Mnist
from h2fdp.data.leaf import Leaf
from h2fdp.data.npz import Npz
from h2fdp.data.source import DataOptions
from h2fdp.data.synthetic import Synthetic
from h2fdp.data.tables import Table

RECORDS = OwnKind("a function for records")
DATA_SETS: Choices[DataOptions] = Choices(RECORDS)
_ALL: tuple[type[DataOptions], ...] = (
    Digits, FashionMnist, Mnist, Cifar10, Synthetic, Images, Npz, Table, HuggingFace, Leaf
)  # fmt: skip
for _options in _ALL:
    DATA_SETS.register(_options)
DATA_SETS.register(Given)

if TYPE_CHECKING:
    DataSection = DataOptions | OwnPart
else:
    DataSection = DATA_SETS.section()


def describe() -> list[dict[str, str]]:
    """A row for each data set, for `h2fdp datasets`; nothing is loaded.

    >>> describe()[0]["name"]
    'digits'
    """
    return [
        {
            "name": options.model_fields["name"].default,
            "description": options.description,
            "keys": ", ".join(sorted(set(options.model_fields) - {"name"}, key=list(options.model_fields).index)),
        }
        for options in _ALL
    ]
