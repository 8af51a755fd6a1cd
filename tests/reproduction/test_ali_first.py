"""ALI-DPFL's first version: every column of its tables is a valid sweep, and the page says what the runs say."""

import pytest

from experiments.ali_first import COLUMNS, FILE, settings_of
from h2fdp.experiment.file import named_document, parse_setting
from h2fdp.sweeps.study import SharedInputs, study_of

SHARED = SharedInputs()


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_a_sweep_whose_budget_is_the_printed_one(name):
    column = COLUMNS[name]
    study = study_of(named_document(FILE), [parse_setting(each) for each in settings_of(column, [1, 2])], SHARED)
    rules = int(column.rounds < column.iterations)
    assert len(study.runs) == 2 * (len(column.fixed) + rules)
    config, _ = SHARED.experiment(study.document, study.runs[0].settings)
    assert config.training.intervals == column.rounds
    assert config.privacy.epsilon == column.epsilon
