"""Local aggregations of several tiers in an experiment file: `training.aggregate_every: [2, 4]`."""

import pytest
import yaml

from h2fdp.errors import UserError
from h2fdp.experiment.file import read_experiment

TWO_TIERS = {"edges": [{"name": "west", "devices": {"count": 2}}, {"name": "east", "devices": {"count": 1}}]}
THREE_TIERS = {"edges": [{"name": "region", "edges": TWO_TIERS["edges"]}]}


def experiment(folder, topology, **training):
    file = folder / "deep.yaml"
    file.write_text(
        yaml.safe_dump({"data": "digits", "method": "hfl", "topology": topology, "training": training}, sort_keys=False)
    )
    return read_experiment(file)


@pytest.mark.parametrize("training", [{"aggregate_every": [2, 4]}, {"aggregations_per_interval": [4, 2]}])
def test_a_network_of_three_tiers_takes_two_numbers(tmp_path, training):
    config, network = experiment(tmp_path, THREE_TIERS, **training)
    assert network.depth == 2
    assert training.items() <= config.model_dump()["training"].items()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"aggregate_every": [2, 3]}, "each a multiple of the one before, found [2, 3]"),
        ({"aggregate_every": 0}, "aggregate_every: expected a whole number of at least 1, found 0"),
        ({"aggregations_per_interval": [0, 2]}, "each a divisor of the one before, or 0, found [0, 2]"),
        ({"aggregate_every": [2], "aggregations_per_interval": [1]}, "exactly one of aggregate_every and"),
    ],
)
def test_what_means_nothing_is_refused_with_its_key(tmp_path, training, message):
    with pytest.raises(UserError) as raised:
        experiment(tmp_path, THREE_TIERS, **training)
    assert message in str(raised.value)


def test_more_numbers_than_tiers_are_refused_with_their_line(tmp_path):
    with pytest.raises(UserError) as raised:
        experiment(tmp_path, TWO_TIERS, aggregate_every=[2, 4])
    text = "expected at most one number for each tier of edge servers, found 2 for one tier"
    (line,) = [n for n, each in enumerate((tmp_path / "deep.yaml").read_text().splitlines(), 1) if "every" in each]
    assert str(raised.value) == f"{tmp_path / 'deep.yaml'}:{line}: training.aggregate_every: {text}"
