"""The `model:` section, and what the room costs to import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from h2fdp.config import Section, check, empty_document
from h2fdp.config.fields import Options
from h2fdp.errors import UserError
from h2fdp.models.registry import MODELS, ModelSection


class File(Section):
    model: ModelSection


def read(value: Any) -> Options:
    return check(File, empty_document("x.yaml", Path(), {"model": value})).model


@pytest.mark.parametrize("value", ["softmax", "mlp", {"name": "mlp", "hidden": 3}])
def test_a_resolved_section_is_read_back_equal(value):
    assert read(File(model=read(value)).model_dump(mode="json")["model"]) == read(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "softmaxx",
            f'x.yaml: model: expected one of {", ".join(MODELS)}, or module:Name, found "softmaxx"; did you',
        ),
        ({"name": "softmax", "hidden": 3}, "model.hidden: `hidden` means nothing for softmax; allowed here: name"),
        ({"name": "mlp", "hidden": 0}, "model.hidden: expected a whole number of at least 1, found 0"),
        ({"name": "mlp", "hiden": 4}, "model.hiden: unknown key; did you mean `hidden`?"),
    ],
)
def test_a_wrong_section_is_told_by_its_key(value, message):
    with pytest.raises(UserError) as caught:
        read(value)
    assert message in str(caught.value)
