"""Whole devices are protected wherever trust ends: what the account is, whose noise it is, and with what it goes.

What observers learn, against the ledger, is in `tests/protocol/test_any_tree.py`, on random trees.
"""

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

from h2fdp import Experiment, Topology, UserError
from h2fdp.network import Aggregator
from h2fdp.network.adversaries import Adversaries, SignFlip
from h2fdp.network.mobility import Mobility
from h2fdp.privacy import DeviceDp
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.run.preview import privacy_report
from h2fdp.schedules import Decision, OwnSchedule
from tests.networks import placed
from tests.protocol.test_noise_of_placements import order

NEAR = [9.0] * 3
TRUSTS = ("trusted", "secure-sum", "untrusted")
FLAT = Topology("three trusts", tuple(placed(name, name, NEAR, NEAR) for name in TRUSTS))
DEEP = Topology(
    "two tiers",
    tuple(placed(name, name, NEAR, NEAR, parent="top") for name in ("trusted", "untrusted")),
    aggregators=(Aggregator("top", "trusted"),),
)
PLAIN = Topology("no secure sums", tuple(placed(name, name, NEAR, NEAR) for name in ("trusted", "untrusted")))
ALONE = Topology("none trusted", tuple(placed(name, "untrusted", NEAR, NEAR) for name in "ab"))
FLAT_TRUSTED = Topology("all trusted", tuple(placed(name, "trusted", NEAR, NEAR) for name in "ab"))
CENTRAL = {"extends": "h2fdp", "privacy": "central"}
USUAL = {
    "data": {"name": "digits", "partition": "iid"},
    "model": "softmax",
    "intervals": 3,
    "local_steps": 4,
    "aggregate_every": 2,
    "batch_size": 8,
    "clip_norm": 0.5,
    "epsilon": 8.0,
    "calibration": "accounted",
    "accountant": "pld",
    "protects": "device",
}


def experiment(topology=FLAT, **settings):
    return Experiment(topology=topology, **{**USUAL, **settings})


def test_the_account_is_that_of_plain_gaussians():
    """Under an untrusted edge server each of 2 uploads in 3 intervals is a Gaussian of z C that a device moves by C."""
    stated = {"calibration": "paper", "method": {"privacy": {"name": "devices", "noise_multiplier": 2.0}}}
    seen = privacy_report(experiment(**stated).prepare())["observers"]
    assert seen["edge"]["pld"] == pytest.approx(gaussian_epsilon(math.sqrt(6) / 2.0, 1e-5), rel=1e-3)


def test_noise_meets_the_target_whatever_the_steps_the_batches_and_the_optimiser():
    seen = set()
    for changed in ({}, {"local_steps": 8, "aggregate_every": 4}, {"batch_size": 2}, {"momentum": 0.5}):
        report = privacy_report(experiment(**changed).prepare())
        assert 7.9 < max(each["pld"] for each in report["observers"].values()) <= 8.0
        seen.add(tuple(round(row["noise_std"], 9) for row in report["noises"]))
    assert len(seen) == 1  # an upload is as long, whatever made it


@pytest.mark.parametrize("falls", [1.0, 0.25])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_uploads_are_as_long_as_the_norm_which_falls_as_step_sizes_do_and_carry_their_noise(number, falls):
    """Of a million times the step size, so that each update is cut. The sum of squares of M coordinates over sigma^2 is
    of a noncentral chi-square law; error rate 1e-6; two thirds and one and a half times the noise are rejected."""
    run = experiment(model={"name": "mlp", "hidden": 235}, step_size=1e3, aggregate_every=4).prepare()
    group, by_node = run.blueprint.device_group(number), run.blueprint.facts[number].place.by_node
    level, longest = 0.0 if by_node else 0.25, 0.5 * falls
    for upload in group.train(run.initial, order(level, steps=4, step_size=1e3 * falls)).updates.double():
        if by_node:
            assert float(torch.linalg.vector_norm(upload)) == pytest.approx(longest, rel=1e-5)
            continue
        squared, size = float((upload**2).sum()), upload.numel()

        def fits(std, squared=squared, size=size):
            law = stats.ncx2(size, (longest / std) ** 2)
            return law.ppf(5e-7) < squared / std**2 < law.ppf(1 - 5e-7)

        assert [fits(level * factor) for factor in (1, 2 / 3, 3 / 2)] == [True, False, False]


@pytest.mark.parametrize(("method", "topology"), [("h2fdp", PLAIN), (CENTRAL, FLAT_TRUSTED)])
def test_sensitivities_and_noise_of_rows_fall_as_step_sizes_do(tmp_path, method, topology):
    """By a third and two thirds of the first in the last two of three intervals, so that the account stays."""
    rows, found = {}, []
    for falls in ("linear", "none"):
        settings = {"method": method, "step_decay": falls, "aggregate_every": None, "aggregations_per_interval": 0}
        settings |= {"noise_key": "seed"}
        run = experiment(topology=topology, **settings).run(tmp_path / falls)
        found.append(run.privacy.epsilon("public"))
        for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
            key = row["edge"], row["observer"], row["interval"]
            rows.setdefault(key, []).append((row["sensitivity"], row["noise_std"]))
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert {interval for *_, interval in rows} == {1, 2, 3}
    for (*_, interval), (fallen, constant) in rows.items():
        left = (4 - interval) / 3
        assert fallen == pytest.approx([left * each for each in constant], rel=1e-9)


class Longer(OwnSchedule):
    """Step sizes that grow to four times the file's; with the file's local steps alone they would not."""

    allows_epochs = True

    def largest_step_size(self, step_size, local_steps, intervals):
        return step_size if local_steps is None else 4 * step_size

    def choose(self, interval, slot):
        return Decision(self.context.local_steps, self.context.step_size, self.context.participation)


def test_uploads_are_clipped_to_what_the_account_says_whoever_states_the_largest_step_size():
    epochs = {"local_epochs": 1, "local_steps": None, "aggregate_every": None, "aggregations_per_interval": 0}
    run = experiment(ALONE, method={"extends": "h2fdp", "schedule": Longer()}, **epochs).prepare()
    clipped = run.blueprint.device_group(0).pipeline.stages[0]
    assert clipped.longest == run.noise.longest
    assert run.noise.longest(run.config.training.step_size, 1) == pytest.approx(0.5 / 4)


def test_a_pull_that_is_too_long_for_the_step_size_of_epochs_is_refused_once_their_steps_are_known():
    epochs = {"local_epochs": 1, "local_steps": None, "aggregate_every": None, "aggregations_per_interval": 0}
    pull = {"name": "proximal", "mu": 1.5}
    given = {"protects": None, "step_size": 1.0, **epochs}
    experiment(ALONE, method={"extends": "h2fdp", "objective": pull}, **given).prepare()
    with pytest.raises(UserError, match=r"steps of proximal, of size 4, .*at most 0.5, found 1.5"):
        experiment(ALONE, method={"extends": "h2fdp", "objective": pull, "schedule": Longer()}, **given).prepare()


# Each feature of the house with devices as the unit: right, or refused at this key.
RIGHT = {
    "steps and momentum": {"momentum": 0.9, "local_steps": 6},
    "batches of a fixed size": {"sampling": "fixed"},
    "epochs": {"local_epochs": 1, "local_steps": None, "aggregate_every": None, "aggregations_per_interval": 0},
    "a long pull": {"method": {"extends": "h2fdp", "objective": {"name": "proximal", "mu": 9}}},
    "memory on devices": {"method": {"extends": "h2fdp", "objective": "pfedme"}},
    "another loss": {"loss": "label-smoothing"},
    "turns": {"device_turns": 3, "aggregate_every": 4},
    "draws of devices": {"participation": 0.7},
    "falling shares": {"step_decay": "linear", "budget_decay": "linear"},
    "two tiers": {"topology": DEEP},
    "a star": {"method": {"extends": "h2fdp", "topology": "star"}, "aggregate_every": 4},
    "integers": {
        "method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"rounding": 24}}},
    },
    "faults": {"faults": {"device_dropout": 0.2, "straggler": {"probability": 0.3}}},
    "smaller messages": {"topology": ALONE, "compression": {"device": {"top_k": 0.5}}},
    "a median": {"topology": PLAIN, "method": {"extends": "h2fdp", "aggregation": "median"}},
    "buffers": {"topology": PLAIN, "method": {"extends": "hfl-async", "privacy": "devices"}, "protects": None},
    "devices that lie": {"topology": replace(PLAIN, adversaries=Adversaries(SignFlip(), devices=("untrusted/1",)))},
    "a budget": {"budget": {"cloud": 4.0}},
    "correlated noise": {"correlated": {"kind": "banded", "bands": 2}},
    "replaced devices": {"adjacency": "replace"},
}
REFUSED = [
    ("method.objective", {"method": {"extends": "h2fdp", "objective": "scaffold", "server": "scaffold"}}),
    ("training.weights", {"weights": "by-size"}),
    ("training.weights", {"weights": "by-size", "method": CENTRAL, "protects": None}),
    ("privacy.calibration", {"calibration": "paper"}),
    ("method.privacy", {"correlated": {"kind": "banded", "bands": 2}, "method": CENTRAL, "aggregate_every": 4}),
    ("privacy.adjacency", {"adjacency": "add-remove"}),
    ("privacy.protects", {"method": "fedavg-dp"}),
    ("control.enabled", {"method": "h2fdp-adaptive"}),
    ("training.clip_norm", {"clip_norm": None}),
    ("compression.device", {"compression": {"device": {"top_k": 0.5}}}),
    ("method.privacy", {"topology": replace(FLAT, mobility=Mobility())}),
    ("method.privacy.secure_sum.rounding", {"method": {"privacy": {"name": "devices", "secure_sum": {"rounding": 8}}}}),
]


@pytest.mark.parametrize("feature", RIGHT)
def test_a_run_with_this_feature_ends_within_its_target(feature, tmp_path):
    settings = dict(RIGHT[feature])
    run = experiment(settings.pop("topology", FLAT), **settings).run(tmp_path / "run")
    for observer in ("edge", "peer", "cloud", "public"):
        epsilon = run.privacy.epsilon(observer)
        most = settings.get("budget", {}).get(observer, 8.0)
        assert epsilon is None or 0 < epsilon <= most, observer
    assert run.privacy.epsilon("public") > 0
    assert run.privacy.protects_devices


@pytest.mark.parametrize(("key", "settings"), REFUSED)
def test_what_has_no_account_of_devices_is_refused_at_its_key(key, settings):
    with pytest.raises(UserError) as caught:
        experiment(**settings).prepare()
    assert key in {each.key for each in caught.value.problems}


def test_a_file_that_protects_devices_and_one_that_names_the_placement_are_one():
    named = experiment(protects=None, method={"extends": "h2fdp", "privacy": "devices"})
    by_key = experiment()
    assert named.config.method == by_key.config.method
    assert by_key.config.method.privacy == DeviceDp()
    assert experiment(method="hfl", calibration=None).prepare().noise is None  # the unit of nothing
