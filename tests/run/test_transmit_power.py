"""`control.least_dbm`: devices that choose their transmit power, in planned and in whole runs."""

import json

import numpy as np
import pytest

import h2fdp
from h2fdp.reports.decisions import reason
from tests.noise_keys import keys_are, known
from tests.run.test_wishes import experiment, planned

LOW = {"least_dbm": 0.0}
FORMS = {
    "budget": {"joules": 0.04, "seconds": 0.8},
    "target": {"accuracy": 0.9, "alpha2": 0.2},
    "turns": {"turns": 0.5, "tau_max": 8, "accuracy": 0.9, "alpha2": 0.2},
    "alphas": {"alpha1": 1.0, "alpha2": 0.2},
}
SETTINGS = {"alphas": {"aggregate_every": 4, "step_decay": "sqrt"}}
WEIGHTS = {"budget": (25.0, 1.25), **dict.fromkeys(("target", "turns", "alphas"), (1.0, 0.2))}


def made(form, power=LOW, **settings):
    return experiment({**FORMS[form], **power}, **{**SETTINGS.get(form, {}), **settings})


@pytest.mark.parametrize("form", FORMS)
def test_each_device_sends_with_the_power_that_costs_least_as_the_form_weighs_it(form):
    setup, (joule, second) = made(form).prepare(), WEIGHTS[form]
    own, drawn = made(form, {}).prepare().costs.drawn(2), setup.costs.drawn(2)
    gain, bits = own.down_snr / 10**-0.6, setup.costs.message_bits
    watts = 10 ** (np.linspace(0, 24, 4001)[:, None] / 10 - 3)
    seconds = bits / (1e6 * np.log2(1 + gain * watts))
    least = (joule * watts * seconds + second * seconds).min(axis=0)
    assert joule * drawn.joules + second * drawn.seconds == pytest.approx(least, rel=1e-6)
    assert (joule * own.joules + second * own.seconds > 1.01 * least).all()


@pytest.mark.parametrize("budget", [{"joules": 0.02}, {"joules": 0.012, "seconds": 0.5}])
def test_a_budget_is_never_exceeded(budget):
    costs = [cost for _, cost in planned(experiment({**budget, **LOW}).prepare())]
    spent = {"joules": sum(each["energy_j"] for each in costs), "seconds": sum(each["delay_s"] for each in costs)}
    assert len(costs) > 1
    assert all(spent[key] <= most for key, most in budget.items())


def rows_of(run):
    return [json.loads(line) for line in (run.directory / "control.jsonl").read_text().splitlines()]


def test_a_run_goes_on_to_the_same_bits_and_tells_the_powers_of_those_who_take_part(tmp_path):
    def stop(row):
        if row["interval"] == 2:
            raise KeyboardInterrupt

    with keys_are(known):
        whole = made("budget", intervals=4, checkpoint_every=1).run(tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            made("budget", intervals=4, checkpoint_every=1).run(tmp_path / "cut", on_interval=stop)
        again = h2fdp.resume(tmp_path / "cut")
    for column in ("loss", "energy_j", "delay_s", "clock_s"):
        assert whole.metrics[column].tolist() == again.metrics[column].tolist()
    assert rows_of(whole) == rows_of(again)
    assert h2fdp.check(whole.directory).whole
    setup = made("budget", intervals=4).prepare()
    for row, (plan, _) in zip(rows_of(whole), planned(setup), strict=True):
        starts = np.cumsum([0, *setup.topology.sizes])
        names = [subnet.name for subnet in setup.topology.subnets]
        taking = np.concatenate([starts[names.index(name)] + of.rows for name, of in plan.subnets.items()])
        powers = setup.costs.drawn(plan.interval).power_dbm[taking]
        told = row["power_dbm"]
        assert told == {"least": powers.min(), "mean": pytest.approx(powers.mean()), "most": powers.max()}
        assert 0.0 <= told["least"] <= told["mean"] <= told["most"] <= 24.0
    assert "dBm" in reason(rows_of(whole)[0])
