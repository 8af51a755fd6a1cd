"""A study of an experiment that Python made: its document, and its records in a file that any process can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from h2fdp.data import FederatedData, Given, Pool
from h2fdp.errors import UserError
from h2fdp.experiment.file import Setting
from h2fdp.records.atomic import replacing
from h2fdp.run.api import Experiment
from h2fdp.sweeps.grid import SWEEP
from h2fdp.sweeps.shared import SharedInputs
from h2fdp.sweeps.study import Study, study_of

WHERE = "sweep"


def study_of_experiment(
    experiment: Experiment, grid: Mapping[str, Sequence[Any]], folder: Path, shared: SharedInputs
) -> Study:
    """The grid of an experiment's settings.

    Args:
        grid: dotted key -> values, as under `sweep:` in a file.
        folder: where records that only Python has are written, for the runs to read.

    Raises:
        UserError: an experiment of a run directory; keys of a network that is given as drawn; wrong values.
    """
    written = experiment.written
    if written is None:
        raise UserError("expected an experiment of a file or of Experiment(...), found one of a run", key=WHERE)
    inside = [key for each in grid for key in map(str.strip, each.split(",")) if key.startswith("topology.")]
    if written.drawn and inside:
        text = "this network is given as it was drawn; expected topology=FILE in the experiment, whose keys can vary"
        raise UserError(text, WHERE, inside[0])
    document = written.document.copy()
    if isinstance(experiment.config.data, Given) or experiment.has_data_function:
        document.set("data", _in_a_file(experiment, folder), WHERE)
    return study_of(document, [*written.settings, grid_setting(grid)], shared)


def grid_setting(grid: Mapping[str, Sequence[Any]]) -> Setting:
    """The setting that replaces a document's grid.

    Raises:
        UserError: values of a key that are no sequence; a text is one of letters, which nobody means.
    """
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UserError(f"expected a list of values, [{values!r}], found {values!r}", WHERE, key)
    return Setting(SWEEP, {key: list(values) for key, values in grid.items()}, WHERE)


def _in_a_file(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """The `data:` section of an archive with the experiment's records."""
    section = experiment.config.data
    if isinstance(section, Given):
        pool, natural = section.load_given(), section.spread.natural
        spread: Any = section.spread.model_dump(mode="json", exclude_none=True)
        spread = {key: value for key, value in spread.items() if value is not False}
        stated = {"validation": section.validation, "public": section.public}
    else:
        held = experiment.records(None)
        assert isinstance(held, FederatedData), "a function's records are held"
        owners = np.empty(len(held.train), dtype=np.int64)
        owners[held.order] = np.repeat(np.arange(held.devices), held.sizes)
        pool, natural = Pool(held.train, held.test, held.classes, held.scaling, owners), True
        spread, stated = {"natural": True}, {}
    arrays = {"x_train": _stored(pool, pool.train.x), "y_train": pool.train.y,
              "x_test": _stored(pool, pool.test.x), "y_test": pool.test.y}  # fmt: skip
    if pool.validation is not None:
        arrays |= {"x_validation": _stored(pool, pool.validation.x), "y_validation": pool.validation.y}
    if natural and pool.owners is not None:
        arrays["device_train"] = pool.owners
        if pool.test_owners is not None:
            arrays["device_test"] = pool.test_owners
    digest = blake2b(digest_size=6)
    for name, array in arrays.items():
        digest.update(name.encode() + str(array.shape).encode() + np.ascontiguousarray(array).view(np.uint8).data)
    path = (folder / f"data-{digest.hexdigest()}.npz").absolute()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    return {"name": "npz", "path": str(path), "classes": pool.classes, "partition": spread, **stated}


def _stored(pool: Pool, x: np.ndarray) -> np.ndarray:
    """Inputs as an archive's reader takes them: bytes, or what the model sees."""
    usual = pool.scaling.divisor == (255.0 if x.dtype == np.uint8 else 1.0)
    if usual and set(pool.scaling.mean) == {0.0} and set(pool.scaling.deviation) == {1.0}:
        return x
    return np.asarray(x * pool.scaling.scale + pool.scaling.shift, dtype=np.float32)
