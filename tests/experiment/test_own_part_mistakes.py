"""A user's own part that fails or answers what it may not: told by its place before anything is released.

All of it happens in `prepare`, before there is a run directory or a ledger.
"""

import itertools
import sys

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms import Aggregation, LocalObjective, ServerUpdate
from h2fdp.algorithms.fedavg import Plain
from h2fdp.schedules import Decision, OwnSchedule

NETWORK = Topology.regular(edges=2, devices=2, trust=0.5, seed=1)


def records(device):
    x = np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3)
    return x, np.arange(6) % 2


def prepare(method=None, topology=NETWORK, data=records, test=None, **settings):
    method = {"extends": "h2fdp", **(method or {})}
    training = {"intervals": 2, "local_steps": 4, "aggregate_every": 2, "batch_size": 2} | settings.pop("training", {})
    held_out = records(None) if test is None else test
    keys = {"epsilon": 1e3, "calibration": "paper", "training": training} | settings
    return Experiment(topology, data, method=method, test_data=held_out, **keys).prepare()


def refusal(*args, **settings):
    """The one problem of an experiment, and its error."""
    with pytest.raises(UserError) as caught:
        prepare(*args, **settings)
    (problem,) = caught.value.problems
    return problem, caught.value


# ---- server updates


class Server(ServerUpdate):
    def apply(self, model, uploaded):
        return model - uploaded.average


class Answering(Server):
    """Answers what it was made with."""

    def __init__(self, answer):
        self.answer = answer

    def apply(self, model, uploaded):
        return self.answer(model)


class Forgetful(Server):
    """Its second update is another one, and `kept` does not say so."""

    def __init__(self):
        self.rounds = 0

    def apply(self, model, uploaded):
        self.rounds += 1
        return model - self.rounds * uploaded.average


class Strayed(Server):
    @property
    def variate(self):
        return torch.zeros(3)


class InPlace(Server):
    def apply(self, model, uploaded):
        return model.sub_(uploaded.average)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Answering(lambda model: model[:-1]), r"a tensor of shape \(6,\) .* from .*Answering\.apply, found Tensor"),
        (Answering(lambda model: model * torch.nan), r"a model of finite numbers from .*, found infinite ones or NaN"),
        (InPlace, r"InPlace: apply changed the model in place; expected a tensor of its own"),
        (Forgetful, r"the same model after a checkpoint was loaded from .*Forgetful\.apply, found another one"),
        (Strayed, r"tensor of shape \(6,\) .* from .*Strayed\.variate, found Tensor of shape \(3,\)"),
    ],
)
def test_a_server_update(server, words):
    problem, _ = refusal({"server": server})
    assert (problem.where, problem.key) == ("Experiment", "method.server")
    with pytest.raises(UserError, match=words):
        prepare({"server": server})


# ---- local objectives


class Objective(LocalObjective):
    def __init__(self, answer):
        self.answer = answer

    def direction(self, model, gradient, received, personal):
        return self.answer(model, gradient(model))

    def keeps_sensitivity(self, step_size):
        return True


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda model, gradient: gradient, r"expected a pair: .* from .*Objective\.direction, found Tensor of shape"),
        (lambda model, gradient: (gradient[..., :2], None), r"a tensor of shape \((2, )?6,?\) .*found Tensor .*2,?\)"),
        (lambda model, gradient: (gradient, gradient), r"no personal model, since its `personal` is False"),
        (lambda model, gradient: (gradient / gradient.norm(), None), r"finite numbers for an empty batch, whose"),
        (
            lambda model, gradient: (gradient.clone().requires_grad_(), None),
            r"a tensor of shape .*, detached, from .*direction, found Tensor of .* that requires gradients",
        ),
        (lambda model, gradient: (model, None), r"direction gave a model that it was given; expected a tensor of its"),
    ],
)
def test_a_direction(answer, words):
    with pytest.raises(UserError, match=words):
        prepare({"objective": Objective(answer)})


# ---- schedules


class Schedule(OwnSchedule):
    def __init__(self, answer):
        self.answer = answer

    def choose(self, interval, slot):
        return self.answer(self.context)


class Longer(Schedule):
    varies_tau = True

    def longest_interval(self, horizon):
        return "ten"


def decided(**changed):
    return Schedule(lambda context: Decision(**{"local_steps": 4, "step_size": 0.1, "participation": [2, 2]} | changed))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(lambda context: 5), r"a Decision for interval 1 from .*Schedule\.choose, found 5"),
        (decided(local_steps=5), r"1 to 4 local steps for interval 1"),
        (decided(step_size=0.2), r"a step size above 0 and at most 0\.1 for interval 1"),
        (decided(participation=[1, 3]), r"a whole number of devices of each edge server"),
        (decided(noise_factor=0.5), r"a noise factor of 1, since its `scales_noise` is False, for interval 1"),
        (decided(devices=[[0, 1], [1, 0]]), r"for each edge server ascending rows of devices, \[2, 2\] of them"),
        (Longer(None), r"a whole number of at least 1 from .*Longer\.longest_interval, found 'ten'"),
    ],
)
def test_a_schedule(schedule, words):
    with pytest.raises(UserError, match=rf"^Experiment: method\.schedule: expected {words}"):
        prepare({"schedule": schedule})


# ---- aggregations


class Rule(Aggregation):
    def __init__(self, answer):
        self.answer = answer

    def weights(self, uploads):
        return self.answer(uploads.shares)


_calls = itertools.count(1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda shares: shares + 1 / next(_calls), r"the same weights for the same facts from .*Rule\.weights, found"),
        (lambda shares: -shares, r"weights above 0 for \d uploads? from .*Rule\.weights, found \[-"),
        (lambda shares: shares + 0j, r"weights above 0 for \d uploads? from .*Rule\.weights, found complex numbers"),
    ],
)
def test_an_aggregation(answer, words):
    with pytest.raises(UserError, match=rf"^Experiment: method\.aggregation: expected {words}"):
        prepare({"aggregation": Rule(answer)})


# ---- losses, models, data


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda scores, labels: scores.sum(dim=1) * torch.nan, r"expected losses and gradients of finite numbers from"),
        (lambda scores, labels: scores, r"expected losses of shape \(1,\) from .*, found Tensor of shape \(1, 2\)"),
        (lambda scores, labels: scores.sum(dim=1).half(), r"in at least 32 bits from .*, found Tensor .*torch.float16"),
        (lambda scores, labels: sys.exit(0), r"fails: .*SystemExit: 0"),
    ],
)
def test_a_loss(loss, words):
    with pytest.raises(UserError, match=rf"^Experiment: training\.loss: .*{words}"):
        prepare(training={"loss": loss})


class Narrow(nn.Module):
    def __init__(self, scores):
        super().__init__()
        self.layer, self.scores = nn.Linear(3, 3), scores

    def forward(self, x):
        return self.scores(self.layer(x))


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (lambda each: each, r"to scores of shape \(2, 2\), found \(2, 3\)"),
        (
            lambda each: each[:, :2].missing,
            r"fails on two records of shape \(3,\) and type torch.float32: .*: AttributeError",
        ),
    ],
)
def test_a_model(scores, words):
    with pytest.raises(UserError, match=rf"^Experiment: model: .*<lambda>: .*{words}") as caught:
        prepare(model=lambda: Narrow(scores))
    assert ("in forward" in caught.value.report) == ("AttributeError" in words)


def branching(each):
    return each[:, :2] if each.sum() > 0 else -each[:, :2]


@pytest.mark.parametrize("scope", ["batch", "record"])
def test_a_model_that_branches_on_its_records_is_trained_by_loop(scope):
    setup = prepare(model=lambda: Narrow(branching), training={"clip_scope": scope})
    assert setup.blueprint.engine == "loop"
    with pytest.raises(UserError, match=r"^Experiment: runtime\.engine: .* stacked: torch.func .*test_own_part_mis"):
        prepare(model=lambda: Narrow(branching), runtime={"engine": "stacked"}, training={"clip_scope": scope})


X = np.zeros((2, 3), dtype=np.float32)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((X, [0, 2]), "the test labels, which are public, go up to 1, those of devices to 2"),
        (X, "expected a pair of inputs and labels, found ndarray"),
    ],
)
def test_a_data_set(answer, words):
    def given(device):
        return answer

    with pytest.raises(UserError, match=rf"^Experiment: data(\.classes)?: .*given: .*{words}"):
        prepare(data=given)


# ---- radio models


# ---- code that fails

MODULE = """
from h2fdp.algorithms import ServerUpdate
from h2fdp.schedules import Decision, OwnSchedule

class Broken(ServerUpdate):
    def apply(self, model, uploaded):
        return self.step(model)

    def step(self, model):
        return model / uploads

class Late(ServerUpdate):
    def apply(self, model):
        return model

class Stuck(OwnSchedule):
    def choose(self, interval, slot):
        return Decision(self.steps, 0.1, self.context.participation)
"""


@pytest.fixture
def file(tmp_path):
    path = list(sys.path)
    (tmp_path / "own_failing.py").write_text(MODULE)
    content = {
        "topology": {"edges": [{"name": "a", "devices": {"count": 2}}]},
        "data": "digits",
        "method": {"extends": "h2fdp", "server": "own_failing:Broken"},
        "training": {"intervals": 1, "local_steps": 1, "batch_size": 8},
    }
    (tmp_path / "e.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    yield tmp_path / "e.yaml"
    sys.modules.pop("own_failing", None)
    sys.path[:] = path


def test_code_that_fails_is_told_by_the_line_of_the_file_that_names_it_above_the_users_traceback(file):
    with pytest.raises(UserError) as caught:
        Experiment.from_file(file).prepare()
    (problem,) = caught.value.problems
    module = f"{file.parent}/own_failing"
    words = "NameError: name 'uploads' is not defined"
    assert str(caught.value) == f"{file}:9: method.server: {module}:Broken.apply fails: {module}.py:10: {words}"
    assert isinstance(caught.value.__cause__, NameError)
    first, *frames, last = problem.trace.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", words)
    assert [line.strip() for line in frames if "File" in line] == [
        f'File "{module}.py", line 7, in apply',
        f'File "{module}.py", line 10, in step',
    ]
    assert caught.value.report == f"{caught.value}\n{problem.trace}"


# ---- sensitivity


class Decayed(LocalObjective):
    def direction(self, model, gradient, received, personal):
        return gradient(model) + 0.1 * model, None


class Proven(Decayed):
    def keeps_sensitivity(self, step_size):
        return step_size * 0.1 <= 2


class ProvenWithMomentum(Decayed):
    def keeps_sensitivity(self, step_size, momentum):
        return momentum <= 0.5


class Inheriting(Plain):
    def direction(self, model, gradient, received, personal):
        return 3 * gradient(model), None


@pytest.mark.parametrize(
    ("objective", "momentum", "accepted"),
    [
        (Decayed, 0, False),
        (Proven, 0, True),
        (Proven, 0.5, False),
        (ProvenWithMomentum, 0.5, True),
        (ProvenWithMomentum, 0.6, False),
        (Inheriting, 0, False),
    ],
)
def test_an_objective_has_noise_only_with_what_it_states_of_its_steps(objective, momentum, accepted):
    method, training = {"objective": objective}, {"momentum": momentum}
    if accepted:
        assert prepare(method, training=training).noise is not None
        return
    problem, _ = refusal(method, training=training)
    assert problem.key == "method.objective"
    assert "nothing shows that steps of" in problem.text
    assert ("momentum" in problem.text) == bool(momentum)
    assert "mu" not in problem.text
    prepare(method | {"privacy": "none"}, training=training, calibration=None)
