"""A claim that the account will not confirm, and settings without effect, are named before a run trains, once."""

import json
import re

import pytest

from h2fdp import Experiment, Topology
from h2fdp.privacy.statement import worst_epsilon
from h2fdp.run import preview
from h2fdp.run.preview import estimate, notices
from h2fdp.run.preview import privacy_report as report

NETWORK = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)
BROKEN = {"sensitivity": "tight", "epsilon": 8.0}  # on so few records


def small(method="h2fdp", **settings):
    defaults = {"intervals": 6, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 1.0, "seed": 2}
    return Experiment(topology=NETWORK, data="digits", method=method, **{**defaults, **settings})


def told(text):
    """Observer -> the epsilon that a warning tells."""
    return {name: float(value) for name, value in re.findall(r"(edge|peer|cloud|public) ([0-9.e+]+|inf)", text)}


def test_a_claim_that_the_account_does_not_confirm_is_told_once_with_the_numbers_of_the_end(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(preview, "worst_epsilon", worst_epsilon)  # conftest.py leaves it out
    run = small(**BROKEN).run(tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("is claimed") == 1
    assert said.startswith("note: epsilon 8 is claimed, but the account of the planned run is about: ")
    worst = run.summary["privacy"]["worst"]
    unmet = {observer: min(each["rdp"], each["pld"]) for observer, each in worst.items() if each["verdict"] != "met"}
    assert unmet
    assert told(said) == pytest.approx(unmet, rel=0.02)
    lines = [json.loads(line) for line in (run.directory / "log.jsonl").read_text().splitlines()]
    assert [line["level"] for line in lines if line["event"] == "notice"] == ["warning"]


@pytest.mark.parametrize("settings", [BROKEN, {}, {**BROKEN, "calibration": "accounted"}])
def test_a_dry_run_has_the_accounts_of_every_observer_with_their_verdicts(settings):
    setup = small(**settings).prepare()
    plan = estimate(setup)
    assert plan["privacy"] == report(setup)
    assert set(plan["privacy"]["observers"]) == {"edge", "peer", "cloud", "public"}
    assert {each["verdict"] for each in plan["privacy"]["observers"].values()} <= {"met", "open"}


def test_settings_that_do_less_than_they_say_are_named():
    assert notices(small("fedavg", epsilon=1.0, local_steps=2).prepare()) == [
        "privacy.epsilon has no effect: the method fedavg adds no noise"
    ]
    least = int(small().prepare().data.sizes.min())
    capped = small(calibration="accounted", batch_size=5000).prepare()
    (line,) = notices(capped)
    assert line.startswith(f"training.batch_size: 5000 is more than the {least} records of the smallest device; ")
    assert notices(small(calibration="accounted").prepare()) == []
    most = max(subnet.size for subnet in NETWORK.subnets)
    turning = {"calibration": "accounted", "local_steps": 1, "aggregate_every": 1}
    (line,) = notices(small(device_turns=most + 1, **turning).prepare())
    assert line.startswith(f"training.device_turns: {most + 1} is more than the devices of {len(NETWORK.subnets)} of ")
    assert notices(small(device_turns=min(each.size for each in NETWORK.subnets), **turning).prepare()) == []
