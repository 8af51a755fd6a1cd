"""The records of the jobs: Fashion-MNIST or CIFAR-10 from their folder, or drawn ones of the same shape.

Those of FLUTE's shapes are always drawn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.rivals.shapes import SHAPES, drawn
from h2fdp.data.images import Cifar10, FashionMnist
from h2fdp.data.records import Records
from h2fdp.data.source import DataRequest
from h2fdp.streams import Streams

_SETS = {"softmax": (FashionMnist(), (1, 28, 28)), "two convolutions": (Cifar10(), (3, 32, 32))}
_TEST_RECORDS, _FEW = 2_000, 500  # large models take long


def write_archive(path: Path, model: str, devices: int, records: int, root: Path | None) -> str:
    """Write the archive of a job: records in a random order, cut into equal parts. Returns what they are.

    It holds a part of the test records, enough to see whether two models are alike.
    """
    owners = np.repeat(np.arange(devices), records)
    if model in SHAPES:
        (x, y), (x_test, y_test) = drawn(SHAPES[model], devices * records, 1), drawn(SHAPES[model], _FEW, 2)
        np.savez(path, x_train=x, y_train=y, x_test=x_test, y_test=y_test, device_train=owners)
        return f"drawn records of the shape of {model}"
    image_set, shape = _SETS[model]
    random = np.random.default_rng(0)
    if root is not None and not image_set.missing(root):
        pool = image_set.load(DataRequest(image_set, [], Streams(0), root))
        train, test, name = pool.train, pool.test, image_set.name
    else:
        templates = random.integers(0, 256, (10, *shape))
        train, test = (_drawn(random, templates, count) for count in (devices * records, _TEST_RECORDS))
        name = f"drawn records of the shape of {image_set.name}"
    chosen = random.permutation(len(train))[: devices * records]
    held = train.part(chosen)
    some = test.part(np.arange(_TEST_RECORDS))
    np.savez(path, x_train=held.x, y_train=held.y, x_test=some.x, y_test=some.y, device_train=owners)
    return name


def _drawn(random: np.random.Generator, templates: np.ndarray, count: int) -> Records:
    """Each label's template, faint under noise."""
    labels = random.integers(0, len(templates), count)
    noise = random.integers(0, 256, (count, *templates.shape[1:]), dtype=np.uint8)
    return Records((noise // 4 * 3 + (templates // 4).astype(np.uint8)[labels]).astype(np.uint8), labels)
