"""What devices remember never leaves them raw in a run that promises a guarantee, whichever server asks for it."""

import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms import ServerUpdate
from h2fdp.algorithms.scaffold import Scaffold

REFUSED = r"method\.server: devices that remember answer its `variate` with the change of their memory"


class OwnScaffold(Scaffold):
    """A guarantee may not hang on the name."""


class Asking(ServerUpdate):
    """Broadcasts a variate once `applied` models were made, and adds up what comes back."""

    kept = ("control", "applied")
    first = 0

    def __init__(self):
        self.control, self.applied = torch.zeros(640), 0

    @property
    def variate(self):
        return self.control if self.applied >= self.first else None

    def apply(self, model, uploaded):
        self.applied += 1
        if uploaded.variate is not None:
            self.control = self.control + uploaded.variate
        return model - uploaded.average


class AskingLater(Asking):
    first = 2


def experiment(objective, server, privacy="central"):
    return Experiment(
        topology=Topology.regular(edges=1, devices=4, trust=1.0, seed=1),
        data={"name": "digits", "partition": "iid"},
        method={"privacy": privacy, "topology": "star", "objective": objective, "server": server},
        intervals=4,
        local_steps=2,
        epsilon=8.0,
    )


@pytest.mark.parametrize("objective", [OwnScaffold, "pfedme", "moon"])
def test_a_server_with_a_variate_is_refused_before_anything_is_released(objective, tmp_path):
    with pytest.raises(UserError, match=REFUSED):
        experiment(objective, Asking).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_server_that_sends_one_later_is_refused_when_it_does(tmp_path):
    rows = []
    with pytest.raises(UserError, match=REFUSED):
        experiment("moon", AskingLater).run(tmp_path / "run", on_interval=rows.append)
    assert len(rows) == 2


def test_an_own_objective_that_remembers_gets_no_account_of_records(tmp_path):
    class Claiming(OwnScaffold):
        def keeps_sensitivity(self, step_size, momentum=0.0):
            return True

    with pytest.raises(UserError, match="remember"):
        experiment(Claiming, "average", privacy="hierarchical").prepare()
