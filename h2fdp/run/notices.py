"""What a user should know before a run trains: a line for each setting that does not do what it says."""

from __future__ import annotations

from collections.abc import Iterator

from h2fdp.methods import name_of
from h2fdp.run.privacy_report import claim_warning
from h2fdp.run.setup import RunSetup
from h2fdp.training.local_objective import comparison_of


def notices(setup: RunSetup) -> list[str]:
    """Sentences; none for most runs."""
    claim = claim_warning(setup)
    return [*_without_effect(setup), *_featureless(setup), *_capped(setup), *([] if claim is None else [claim])]


def _without_effect(setup: RunSetup) -> Iterator[str]:
    """An epsilon that was stated for a method that adds no noise."""
    if setup.noise is None and "epsilon" in setup.config.privacy.model_fields_set:
        yield f"privacy.epsilon has no effect: the method {name_of(setup.config.method)} adds no noise"


def _featureless(setup: RunSetup) -> Iterator[str]:
    """An objective that compares models by features, with a model that has none: they are the records themselves."""
    objective = setup.config.method.objective
    if comparison_of(setup.blueprint.objective) is None:
        return
    if sum(any(True for _ in layer.parameters(recurse=False)) for layer in setup.blueprint.module().modules()) == 1:
        text = f"method.objective: {objective.name} has no effect with the model {setup.config.model.name}"
        yield f"{text}, which has no hidden layers: what enters its last layer is the same under all models"


def _capped(setup: RunSetup) -> Iterator[str]:
    """A stated batch that is larger than the data of a device."""
    training, least = setup.config.training, int(setup.data.sizes.min())
    if "batch_size" in training.model_fields_set and (training.batch_size or 0) > least:
        text = f"training.batch_size: {training.batch_size} is more than the {least} records of the smallest device"
        yield f"{text}; such devices use all their records at each step"
