"""Noise is planned once for each way of training, whatever the clip norm and the step size will be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from h2fdp import Experiment, UserError, wording
from h2fdp.protocol import InProcessNodes
from h2fdp.protocol.planner import Planner
from h2fdp.run.calibration import calibrate
from h2fdp.run.forecast import first_interval, noise_on_model, planned_accounts
from h2fdp.run.noise_plan import NoisePlans, Way
from h2fdp.run.prepare import inputs_of
from h2fdp.run.preview import privacy_report
from h2fdp.run.setup import RunSetup

NETWORK = {
    "trust": {"trusted": 0.5, "exact": True},
    "edges": [{"name": "e-{i}", "repeat": 4, "devices": {"count": 5}}],
}
TRUSTED = {"edges": [{"name": "e-{i}", "repeat": 2, "trusted": True, "devices": {"count": 4}}]}
ACCOUNTED = {"calibration": "accounted", "data": "digits", "epsilon": 2.0}


@pytest.fixture
def planned(monkeypatch):
    """The numbers of the intervals that were planned so far."""
    numbers, plan = [], Planner.plan

    def counted(self, interval, *arguments, **others):
        numbers.append(interval)
        return plan(self, interval, *arguments, **others)

    monkeypatch.setattr(Planner, "plan", counted)
    return numbers


def test_what_auto_chooses_by_the_noise_plans_each_interval_once(planned):
    Experiment(topology=NETWORK, model="auto", training={"extends": "auto"}, **ACCOUNTED).prepare()
    assert [each for each in planned if each] == [*range(1, 30)]  # the first one again, for the range of float32


def test_every_number_of_bands_that_is_tried_is_planned_once(planned):
    training = {"extends": "auto", "device_turns": 2}
    setup = Experiment(topology=TRUSTED, model="auto", training=training, **ACCOUNTED).prepare()
    bands = setup.config.privacy.correlated.bands
    tried = 1 + int(np.log2(bands)) + (2 * bands <= 30)
    assert [each for each in planned if each] == [*range(1, 30)] * tried


def test_many_falling_shares_are_planned_once_for_each_of_twenty_levels(planned):
    training = {"intervals": 400, "local_steps": 1, "step_decay": "linear", "budget_decay": "linear", "clip_norm": 1.0}
    setup = Experiment(topology=TRUSTED, model="softmax", training=training | {"batch_size": 4}, **ACCOUNTED).prepare()
    planned.clear()
    planned_accounts(setup)
    assert len(planned) == 20


EDGES = [{"trusted": True}, {"trusted": False}, {"trust": "secure-sum"}]


@st.composite
def networks(draw):
    edges = [
        {"name": name, **draw(st.sampled_from(EDGES)), "devices": {"count": draw(st.integers(1, 4))}} for name in "abc"
    ]
    if draw(st.booleans()):
        above = [
            {"name": f"above-{each['name']}", **draw(st.sampled_from(EDGES[:2])), "edges": [each]} for each in edges
        ]
        edges = [{"name": "top", **draw(st.sampled_from(EDGES[:2])), "edges": above}] if draw(st.booleans()) else above
    return {"edges": edges}


DECAYS = st.sampled_from(["none", "sqrt", "linear"])
TRAINING = st.fixed_dictionaries(
    {
        "intervals": st.sampled_from([1, 4, 30]),
        "local_steps": st.integers(1, 4),
        "clip_norm": st.floats(1e-3, 1e3),
        "step_size": st.floats(1e-3, 1e3),
    },
    optional={
        "aggregate_every": st.integers(1, 3),
        "sampling_rate": st.sampled_from([0.1, 0.5, 1.0]),
        "sampling": st.sampled_from(["poisson", "fixed"]),
        "step_decay": DECAYS,
        "budget_decay": DECAYS,
        "clip_scope": st.sampled_from(["batch", "record"]),
        "momentum": st.sampled_from([0.0, 0.5]),
        "participation": st.sampled_from([0.5, 1.0]),
        "device_turns": st.sampled_from([1, 2]),
        "weights": st.sampled_from(["uniform", "by-size"]),
    },
)
PRIVACY = st.fixed_dictionaries(
    {"epsilon": st.sampled_from([0.5, 8.0]), "accountant": st.sampled_from(["rdp", "pld"])},
    optional={
        "adjacency": st.sampled_from(["null-record", "add-remove", "replace"]),
        "sensitivity": st.sampled_from(["paper", "tight"]),
        "correlated": st.just({"kind": "banded-inverse", "bands": 2}),
    },
)
METHODS = st.sampled_from(
    ["h2fdp", "hfl-dp", {"extends": "h2fdp", "privacy": "local"}, {"extends": "fedavg", "privacy": "central"}]
)
FAULTS = st.sampled_from([{}, {"device_dropout": 0.2}])


@st.composite
def runs(draw):
    """A run whose noise is calibrated at its own clip norm and step size."""
    known = {"topology": draw(networks()), "method": draw(METHODS), "faults": draw(FAULTS)}
    keys = draw(PRIVACY)
    try:
        return Experiment(data="digits", model="softmax", training=draw(TRAINING), privacy=keys, **known).prepare()
    except UserError:
        assume(False)


@settings(max_examples=25)
@given(runs())
def test_noise_that_was_planned_at_one_is_that_of_the_run_to_the_bit(run):
    assume(run.noise is not None and Way.of(run.config) is not None)
    inputs = inputs_of(run.config, run.drawn, run.data)
    plans = NoisePlans(lambda config: inputs_of(config, run.drawn, run.data))
    plan = plans.of(run.config)
    found = RunSetup.of(inputs, plan.at(inputs))
    assert (plan.setup.config.training.largest_norm, plan.setup.config.training.step_size) == (1.0, 1.0)
    assert (found.factor, found.iterations) == (run.factor, run.iterations)
    planned, own = first_interval(found), first_interval(run)
    assert planned.noise_std == own.noise_std
    assert list(planned.subnets) == list(own.subnets)
    for name, part in planned.subnets.items():
        np.testing.assert_array_equal(part.noise_std, own.subnets[name].noise_std)
    model, of_run = noise_on_model(found), noise_on_model(run)
    assert model.noise_std == pytest.approx(of_run.noise_std, rel=1e-9)
    assert model.way == pytest.approx(of_run.way, rel=1e-9)


@settings(max_examples=25)
@given(runs())
def test_levels_that_stand_for_intervals_have_the_account_of_each_interval_by_itself(run):
    assume(run.noise is not None)
    cloud, accounts = run.cloud(InProcessNodes({})), run.empty_accounts()
    for interval in range(run.config.training.intervals):
        plan = cloud.plan(interval)
        accounts.add(cloud.releases(plan))
        cloud.skip(plan)
    together = planned_accounts(run)
    for observer in run.observers:
        one_by_one = {tuple(each.devices): each.composition for each in accounts.classes(observer)}
        assert {tuple(each.devices): each.composition for each in together.classes(observer)} == one_by_one


@pytest.mark.parametrize(
    "method",
    [
        {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"rounding": 24}}},
        {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}},
        {"extends": "h2fdp", "privacy": {"name": "hierarchical", "law": "laplace"}},
        {"extends": "h2fdp", "objective": {"name": "proximal", "mu": 0.1}},
        {"extends": "fedavg", "privacy": "dp-sgd"},
        "h2fdp-adaptive",
    ],
)
def test_what_does_not_scale_is_planned_at_its_own_numbers(method):
    made = Experiment(topology=NETWORK, model="softmax", training="paper", method=method, **ACCOUNTED)
    assert Way.of(made.config) is None


def test_a_plan_is_of_its_own_way_alone():
    run = Experiment(
        topology=NETWORK, model="softmax", training={"clip_norm": 0.5, "extends": "paper"}, **ACCOUNTED
    ).prepare()
    plans = NoisePlans(lambda config: inputs_of(config, run.drawn, run.data))
    plans.of(run.config)
    longer = run.config.model_copy(update={"training": run.config.training.model_copy(update={"intervals": 10})})
    inputs = inputs_of(longer, run.drawn, run.data)
    assert plans.noise(inputs).factor == calibrate(inputs).factor != run.factor


def photographs(device):
    """Few images of 28 x 28: `auto` takes features, whose messages are not as long as those of the pixels' model."""
    rng = np.random.default_rng(len(device or "test"))
    return rng.random((12, 1, 28, 28), dtype=np.float32), np.arange(12) % 10


LENGTHS = {
    "buffers": (
        {"devices": {"count": 4, "distance_m": [5, 20, 40, 80], "seconds_per_step": [0.04, 0.02, 0.01, 0.001]}},
        {"extends": "hfl-async", "schedule": {"name": "buffered", "buffer": {"edge": 2, "cloud": 1}}},
    ),
    "batteries": ({"devices": {"count": 4, "distance_m": 20, "battery_j": 0.0054}}, {"extends": "h2fdp"}),
}


@pytest.mark.parametrize("privacy", ["hierarchical", "devices"])
@pytest.mark.parametrize("decides", LENGTHS)
def test_noise_that_hangs_on_the_length_of_messages_is_planned_for_the_model_of_the_run(decides, privacy):
    """Who takes part then is not who would with the model by which features are chosen: epsilon was up to 22 for 8."""
    edge, method = LENGTHS[decides]
    network = {
        "edges": [{"name": "a", "trusted": decides == "batteries", **edge}, {"name": "b", "trusted": False, **edge}]
    }
    known = {"calibration": "accounted", "accountant": "rdp", "epsilon": 8.0, "method": method | {"privacy": privacy}}
    setup = Experiment(
        network, photographs, test_data=photographs(None), model="auto", training={"extends": "auto"}, **known
    ).prepare()
    observers = privacy_report(setup)["observers"]
    assert 7.9 < max(each["rdp"] for each in observers.values() if each["rdp"] is not None) <= 8.0


@pytest.mark.parametrize(("patience", "said"), [(0.0, True), (60.0, False)])
def test_calibration_that_takes_long_says_what_it_is_at(patience, said, monkeypatch, capsys):
    monkeypatch.setattr(wording, "PATIENCE", patience)
    Experiment(topology=NETWORK, model="softmax", training={"intervals": 90}, **ACCOUNTED).prepare()
    assert ("note: calibrating noise: 90 intervals of 20 devices" in capsys.readouterr().err) == said
