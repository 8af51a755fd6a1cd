"""What `engine: auto` means: a rule by the model, the work and the processor; and what it says without numba."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from h2fdp.algorithms.fedavg import Plain
from h2fdp.errors import UserError
from h2fdp.training.clipping import Clipping
from h2fdp.training.engine import WORTH_COMPILING, WORTH_COMPILING_WHOLE, TrainingJob, chosen_engine, engine_of_run
from h2fdp.training.local_steps import Descent
from h2fdp.training.losses import CROSS_ENTROPY, Hinge

CPU, GPU = torch.device("cpu"), torch.device("cuda")
SOFTMAX = nn.Sequential(nn.Flatten(), nn.Linear(784, 10, bias=False))
LARGE = TrainingJob(Descent(Plain()), CROSS_ENTROPY, Clipping(1.0, "record"), (1, 28, 28), WORTH_COMPILING, 44)


class OtherLoss(Hinge):
    """A loss that compiled steps do not know."""


def test_chains_of_linear_layers_compile_on_a_cpu_from_a_stated_amount_of_work_on():
    assert chosen_engine(SOFTMAX, CPU, LARGE) == "compiled"
    assert chosen_engine(SOFTMAX, CPU, replace(LARGE, products=0.99 * WORTH_COMPILING)) == "stacked"
    assert chosen_engine(SOFTMAX, GPU, LARGE) == "stacked"


def test_short_runs_of_all_records_at_once_do_not_wait_for_a_compiler():
    """A pure function of the file: neither the machine nor what is on its disk has a say."""
    most = WORTH_COMPILING_WHOLE / WORTH_COMPILING
    assert chosen_engine(SOFTMAX, CPU, replace(LARGE, whole_intervals=int(most))) == "compiled"
    assert chosen_engine(SOFTMAX, CPU, replace(LARGE, whole_intervals=int(most) - 1)) == "stacked"
    assert chosen_engine(SOFTMAX, CPU, replace(LARGE, products=1.0, whole_intervals=10**9)) == "stacked"


@pytest.mark.parametrize(
    "change",
    [{"loss": OtherLoss()}, {"clipping": Clipping(1.0, "record", gamma=0.01)}, {"shape": (28, 28, 1, 2)}],
    ids=["own loss", "normalised", "other records"],
)
def test_what_compiled_steps_do_not_know_is_stacked(change):
    assert chosen_engine(SOFTMAX, CPU, replace(LARGE, **change)) == "stacked"


def test_without_numba_the_choice_is_stacked_and_a_line_says_why(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert engine_of_run("auto", SOFTMAX, CPU, LARGE) == "stacked"
    assert "needs numba, which cannot be imported; training with stacked" in " ".join(capsys.readouterr().err.split())
    assert engine_of_run("auto", SOFTMAX, CPU, replace(LARGE, products=1.0)) == "stacked"
    assert capsys.readouterr().err == "", "nothing is said where nothing would be compiled"


class Summed(nn.Linear):
    """Adds up its inputs by numbers of Python, which torch.func does not have."""

    def forward(self, x):
        return super().forward(torch.tensor([[float(each.sum())] for each in x]))


def test_what_torch_func_cannot_batch_is_trained_by_loop_and_a_line_says_why(capsys):
    job = replace(LARGE, shape=(4,), products=1.0)
    assert engine_of_run("auto", Summed(1, 10), CPU, job) == "loop"
    note = " ".join(capsys.readouterr().err.split())
    assert note.startswith("note: training with loop, one device after another: torch.func cannot batch the model")
    assert f"{Path(__file__).name}:" in note, "the line of the module that it cannot"
    assert note.count("note:") == 1
    assert engine_of_run("loop", Summed(1, 10), CPU, job) == "loop"
    assert capsys.readouterr().err == "", "what was asked for is not explained"
    with pytest.raises(UserError, match=r"runtime.engine: expected auto or loop, found stacked: torch.func cannot"):
        engine_of_run("stacked", Summed(1, 10), CPU, job)
