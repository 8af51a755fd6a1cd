"""The table of models: a row for each model and level, with the parameters that are trained."""

import sys

import pytest

from benchmarks import models

D, LAYERS, RANK = 128, 2, 8


@pytest.mark.parametrize(
    ("name", "level", "parameters", "rule"),
    [
        ("cnn12", "device", 155_002, "LayeredGradients"),
        ("text-transformer", "record", 1_681_418, "TappedGradients"),
        ("text-transformer+lora", "device", LAYERS * RANK * (D + 3 * D), "FunctionalGradients"),
        ("text-transformer+lora", "record", LAYERS * RANK * (D + 3 * D), "TappedGradients"),
    ],
)
def test_a_row_has_trained_parameters_rate_memory_and_rule(name, level, parameters, rule):
    cells = [each.strip() for each in models.measured(name, level, turns=1).split("|")[1:-1]]
    assert cells[0].split()[0] == name
    assert cells[1:3] == [f"{parameters:,}", level]
    assert float(cells[3].replace(",", "")) > 0
    assert float(cells[4].replace(",", "")) >= 0
    assert cells[5] == rule


def test_a_name_of_no_model_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["models", "resnet19"])
    with pytest.raises(SystemExit):
        models.main()
    assert "found resnet19" in capsys.readouterr().err
