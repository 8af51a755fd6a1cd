"""Models of subnets: against the shared model, against subnets by themselves, in closed form, against the ledger."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms.server_update import Uploaded
from h2fdp.algorithms.subnet_models import SubnetModels
from h2fdp.network import Adversaries, Aggregator
from h2fdp.network.adversaries import SignFlip
from tests.networks import placed
from tests.run.test_resume import assert_outlives_a_crash

NOISY = {"name": "dp-sgd", "noise_multiplier": 1.5}
A, B = placed("a", False, [9, 9], [9, 9]), placed("b", True, [9, 9, 9], [9, 9, 9])
TWO = Topology("net", (A, B))
FAULTS = {"edge_outage": {"probability": 0.3}, "device_dropout": 0.2}


def records(device):
    draw = np.random.default_rng(sum(map(ord, device)))
    return draw.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3


def made(server, privacy=NOISY, topology=TWO, **settings):
    method = {"extends": "h2fdp", "privacy": privacy, "server": server}
    known = {"intervals": 4, "local_steps": 4, "aggregate_every": 2, "step_size": 0.2, "epsilon": 50.0}
    known |= {"model": {"name": "mlp", "hidden": 4}, "data": records, "test_data": records("test")}
    known |= {"noise_key": "seed", "weights": "uniform", "batch_size": 6}
    if isinstance(settings.get("method"), dict):
        method |= settings.pop("method")
    return Experiment(method=method, topology=topology, **{**known, **settings})


def mixed(mix):
    return {"name": "subnet-models", "mix": mix}


@pytest.fixture
def kept(monkeypatch):
    """Edge server -> the newest model of its subnet, of the run under way."""
    found, apply = {}, SubnetModels.apply

    def noted(self, model, uploaded):
        moved = apply(self, model, uploaded)
        found.update({name: own.clone() for name, own in self.of_children.items()})
        return moved

    monkeypatch.setattr(SubnetModels, "apply", noted)
    return found


@pytest.mark.parametrize("privacy", ["none", NOISY, "hierarchical"], ids=str)
@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["all", "some"])
def test_mixed_wholly_they_are_the_shared_model_to_the_bit(privacy, faults, kept, tmp_path):
    shared = made("average", privacy, faults=faults).run(tmp_path / "shared")
    tied = made(mixed(1.0), privacy, faults=faults).run(tmp_path / "tied")
    assert (tied.directory / "model.pt").read_bytes() == (shared.directory / "model.pt").read_bytes()
    last = torch.nn.utils.parameters_to_vector(tied.model.parameters()).detach()
    assert all(torch.equal(own, last) for own in kept.values())


@pytest.mark.parametrize("privacy", ["none", NOISY], ids=str)
def test_without_mixing_each_subnet_is_alone_to_the_bit(privacy, kept, tmp_path):
    made(mixed(0.0), privacy).run(tmp_path / "both")
    both = dict(kept)
    for subnet in (A, B):
        alone = made("average", privacy, topology=Topology("net", (subnet,))).run(tmp_path / subnet.name)
        last = torch.nn.utils.parameters_to_vector(alone.model.parameters()).detach()
        assert torch.equal(both[subnet.name], last)


@pytest.mark.parametrize("privacy", [NOISY, "hierarchical"], ids=str)
def test_the_ledger_is_that_of_the_shared_method(privacy, tmp_path):
    shared, own = made("average", privacy).run(tmp_path / "shared"), made(mixed(0.3), privacy).run(tmp_path / "own")
    assert (own.directory / "privacy.jsonl").read_bytes() == (shared.directory / "privacy.jsonl").read_bytes()
    assert own.summary["privacy"]["worst"] == shared.summary["privacy"]["worst"]
    assert (own.directory / "model.pt").read_bytes() != (shared.directory / "model.pt").read_bytes()


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
def test_quadratics_have_their_closed_form(mix):
    """Subnet c goes a share s of the way to its minimum m_c: w_c - m = s / (1 - (1 - s) (1 - mix)) (m_c - m)."""
    minima, share, weights = torch.tensor([[-1.0, 2.0], [3.0, 0.5]], dtype=torch.float64), 0.2, np.array([0.25, 0.75])
    server, model = SubnetModels(mix), torch.zeros(2, dtype=torch.float64)
    for _ in range(200):
        began = {name: server.of_children.get(name, model) for name in "ab"}
        updates = {name: share * (began[name] - own) for name, own in zip("ab", minima, strict=True)}
        average = 0.25 * updates["a"] + 0.75 * updates["b"]
        sent = {"updates": updates, "began": began, "weights": weights, "children": ("a", "b")}
        model = server.apply(model, Uploaded(average, None, 1.0, **sent))
    mean = 0.25 * minima[0] + 0.75 * minima[1]
    torch.testing.assert_close(model, mean)
    reach = (1 - mix) * share / (1 - (1 - share) * (1 - mix))  # after the mixing
    for name, own in zip("ab", minima, strict=True):
        torch.testing.assert_close(server.of_children[name], mean + reach * (own - mean))


def test_they_outlive_a_crash(tmp_path, monkeypatch):
    held = {"runtime": {"backend": "inline", "checkpoint_every": 2}, "data": "digits", "test_data": None}
    setup = made(mixed(0.3), participation=0.7, faults=FAULTS, intervals=5, **held)
    assert_outlives_a_crash(setup, tmp_path, monkeypatch)


def test_scores_of_devices_are_those_of_the_models_of_their_subnets(tmp_path):
    one = made(mixed(0.0), "none", intervals=8, evaluate_devices=True).run(tmp_path / "own").metrics.iloc[-1]
    assert one["device_accuracy_p10"] <= one["personal_accuracy"] <= one["device_accuracy_p90"]
    shared = made(mixed(1.0), "none", intervals=8).run(tmp_path / "shared").metrics.iloc[-1]
    assert one["personal_loss"] != shared["personal_loss"]


DEEP = Topology("deep", (replace(A, parent="u"), replace(B, parent="u")), aggregators=(Aggregator("u", False),))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"topology": DEEP}, "expected one tier of edge servers, found 2 tiers"),
        (
            {"method": {"topology": "star"}, "aggregate_every": 4},
            "edge servers, found one subnet",
        ),
        ({"topology": replace(TWO, cloud_trust="secure-sum"), "privacy": "hierarchical"}, "expected untrusted"),
        (
            {"privacy": "central", "aggregate_every": 4},
            "expected one of none, hierarchical, local, dp-sgd, found central",
        ),
        ({"method": {"upcycle": 0.5}}, "expected null, found 0.5"),
        ({"method": {"aggregation": {"edge": "median"}}}, "expected average, found median"),
        ({"topology": replace(TWO, adversaries=Adversaries(SignFlip(), (), ("a",)))}, "expected honest edge servers"),
        ({"server": mixed(1.5)}, "a number from 0 to 1"),
    ],
    ids=str,
)
def test_what_no_account_covers_or_means_nothing_is_refused(settings, said):
    with pytest.raises(UserError, match=said):
        made(**{"server": mixed(0.3), **settings}).prepare()
