"""Which points on the five axes mean something, and how the others are refused."""

import shutil

import pytest

import h2fdp
from h2fdp import Experiment, UserError
from h2fdp.audit.run_audit import check_request
from h2fdp.errors import RefusalRegistry
from h2fdp.run.loop import start_run
from h2fdp.run.recorders import RunCallbacks

BUDGET = "experiments.resource_budget:ResourceBudgetSchedule"


def refusal(**settings):
    with pytest.raises(UserError) as caught:
        Experiment(**settings)
    return str(caught.value)


@pytest.mark.parametrize("objective", ["scaffold", "feddyn"])
@pytest.mark.parametrize("placement", ["hierarchical", "local"])
def test_memory_that_outlives_a_release_has_no_guarantee(objective, placement):
    method = {"objective": objective, "server": objective, "privacy": placement}
    assert "depend on all records that it ever drew" in refusal(method=method)


def test_personal_models_have_no_guarantee():
    assert "keeps its personal models" in refusal(method={"objective": "pfedme", "privacy": "local"})


def test_a_pull_with_momentum_has_no_guarantee():
    text = refusal(method={"objective": "proximal", "privacy": "local"}, momentum=0.5)
    assert "training.momentum" in text
    Experiment(method={"objective": "proximal"}, momentum=0.5)


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"local_epochs": 2, "sampling": "poisson"}, "expected sampling: fixed or allocated, found poisson"),
        ({"sampling": "shuffled"}, "poisson"),
        ({"local_epochs": 2, "local_steps": 5}, "exactly one of local_steps and local_epochs"),
        ({"local_epochs": 2, "aggregate_every": 3}, "different slots"),
        ({"momentum": 1.0}, "from 0 and below 1"),
    ],
)
def test_what_training_cannot_mean(training, words):
    assert words in refusal(method="hfl", training=training)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"extends": "fedavg", "upcycle": {"factor": 0.5}}, "method.upcycle: expected a number from 0 to 100"),
        ({"extends": "fedavg", "server": {"name": "momentum", "beta": 0.5}}, "did you mean `beta1`?"),
        ({"extends": "fedavg", "server": "adamm"}, 'found "adamm"; did you mean `adam`?'),
        ({"extends": "fedavgg"}, "expected one of hfl"),
        ({"schedule": "experiments.noise_decay:NoiseDecay"}, "no noise to decay"),
        ({"schedule": {"name": "fixed", "factor": 0.5}}, "method.schedule.factor: unknown key"),
    ],
)
def test_what_a_method_cannot_mean(method, words):
    assert words in refusal(method=method)


def test_a_schedule_that_measures_private_losses_is_marked_or_refused():
    leaking = {"extends": "fedavg-dp", "schedule": {"name": BUDGET, "joules": 5.0}}
    assert Experiment(method=leaking).config.privacy.calibration == "paper"
    assert "devices, which send no raw updates here" in refusal(method={**leaking, "privacy": "hierarchical"})
    stated = {**leaking["schedule"], "lipschitz": 1.0, "smoothness": 1.0, "divergence": 0.1}
    Experiment(method={**leaking, "schedule": stated, "privacy": "hierarchical"})


def test_a_clip_norm_is_one_number():
    words = "clip_norm: expected a number from 1e-9 to 1e9, normalized or null; or no clip_norm, which auto chooses"
    assert words in refusal(method="h2fdp", clip_norm={"quantile": 0.5})


@pytest.mark.parametrize("stated", ["released", "private", "oracle"])
def test_a_source_of_estimates_is_refused_with_what_to_state_instead(stated):
    words = "control.estimates: this key is gone; estimates are those of released vectors: leave the line out"
    assert words in refusal(method="h2fdp-adaptive", control={"estimates": stated})


def test_edge_servers_that_may_stay_out_are_refused_with_what_to_state_instead():
    words = "control.allow_idle: this key is gone; all edge servers take part: leave the line out"
    assert words in refusal(method="h2fdp-adaptive", control={"allow_idle": False})


@pytest.mark.parametrize(
    ("settings", "observer", "words"),
    [
        (
            {"method": {"extends": "h2fdp", "server": "momentum"}},
            "public",
            "recovers the averages from the global models",
        ),
        ({"method": "upcycled-h2fdp"}, "public", "recovers the averages from the global models"),
        ({"method": "hfl-dp", "momentum": 0.5}, "edge", "do not support momentum"),
    ],
)
def test_what_an_audit_would_get_wrong_is_refused(settings, observer, words):
    run = Experiment(**settings).prepare()
    with pytest.raises(UserError, match=words):
        check_request(run, observer, 10, "dominating", 0.95)


GIVEN = {"extends": "fedavg-dp", "privacy": {"name": "dp-sgd", "noise_multiplier": 3.0}}


def test_central_noise_comes_with_no_tau_that_has_local_aggregations():
    schedule = {"name": BUDGET, "units": 9.0, "step_cost": 1.0, "aggregation_cost": 1.0}
    method = {"extends": "hfl", "privacy": "central", "schedule": schedule}
    assert "method" in refusal(method=method, training={"local_steps": 1, "aggregate_every": 2})


@pytest.mark.run
def test_a_budget_keeps_the_target_where_a_schedule_chooses_how_long_intervals_are(tmp_path):
    schedule = {"name": BUDGET, "units": 3000.0, "step_cost": 1.0, "aggregation_cost": 5.0}
    constants = {"lipschitz": 1.0, "smoothness": 1.0, "divergence": 1e-4}
    method = {"extends": "hfl-dp", "topology": "star", "schedule": schedule | constants}
    run = Experiment(method=method, epsilon=1.0, training={"intervals": 20, "batch_size": 4}).run(tmp_path / "run")
    assert run.summary["state"] == "budget spent"
    assert run.privacy.epsilon(observer="edge") <= 1.0


@pytest.mark.run
def test_a_run_that_leaks_has_no_account_and_still_a_report(tmp_path):
    keys = {"intervals": 4, "batch_size": 16}
    method = {
        "extends": "fedavg-dp",
        "privacy": {"name": "dp-sgd", "noise_multiplier": 4.0},
        "schedule": "experiments.ali_dpfl:AliDpfl",
    }
    run = Experiment(method=method, epsilon=5.0, training=keys).run(tmp_path / "run")
    with pytest.raises(UserError, match="devices sent raw measurements"):
        run.privacy.epsilon(observer="edge")
    assert "sigma" in run.report(tmp_path / "out.html").read_text()


@pytest.mark.run
def test_a_run_that_ends_at_its_last_step_goes_on_afresh_at_no_price(tmp_path):
    keys = {"intervals": 6, "batch_size": 16, "local_steps": 2}
    rows = []
    prepared = Experiment(method=GIVEN, epsilon=5.0, training=keys)
    start_run(prepared.prepare(), tmp_path / "run", RunCallbacks(on_interval=rows.append, stop=lambda: len(rows) == 2))
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(UserError, match="overspend"):
        h2fdp.resume(tmp_path / "run")


def test_refusals_come_in_the_same_order_whatever_was_imported_first():
    asked = []
    for names in (("b", "a"), ("a", "b")):
        registry = RefusalRegistry()
        for name in names:

            def refusals(key, name=name):
                return [(key, name)]

            refusals.__module__ = name
            registry.register(refusals)
        asked.append(list(registry.of("seed")))
    assert asked[0] == asked[1] == [("seed", "a"), ("seed", "b")]
