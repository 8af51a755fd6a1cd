"""The private mean of features: who releases it under how much noise, what it is taken off, and what is refused."""

import json
import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from h2fdp import Experiment, UserError
from h2fdp.algorithms import ServerContext, Uploaded, centring
from h2fdp.algorithms.centring import Centring
from h2fdp.algorithms.fedavg import AverageOptions, Plain
from h2fdp.algorithms.fedopt import AdamOptions
from h2fdp.audit.run_audit import audit
from h2fdp.models.architectures import Centred
from h2fdp.protocol import InProcessNodes
from h2fdp.training.losses import CrossEntropy, LabelSmoothing
from tests.run.killed import assert_outlives_a_kill
from tests.run.test_correlated_runs import gaussian_epsilon, members

SIZE, CLASSES, DEVICES = 24, 10, 12
TRUST = {"nobody": {"trusted": 0}, "edges": {"trusted": 1}, "sum": {"relay": 1}}


def small(trust="nobody", training="auto", head="centred", **settings):
    network = {"trust": TRUST[trust], "edges": [{"name": "e-{i}", "repeat": 3, "devices": {"count": 4}}]}
    given = {"data": "digits", "model": {"name": "public-features", "size": SIZE, "head": head}, "epsilon": 2.0}
    given |= {"delta": 1e-5, "calibration": "accounted", "accountant": "pld", "noise_key": "seed", "seed": 1}
    return Experiment(network, **{"method": "h2fdp", "training": training} | given | settings)


def records(setup):
    x, y = setup.data.train.x[setup.data.order].astype(np.float64), setup.data.train.y[setup.data.order]
    return x, y


def released(run):
    return run.model.model[-1].centred.detach().double().numpy()


def softmax_gradient(weights, x, y, norm=math.inf):
    """(classes, K) the mean of the records' gradients, each cut to the norm."""
    scores = x @ weights.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    delta = shares / shares.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]
    lengths = np.linalg.norm(delta, axis=1) * np.linalg.norm(x, axis=1)
    return (delta * np.minimum(1, norm / lengths)[:, None]).T @ x / len(x)


@pytest.mark.parametrize("engine", ["loop", "stacked", "compiled"])
@pytest.mark.parametrize("norm", [None, 0.2])
def test_the_first_interval_releases_the_mean_and_the_second_takes_it_off(tmp_path, engine, norm):
    training = {"extends": "auto", "intervals": 2, "local_steps": 1, "sampling_rate": 1.0, "step_size": 3.0}
    training |= {"clip_norm": norm, "clip_scope": "record", "weights": "by-size", "step_decay": "none"}
    training |= {"batch_size": None, "aggregate_every": 1}
    made = small(method="hfl", calibration=None, runtime={"engine": engine}, training=training)
    x, y = records(made.prepare())
    mean = x.mean(axis=0) * (np.arange(SIZE + 1) < SIZE)
    weights = released(made.run(tmp_path / "run"))
    assert weights.mean(axis=0) == pytest.approx(mean, abs=2e-4)  # records are stored by 16 bits
    assert np.linalg.norm(mean) > 0.2
    moved = -3.0 * softmax_gradient(np.zeros_like(weights), x - mean, y, math.inf if norm is None else norm)
    assert weights - weights.mean(axis=0) == pytest.approx(moved, abs=2e-4)
    assert np.abs(moved).max() > 0.01


def test_where_nothing_arrives_in_the_first_interval_the_next_one_releases_the_mean():
    training = {"extends": "auto", "intervals": 3, "local_steps": 1, "sampling_rate": 1.0, "step_size": 3.0}
    training |= {"clip_norm": None, "weights": "by-size", "step_decay": "none", "batch_size": None}
    setup = small(method="hfl", calibration=None, training=training | {"aggregate_every": 1}).prepare()
    number_of = {subnet.name: number for number, subnet in enumerate(setup.topology.subnets)}
    cloud = setup.cloud(InProcessNodes({name: setup.blueprint.edge_server(at) for name, at in number_of.items()}))
    cloud.skip(cloud.plan(0))
    cloud.run_interval(cloud.plan(1))
    mean = records(setup)[0].mean(axis=0) * (np.arange(SIZE + 1) < SIZE)
    assert cloud.model.view(CLASSES, -1).numpy() == pytest.approx(np.tile(mean, (CLASSES, 1)), abs=2e-4)


def test_scores_are_those_of_centred_records(tmp_path):
    run = small(training={"extends": "auto", "intervals": 3}).run(tmp_path / "run")
    weights, setup = released(run), small().prepare()
    test = setup.data.test.x.astype(np.float64)
    centre = weights.mean(axis=0) * (np.arange(SIZE + 1) < SIZE)
    right = ((test - centre) @ weights.T).argmax(axis=1) == setup.data.test.y
    assert run.metrics["accuracy"].iloc[-1] == pytest.approx(right.mean(), abs=0.002)
    assert run.metrics["accuracy"].iloc[0] == pytest.approx((setup.data.test.y == 0).mean())  # all scores are equal


# Independent noises, each as large as one on the sum of all records' vectors; see `test_one_shot`.
HOLDERS = {"nobody": DEVICES, "edges": 3, "sum": DEVICES / (DEVICES - 1)}


@pytest.fixture
def averages(monkeypatch):
    """What the cloud received, interval by interval."""
    received, apply = [], Centring.apply

    def listening(self, model, uploaded):
        received.append(uploaded.average.double().numpy())
        return apply(self, model, uploaded)

    monkeypatch.setattr(centring.Centring, "apply", listening)
    return received


@pytest.mark.parametrize("trust", TRUST)
def test_the_noise_on_the_mean_is_that_of_a_gradient(tmp_path, averages, trust):
    """By the closed form of one Gaussian, of two equal ones. Right noise fails once in 10^6, 2/3 and 3/2 always."""
    training = {"extends": "auto", "intervals": 2, "step_size": 5.0, "budget_decay": "none", "step_decay": "none"}
    made = small(trust, training=training)
    setup, run = made.prepare(), made.run(tmp_path / "run")
    ratio = 2**0.5 / optimize.brentq(lambda mu: gaussian_epsilon(mu) - 2.0, 0.1, 2.0)
    norm, (x, _) = setup.config.training.clip_norm, records(setup)
    pattern = np.full(CLASSES, 0.1) - np.eye(CLASSES)[0]
    vectors = x * np.minimum(1, norm / (np.linalg.norm(pattern) * np.linalg.norm(x, axis=1)))[:, None]
    left = averages[0] - 5.0 * np.outer(pattern, vectors.mean(axis=0)).ravel()
    deviation = 5.0 * ratio * norm / len(x) * HOLDERS[trust] ** 0.5
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], len(left))
    inside = [low < (left**2).sum() / (scale * deviation) ** 2 < high for scale in (1.0, 2 / 3, 3 / 2)]
    assert inside == [True, False, False]
    rows = [json.loads(line) for line in (run.directory / "privacy.jsonl").read_text().splitlines()]
    of_edges = [(row["edge"], each) for row in rows if row["observer"] == "edge" for each in members(row["devices"])]
    assert len(of_edges) == 2 * len(set(of_edges))


@pytest.mark.parametrize("trust", TRUST)
def test_the_ledger_is_that_of_the_model_without_a_mean(tmp_path, trust):
    """The first release counts as each other one does; its device pays for a message of the same length."""
    training = {"extends": "auto", "intervals": 6}
    runs = [small(trust, training, head).run(tmp_path / head) for head in ("centred", "softmax")]
    ledgers = [(run.directory / "privacy.jsonl").read_text() for run in runs]
    assert ledgers[0] == ledgers[1]
    assert runs[0].metrics["energy_j"].tolist() == runs[1].metrics["energy_j"].tolist()


def test_the_mean_is_drawn_to_0_by_the_noise_that_the_average_shows():
    """Against James and Stein's factor at the noise that was added; no mean is left of noise alone."""
    rng, inputs, step = np.random.default_rng(5), 385, 0.3
    pattern = torch.full((CLASSES,), 0.1, dtype=torch.float64) - torch.eye(CLASSES, dtype=torch.float64)[0]
    server = Centring(AverageOptions().build(None), pattern, inputs, step)
    mean = np.append(rng.standard_normal(inputs - 1) * 0.02, 0.1)
    noise = 0.005
    average = step * np.outer(pattern, mean) + noise * rng.standard_normal((CLASSES, inputs))
    found = server.mean(torch.from_numpy(average)).numpy()
    along = pattern.numpy() @ average / (step * 0.9)
    along[-1] = 0.0
    drawn = 1 - (inputs - 1) * (noise / (step * 0.9**0.5)) ** 2 / (along**2).sum()
    assert 0.2 < drawn < 0.9
    assert found == pytest.approx(drawn * along, abs=0.05 * np.abs(along).max())
    assert np.linalg.norm(found[:-1] - mean[:-1]) < np.linalg.norm(along[:-1] - mean[:-1])
    nothing = server.mean(torch.from_numpy(noise * rng.standard_normal((CLASSES, inputs)))).numpy()
    assert nothing.any()
    assert np.linalg.norm(nothing) < 0.3 * np.linalg.norm(noise * rng.standard_normal(inputs) / (step * 0.9**0.5))


@pytest.mark.parametrize("loss", [CrossEntropy(), LabelSmoothing(smoothing=0.2)])
def test_the_mean_stays_in_all_later_intervals(tmp_path, loss, averages):
    run = small(loss=loss.options() | {"name": loss.name}, training={"extends": "auto", "intervals": 6})
    weights = released(run.run(tmp_path / "run"))
    pattern = torch.tensor(averages[0].reshape(CLASSES, -1))
    assert len(averages) == 6
    target = loss.score_gradient(torch.zeros(1, 1, CLASSES), torch.zeros(1, 1, dtype=torch.int64))[0, 0].double()
    setup = small(loss=loss.options() | {"name": loss.name}, training={"extends": "auto", "intervals": 6}).prepare()
    norm = min(1.0, setup.config.training.clip_norm / float(target.norm() * 1.01**0.5))
    server = Centring(AverageOptions().build(None), target, SIZE + 1, setup.config.training.step_size * norm)
    assert weights.mean(axis=0)[:-1] == pytest.approx(server.mean(pattern).numpy()[:-1], abs=1e-5)


@pytest.mark.parametrize("trust", TRUST)
def test_devices_on_hosts_of_their_own_make_the_same_bits(tmp_path, trust):
    """As hosts call them: group after group, each by itself."""
    made = small(trust, training={"extends": "auto", "intervals": 3}, runtime={"engine": "loop"})
    setup = made.prepare()
    number_of = {subnet.name: number for number, subnet in enumerate(setup.topology.subnets)}
    cloud = setup.cloud(InProcessNodes({name: setup.blueprint.edge_server(at) for name, at in number_of.items()}))
    for interval in range(3):
        cloud.run_interval(cloud.plan(interval))
    weights = made.run(tmp_path / "run").model.model[-1].centred.detach()
    assert cloud.model.view_as(weights).equal(weights)


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.process
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, trust):
    made = small(trust, training={"extends": "auto", "intervals": 4}, runtime={"checkpoint_every": 1})
    for step, interval in (("released", 0), ("released", 2)):
        assert_outlives_a_kill(made, tmp_path / str(interval), step, interval)


def test_what_the_update_inside_remembers_has_no_mean_in_it():
    """Adam after the mean begins as it does at a first interval; the mean stays through its steps, and in a state."""
    context = ServerContext(33, Plain(), lambda: Centred(11, 3), None)
    inner, alone = (AdamOptions().build(context) for _ in range(2))
    server = Centring.of(inner, context, CrossEntropy(), 2.0)
    first, second = (Uploaded(torch.randn(33, generator=torch.manual_seed(each)), None, 1.0) for each in (1, 2))
    model = server.apply(torch.zeros(33), first)
    state, again = deepcopy(server.state()), Centring.of(alone, context, CrossEntropy(), 2.0)
    moved = server.apply(model, second).view(3, 11)
    again.load(state)
    assert again.apply(model, second).view(3, 11).equal(moved)
    plain = AdamOptions().build(context).apply(model, second).view(3, 11)
    assert moved - moved.mean(dim=0) == pytest.approx((plain - plain.mean(dim=0)).numpy(), abs=1e-6)
    assert moved.mean(dim=0).numpy() == pytest.approx(model.view(3, 11).mean(dim=0).numpy(), abs=1e-6)


def test_a_model_with_its_mean_goes_on_and_is_no_model_of_features_as_they_are(tmp_path):
    first = small(training={"extends": "auto", "intervals": 3}).run(tmp_path / "first")
    start = {"name": "public-features", "size": SIZE, "from": str(first.directory)}
    more = small(model=start | {"head": "centred"}, training={"extends": "auto", "intervals": 2, "step_size": 1e-6})
    again = more.run(tmp_path / "more")
    assert released(again) == pytest.approx(released(first), abs=1e-3)
    assert again.metrics["accuracy"].iloc[0] == pytest.approx(first.metrics["accuracy"].iloc[-1], abs=0.01)
    assert not any("mean of these" in line for line in more.prepare().chosen)
    with pytest.raises(UserError, match="has a parameter"):
        small(model=start | {"head": "softmax"}).prepare()


@pytest.mark.parametrize("observer", ["edge", "cloud", "peer"])
def test_an_audit_hears_what_nodes_send(observer):
    made = small("edges" if observer != "edge" else "nobody", training={"extends": "auto", "intervals": 3})
    found = audit(made.prepare(), observer, 16, noise_scale=1e-3)
    assert found.right == found.guesses > 0


def test_auto_chooses_it_where_all_are_there_from_the_first_interval_on():
    def head(**settings):
        return small(**{"head": "softmax", "model": "auto"} | settings).prepare().config.model.head

    def training(**settings):
        return {"extends": "auto"} | settings

    assert head() == head(trust="edges") == head(trust="sum") == "centred"
    assert head(training=training(intervals=20)) == "centred"
    assert head(training=training(step_size=1.0)) == "centred"  # so that a search around the defaults has the model
    assert head(training=training(intervals=19)) == "softmax"
    assert head(training=training(device_turns=2), trust="edges") == "softmax"
    assert head(training=training(participation=0.5)) == "softmax"
    assert head(control={"joules": 5.0}, training=training()) == "softmax"
    assert head(method={"extends": "h2fdp", "aggregation": "median"}) == "softmax"
    assert head(method="hfl", calibration=None) == "softmax"
    assert head(method={"extends": "h2fdp", "server": "subnet-models"}, trust="nobody") == "softmax"


WHEN = "the first interval releases the mean of features"
REFUSED = {
    f"training.local_steps: {WHEN}, by one step of a known length; expected 1, found 2": {"local_steps": 2},
    f"method.objective: {WHEN}, which is no loss of labels; expected plain": {
        "method": {"extends": "hfl", "objective": "scaffold", "server": "scaffold"},
        "calibration": None,
        "local_steps": 1,
    },
    f"method.server: {WHEN}": {"method": {"extends": "h2fdp", "server": "subnet-models"}},
    f"method.server: {WHEN}, of which subnet-models": {
        "method": {"extends": "h2fdp", "server": "subnet-models"},
        "model": {"name": "public-features", "head": "centred", "from": "model.pt"},
    },
    f"method.schedule: {WHEN}, by a step of a known size": {"control": {"joules": 5.0}},
    "training.loss: the mean travels where hinge may see it": {"loss": "hinge"},
    f"training.clip_scope: {WHEN}, and of a batch": {"clip_scope": "batch", "clip_norm": 1.0},
    f"method.privacy: {WHEN}, and of updates": {"method": {"extends": "h2fdp", "privacy": "central"}},
    f"data.public: {WHEN}": {"data": {"name": "digits", "public": 0.1}},
    f"training.intervals: {WHEN}, and there is none to train in": {"intervals": 1},
    f"method.privacy.normalize: {WHEN}, and sums": {
        "method": {"extends": "h2fdp", "privacy": {"name": "dp-sgd", "normalize": 5}},
    },
    f"compression.device: {WHEN}": {"compression": {"device": {"rand_k": 0.1}}},
}


@pytest.mark.parametrize(("text", "settings"), REFUSED.items())
def test_what_it_is_not_made_for_is_refused(text, settings):
    sections = ("method", "model", "calibration", "data", "control", "compression")
    whole = {key: settings[key] for key in sections if key in settings}
    training = {"extends": "auto"} | {key: value for key, value in settings.items() if key not in whole}
    given = {"method": "h2fdp", "model": {"name": "public-features", "head": "centred"}, "data": "digits"}
    with pytest.raises(UserError) as refused:
        Experiment(**{"epsilon": 1.0, "training": training, "calibration": "accounted"} | given | whole)
    assert any(text in each for each in str(refused.value).splitlines()), refused.value
