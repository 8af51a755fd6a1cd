"""What a run says that did not learn: that its model is not finite or diverged, and how to see whether noise is why."""

import pytest

from h2fdp import Experiment, Topology, report
from h2fdp.cli.run import learned, show_result

NETWORK = Topology.regular(edges=1, devices=3)


FILE = """
topology: {edges: [{name: a, devices: {count: 2}}]}
data: digits
model: softmax
training: {local_steps: 1, batch_size: 4, step_size: 1000, clip_norm: 1.0}
privacy: {epsilon: 0.01}
runtime: {backend: inline}
"""
SHORT = {"data": "digits", "intervals": 3, "local_steps": 4, "batch_size": 16}


def experiment(method="hfl", **settings):
    return Experiment(NETWORK, method=method, **SHORT | settings)


@pytest.mark.run
@pytest.mark.parametrize("method", ["hfl", "scaffold", "moon"])
def test_a_model_that_is_not_finite_is_not_reported_as_a_result(tmp_path, capsys, method):
    made = experiment(method, model="mlp", step_size=1e9, step_decay="none")
    run = made.run(tmp_path / "run")
    first = next(row.interval for row in run.metrics.itertuples() if not abs(row.loss) < float("inf"))
    assert run.summary["not_finite_from"] == first
    show_result(run.summary, tmp_path / "run", learned(run.summary, made.config, "h2fdp run file.yaml"))
    shown = " ".join(capsys.readouterr().out.split())
    assert f"not finite the test loss, since interval {first}: the scores say nothing" in shown
    page = report([tmp_path / "run"]).read_text()
    assert f"is no finite number since interval {first}; its scores say nothing." in page


SUMMARY = {"loss": 2.3, "not_finite_from": None, "classes": 10, "accuracy": 0.5, "noise_std": []}


@pytest.mark.parametrize(
    ("classes", "loss", "words"), [(10, 16_720.0, "7,261 times that of a guess, 2.3"), (10, 23.0, ""), (2, 6.9, "")]
)
def test_a_loss_of_more_than_ten_guesses_has_diverged(classes, loss, words):
    found = learned(SUMMARY | {"loss": loss, "classes": classes}, experiment().config, "h2fdp run file.yaml")
    assert words in found.get("diverged", "")
    assert bool(found) is bool(words)


@pytest.mark.parametrize(("since", "line"), [(2, "not finite"), (None, "diverged")])
def test_columns_without_ranges_are_named_where_a_step_size_is_not_to_blame(since, line):
    summary = SUMMARY | {"loss": 1e6, "not_finite_from": since, "columns_without_ranges": ["age", "income"]}
    found = learned(summary, experiment().config, "h2fdp run file.yaml")[line]
    assert found.endswith("; data.ranges of age, income may help: these inputs are not scaled")
    assert "step_size" not in found


@pytest.mark.run
def test_a_run_at_chance_is_repeated_without_noise_by_one_method(tmp_path, capsys):
    """Whatever method the command states."""
    from h2fdp.cli.run import run_command

    (tmp_path / "e.yaml").write_text(FILE)
    settings = ["method=h2fdp", "method.server.name=momentum", "training.intervals=1"]
    run_command(tmp_path / "e.yaml", settings, out=tmp_path / "run", quiet=True)
    shown = "".join(capsys.readouterr().out.split())
    assert "e.yaml--settraining.intervals=1--setmethod=hfl" in shown
