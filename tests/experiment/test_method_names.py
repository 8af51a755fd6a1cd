"""What a method is called in tables, and what a mapping without a name changes of a named one."""

import pytest

from h2fdp.errors import UserError
from h2fdp.experiment.file import read_experiment
from h2fdp.methods import METHODS, MethodSection, name_of


def named(value):
    return name_of(MethodSection.model_validate(value))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_called_as_it_was_named(name):
    assert named(name) == name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"extends": "fedbuff", "privacy": "local"}, "fedbuff, privacy local"),
        ({"extends": "fedasync", "privacy": "local"}, "fedasync, privacy local"),
        ({"extends": "fedbuff", "schedule": {"buffer": {"cloud": 5}}}, "fedbuff, schedule buffered (cloud 5)"),
        ({"extends": "fedbuff", "schedule": {"staleness_power": 1.0}}, "fedbuff"),
        (
            {"extends": "hfl-async", "schedule": {"buffer": {"edge": 3}}},
            "hfl-async, schedule buffered (edge 3, cloud 1)",
        ),
        (
            {"extends": "hfl", "schedule": {"name": "buffered", "deadline_s": 2.5}},
            "semi-sync, schedule buffered (deadline 2.5 s)",
        ),
        ({"extends": "hfl", "schedule": "buffered"}, "hfl, schedule buffered"),
        ({"extends": "h2fdp", "privacy": "dp-sgd"}, "hfl, privacy dp-sgd"),
        ({"extends": "upcycled-fedbuff", "privacy": "local"}, "upcycled-fedbuff, privacy local"),
    ],
)
def test_buffers_are_part_of_a_name_and_other_parameters_are_not(value, name):
    assert named(value) == name


@pytest.mark.parametrize("stated", ["fedbuff", "{topology: star, schedule: buffered}", "{extends: fedbuff}"])
def test_settings_reach_into_an_axis_that_a_word_stands_for(tmp_path, stated):
    (tmp_path / "net.yaml").write_text("edges: [{name: a, devices: {count: 4}}]")
    file = tmp_path / "e.yaml"
    file.write_text(f"topology: net.yaml\ndata: digits\nmethod: {stated}\n")
    config, _ = read_experiment(file, ["method.schedule.buffer.cloud=3"])
    assert config.method.schedule.buffer.model_dump() == {"edge": None, "cloud": 3}
    assert config.method.topology == "star"
    with pytest.raises(UserError, match=r"method\.schedule\.buffer\.edge: .*expected null in a star"):
        read_experiment(file, ["method.schedule.buffer.edge=3"])


def test_a_schedule_without_buffers_says_so(tmp_path):
    (tmp_path / "net.yaml").write_text("edges: [{name: a, devices: {count: 4}}]")
    (tmp_path / "e.yaml").write_text("topology: net.yaml\ndata: digits\nmethod: hfl\n")
    with pytest.raises(UserError, match=r"--set: method\.schedule\.buffer: .*means nothing for fixed"):
        read_experiment(tmp_path / "e.yaml", ["method.schedule.buffer.edge=3"])
