"""What secure sums are asked for and cannot do: file, line and key."""

import pytest

from h2fdp import Experiment, Topology
from h2fdp.errors import UserError
from h2fdp.experiment.file import read_experiment
from h2fdp.experiment.network import check_network

FILE = """
topology:
  edges:
    - {name: a, trust: secure-sum, devices: {count: 4}}
    - {name: b, trust: untrusted, devices: {count: 1}}
data: digits
method:
  extends: h2fdp
  privacy: {name: hierarchical, secure_sum: {colluding: 1, dropouts: 1}}
training: {intervals: 2, local_steps: 2}
control: {}
"""
UPPER = "edges: [{name: top, trust: secure-sum, edges: [{name: low, trust: secure-sum, devices: {count: 5}}]}]"


@pytest.fixture
def told(tmp_path):
    """The problems of the file with some of its text replaced, without their folder."""

    def problems(*changes):
        text = FILE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "e.yaml").write_text(text)
        with pytest.raises(UserError) as caught:
            read_experiment(tmp_path / "e.yaml")
        return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]

    return problems


def test_a_tolerance_that_leaves_nobody_is_refused_with_its_line(told):
    (line,) = told(("dropouts: 1", "dropouts: 3"))
    assert line.startswith(
        "e.yaml:9: method.privacy.secure_sum: of 4 devices of a that take part, 1 may collude and 3 "
    )
    (line,) = told(("training: {", "training: {participation: 0.5, "))
    assert "of 2 devices of a that take part, 1 may collude and 1 drop out" in line


def test_a_share_of_drop_outs_counts_those_that_take_part(told, tmp_path):
    (line,) = told(("dropouts: 1", "dropouts: 0.8"))
    assert "1 may collude and 3 drop out" in line
    (tmp_path / "e.yaml").write_text(FILE.replace("dropouts: 1", "dropouts: 0.5"))
    read_experiment(tmp_path / "e.yaml")


@pytest.mark.parametrize(("option", "words"), [
    ("dropouts: 1.5", "dropouts: expected a whole number of at least 0, or a share below 1, found 1.5"),
    ("dropouts: -1", "dropouts: expected a whole number of at least 0, or a share below 1, found -1"),
    ("dropouts: some", 'dropouts: expected a whole number of at least 0, or a share below 1, found "some"'),
    ("rounding: 7", "rounding: expected a whole number of bits from 8 to 32, found 7"),
    ("rounding: 16.5", "rounding: expected a whole number of bits from 8 to 32, found 16.5"),
    ("dropout: 1", "dropout: unknown key; did you mean `dropouts`?"),
])  # fmt: skip
def test_options_that_mean_nothing(told, option, words):
    (line,) = told(("dropouts: 1", option))
    assert line == f"e.yaml:9: method.privacy.secure_sum.{words}"


def test_a_budget_is_refused_where_its_plan_would_not_know_all_messages(tmp_path):
    network = f"topology: {{{UPPER}}}\n"
    rest = FILE.partition("data:")[1] + FILE.partition("data:")[2].replace("colluding: 1, dropouts: 1", "dropouts: 0")
    budget = rest.replace("control: {}", "control: {enabled: true, joules: 1}")
    (tmp_path / "e.yaml").write_text(network + budget)
    with pytest.raises(UserError, match=r"e\.yaml:7: control: what is exchanged for the secure sums of top"):
        read_experiment(tmp_path / "e.yaml")
    (tmp_path / "e.yaml").write_text(network + budget.replace("joules: 1", "accuracy: 0.9"))
    read_experiment(tmp_path / "e.yaml")


def test_other_aggregations_private_estimates_and_tolerances_under_control_are_refused(told):
    (line,) = told(("method:\n", "method:\n  aggregation: fednova\n"))
    assert line.startswith("e.yaml:8: method.aggregation: under secure sums")
    control = ("control: {}", "control: {enabled: true}")
    (line,) = told(control)
    assert line.startswith("e.yaml:9: method.privacy.secure_sum: the controller weighs")
    private = ("control: {}", "control: {enabled: true, estimates: private}")
    (line,) = told(private, ("colluding: 1, dropouts: 1", "colluding: 0"))
    assert line.startswith("e.yaml:11: control.estimates: a secure-sum edge server sees no estimates")


def test_what_a_secure_sum_at_the_cloud_does_not_go_with(told):
    cloud = ("secure_sum: {", "secure_sum: {cloud: true, ")
    (line,) = told(cloud, ("method:\n", "method:\n  topology: star\n"))
    assert line.startswith("e.yaml:10: method.privacy.secure_sum.cloud: in a star the cloud's own edge server has the")
    found = told(cloud, ("control: {}", "control: {enabled: true}"), ("colluding: 1, dropouts: 1", "colluding: 0"))
    assert found[0].startswith("e.yaml:9: method.privacy.secure_sum.cloud: a sum hides what each child")


def test_edge_servers_above_others_may_hold_secure_sums(tmp_path):
    start, end = FILE.index("edges:"), FILE.index("data:")
    (tmp_path / "e.yaml").write_text(FILE.replace(FILE[start:end], f"{UPPER}\n"))
    experiment, topology = read_experiment(tmp_path / "e.yaml")
    check_network(experiment, topology)


@pytest.mark.parametrize("method", ["hfl", "hfl-dp", "fedavg"])
def test_methods_without_secure_sums_take_any_tolerance_of_the_network(tmp_path, method):
    start, end = FILE.index("method:"), FILE.index("training:")
    (tmp_path / "e.yaml").write_text(FILE.replace(FILE[start:end], f"method: {method}\n"))
    experiment, topology = read_experiment(tmp_path / "e.yaml")
    check_network(experiment, topology)


def test_integers_want_clipped_gradients(told):
    """With an input bound there is no clip norm, by which the range of the integers is chosen."""
    bounded = ("secure_sum: {", "input_bound: 1.0, secure_sum: {rounding: 16, ")
    (line,) = told(bounded, ("training: {", "model: softmax\ntraining: {"))
    assert line.startswith("e.yaml:9: method.privacy.secure_sum.rounding: integers stand for vectors of bounded length")


def test_too_few_bits_for_the_noise_are_told():
    topology = Topology.regular(edges=1, devices=3, trust=0.0, secure_sum=1.0)
    privacy = {"name": "hierarchical", "secure_sum": {"rounding": 8}}
    settings = {"method": {"extends": "h2fdp", "privacy": privacy}, "epsilon": 1000.0, "calibration": "paper"}
    run = Experiment(topology, "digits", intervals=1, local_steps=1, batch_size=8, **settings)
    with pytest.raises(UserError, match=r"secure_sum\.rounding: 8 bits are too few for the noise and the updates of"):
        run.prepare()
