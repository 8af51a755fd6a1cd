"""Whole runs that state no accountant have `rdp`, which takes a tenth of the time of `pld` in each interval.

Tests about `pld` state it; in other processes, and in all other folders of tests, it is the default.
"""

from collections.abc import Iterator

import pytest

from h2fdp.experiment import file
from h2fdp.experiment.sections import ExperimentFile


@pytest.fixture(scope="module", autouse=True)
def _accounted_by_renyi_divergences() -> Iterator[None]:
    completed = file._completed

    def by_rdp(experiment: ExperimentFile) -> ExperimentFile:
        found = completed(experiment)
        stated = "accountant" in experiment.privacy.model_fields_set
        privacy = found.privacy if stated else found.privacy.model_copy(update={"accountant": "rdp"})
        return found.model_copy(update={"privacy": privacy})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "_completed", by_rdp)
        yield
