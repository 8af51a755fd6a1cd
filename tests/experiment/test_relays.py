"""What relays are asked for and cannot do: file, line and key."""

import pytest

from h2fdp.errors import UserError
from h2fdp.experiment.file import read_experiment

FILE = """
topology:
  edges:
    - {name: a, trust: relay, devices: {count: 4}}
    - {name: b, trust: relay, devices: {count: 1}}
data: digits
method:
  extends: h2fdp
  privacy: {name: hierarchical, secure_sum: {colluding: 1, dropouts: 3}}
training: {extends: paper, intervals: 2, local_steps: 2, aggregate_every: 2}
privacy: {}
control: {}
"""


@pytest.fixture
def told(tmp_path):
    """The problems of the file with some of its text replaced, without their folder; none where it is read."""

    def problems(*changes):
        text = FILE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "e.yaml").write_text(text)
        try:
            read_experiment(tmp_path / "e.yaml")
        except UserError as error:
            return [line.removeprefix(f"{tmp_path}/") for line in str(error).splitlines()]
        return []

    return problems


def test_tolerances_are_about_all_devices_of_the_network(told):
    assert told() == []
    (line,) = told(("dropouts: 3", "dropouts: 4"))
    assert line.startswith("e.yaml:9: method.privacy.secure_sum: of 5 devices that take part, 1 may collude and 4 drop")


def test_a_sum_spans_the_whole_network_or_there_is_none(told):
    for other in ("untrusted", "trusted", "secure-sum"):
        (line,) = told(("{name: b, trust: relay", f"{{name: b, trust: {other}"))
        assert line.startswith(
            "e.yaml:2: topology: a relays masked vectors of one sum over the whole network; expected"
        )
        assert line.endswith(f"relay for all edge servers, found b {other}")
    deep = "{name: c, edges: [{name: b, trust: relay, devices: {count: 1}}], trust: %s}"
    b = "{name: b, trust: relay, devices: {count: 1}}"
    (line,) = told((b, deep % "trusted"))
    assert line.endswith("found c trusted")
    assert told((b, deep % "relay")) == []


def test_no_edge_server_averages_between_two_models_of_the_cloud(told):
    (line,) = told(("aggregate_every: 2", "aggregate_every: 1"))
    assert line == (
        "e.yaml:10: training.aggregate_every: a relays masked vectors of one sum over the whole network; "
        "expected at least local_steps, 2, found 1"
    )
    (line,) = told(("aggregate_every: 2", "aggregations_per_interval: 1"))
    assert line.startswith("e.yaml:10: training.aggregations_per_interval: ")
    assert line.endswith("expected 0, found 1")
    (line,) = told(("aggregate_every: 2", "aggregate_every: {relay: 1}"))
    assert line.endswith("expected at least local_steps, 2, found {'relay': 1}")
    assert (
        told(("extends: paper, intervals: 2, local_steps: 2, aggregate_every: 2", "extends: auto, intervals: 2")) == []
    )


def test_what_needs_subnets_is_refused(told):
    tolerance = ("colluding: 1, dropouts: 3", "dropouts: 0")
    (line, *_) = told(tolerance, ("control: {}", "control: {enabled: true}"))
    assert line.startswith("e.yaml:12: control.enabled: a relays masked vectors of one sum over the whole network")
    (line,) = told(("  edges:\n", "  radio: {access: over-the-air}\n  edges:\n"), tolerance)
    assert line.startswith("e.yaml:3: topology.radio.access: signals add up in the air as they are; expected tdma")
    (line,) = told(("  extends: h2fdp\n", "  extends: h2fdp\n  aggregation: fednova\n"))
    assert line.startswith("e.yaml:9: method.aggregation: secure sums show one sum")
    accounted = ("privacy: {}", "privacy: {calibration: accounted}")
    buffered = "  extends: h2fdp\n  schedule: {name: buffered, buffer: {edge: 2}}\n"
    (line,) = told(("  extends: h2fdp\n", buffered), accounted)
    assert "no sums of all devices that take part in a round" in line
    (line,) = told(("  edges:\n", "  mobility: {trace: []}\n  edges:\n"), accounted)
    assert line.endswith("expected no secure sums, found those of a")


@pytest.mark.parametrize("privacy", ["local", "none", "{name: dp-sgd, noise_multiplier: 1.0}"])
def test_other_methods_take_relays_for_untrusted(told, privacy):
    """As they take secure sums: then any edge server may be one, and edge servers aggregate."""
    whole = FILE[FILE.index("{name: hierarchical") : FILE.index("\ntraining")]
    changes = [("aggregate_every: 2", "aggregate_every: 1"), ("{name: b, trust: relay", "{name: b, trust: trusted")]
    assert told((whole, privacy), *changes) == []
