"""Studies by one curve: which networks are asked for, what the curve says, when all networks are run instead."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.cli.main import app
from h2fdp.sweeps.plan import SharedInputs, read_sweep

EDGES = "[{name: 'edge-{i}', repeat: 4, trusted: false, devices: {count: 5, distance_m: 50}}]"
STUDY = "{trust: [0, 1], epsilon: [2, 50], joules: 0.05}"


def written(folder, study=STUDY, edges=EDGES, more="training: {extends: auto, intervals: 3}\n"):
    path = folder / "town.yaml"
    base = f"topology: {{edges: {edges}}}\ndata: {{name: digits, partition: iid}}\nmodel: softmax\n"
    path.write_text(f"{base}privacy: {{noise_key: seed}}\n{more}study: {study}\n")
    return path


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return folder, h2fdp.study(written(folder), out=folder / "out", verify=3)


def test_each_network_has_its_plan_and_the_curve_says_its_accuracy(studied):
    _, found = studied
    table = found.table
    assert table[["trust", "epsilon"]].to_numpy().tolist() == [
        [0, 2],
        [1, 2],
        [0, 50],
        [1, 50],
    ]  # though a file states trust
    assert table["noise"].is_monotonic_decreasing
    ratio = table["noise"][0] / table["noise"][1]
    assert ratio == pytest.approx((20 / 4) ** 0.5, rel=1e-3)
    assert table["score"].is_monotonic_increasing
    assert (table["low"] < table["score"]).all()
    assert found.why == ""
    assert len(found.runs) == 21
    assert found.score == "accuracy"


def test_networks_that_were_run_lie_in_the_band(studied):
    """Of three networks, each within four halves of its band: a chance of error below 1e-4."""
    _, found = studied
    verified = found.table.dropna(subset="measured")
    assert len(verified) == 3
    assert (abs(verified["measured"] - verified["score"]) < 2 * (verified["high"] - verified["low"])).all()


def test_the_ends_of_the_curve_are_ordinary_runs_of_the_smallest_network(studied):
    folder, found = studied
    epsilons = [f"privacy.epsilon={each}" for each in (2.0, 50.0)]
    assert (found.directory / "curve" / "runs" / f"{epsilons[0]},seed=1").is_dir()
    settings = ["topology.edges[0].trusted=null", "topology.trust={trusted: 0, exact: true}", *epsilons[:1]]
    alone = Experiment.from_file(folder / "town.yaml", settings).run(folder / "alone")
    assert float(alone.metrics["accuracy"].iloc[-1]) == found.runs[0][1]


def test_the_same_command_makes_no_run_again(studied):
    folder, found = studied
    before = {path: path.stat().st_mtime_ns for path in found.directory.rglob("metrics.parquet")}
    again = h2fdp.study(written(folder), out=folder / "out", verify=3)
    assert {path: path.stat().st_mtime_ns for path in found.directory.rglob("metrics.parquet")} == before
    assert len(before) == 24
    assert again.table.equals(found.table)


def test_the_best_network_is_one_that_the_joules_pay_for(studied):
    _, found = studied
    dear = found.table["joules"].max()
    assert found.best is None or found.best.row["joules"] <= 0.05
    free = replace(found, joules=dear)
    assert free.best.row["score"] == found.table["score"].max()


def called(*arguments):
    return CliRunner().invoke(app, ["study", *map(str, arguments)], env={"COLUMNS": "80"})


def test_the_command_shows_tables_of_80_columns_and_writes_files(studied):
    folder, found = studied
    done = called(folder / "town.yaml", "--out", folder / "out", "--verify", 3)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "test accuracy, %: predicted, and half of the 95 % band of one run"
    assert lines[1].split() == ["epsilon", "trust", "0", "trust", "1"]
    assert "21 runs at 7 noises for 4 networks" in done.stdout
    assert max(map(len, lines[: lines.index(next(line for line in lines if line.startswith("files")))])) <= 80
    for name in ("study.csv", "study.json", "map.png", "report.html"):
        assert (found.directory / name).stat().st_size > 100
    as_json = json.loads(called(folder / "town.yaml", "--out", folder / "out", "--json").stdout)
    assert len(as_json["networks"]) == 4
    assert as_json["networks"] == json.loads((found.directory / "study.json").read_text())["networks"]


def test_where_more_than_noise_decides_all_networks_are_run(tmp_path, capsys):
    file = written(tmp_path, more="training: {extends: auto, intervals: 1, local_steps: 2}\n")
    found = h2fdp.study(file, out=tmp_path / "out")
    assert "drift apart" in found.why
    assert found.curve is None
    assert found.table["measured"].notna().all()
    assert found.table["score"].isna().all()
    assert "no curve stands for these networks" in capsys.readouterr().err
    many = "{trust: [0, 0.2, 0.4, 0.6, 0.8, 1], epsilon: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}"
    with pytest.raises(
        UserError, match=r"study: no curve stands .*drift apart.* All 66 .*h2fdp sweep .*many/sweep.yaml"
    ):
        h2fdp.study(written(tmp_path, many, more="training: {extends: auto, local_steps: 2}\n"), out=tmp_path / "many")
    assert len(read_sweep(tmp_path / "many" / "sweep.yaml", [], SharedInputs()).runs) == 66


def test_networks_have_other_sizes_and_as_many_records(tmp_path):
    file = written(tmp_path, "{trust: null, epsilon: [8], edges: [2, [3, 2]]}")
    found = h2fdp.study(file, out=tmp_path / "out")
    assert found.table[["edges", "devices"]].to_numpy().tolist() == [[2, 10], [3, 6]]
    with pytest.raises(UserError, match=r"study\.edges: expected a network with one line"):
        h2fdp.study(
            written(tmp_path, "{edges: [2]}", "[{name: a, devices: {count: 1}}, {name: b, devices: {count: 1}}]")
        )


def test_an_experiment_of_python_is_studied(tmp_path):
    network = Topology.regular(edges=2, devices=2, trust=0.5)
    training = {"extends": "auto", "intervals": 2}
    experiment = Experiment(topology=network, data="digits", model="softmax", training=training)
    found = h2fdp.study(experiment, out=tmp_path / "out", trust=[0, 1], epsilon=[30])
    assert found.table["trust"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{trust: [2]}", r"town\.yaml:6: study\.trust\[0\]: expected a number from 0 to 1, found 2"),
        ("{epsilon: []}", r"town\.yaml:6: study\.epsilon: expected a list"),
        ("{edges: [[1]]}", r"town\.yaml:6: study\.edges\[0\]: expected a number of edge servers, or a pair"),
        ("{trusts: [1]}", r"town\.yaml:6: study\.trusts: unknown key; did you mean `trust`"),
    ],
)
def test_mistakes_have_their_line(tmp_path, section, said):
    with pytest.raises(UserError, match=said):
        h2fdp.study(written(tmp_path, section))


def test_another_directory_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("all of it")
    with pytest.raises(UserError, match="something other than a study"):
        h2fdp.study(written(tmp_path), out=tmp_path / "out")


def test_a_method_without_noise_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"method\.privacy: this method adds no noise"):
        h2fdp.study(written(tmp_path, more="method: hfl\n"), out=tmp_path / "out")
