"""Models that start with the parameters of a file: from a run, from a state dict, after a kill, and what is refused."""

import pytest
import torch
import yaml

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.run import RunPrivacy
from h2fdp.run.live_accounts import notes

SHARED = {"data": "digits", "method": "hfl", "local_steps": 2, "seed": 3}


def experiment(**settings):
    return Experiment(topology=Topology.regular(edges=2, devices=2, trust=0.5, seed=1), **{**SHARED, **settings})


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run of three intervals."""
    return experiment(intervals=3).run(tmp_path_factory.mktemp("runs") / "first")


@pytest.mark.parametrize("part", ["", "model.pt"])
def test_training_starts_with_the_model_of_the_file(first, part):
    setup = experiment(model={"name": "softmax", "from": str(first.directory / part)}).prepare()
    state = torch.load(first.directory / "model.pt", weights_only=True)
    torch.testing.assert_close(setup.initial, torch.cat([value.flatten() for value in state.values()]), rtol=0, atol=0)


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(first, tmp_path):
    warm = {"model": {"name": "softmax", "from": str(first.directory)}, "intervals": 4, "checkpoint_every": 1}
    whole = experiment(**warm).run(tmp_path / "whole")

    def stop(interval, *_):
        if interval == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment(**warm).run(tmp_path / "stopped", on_interval=lambda row, *_: stop(row["interval"]))
    resumed = h2fdp.resume(tmp_path / "stopped")
    one, other = (torch.load(each.directory / "model.pt")["1.weight"] for each in (whole, resumed))
    assert torch.equal(one, other)


def test_what_the_first_model_knows_is_said_beside_every_account(first, tmp_path):
    private = {"method": "hfl-dp", "epsilon": 50.0, "intervals": 1}
    run = experiment(model={"name": "softmax", "from": str(first.directory)}, **private).run(tmp_path / "run")
    (note,) = [note for note in RunPrivacy(run.directory).notes if note.startswith("model.from")]
    assert note in run.summary["privacy"]["notes"]
    assert not any(note.startswith("model.from") for note in notes(experiment(**private).prepare()))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "expected a run directory or a model's file, found .*none.pt"),
        (lambda path: path.write_text("no model"), "which cannot be read"),
        (lambda path: torch.save({"1.weight": torch.zeros(3, 64)}, path), r"1.weight has the shape \(3, 64\)"),
        (lambda path: torch.save({"1.weight": torch.full((10, 64), torch.nan)}, path), "not finite everywhere"),
        (
            lambda path: torch.save({"1.weight": torch.full((10, 64), 1e300, dtype=torch.float64)}, path),
            "not finite everywhere",
        ),
        (lambda path: torch.save({"1.weight": torch.ones(10, 64).to_sparse()}, path), "is of type .*sparse_coo in"),
        (lambda path: torch.save({"1.weight": torch.ones(10, 64).to("meta")}, path), r"has no numbers \(meta\) in"),
        (lambda path: torch.save({"1.weight": torch.ones(10, 64) + 1j}, path), "is of type torch.complex64 .*real"),
    ],
)
@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
def test_what_is_no_model_of_this_kind_is_refused(make, words, tmp_path):
    file = tmp_path / "none.pt"
    make(file)
    with pytest.raises(UserError, match=f"model.from: .*{words}"):
        experiment(model={"name": "softmax", "from": str(file)}).prepare()


OWN = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, base=1.0):
        super().__init__()
        self.base = nn.Parameter(torch.full((64,), base), requires_grad=False)
        self.line = nn.Linear(64, 10)
        self.register_buffer("place", torch.arange(64))

    def forward(self, x):
        return self.line(x.flatten(1) * self.base + self.place / 64)
"""


def own(folder, file, base=1.0):
    (folder / "own.py").write_text(OWN)
    (folder / "x.yaml").write_text(
        "topology: {edges: [{name: a, devices: {count: 2}}]}\ndata: digits\nmethod: hfl\n"
        f'model: {{name: "own:Net", from: {file}, base: {base}}}\ntraining: {{extends: paper, intervals: 1}}\n'
    )
    return Experiment.from_file(folder / "x.yaml")


def test_a_model_of_ones_own_goes_on_from_its_run_with_a_frozen_base_and_a_buffer(tmp_path):
    begun = own(tmp_path, "null").run(tmp_path / "begun")
    state = torch.load(begun.directory / "model.pt", weights_only=True)
    assert state["place"].dtype == torch.int64
    setup = own(tmp_path, "begun").prepare()
    torch.testing.assert_close(setup.initial[:640], state["line.weight"].flatten(), rtol=0, atol=0)
    assert setup.warm_start == begun.summary["model_sha256"]
    whole = own(tmp_path, "begun").run(tmp_path / "whole")
    written = yaml.safe_load((whole.directory / "config.yaml").read_text())["model"]
    assert written["from"] == str(tmp_path / "begun"), "found from anywhere"
    with pytest.raises(UserError, match=r"model.from: base is not trained, and has other"):
        own(tmp_path, "begun", base=2.0).prepare()
    with pytest.raises(UserError, match=r"x.yaml:4: model: expected from: the path of a file, found 3"):
        own(tmp_path, "3").prepare()
