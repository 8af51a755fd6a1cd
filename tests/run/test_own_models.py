"""Models of devices' own against closed forms, against the shared method, and against their ledger."""

import numpy as np
import pytest
import torch
from torch import nn

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms import LocalObjective
from h2fdp.algorithms.fedavg import Plain
from h2fdp.algorithms.own_models import Ditto, MeanRegularised
from h2fdp.privacy.mechanisms.pipeline import StepNoise
from h2fdp.protocol.devices import DeviceMemories
from h2fdp.training.local_steps import Descent
from tests.networks import placed
from tests.run.test_resume import assert_outlives_a_crash

TWO = Topology("net", (placed("a", False, [9, 9], [9, 9]), placed("b", False, [9], [9])))
OWN = [{"name": "mean-regularised", "penalty": 0.4}, {"name": "ditto", "penalty": 0.4}, "personal-head"]
NOISY = {"name": "dp-sgd", "noise_multiplier": 1.5}


def made(objective="plain", privacy=NOISY, topology=TWO, **settings):
    method = {"extends": "h2fdp", "privacy": privacy, "objective": objective}
    known = {"intervals": 3, "local_steps": 4, "aggregate_every": 2, "step_size": 0.2, "epsilon": 50.0}
    known |= {"model": {"name": "mlp"}, "data": "digits", "evaluate_devices": True}
    return Experiment(method=method, topology=topology, **{**known, **settings})


@pytest.fixture
def kept(monkeypatch):
    """(edge server, row) -> the newest own model, of the run under way."""
    found, keep = {}, DeviceMemories.keep

    def noted(self, edge, rows, memory):
        keep(self, edge, rows, memory)
        found.update({(edge, row): own.clone() for row, own in zip(rows.tolist(), memory, strict=True)})

    monkeypatch.setattr(DeviceMemories, "keep", noted)
    return found


@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_with_an_infinite_penalty_the_shared_model_has_the_bits_of_federated_averaging(engine, tmp_path):
    runtime = {"engine": engine}
    shared = made(runtime=runtime).run(tmp_path / "shared")
    tied = made({"name": "mean-regularised", "penalty": "infinite"}, runtime=runtime).run(tmp_path / "tied")
    assert (tied.directory / "model.pt").read_bytes() == (shared.directory / "model.pt").read_bytes()


@pytest.mark.parametrize("objective", OWN, ids=str)
def test_the_ledger_is_that_of_the_shared_method(objective, tmp_path):
    shared, own = made().run(tmp_path / "shared"), made(objective).run(tmp_path / "own")
    assert (own.directory / "privacy.jsonl").read_bytes() == (shared.directory / "privacy.jsonl").read_bytes()
    assert own.summary["privacy"]["worst"] == shared.summary["privacy"]["worst"]


class Quadratic:
    """Gradients of 1/2 |w - centre|^2."""

    def __init__(self, centre):
        self.centre = centre

    def __call__(self, model):
        return model - self.centre


def test_without_a_penalty_a_device_goes_on_as_if_it_had_received_nothing():
    """To the bit: stretches from received models that differ, against one stretch of plain steps."""
    start, gradient = torch.randn(2, 7), Quadratic(torch.randn(2, 7))
    plain, own = Descent(Plain()), Descent(MeanRegularised(penalty=0.0))
    alone, memory = plain.begin(start), torch.zeros(2, 7)
    for stretch in range(3):
        received = start if stretch == 0 else torch.randn(2, 7)
        state = own.begin(received, memory)
        for slot in range(4):
            alone = plain.step(alone, gradient, start, 0.1, None)
            state = own.step(state, gradient, received, 0.1, None, slot)
        updates, memory = own.ended(received, state)
        assert torch.equal(memory, alone.models)
        assert torch.equal(updates, received - memory)


def test_ditto_is_two_descents_that_take_turns():
    start, memory, gradient = torch.randn(2, 7), torch.randn(2, 7), Quadratic(torch.randn(2, 7))
    descent, state = Descent(Ditto(penalty=0.3)), Descent(Ditto(penalty=0.3)).begin(start, memory)
    shared, own = start, memory
    for slot in range(5):
        state = descent.step(state, gradient, start, 0.1, None, slot)
        if slot % 2:
            own = own - 0.1 * (gradient(own) + 0.3 * (own - start))
        else:
            shared = shared - 0.1 * gradient(shared)
    torch.testing.assert_close(state.models, shared)
    torch.testing.assert_close(state.personal, own)


def test_a_head_stays_on_its_device(tmp_path):
    run = made("personal-head", privacy="none", model={"name": "mlp", "hidden": 8}).run(tmp_path / "run")
    first = made("personal-head", privacy="none", model={"name": "mlp", "hidden": 8}).prepare().initial
    last, head = torch.nn.utils.parameters_to_vector(run.model.parameters()).detach(), 8 * 10 + 10
    assert torch.equal(last[-head:], first[-head:])
    assert not torch.equal(last[:-head], first[:-head])
    whole = made(privacy="none", model={"name": "mlp", "hidden": 8}).run(tmp_path / "whole")
    ratio = run.metrics["bytes"].iloc[-1] / whole.metrics["bytes"].iloc[-1]
    assert ratio == pytest.approx(1 - head / len(first))


class Estimate(nn.Module):
    """Its scores are half the squared distance of a record from the parameters, twice."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2000))

    def forward(self, x):
        return (0.5 * (x - self.mean).square().sum(dim=-1, keepdim=True)).expand(-1, 2)


def squared(scores, labels):
    return scores[..., 0]


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0, 4.0])
def test_mean_estimation_has_its_closed_form(ratio, kept, tmp_path):
    """Liu et al. 2022, Sec. 6: device k sees m_k + s e_k, m_k = m + t d_k. The error of its own model is
    s^2/K + (1 - 1/K) (a^2 s^2 + (1 - a)^2 t^2) in each coordinate, a = 1/(1 + lambda), least at lambda = s^2/t^2."""
    s, t, devices, size = 1.0, 0.7, 6, 2000
    draw = np.random.default_rng(5)
    truth = draw.normal(size=(1, size)) + t * draw.normal(size=(devices, size))
    seen = truth + s * draw.normal(size=(devices, size))
    best = s**2 / t**2
    numbers = {}

    def records(device):
        x = np.zeros((1, size)) if device is None else seen[[numbers.setdefault(device, len(numbers))]]
        return x.astype(np.float32), np.zeros(1, dtype=int)

    topology = Topology("net", (placed("a", False, [9] * devices, [9] * devices),))
    settings = {"intervals": 120, "local_steps": 2, "step_size": 0.1, "batch_size": 1, "step_decay": "none"}
    objective = {"name": "mean-regularised", "penalty": ratio * best}
    setup = Experiment(
        topology, data=records, test_data=records(None), model=Estimate, loss=squared, clip_norm=None,
        method={"extends": "fedavg", "objective": objective}, **settings,
    )  # fmt: skip
    setup.run(tmp_path / "run")
    found = torch.stack([kept[edge] for edge in sorted(kept)]).numpy()
    order = [numbers[name] for name in setup.topology.subnets[0].device_names()]
    a = 1 / (1 + ratio * best)
    np.testing.assert_allclose(found, a * seen[order] + (1 - a) * seen.mean(axis=0), atol=2e-4)
    error = float(((found - truth[order]) ** 2).mean())
    stated = s**2 / devices + (1 - 1 / devices) * (a**2 * s**2 + (1 - a) ** 2 * t**2)
    assert error == pytest.approx(stated, rel=0.05)


@pytest.mark.parametrize("objective", [*OWN, "moon", {"name": "feddyn", "alpha": 0.1}, "scaffold"], ids=str)
def test_a_record_is_in_nothing_but_the_noisy_steps_of_the_ledger(objective, kept, tmp_path, monkeypatch):
    """Neighbours: with the noisy steps of the one data set, the other gives the same models, to the bit."""
    name = objective if isinstance(objective, str) else objective["name"]
    server = {"server": name} if name in ("feddyn", "scaffold") else {}
    seen, add, replayed = {}, StepNoise.add, False

    def traced(self, gradients, slot, divisors):
        add(self, gradients, slot, divisors)
        for position, node in enumerate(self.nodes[: len(gradients)]):
            key = node, self.segment.interval, self.segment.first_slot + slot + 1
            if replayed:
                gradients[position] = seen[key]
            else:
                seen.setdefault(key, gradients[position].clone())
                assert torch.equal(seen[key], gradients[position]), "one release for a step"

    def run(changed, folder):
        def records(device, size=12):
            draw = np.random.default_rng(sum(map(ord, device or "test")))
            x = draw.normal(size=(size, 5)).astype(np.float32)
            if changed and device == "a/1":
                x[3] += 40.0
            return x, np.arange(size) % 3

        method = {"extends": "h2fdp", "privacy": NOISY, "objective": objective, **server}
        settings = {"intervals": 3, "local_steps": 4, "aggregate_every": 2, "batch_size": 6, "epsilon": 50.0}
        settings |= {"model": {"name": "mlp", "hidden": 4}, "data": records, "test_data": records(None)}
        setup = Experiment(TWO, method=method, **settings)
        kept.clear()
        done = setup.run(tmp_path / folder)
        return (done.directory / "model.pt").read_bytes(), {key: own.clone() for key, own in kept.items()}, done

    monkeypatch.setattr(StepNoise, "add", traced)
    model, own, done = run(False, "one")
    releases = [line for line in (done.directory / "privacy.jsonl").read_text().splitlines() if '"edge"' in line]
    assert len(seen) == 3 * 4 * 3, "a noisy gradient for each step of each device"
    assert releases
    replayed = True
    other_model, other, _ = run(True, "two")
    assert other_model == model
    assert all(torch.equal(own[key], other[key]) for key in own)
    replayed, before = False, dict(seen)
    seen.clear()
    run(True, "three")
    changed = {node for (node, *_), one in seen.items() if not torch.equal(one, before[node, *_])}
    assert "a/1" in changed, "the record matters"


@pytest.mark.parametrize("objective", OWN, ids=str)
def test_own_models_outlive_a_crash(objective, tmp_path, monkeypatch):
    settings = {"participation": 0.7, "faults": {"device_dropout": 0.2, "straggler": {"probability": 0.3}}}
    setup = made(objective, **settings, intervals=5, runtime={"backend": "inline", "checkpoint_every": 2})
    assert_outlives_a_crash(setup, tmp_path, monkeypatch)


def test_deciles_are_those_of_own_models(tmp_path):
    run = made({"name": "mean-regularised", "penalty": 0.1}, privacy="none", intervals=6).run(tmp_path / "run")
    last = run.metrics.iloc[-1]
    assert last["device_accuracy_p10"] <= last["personal_accuracy"] <= last["device_accuracy_p90"]
    shared = made(privacy="none", intervals=6).run(tmp_path / "shared").metrics.iloc[-1]
    assert last["personal_accuracy"] != shared["accuracy"]


class Twice(LocalObjective):
    def direction(self, model, gradient, received, personal):
        return gradient(model) - gradient(received), None


def test_a_step_has_one_gradient_where_it_has_noise(tmp_path):
    with pytest.raises(UserError, match=r"method\.objective: a step asks for several gradients"):
        made(Twice).run(tmp_path / "run")


TRUSTED = Topology("net", (placed("a", True, [9], [9]), placed("b", False, [9], [9])))
STEPS = {"name": "hierarchical", "noise": "steps"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"objective": OWN[0], "privacy": "hierarchical"}, "expected noise on each step"),
        ({"objective": OWN[0], "privacy": "output"}, "expected noise on each step"),
        ({"objective": OWN[2], "privacy": STEPS, "topology": TRUSTED}, "devices of a, which is trusted, add no noise"),
        ({"objective": "pfedme"}, "5 gradients, and noise for one"),
        ({"objective": {"name": "mean-regularised", "penalty": 20.0}}, "expected at most 10, or infinite"),
        ({"objective": "ditto", "aggregate_every": 1}, "every second step"),
        ({"objective": "ditto", "momentum": 0.5}, "no velocities"),
        ({"objective": "personal-head", "model": "softmax"}, "never leave devices; expected fewer"),
    ],
    ids=str,
)
def test_what_no_account_covers_or_means_nothing_is_refused(settings, said):
    with pytest.raises(UserError, match=said):
        made(**settings).prepare()


def test_noise_on_steps_where_nobody_is_trusted_allows_them(tmp_path):
    assert len(made(OWN[0], privacy=STEPS).run(tmp_path / "run").metrics) == 3
