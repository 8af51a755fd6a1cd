"""What `h2fdp privacy explain` says: lines that fit, and noise on the model, by hand and by an account of its own."""

import math

import numpy as np
import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.run.dry_run import planned_work
from h2fdp.run.explanation import LINES, WIDTH, explanation
from h2fdp.run.forecast import first_interval, planned_accounts
from h2fdp.run.neighbours import neighbours, worst_epsilon
from h2fdp.run.noise_on_model import noise_on_model
from h2fdp.run.privacy_report import noises
from h2fdp.run.rhythm_costs import rhythm_costs

DEVICES, INTERVALS, ETA, DELTA = 6, 9, 0.5, 1e-5
EQUAL = {"name": "digits", "partition": {"labels_per_device": 10}}
EVERY = {"trusted": 1, "untrusted": 4}
BY_RECORD = {"clip_scope": "record", "clip_norm": 2.0, "local_steps": 1, "sampling_rate": 0.5}


def experiment(trust=0.0, **settings):
    topology = Topology.regular(edges=2, devices=DEVICES // 2, trust=trust, seed=1)
    defaults = {"intervals": INTERVALS, "step_size": ETA, "epsilon": 2.0, "data": EQUAL, "method": "h2fdp"}
    return Experiment(topology=topology, **{**defaults, **settings})


@pytest.mark.parametrize("decay", ["none", "sqrt"])
def test_noise_on_the_model_is_that_of_all_uploads_averaged(decay):
    """Two subnets of three devices with equal shares; noise falls with the step size."""
    run = experiment(**BY_RECORD, step_decay=decay).prepare()
    first = np.concatenate([plan.noise_std[0] for plan in first_interval(run).subnets.values()])
    falls = [1 / math.sqrt(k) if decay == "sqrt" else 1.0 for k in range(1, INTERVALS + 1)]
    found = noise_on_model(run)
    assert found.noise_std == pytest.approx(
        math.sqrt(sum(first**2) * sum(each**2 for each in falls)) / DEVICES, rel=1e-9
    )
    assert found.way == pytest.approx(ETA * sum(falls))


def test_noise_of_the_cloud_does_not_fall_with_the_step_size():
    run = experiment(method={"privacy": "central"}, local_steps=3, aggregations_per_interval=0).prepare()
    (row,) = noises(run)
    assert noise_on_model(run).noise_std == pytest.approx(row["noise_std"] * math.sqrt(INTERVALS))


def test_neighbours_have_the_noise_that_the_same_epsilon_asks_of_them():
    """r is z eta G / b sqrt(K / n) / (eta K): proportional to z / (q sqrt(K))."""
    run = experiment(**BY_RECORD, step_decay="none").prepare()
    epsilon = worst_epsilon(run)
    found = {(each.key, each.value): each.noise for each in neighbours(run)}

    def noise(rate, intervals):
        return smallest_multiplier(rate, intervals, epsilon) / (rate * math.sqrt(intervals))

    present = noise(0.5, INTERVALS)
    wanted = {
        ("sampling_rate", 0.25): noise(0.25, INTERVALS),
        ("sampling_rate", 1.0): noise(1.0, INTERVALS),
        ("intervals", INTERVALS // 2): noise(0.5, INTERVALS // 2),
        ("intervals", 2 * INTERVALS): noise(0.5, 2 * INTERVALS),
        ("clip_norm", 1.0): present / 2,
    }
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value / present, rel=3e-3), key


def smallest_multiplier(rate, releases, epsilon):
    """The noise at which an accountant, asked directly, gives this epsilon."""
    low, high = 0.05, 500.0
    while high / low > 1 + 1e-5:
        middle = math.sqrt(low * high)
        meets = ACCOUNTANTS["pld"].epsilon({ReleaseType(middle, 1, rate): releases}, DELTA) <= epsilon
        low, high = (low, middle) if meets else (middle, high)
    return high


def test_better_settings_come_first_and_the_best_is_named():
    run = experiment(local_steps=8, aggregate_every=4, batch_size=8).prepare()
    found = neighbours(run)
    assert [each.noise for each in found] == sorted(each.noise for each in found)
    assert {each.key for each in found} == {"batch_size", "intervals", "local_steps", "aggregate_every", "clip_norm"}
    best = next(each for each in found if each.key != "clip_norm")
    assert explanation(run)["lines"][-1].startswith(f"the lowest: {best.key} {best.value:g}, ")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"trust": 0.5, **BY_RECORD},
        {"trust": 1.0},
        {"method": {"privacy": {"name": "dp-sgd"}}},
        {"method": {"privacy": {"name": "dp-sgd", "noise_multiplier": 40.0}}},
        {"method": {"privacy": "output"}},
        {"method": {"privacy": "central"}, "aggregations_per_interval": 0, "local_steps": 2},
        {"method": "h2fdp-adaptive"},
        {"trust": 0.5, "method": {"privacy": {"name": "hierarchical", "noise": "steps"}}, "aggregate_every": EVERY},
        {"participation": 0.5, "faults": {"device_dropout": 0.2}},
        {"method": {"privacy": {"name": "hierarchical", "input_bound": 30}}, "sampling_rate": 0.5},
    ],
)
def test_few_lines_of_eighty_columns_name_every_observer_and_its_epsilon(settings):
    run = experiment(**settings).prepare()
    found = explanation(run)
    assert len(found["lines"]) <= LINES
    assert max(map(len, found["lines"])) <= WIDTH
    text = "\n".join(found["lines"])
    assert "..." not in text, "no line is cut off"
    assert f"{planned_work(run).energy_j:.4g} J" in text
    if any(each["setting"] == "clip_norm" for each in found["neighbours"]):
        assert "clip_norm" in text
    for observer, told in found["observers"].items():
        assert observer in text
        if told["epsilon"] is not None:
            assert f"epsilon {told['epsilon']:.3g}" in text
            assert f", by {told['by']}" in found["lines"][0]
    assert [name for name, told in found["observers"].items() if told["epsilon"] is None] == [
        observer for observer in run.observers if not list(planned_accounts(run).classes(observer))
    ]


RECORDS, STEPS = 20, 3


def own_records(device):
    draws = np.random.default_rng(len(device))
    return draws.normal(size=(RECORDS, 4)).astype(np.float32), np.arange(RECORDS) % 2


def every_record_each_step(**settings):
    """Equal devices that add noise themselves, and send once in an interval of several steps."""
    shared = {
        "data": own_records,
        "test_data": own_records("test"),
        "method": {"privacy": "local"},
        "sampling_rate": 1.0,
    }
    rhythm = {"local_steps": STEPS, "aggregations_per_interval": 0, "clip_scope": "record", "step_decay": "none"}
    return experiment(**{**shared, **rhythm, **settings}).prepare()


def test_what_several_steps_between_releases_cost_by_hand():
    """Plain Gaussians of one precision P = sum 1/z^2. As it is: z^2 = K / P, sensitivity eta G (1/b + 2 (m-1)). One
    step: the formula's z_local^2 = (m-1) K a and z_global^2 = K a with a = 2 / P. Inside: z^2 = m K / P. Ratios of
    the sums of z^2 S^2 over all releases, S = eta G / b for the last two; the ways are equal."""
    as_it_is, one_step, inside = rhythm_costs(every_record_each_step())
    shift = (1 / RECORDS + 2 * (STEPS - 1)) * RECORDS
    assert as_it_is["bound"] == "record"
    assert one_step["times"] == pytest.approx(math.sqrt(2 * ((STEPS - 1) ** 2 + 1)) / shift, rel=3e-3)
    assert inside["times"] == pytest.approx(STEPS / shift, rel=3e-3)
    assert inside["multiplier"] / as_it_is["multiplier"] == pytest.approx(math.sqrt(STEPS), rel=3e-3)
    assert as_it_is["energy"] == inside["energy"] == 1.0 < one_step["energy"]


def test_clipped_batches_are_compared_with_clipped_records_too():
    rows = rhythm_costs(every_record_each_step(clip_scope="batch"))
    assert [row["bound"] for row in rows] == ["batch", "batch", "record", "record"]
    assert rows[2]["times"] / rows[1]["times"] == pytest.approx(1 / (2 * RECORDS), rel=3e-3)


@pytest.mark.parametrize(
    "settings", [{"local_steps": 1}, {"method": {"privacy": "dp-sgd"}}, {"method": "h2fdp-adaptive"}]
)
def test_other_mechanisms_and_single_steps_have_no_such_costs(settings):
    run = experiment(**{"local_steps": 4, **settings}).prepare()
    assert rhythm_costs(run) == []


def test_a_run_without_noise_has_nothing_to_explain():
    with pytest.raises(UserError, match="adds no noise"):
        explanation(experiment(method="hfl").prepare())


@pytest.mark.parametrize("privacy", ["dp-sgd", {"name": "hierarchical", "noise": "steps"}])
def test_an_account_meets_targets_that_the_classic_one_never_reaches(privacy):
    """At delta 1e-5 orders up to 64 with the classic conversion end at 0.183."""
    run = experiment(method={"privacy": privacy}, epsilon=0.1, local_steps=2, calibration="accounted").prepare()
    assert 0.099 < worst_epsilon(run) <= 0.1


@pytest.mark.parametrize("sums", [{"cloud": True}, {"rounding": 20}])
def test_secure_sums_are_said_in_lines_that_fit(sums):
    topology = Topology.regular(edges=2, devices=DEVICES // 2, trust=0.0, secure_sum=1.0, seed=1)
    method = {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": sums}}
    settings = {"intervals": 4, "epsilon": 2.0, "data": EQUAL, "method": method, **BY_RECORD}
    told = explanation(Experiment(topology=topology, **settings).prepare())
    assert len(told["lines"]) <= LINES
    assert max(map(len, told["lines"])) <= WIDTH
    assert ("the sum of what its children send" in told["observers"]["cloud"]["sees"]) is ("cloud" in sums)
