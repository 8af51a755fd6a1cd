"""What the command says of mistakes, and what it can list: nothing is run."""

import json
import re
import sys

import pytest

from h2fdp.cli.terminal import print_table
from h2fdp.wording import word, wrapped
from tests.cli.conftest import SMALL


@pytest.mark.parametrize("command", ["methods", "models", "data", "schema"])
def test_the_catalogues_print_json_and_tables(h2fdp, command):
    assert json.loads(h2fdp(command, *([] if command == "schema" else ["--json"])).stdout)
    assert "Traceback" not in h2fdp(command).stderr


WRONG = {
    "training.intervals=two": "training.intervals: expected a whole number of at least 1",
    "training.interval=5": "training.interval: unknown key; did you mean `intervals`?",
    "epsilo=5": "epsilo: unknown key; did you mean `privacy.epsilon`?",
    "privacy.accountant=pdl": 'expected one of rdp, pld, classic-rdp, found "pdl"; did you mean `pld`?',
    "training.step_size=.nan": "training.step_size: expected a number from 1e-9 to 1e9, found NaN",
    "training={batch_size: 8, sampling_rate: 0.1}": "exactly one of batch_size and sampling_rate, found both",
    "privacy.delta=1.5": "privacy.delta: expected a number of at least 1e-300, and below 1",
    "topology.trust.probability=1.2": "trust.probability: expected a number from 0 to 1, found 1.2",
    "method={server: my_server.Halved}": 'found "my_server.Halved"; did you mean `my_server:Halved`?',
    "method=h2pdf": "method: expected one of hfl, hfl-dp, h2fdp, h2fdp-adaptive, pedpfl, ",
    "seed=1.5": "seed: expected a whole number of at least 0, found 1.5",
    "training.clip_norm=null": "training.clip_norm: a guarantee needs clipped gradients",
    "nonsense": "expected key=value",
    f"topology={'x' * 5000}": "topology: no such file",
    "privacy.budget={clud: 1}": (
        "privacy.budget.clud: expected one of edge, peer, cloud, public, or tier-2, tier-3, ... in deeper networks, "
        'found "clud"; did you mean `cloud`?'
    ),
    "method={extends: h2fdp, schedule: {name: buffered, deadline_s: medien}}": (
        '--set: method.schedule.deadline_s: expected a finite number above 0 or median, found "medien"\n'
    ),
    "privacy.target_observers=[tier-2]": "--set: privacy.target_observers: in this network expected one of edge, ",
}


@pytest.mark.parametrize(("setting", "words"), WRONG.items())
def test_a_wrong_value_gets_one_line_and_exit_code_2(h2fdp, experiment, tmp_path, setting, words):
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", setting, "--quiet")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("model:\n  name: softmax\n  from: missing.pt\n", "model.from: expected a run directory or a model's file"),
        ("data:\n  name: digits\n  public: 1.0e-9\n", "data.public: a share of 1e-09 of these data does not hold out "),
        ("method:\n  privacy:\n    {name: hierarchical, input_bound: 1}\n", "method.privacy.input_bound: a device "),
    ],
)
def test_what_the_data_or_other_files_show_to_be_wrong_has_its_line_too(h2fdp, tmp_path, line, words):
    file = tmp_path / "late.yaml"
    topology = "topology: {edges: [{name: a, devices: {count: 2}}]}\n"
    file.write_text(line + topology + "training: {intervals: 1}\n")
    if "data" not in line:
        file.write_text(file.read_text() + "data: digits\n")
    done = h2fdp("run", file, "--dry-run")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}:3: {words}")


@pytest.mark.parametrize(
    "content",
    [b"\x00\x01\x02\xff", b"a: [1, 2", b"a: !!python/object/apply:os.system [ls]", b"a: " + b"x" * 10_000_000],
)
def test_what_is_no_experiment_file_is_refused_without_a_traceback(h2fdp, tmp_path, content):
    file = tmp_path / "file.yaml"
    file.write_bytes(content)
    done = h2fdp("run", file)
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 2_000


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("nets", "expected a file, found a directory: "),
        ("networks/of-last-year/in-the-north/city-centre.yaml", "in-the-north/city-centre.yaml"),
    ],
)
def test_a_topology_that_is_no_file_names_the_experiments_line_and_key(h2fdp, tmp_path, wanted, found):
    (tmp_path / "nets").mkdir()
    file = tmp_path / "wrong.yaml"
    file.write_text("".join(f"topology: {wanted}\n" if "edges" in line else line for line in SMALL.splitlines(True)))
    for settings in ([], ["--set", "topology.trust.probability=0.5"]):
        done = h2fdp("run", file, *settings)
        assert (done.returncode, done.stderr.startswith(f"{file}:2: topology: ")) == (2, True)
        assert found in done.stderr


def test_plan_names_the_line_of_a_schedule_that_it_does_not_plan(h2fdp, experiment):
    setting = "method={extends: h2fdp, schedule: buffered}"
    done = h2fdp("plan", experiment, "--set", setting)
    assert done.returncode == 2
    assert done.stderr.startswith("--set: method.schedule: the controller takes the place of a fixed schedule")


@pytest.mark.run
def test_a_tracker_that_is_not_installed_names_its_line(h2fdp, experiment, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = h2fdp("run", experiment, "--out", tmp_path / "run", "--set", "tracking.wandb=trees", "--quiet")
    assert done.returncode == 2
    assert "\n--set: tracking.wandb: Weights & Biases is not installed" in done.stderr


def test_explain_says_in_plain_lines_who_learns_what_and_what_would_buy_most(h2fdp, experiment):
    lines = h2fdp("privacy", "explain", experiment).stdout.splitlines()
    assert lines == h2fdp("explain", experiment).stdout.splitlines()
    assert lines[0].startswith("what is learned about one record")
    assert any(line.startswith("pays most  training and model: auto") for line in lines)
    assert lines[1].split() == ["observer", "epsilon", "receives"]
    rows = lines[2 : lines.index("")]
    names = [row[: lines[1].index("epsilon")].strip() for row in rows]
    assert [name for name in names if name] == ["edge", "peer", "cloud, public"]
    assert max(map(len, lines)) <= 80
    found = json.loads(h2fdp("privacy", "explain", experiment, "--json").stdout)
    assert found["lines"] == lines
    assert [row["sections"] for row in found["pays"]] == [["training"], ["training", "model"]]


def test_a_users_own_code_that_fails_is_told_above_its_traceback_and_leaves_no_run(h2fdp, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    file = tmp_path / "own.yaml"
    file.write_text(SMALL + "method: {extends: h2fdp, server: own_shaky:Shaky}\n")
    (tmp_path / "own_shaky.py").write_text(
        "class Shaky:\n    variate, state, load = None, dict, print\n"
        "    def apply(self, model, uploaded):\n        raise ValueError('not today')\n"
    )
    done = h2fdp("run", file, "--out", tmp_path / "run")
    sys.modules.pop("own_shaky", None)
    line = SMALL.count("\n") + 1
    first, *trace = done.stderr.splitlines()
    assert first.startswith(f"{file}:{line}: method.server: {tmp_path}/own_shaky:Shaky.apply fails: ")
    assert first.endswith("own_shaky.py:4: ValueError: not today")
    assert trace[0] == "Traceback (most recent call last):"
    assert "h2fdp/" not in "".join(trace[:3])
    assert done.returncode == 2
    assert not (tmp_path / "run").exists()


def test_ctrl_c_before_anything_runs_is_answered_in_a_line(h2fdp, experiment, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("h2fdp.tuning.plan.read_plan", interrupted)
    done = h2fdp("tune", experiment)
    assert (done.returncode, done.stderr.strip()) == (130, "stopped")


@pytest.mark.parametrize("command", [["resume"], ["report"], ["table"], ["plot"], ["runs"], ["runs", "--check"]])
def test_a_folder_that_is_not_there_is_named(h2fdp, tmp_path, command):
    done = h2fdp(*command, tmp_path / "runs" / "fist")
    assert (done.returncode, done.stderr) == (2, f"{tmp_path}/runs/fist: no such directory\n")
    (tmp_path / "runs" / "fist").mkdir(parents=True)
    if command[0] != "runs":
        assert ": not a " in h2fdp(*command, tmp_path / "runs" / "fist").stderr


def test_headings_of_a_table_wrap_and_none_is_cut(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    heads = ["probability", "epsilon", *(f"difference in {each}" for each in ("test accuracy, points", "energy, J"))]
    rows = [dict(zip(heads, ("0.25", "2", "-0.6 ± 10.5", "0.0012 ± 0.0004"), strict=True))]
    print_table(rows * 2)
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 80
    rule = next(at for at, line in enumerate(shown) if "──" in line)
    assert all(word in " ".join(shown[:rule]).split() for head in heads for word in head.split())
    assert shown[rule + 1].split() == ["0.25", "2", "-0.6", "±", "10.5", "0.0012", "±", "0.0004"]


def test_half_of_an_interval_stands_under_its_mean_where_a_table_of_costs_to_a_target_is_too_wide(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    row = {"probability": 0.5, "epsilon": 0.1, "test accuracy, %": "94.81 ± 1.81", "epsilon (pld)": 0.1998}
    row |= {"energy, J": "10.13 ± 9.17", "intervals to 80 %": "12.5 ± 6.4", "J to 80 %": "0.0334 ± 0.0744"}
    print_table([row | {"s to 80 %": "0.0310 ± 0.0790"}, row | {"s to 80 %": "2 of 3"}])
    shown = capsys.readouterr().out.splitlines()
    rule = next(at for at, line in enumerate(shown) if "──" in line)
    assert max(map(len, shown)) <= 80
    assert shown[rule + 1].split() == ["0.5", "0.1", "94.81", "0.1998", "10.13", "12.5", "0.0334", "0.0310"]
    assert shown[rule + 2].split() == ["±", "1.81", "±", "9.17", "±", "6.4", "±", "0.0744", "±", "0.0790"]
    assert [line.rstrip()[-6:] for line in shown[rule + 3 :]] == ["2 of 3", "0.0744"]


KEYS = {"training.step_size": 0.0012345, "training.intervals": 30, "method.server.momentum": 0.9}


def test_keys_and_names_in_a_table_break_between_words_or_stand_below_each_other(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    numbers = {"trial": 12, "accuracy": 0.8123, "joules": 0.01234, "seconds": 1234.5}
    runs = {"method": "h2fdp-adaptive", "state": "interrupted", "intervals": "13 of 150", "wall s": 1234.5}
    for row in (
        numbers | KEYS,
        numbers | KEYS | {"topology.trust.probability": 0.25, "privacy.correlated.bands": 4},
        {"run": "out/seed=1,privacy.epsilon=1,training.step_size=1e-05"} | runs,
        {"run": "fashion-mnist-h2fdp-20261128-171200"} | runs | {"accuracy": 0.8123, "epsilon": 20.5},
    ):
        print_table([row, row])
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80
        words = " ".join([*row, *map(word, row.values())])
        assert set(re.findall(r"\w+", words)) == set(re.findall(r"\w+", shown))


def test_a_plan_says_which_values_it_plans_with(h2fdp, experiment):
    done = h2fdp("plan", experiment, "--set", "training=auto", "--set", "privacy.calibration=accounted")
    assert " (sqrt): by it noise moves the last scores by " in done.stdout
    assert "hypothetical: control.enabled is false" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("command", "near"),
    [
        (["privacy", "audit", "FILE", "--canaries", 2, "--observer", "clud"], "cloud"),
        (["privacy", "account", "FILE", "--accountant", "pdl"], "pld"),
        (["topology", "new", "depe", "--out", "a.yaml"], "deep"),
        (["topology", "new", "deep", "--out", "a.yaml", "--trust", "trusetd=0.5"], "trusted"),
        (["schema", "topologie"], "topology"),
    ],
)
def test_the_name_that_was_meant_is_suggested(h2fdp, experiment, command, near):
    done = h2fdp(*(experiment if each == "FILE" else each for each in command))
    assert (done.returncode, done.stderr.rpartition("; ")[2]) == (2, f"did you mean `{near}`?\n")


@pytest.fixture
def terminal(h2fdp, monkeypatch):
    """The command, its standard error a terminal of 80 columns."""

    def called(*arguments):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return h2fdp(*arguments)

    return called


def test_a_mistake_is_a_line_in_a_pipe_and_as_wide_as_a_terminal(h2fdp, terminal, experiment):
    settings = ["--set", "method=h2pdf", "--set", "training.interval=5"]
    piped = h2fdp("run", experiment, *settings).stderr
    shown = terminal("run", experiment, *settings).stderr
    assert len(piped.splitlines()) == 2
    assert all(line.startswith("--set: ") for line in piped.splitlines())
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if not line.startswith("  ")] == [lines[0], lines[-1]]
    assert shown.split() == piped.split()


@pytest.mark.parametrize("name", ["a file of mine.yaml", f"{'a' * 90}.yaml"])
def test_a_path_is_never_broken(terminal, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(SMALL.replace("softmax", f'"{"a model " * 6}"'))
    lines = terminal("run", name).stderr.splitlines()
    assert lines[0].startswith(f"{name}:4:")
    assert any('"a model a model' in line and '..."' in line for line in lines)


def test_what_is_copied_is_never_broken(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = 'the disk is full, "at any rate, so it seems"; make room, then continue with: h2fdp resume runs/a --quiet'
    assert '\n "at any rate, so it seems";\n' in wrapped(text, indent=" ")
    assert wrapped(text).endswith("\nwith: h2fdp resume runs/a --quiet")
    assert wrapped("a key `a: {b: c, d: e}` is wrong").splitlines() == ["a key", "`a: {b: c, d: e}` is", "wrong"]


def test_a_file_that_is_not_there_may_have_nearly_the_name_of_another(h2fdp, experiment, tmp_path):
    missing = tmp_path / "smal.yaml"
    for command in (["run", missing], ["plan", missing], ["topology", "check", missing], ["run", experiment]):
        settings = ["--set", f"topology={missing}"] if experiment in command else []
        done = h2fdp(*command, *settings)
        assert (done.returncode, done.stderr.rpartition("; ")[2]) == (2, "did you mean `small.yaml`?\n")
    assert h2fdp("run", tmp_path / "other.yaml").stderr == f"{tmp_path}/other.yaml: no such file\n"
    assert h2fdp("runs", experiment).stderr == f"{experiment}: expected a directory, found a file\n"
    (tmp_path / "first").mkdir()
    assert h2fdp("report", tmp_path / "frist").stderr.endswith("no such directory\n")
    assert h2fdp("report", tmp_path / "firt").stderr.endswith("no such directory; did you mean `first`?\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topology: {edges: [\n", ":2: not valid YAML: .*; is a bracket or a brace before it still open"),
        ("data: digits\n  model: softmax\n", ":2: not valid YAML: .*; is it indented as the lines before it"),
        ("data: digits\n model\n", ":1: data: expected one of "),
        ("topology: {edges: []}\n", ":1: data: the key is missing; expected a data set's name, as digits, or keys"),
        ("data: {name: digits, partition: dirichlet}\n", "expected iid, natural, or a key with a value, as "),
    ],
)
def test_a_file_that_is_written_wrongly_says_what_would_be_right(h2fdp, tmp_path, text, words):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    done = h2fdp("run", file)
    assert done.returncode == 2
    assert re.search(words, done.stderr), done.stderr
    assert all(line.startswith(f"{file}:") for line in done.stderr.splitlines())


def test_a_network_is_imported_from_files_of_some_kinds(h2fdp, experiment, tmp_path):
    done = h2fdp("topology", "import", experiment, "--out", tmp_path / "net.yaml")
    assert done.stderr == f"{experiment}: expected a name that ends in .gml, .graphml, .xml, .json, or .csv\n"


@pytest.mark.run
def test_what_a_check_says_is_as_wide_as_a_terminal(h2fdp, experiment, tmp_path, monkeypatch):
    assert h2fdp("run", experiment, "--out", tmp_path / "run", "--quiet").returncode == 0
    piped = h2fdp("runs", tmp_path / "run", "--check").stdout
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = h2fdp("runs", tmp_path / "run", "--check").stdout
    assert max(map(len, shown.splitlines()[1:])) <= 80 < max(map(len, piped.splitlines()))
    assert shown.split() == piped.split()


def test_an_account_needs_a_ledger_and_a_delta(h2fdp, experiment, tmp_path):
    found = (
        "expected a run directory or a ledger (privacy.jsonl), found an experiment file; before a run: h2fdp privacy"
    )
    assert h2fdp("privacy", "account", experiment).stderr == f"{experiment}: {found} calibrate {experiment}\n"
    ledger = tmp_path / "privacy.jsonl"
    ledger.write_text("")
    either = "state --delta, or name the run's directory, which states its own"
    assert h2fdp("privacy", "account", ledger).stderr == f"{ledger}: a ledger alone states no delta; {either}\n"


@pytest.mark.parametrize("command", ["explain", "calibrate"])
def test_a_method_without_noise_is_named_with_its_line(h2fdp, experiment, command):
    text = "method: expected a method that adds noise, as h2fdp; found hfl, which adds none\n"
    assert h2fdp("privacy", command, experiment, "--set", "method=hfl").stderr == f"--set: {text}"
    experiment.write_text(SMALL + "method: hfl\n")
    done = h2fdp("privacy", command, experiment)
    line = SMALL.count("\n") + 1
    assert (done.returncode, done.stderr) == (2, f"{experiment}:{line}: {text}")


def test_a_wrong_observer_is_named_before_anything_is_read(h2fdp, tmp_path):
    done = h2fdp("privacy", "audit", tmp_path / "none.yaml", "--canaries", 2, "--observer", "nobody")
    found = '--observer: expected one of edge, peer, cloud, public, found "nobody"\n'
    assert (done.returncode, done.stderr) == (2, found)


def test_explain_says_what_changes_where_noise_and_joules_do_not(h2fdp, experiment):
    experiment.write_text("".join(SMALL.splitlines(True)[1:3]) + "training: auto\nprivacy: {calibration: accounted}\n")
    settings = ["--set", "model={name: public-features, size: 64}"]
    lines = h2fdp("privacy", "explain", experiment, *settings).stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("pays most"))
    assert " ".join(" ".join(lines[at : at + 2]).split()).startswith(
        "pays most training and model: auto; another model, under the same noise and for the same joules"
    )
    assert any(line.endswith("released before training: mean of inputs (6% of the privacy budget)") for line in lines)
    assert max(map(len, lines)) <= 80
    chosen = h2fdp("explain", experiment, "--set", "model=auto").stdout
    assert "pays most training" not in " ".join(chosen.split())  # there is nothing to state


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_limit_of_addresses_is_refused_before_any_work(h2fdp, experiment, monkeypatch, command):
    monkeypatch.setattr("resource.getrlimit", lambda kind: (3_500_000_000, -1))
    refused = h2fdp(command, experiment)
    assert refused.returncode == 2
    assert "ulimit -v: this process may have 3.5 GB of addresses; expected at least 6 GB" in refused.stderr
