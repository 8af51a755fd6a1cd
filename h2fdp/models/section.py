"""The schema of `model:` in an experiment file. Imports no torch."""

from __future__ import annotations

from typing import ClassVar

from h2fdp.config.choice import Choice
from h2fdp.config.fields import Count, Flag
from h2fdp.models.registry import MODELS


class ModelSection(Choice):
    """Which model, with its options; the word `mlp` alone is short for {name: mlp}.

    >>> ModelSection.model_validate("mlp").options()
    {'hidden': 196}
    """

    choices: ClassVar = {name: dict(MODELS[name].options) for name in sorted(MODELS)}

    hidden: Count | None = None
    double_softmax: Flag | None = None
