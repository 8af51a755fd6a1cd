"""A user's own part that fails or answers what it may not: told by its place before anything is released.

All of it happens in `prepare`, before there is a run directory or a ledger.
"""

import copy
import itertools
import pickle
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from h2fdp import Experiment, Topology, UserError
from h2fdp.algorithms import Aggregation, StatefulUpdate, StatelessObjective
from h2fdp.algorithms.fedavg import Plain
from h2fdp.network import Radio
from h2fdp.network.channel import Access, PathLoss
from h2fdp.network.fading import Fading
from h2fdp.schedules import Decision, OwnSchedule
from h2fdp.schedules.registry import chosen

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


class Server(StatefulUpdate):
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


class Unstorable(Server):
    kept = ("seen",)

    def __init__(self):
        self.seen = {1, 2}


class Strayed(Server):
    @property
    def variate(self):
        return torch.zeros(3)


class Leaving(Server):
    def apply(self, model, uploaded):
        sys.exit()


class InPlace(Server):
    def apply(self, model, uploaded):
        return model.sub_(uploaded.average)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Answering(lambda model: model[:-1]), r"a tensor of shape \(6,\) .* from .*Answering\.apply, found Tensor"),
        (Answering(lambda model: None), r"Answering\.apply, found None"),
        (Answering(lambda model: model.double()), r"Answering\.apply, found Tensor of .* type torch\.float64"),
        (Answering(lambda model: model * torch.nan), r"a model of finite numbers from .*, found infinite ones or NaN"),
        (Answering(lambda model: model.clone().requires_grad_()), r"detached, from .* that requires gradients"),
        (Leaving, r"Leaving\.apply fails: .*SystemExit"),
        (InPlace, r"InPlace: apply changed the model in place; expected a tensor of its own"),
        (Forgetful, r"the same model after a checkpoint was loaded from .*Forgetful\.apply, found another one"),
        (Unstorable, r"plain values, arrays and tensors from .*Unstorable\.state, found a dict"),
        (Strayed, r"tensor of shape \(6,\) .* from .*Strayed\.variate, found Tensor of shape \(3,\)"),
    ],
)
def test_a_server_update(server, words):
    problem, _ = refusal({"server": server})
    assert (problem.where, problem.key) == ("Experiment", "method.server")
    with pytest.raises(UserError, match=words):
        prepare({"server": server})


def test_a_right_server_update_is_not_asked_for_more():
    class Counted(Forgetful):
        kept = ("rounds",)

    assert prepare({"server": Counted}).config.method.server.name.endswith("Counted")


# ---- local objectives


class Objective(StatelessObjective):
    def __init__(self, answer):
        self.answer = answer

    def direction(self, model, gradient, received, personal):
        return self.answer(model, gradient(model))

    def keeps_sensitivity(self, step_size):
        return True


class Undecided(Objective):
    def keeps_sensitivity(self, step_size):
        return "yes"


class Remembering(Objective):
    memory = "last gradients"

    def remembered(self, memory, variate, done):
        return memory[:1]


class Muttering(Objective):
    memory = 3


def changing(name):
    def direction(self, model, gradient, received, personal):
        held = {"model": model, "received": received}[name]
        return gradient(held.mul_(0.9)), None

    return type("Changing", (Objective,), {"direction": direction})


PLAINLY = staticmethod(lambda model, gradient: (gradient, None)).__func__


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda model, gradient: gradient, r"expected a pair: .* from .*Objective\.direction, found Tensor of shape"),
        (lambda model, gradient: (gradient[..., :2], None), r"a tensor of shape \((2, )?6,?\) .*found Tensor .*2,?\)"),
        (lambda model, gradient: (0.5, None), r"a tensor of shape .*direction, found 0\.5"),
        (lambda model, gradient: (gradient, gradient), r"no personal model, since its `personal` is False"),
        (lambda model, gradient: (gradient * torch.nan, None), r"finite numbers for a gradient of finite numbers from"),
        (
            lambda model, gradient: (gradient / gradient.norm(), None),
            r"finite numbers for an empty batch, whose",
        ),
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


@pytest.mark.parametrize("name", ["model", "received"])
def test_an_objective_that_changes_what_it_was_given(name):
    with pytest.raises(UserError, match="direction changed a model in place; expected a tensor of its own"):
        prepare({"objective": changing(name)(None), "privacy": "none"}, calibration=None)


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Undecided(PLAINLY), r"True or False from .*Undecided\.keeps_sensitivity, found 'yes'"),
        (Remembering(PLAINLY), r"a tensor of shape \(2, 6\) .*Remembering\.remembered, found Tensor of shape \(1, 6\)"),
        (Muttering(PLAINLY), r"what devices keep, in words, or None from .*Muttering\.memory, found 3"),
    ],
)
def test_what_an_objective_says_of_itself(objective, words):
    with pytest.raises(UserError, match=rf"^Experiment: method\.objective: expected {words}"):
        prepare({"objective": objective, "privacy": "none"}, epsilon=1.0)


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


class Loud(Schedule):
    measures = "everything"


def decided(**changed):
    return Schedule(lambda context: Decision(**{"local_steps": 4, "step_size": 0.1, "participation": [2, 2]} | changed))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(lambda context: 5), r"a Decision for interval 1 from .*Schedule\.choose, found 5"),
        (decided(local_steps=0), r"1 to 4 local steps for interval 1 from .*, found Decision\(local_steps=0"),
        (decided(local_steps=5), r"1 to 4 local steps for interval 1"),
        (decided(local_steps=2.5), r"1 to 4 local steps for interval 1"),
        (decided(step_size=float("nan")), r"a step size above 0 and at most 0\.1 for interval 1"),
        (decided(step_size=0.2), r"a step size above 0 and at most 0\.1 for interval 1"),
        (decided(participation=[1]), r"a whole number of devices of each edge server"),
        (decided(participation=[1, 3]), r"a whole number of devices of each edge server"),
        (decided(participation=[[1], [1, 2]]), r"a whole number of devices of each edge server"),
        (decided(noise_factor=0.5), r"a noise factor of 1, since its `scales_noise` is False, for interval 1"),
        (decided(noise_factor=float("nan")), r"a noise factor above 0 for interval 1"),
        (decided(devices=[[0, 1], [1, 0]]), r"for each edge server ascending rows of devices, \[2, 2\] of them"),
        (decided(reasons={"why": {1}}), r"reasons that are a dict of values that JSON holds, or None"),
        (Longer(None), r"a whole number of at least 1 from .*Longer\.longest_interval, found 'ten'"),
        (Loud(None), r"one of nothing, gradients, secants from .*Loud\.measures, found 'everything'"),
    ],
)
def test_a_schedule(schedule, words):
    with pytest.raises(UserError, match=rf"^Experiment: method\.schedule: expected {words}"):
        prepare({"schedule": schedule})


def stating(**methods):
    """A right schedule but for these."""
    return type("Stating", (Steady,), methods)


def failing(self, *_):
    return self.missing


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"ends": lambda self, slot: "no"}, r"True or False from .*Stating\.ends, found 'no'"),
        ({"observes": "yes"}, r"True or False from .*Stating\.observes, found 'yes'"),
        ({"lengths": lambda self, horizon: range(4)}, r"a range of whole numbers from 1 to 4 .*range\(0, 4\)"),
        ({"lengths": lambda self, horizon: range(4, 9)}, r"a range of whole numbers from 1 to 4 .*range\(4, 9\)"),
        ({"steps_to_cover": lambda self, horizon: 0}, r"a whole number of at least 1 .*steps_to_cover, found 0"),
        ({"kept": lambda self, model: None}, r"a tensor of shape \(6,\) and .* detached, .*kept, found None"),
        (
            {"returned": lambda self, model: 5},
            r"a tensor of shape \(6,\) and .* detached, .*returned, found 5",
        ),
        ({"state": lambda self: {"seen": {1}}}, r"a dict of plain values, arrays and tensors"),
    ],
)
def test_what_else_a_schedule_answers(methods, words):
    with pytest.raises(UserError, match=rf"^Experiment: method\.schedule: expected {words}"):
        prepare({"schedule": stating(**methods)()})


@pytest.mark.parametrize("method", ["observe", "scored", "skipped", "load"])
def test_a_schedule_that_fails_where_it_learns(method):
    schedule = stating(observes=method == "observe", scores=method == "scored", **{method: failing})
    with pytest.raises(UserError, match=rf"Stating\.{method} fails: .*: AttributeError: .* no attribute 'missing'"):
        prepare({"schedule": schedule(), "privacy": "none"}, calibration=None)


def test_a_schedule_is_shown_an_interval_as_a_run_shows_it():
    seen = []

    def observe(self, found):
        seen.append(found)

    prepare({"schedule": stating(observes=True, observe=observe)()})
    (shown,) = seen
    assert (shown.interval, shown.local_steps, len(shown.uploads), shown.measurements) == (0, 4, 2, None)
    assert {each.shape for each in (shown.model, *shown.uploads)} == {(6,)}
    assert set(shown.spent) == {"energy_j", "delay_s", "clock_s"}
    assert shown.weights.sum() == pytest.approx(1)


class Steady(OwnSchedule):
    def choose(self, interval, slot):
        return Decision(4, 0.1, np.array([2, 2]))

    def scored(self, loss):
        return self.missing


def test_a_schedule_travels_to_other_processes_and_has_no_more_than_the_users_own():
    schedule = chosen(prepare({"schedule": Steady(), "privacy": "none"}, calibration=None).config.method.schedule)
    for same in (schedule, pickle.loads(pickle.dumps(schedule)), copy.deepcopy(schedule)):
        assert (same.varies_tau, same.ends(3), hasattr(same, "nothing")) == (False, False, False)
        with pytest.raises(UserError, match=r"Steady\.scored fails: .*: AttributeError: .* no attribute 'missing'"):
            same.scored(0.5)


def test_a_class_with_the_methods_of_a_schedule_that_is_none():
    class Alike:
        def build(self, context):
            return self

        def choose(self, interval, slot):
            return Decision(1, 0.1, np.array([2, 2]))

    with pytest.raises(UserError, match=r"derived from `h2fdp.schedules.OwnSchedule` from .*Alike, found an Alike"):
        prepare({"schedule": Alike})


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
        (
            lambda shares: shares + 1 / next(_calls),
            r"the same weights for the same facts from .*Rule\.weights, found",
        ),
        (lambda shares: -shares, r"weights above 0 for \d uploads? from .*Rule\.weights, found \[-"),
        (lambda shares: shares[:-1], r"weights above 0 for 2 uploads from .*, found \["),
        (lambda shares: None, r"weights above 0 for \d uploads? from .*, found nan"),
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
        (lambda scores, labels: scores.detach().sum(dim=1), r"differentiated in the scores from .*without a gradient"),
        (lambda scores, labels: sys.exit(0), r"fails: .*SystemExit: 0"),
        (lambda scores, labels: scores.detach().sum(dim=1).numpy(), r"expected losses .*, found ndarray|fails"),
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
        (lambda each: each[:, :2] * torch.nan, r"scores of two records of shape \(3,\) are NaN; expected numbers"),
        (lambda each: each[:, :2].missing, r"fails on two records of shape \(3,\): .*: AttributeError"),
    ],
)
def test_a_model(scores, words):
    with pytest.raises(UserError, match=rf"^Experiment: model: .*<lambda>: .*{words}") as caught:
        prepare(model=lambda: Narrow(scores))
    assert ("in forward" in caught.value.report) == ("AttributeError" in words)


def branching(each):
    return each[:, :2] if each.sum() > 0 else -each[:, :2]


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (lambda each: torch.from_numpy(each.detach().numpy())[:, :2], "fails in a local step, where its loss is"),
        (lambda each: each.reshape(-1, 3)[: min(len(each), 2), :2], r"7 records to scores .*\(7, 2\), found \(2"),
        (lambda each: each.view(2 if len(each) > 1 else 1, 3)[:, :2], r"fails on 7 records of shape \(3,\): "),
        (lambda each: sys.exit(0), "fails on two records .*: SystemExit: 0"),
    ],
)
def test_a_model_that_two_records_do_not_show(scores, words):
    with pytest.raises(UserError, match=rf"^Experiment: model: .*{words}"):
        prepare(model=lambda: Narrow(scores))


@pytest.mark.parametrize(
    ("model", "own_lines"),
    [(lambda: Narrow(lambda each: nn.Linear(5, 2)(each)), 2), (lambda: nn.Sequential(nn.Linear(5, 2)), 0)],
    ids=["called by their code", "called by torch"],
)
def test_of_a_failure_inside_torch_the_users_own_lines_are_shown(model, own_lines):
    problem, error = refusal(model=model)
    assert "fails on two records of shape (3,): " in problem.text
    assert re.search(r": RuntimeError: .*mat1 and mat2 shapes cannot be multiplied", problem.text)
    assert error.report.count('  File "') == error.report.count(f'  File "{__file__}"') == own_lines


@pytest.mark.parametrize("scope", ["batch", "record"])
def test_a_model_that_branches_on_its_records_is_trained_by_loop(scope):
    setup = prepare(model=lambda: Narrow(branching), training={"clip_scope": scope})
    assert setup.blueprint.engine == "loop"
    with pytest.raises(UserError, match=r"^Experiment: runtime\.engine: .* stacked: torch.func .*test_own_part_mis"):
        prepare(model=lambda: Narrow(branching), runtime={"engine": "stacked"}, training={"clip_scope": scope})


def test_a_loss_in_64_bits_is_one_in_32():
    assert prepare(training={"loss": lambda scores, labels: scores.double().square().sum(dim=1)}).noise is not None


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


def test_data_that_differ_at_each_call():
    stream = np.random.default_rng(1)

    def given(device):
        return stream.normal(size=(6, 3)).astype(np.float32), [0, 1, 0, 1, 0, 1]

    with pytest.raises(UserError, match=r"^Experiment: data: expected the same records of device .* at each call from"):
        prepare(data=given)


# ---- radio models


class Deaf(PathLoss):
    def gain_db(self, distance_m, stream):
        return distance_m * np.nan


class Backwards(Fading):
    def quantile(self, probability):
        return np.ones(len(probability))

    def mean_seconds(self, bits, bandwidth_hz, snr, floor):
        return np.ones(len(snr))

    def draw(self, stream, size, floor):
        return -np.ones(size)


class Strong(Fading):
    def quantile(self, probability):
        return 5.0 - 3 * np.log1p(-probability)


class Drawn:
    """A fading that states no quantiles."""

    def mean_seconds(self, bits, bandwidth_hz, snr, floor):
        return bits / (bandwidth_hz * np.log2(1 + snr))

    def draw(self, stream, size, floor):
        return 0.1 * stream.standard_exponential(size)

    def least(self, floor):
        return max(floor, 0.01)


class Negative(Fading):
    def quantile(self, probability):
        return 2 * probability - 0.5


class Early(Access):
    def uplink_seconds(self, seconds, snr, points, count):
        return -np.ones(count)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"pathloss": Deaf}, r"pathloss: expected finite numbers from .*Deaf\.gain_db, found nan"),
        ({"fading": Backwards}, r"fading: expected finite numbers of at least 0 from .*Backwards\.draw, found -1"),
        ({"fading": Strong}, r"fading: expected powers of mean 1 from .*Strong\.quantile, found powers of mean 8"),
        ({"fading": Drawn}, r"fading: expected powers of mean 1 from .*Drawn\.draw, found powers of mean 0\.(09|10)"),
        ({"fading": Negative}, r"fading: expected finite numbers of at least 0 from .*Negative\.quantile, found -0"),
        ({"access": Early}, r"access: expected finite numbers of at least 0 from .*Early\.uplink_seconds, found -1"),
    ],
)
def test_a_radio_model(model, words):
    with pytest.raises(UserError, match=rf"^Radio: {words}"):
        prepare(topology=replace(NETWORK, radio=Radio(**model)))


# ---- code that fails

MODULE = """
from h2fdp.algorithms import StatefulUpdate
from h2fdp.schedules import Decision, OwnSchedule

class Broken(StatefulUpdate):
    def apply(self, model, uploaded):
        return self.step(model)

    def step(self, model):
        return model / uploads

class Late(StatefulUpdate):
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


def test_a_function_with_other_arguments_has_no_traceback_to_show(file):
    with pytest.raises(UserError, match=r"Late.apply fails: TypeError: .*takes 2 positional arguments but 3") as caught:
        Experiment.from_file(file, ["method.server=own_failing:Late"]).prepare()
    assert caught.value.problems[0].trace == ""


def test_the_place_of_a_part_that_the_command_line_names(file):
    setting = "method={extends: h2fdp, schedule: own_failing:Stuck}"
    with pytest.raises(UserError, match=r"^--set.*: method\.schedule: .*Stuck.choose fails: .*:18: AttributeError"):
        Experiment.from_file(file, [setting]).prepare()


# ---- sensitivity


class Decayed(StatelessObjective):
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
        (ProvenWithMomentum, 0, True),
        (ProvenWithMomentum, 0.5, True),
        (ProvenWithMomentum, 0.6, False),
        (Inheriting, 0, False),
        (Plain, 0.5, True),
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
