"""h2fdp topology new|check|show."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from h2fdp.cli.topology import app
from h2fdp.errors import UserError
from h2fdp.network import read

PAPER = str(Path(__file__).parents[2] / "topologies" / "paper.yaml")


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_new_writes_a_network_whose_trust_each_run_draws(tmp_path):
    run("new", "regular", "--edges", 3, "--devices", 2, "--trust", 0.25, "--out", tmp_path / "n.yaml")
    assert read(tmp_path / "n.yaml", 1).sizes.tolist() == [2, 2, 2]
    assert read(tmp_path / "n.yaml", 1).trust_probability == 0.25
    assert "trusted:" not in (tmp_path / "n.yaml").read_text()


def test_all_levels_of_trust_are_shown_and_counted(tmp_path):
    (tmp_path / "n.yaml").write_text(
        "edges:\n"
        "  - {name: a, trust: secure-sum, devices: {count: 2}}\n"
        "  - {name: b, trust: trusted, devices: {count: 1}}\n"
        "  - {name: c, trust: untrusted, devices: {count: 1}}\n"
        "  - {name: d, trust: relay, devices: {count: 1}}\n"
    )
    shown, checked = run("show", tmp_path / "n.yaml"), run("check", tmp_path / "n.yaml")
    assert "4 edge servers, 1 trusted, 1 with secure sums, 1 relay; 5 devices" in shown
    assert "◆ a  secure-sum" in shown
    assert "◆ secure-sum: " in shown
    assert "▷ d  relay" in shown
    assert "secure sums   1 of 4" in checked
    assert "relays        1 of 4" in checked
    found = json.loads(run("check", tmp_path / "n.yaml", "--json"))
    assert [found[level] for level in ("trusted", "secure_sum", "relay", "untrusted")] == [1] * 4


def test_an_experiment_shows_its_network(tmp_path):
    file = tmp_path / "net.yaml"
    file.write_text("topology: {edges: [{name: a, trusted: true, devices: {count: 2}}]}\ndata: digits\n")
    assert "■ a  trusted" in run("show", file)
    assert "edge servers  1" in run("check", file)
    file.write_text("topology: {edges: [{name: a, devizes: {count: 2}}]}\n")
    with pytest.raises(UserError, match=r"net.yaml:1: topology.edges\[0\].devizes: unknown key"):
        run("check", file)


def test_new_spares_a_file_that_is_there(tmp_path):
    (tmp_path / "n.yaml").write_text("mine")
    with pytest.raises(UserError, match="--overwrite"):
        run("new", "regular", "--out", tmp_path / "n.yaml")
    run("new", "regular", "--trust", "0", "--out", tmp_path / "n.yaml", "--overwrite")
    assert not read(tmp_path / "n.yaml", 1).subnets[0].trusted


@pytest.mark.parametrize(
    "arguments",
    [
        ["ring"],
        ["config1"],
        ["regular", "--edges", "2,3"],
        ["regular", "--edges", 0],
        ["regular", "--edges", ""],
        ["regular", "--trust", "x=1"],
    ],
)
def test_new_refuses_what_a_generator_does_not_take(tmp_path, arguments):
    with pytest.raises(UserError):
        run("new", *arguments, "--out", tmp_path / "n.yaml")
    assert not (tmp_path / "n.yaml").exists()


def test_check_says_what_is_in_a_file():
    output = run("check", PAPER)
    assert "10" in output
    assert "50 (5 under each edge server)" in output
    assert json.loads(run("check", PAPER, "--json"))["devices"] == 50


def test_show_draws_a_tree_and_a_picture(tmp_path):
    assert run("show", PAPER).count("edge-") == 10
    run("show", PAPER, "--out", tmp_path / "n.svg")
    assert (tmp_path / "n.svg").exists()
