"""What secure sums are asked for and cannot do: file, line and key."""

import pytest

from h2fdp.errors import UserError
from h2fdp.experiment.file import read_experiment

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


def test_a_budget_is_refused_where_its_plan_would_not_know_all_messages(tmp_path):
    network = f"topology: {{{UPPER}}}\n"
    rest = FILE.partition("data:")[1] + FILE.partition("data:")[2].replace("colluding: 1, dropouts: 1", "dropouts: 0")
    budget = rest.replace("control: {}", "control: {enabled: true, joules: 1}")
    (tmp_path / "e.yaml").write_text(network + budget)
    with pytest.raises(UserError, match=r"e\.yaml:7: control: .*no plan has the messages for the sums of top"):
        read_experiment(tmp_path / "e.yaml")
    (tmp_path / "e.yaml").write_text(network + budget.replace("joules: 1", "accuracy: 0.9"))
    read_experiment(tmp_path / "e.yaml")


def test_other_aggregations_and_tolerances_under_control_are_refused(told):
    (line,) = told(("method:\n", "method:\n  aggregation: fednova\n"))
    assert line.startswith("e.yaml:8: method.aggregation: secure sums show one sum")
    control = ("control: {}", "control: {enabled: true}")
    (line,) = told(control)
    assert line.startswith("e.yaml:9: method.privacy.secure_sum: ")
    assert line.endswith("as the controller knows no more noise, found 1")


def test_what_a_sum_at_the_cloud_cannot_do_is_refused_with_its_line(told):
    cloud, plain = (
        ("topology:\n", "topology:\n  cloud: {trust: secure-sum}\n"),
        ("colluding: 1, dropouts: 1", "colluding: 0"),
    )
    (line,) = told(cloud, plain, ("method:\n", "method:\n  topology: star\n"))
    assert line.startswith("e.yaml:3: topology.cloud.trust: ")
    assert "expected untrusted in a star" in line
    (line,) = told(cloud, plain, ("control: {}", "control: {enabled: true}"))
    assert line.startswith("e.yaml:3: topology.cloud.trust: ")
    assert "or a schedule that is fixed before the run" in line
    (line,) = told(("colluding: 1, ", "cloud: true, "))
    assert line == "e.yaml:9: method.privacy.secure_sum.cloud: unknown key; did you mean `topology.cloud.trust`?"


def test_integers_want_clipped_gradients(told):
    """With an input bound there is no clip norm, by which the range of the integers is chosen."""
    bounded = ("secure_sum: {", "input_bound: 1.0, secure_sum: {rounding: 16, ")
    (line,) = told(bounded, ("training: {", "model: softmax\ntraining: {"))
    assert line.startswith("e.yaml:9: method.privacy.secure_sum.rounding: secure sums show one sum")
