"""A claim that the account will not confirm, and settings without effect, are named before a run trains, once."""

import json
import re

import pytest

import h2fdp
from h2fdp import Experiment, Topology
from h2fdp.run.loop import notices
from h2fdp.run.preview import estimate
from h2fdp.run.privacy_report import claim_warning, privacy_report

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
BROKEN = {"sensitivity": "tight", "epsilon": 8.0}  # on so few records


def small(method="h2fdp", **settings):
    defaults = {"intervals": 6, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 1.0, "seed": 2}
    return Experiment(topology=NETWORK, data="digits", method=method, **{**defaults, **settings})


def told(text):
    """Observer -> the epsilon that a warning tells."""
    return {name: float(value) for name, value in re.findall(r"(edge|peer|cloud|public) ([0-9.e+]+|inf)", text)}


def test_a_claim_that_the_account_does_not_confirm_is_told_once_with_the_numbers_of_the_end(tmp_path, capsys):
    run = small(**BROKEN).run(tmp_path / "run")
    said = capsys.readouterr().err
    assert said.count("is claimed") == 1
    assert said.startswith("note: epsilon 8 is claimed, but the account of the planned run is about: ")
    worst = run.summary["privacy"]["worst"]
    unmet = {observer: min(each["rdp"], each["pld"]) for observer, each in worst.items() if each["verdict"] != "met"}
    assert unmet
    assert told(said) == pytest.approx(unmet, rel=0.02)
    lines = [json.loads(line) for line in (run.directory / "log.jsonl").read_text().splitlines()]
    assert [line["level"] for line in lines if line["event"] == "notice"] == ["warning"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("h2fdp", {"intervals": 200, "local_steps": 20, "aggregate_every": 5, "batch_size": 32}),  # met
        ("h2fdp", {**BROKEN, "calibration": "accounted"}),
        ("hfl", {}),
        ("h2fdp-adaptive", {**BROKEN, "control": {"estimates": "oracle"}}),  # leaks, which it says itself
    ],
)
def test_who_has_nothing_to_fear_is_told_nothing(method, settings):
    assert claim_warning(small(method, **settings).prepare()) is None


@pytest.mark.parametrize("settings", [{"participation": 0.34}, {"faults": {"device_dropout": 0.3}}, {}])
@pytest.mark.parametrize("epsilon", [0.5, 6.0])
def test_the_estimate_agrees_with_the_report_where_that_is_clear(settings, epsilon):
    """The report plans every interval with its participants; the claim and its numbers are not near each other here."""
    setup = small(sensitivity="tight", epsilon=epsilon, **{"intervals": 30, **settings}).prepare()
    observers = privacy_report(setup)["observers"]
    ratio = {name: min(each["rdp"], each["pld"]) / each["claimed"] for name, each in observers.items()}
    unmet = told(claim_warning(setup) or "")
    assert {name for name, value in ratio.items() if value > 1.3} <= set(unmet)
    assert not {name for name, value in ratio.items() if value < 0.75} & set(unmet)


def test_dp_sgd_without_amplification_in_its_account_is_told():
    privacy = {"name": "dp-sgd", "noise_multiplier": 2.0, "normalize": "drawn"}
    setup = small({"extends": "h2fdp", "privacy": privacy}, clip_scope="record", epsilon=8.0).prepare()
    assert set(told(claim_warning(setup))) == {"edge", "peer", "cloud", "public"}


def test_nothing_is_repeated_when_a_run_goes_on_and_a_sweep_says_it_in_its_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("h2fdp.run.recorders.listener", _failing)
    with pytest.raises(RuntimeError):
        small(**BROKEN).run(tmp_path / "run")
    monkeypatch.undo()
    capsys.readouterr()
    h2fdp.resume(tmp_path / "run")
    file = tmp_path / "study.yaml"
    file.write_text(
        "name: small\ntopology: {edges: [{name: a, devices: {count: 2}}]}\ndata: digits\n"
        "privacy: {epsilon: 8, sensitivity: tight}\n"
        "training: {intervals: 3, local_steps: 2, batch_size: 4}\nsweep: {seed: [1, 2]}\n"
    )
    h2fdp.sweep(file, out=tmp_path / "out", jobs=1)
    assert "is claimed" not in capsys.readouterr().err


def _failing(step, interval):
    if (step, interval) == ("released", 2):
        raise RuntimeError("the host is gone")


@pytest.mark.parametrize("settings", [BROKEN, {}, {**BROKEN, "calibration": "accounted"}])
def test_a_dry_run_has_the_accounts_of_every_observer_with_their_verdicts(settings):
    setup = small(**settings).prepare()
    plan = estimate(setup)
    assert plan["privacy"] == privacy_report(setup)
    assert set(plan["privacy"]["observers"]) == {"edge", "peer", "cloud", "public"}
    assert {each["verdict"] for each in plan["privacy"]["observers"].values()} <= {"met", "open"}


def test_a_dry_run_of_what_has_no_account_has_none():
    assert (estimate(small("hfl").prepare())["privacy"], estimate(small("hfl").prepare())["leaking"]) == (None, False)
    leaking = estimate(small("h2fdp-adaptive", control={"estimates": "oracle"}).prepare())
    assert (leaking["privacy"], leaking["leaking"]) == (None, True)


def test_settings_that_do_less_than_they_say_are_named():
    assert notices(small("fedavg", epsilon=1.0).prepare()) == [
        "privacy.epsilon has no effect: the method fedavg adds no noise"
    ]
    least = int(small().prepare().data.sizes.min())
    capped = small(calibration="accounted", batch_size=5000).prepare()
    (line,) = notices(capped)
    assert line.startswith(f"training.batch_size: 5000 is more than the {least} records of the smallest device; ")
    assert notices(small(calibration="accounted").prepare()) == []


def test_moon_is_said_to_have_no_effect_with_a_model_without_hidden_layers():
    start = "method.objective: moon has no effect with the model softmax, which has no hidden layers"
    for model, expected in (("softmax", 1), ("mlp", 0)):
        found = notices(small("moon", model=model).prepare())
        assert sum(line.startswith(start) for line in found) == sum("objective" in line for line in found) == expected
