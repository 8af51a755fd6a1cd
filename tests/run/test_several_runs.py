"""Several runs on the same records are accounted for together, and equal noise keys are told."""

import math
import sys
from collections import Counter
from itertools import product

import pytest

from h2fdp import Experiment, Topology, UserError
from h2fdp.cli.main import main
from h2fdp.privacy import OBSERVERS
from h2fdp.privacy.accounting import ACCOUNTANTS
from h2fdp.run import privacy as ledger_accounts
from h2fdp.run.privacy import RunPrivacy, SeveralRuns
from tests.noise_keys import DRAWN, keys_are

NETWORK = Topology.regular(edges=3, devices=2, trust=0.5, seed=2)


def small(method="h2fdp", topology=NETWORK, **settings):
    defaults = {"intervals": 3, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 4.0, "seed": 2}
    return Experiment(topology=topology, data="digits", method=method, **{**defaults, **settings})


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two settings of one experiment, one of them with few participants; the same under another seed."""
    folder = tmp_path_factory.mktemp("several")
    made = {
        "a": small(participation=0.5),
        "b": small(epsilon=2.0, intervals=2, weights="by-size", participation=0.5),
        "elsewhere": small(seed=3),
        "by seed": small(noise_key="seed"),
        "by seed again": small(noise_key="seed", epsilon=3.0),
        "no noise": small("hfl"),
        "central": small({"extends": "fedavg", "privacy": "central"}, aggregate_every=4),
        "other data": Experiment(topology=NETWORK, data="synthetic", intervals=1, batch_size=4, local_steps=1),
        "delta": small(delta=1e-6),
        "all trusted": small(topology=Topology.regular(edges=3, devices=2, trust=1.0, seed=2)),
    }
    with keys_are(DRAWN):
        for name, experiment in made.items():
            experiment.run(folder / name)
    return {name: folder / name for name in made}


def one_ledger(folder, *paths):
    """The rows of all ledgers in one file: what somebody who knows nothing of runs would account for."""
    file = folder / "privacy.jsonl"
    file.write_text("".join((path / "privacy.jsonl").read_text() for path in paths))
    return RunPrivacy(file, 1e-5)


def test_devices_that_hold_the_same_records_are_composed_by_name(runs, tmp_path):
    together = SeveralRuns([runs["a"], runs["b"]])
    assert together.by_device
    found, oracle = together.statement(), one_ledger(tmp_path, runs["a"], runs["b"])
    assert found["warnings"] == []
    for observer in OBSERVERS:
        for accountant in ("rdp", "pld"):
            expected = oracle.epsilon(observer, accountant)
            assert found["worst"][observer][accountant] == pytest.approx(expected)
            alone = [RunPrivacy(runs[name]).epsilon(observer, accountant) for name in ("a", "b")]
            assert max(alone) < expected < sum(alone) * 1.2
    for name, held in found["devices"].items():
        for observer in OBSERVERS:
            expected = oracle.epsilon(observer, "rdp", device=name)
            assert (held[observer]["rdp"] if observer in held else None) == (expected and pytest.approx(expected))


def held(path, observer):
    """The accounts of each device, one by one."""
    return [each.composition for each in RunPrivacy(path).accounts.classes(observer) for _ in range(len(each.devices))]


def worst_pair(one, other, observer, accountant):
    pairs = product(held(one, observer), held(other, observer))
    return max(ACCOUNTANTS[accountant].epsilon(dict(Counter(a) + Counter(b)), 1e-5) for a, b in pairs)


def test_where_the_partition_differs_a_record_may_be_anywhere(runs, monkeypatch):
    paths = [runs["b"], runs["elsewhere"]]
    together = SeveralRuns(paths)
    assert not together.by_device
    found = together.statement()
    assert found["notes"][-1].startswith("partition: the runs divide the records differently")
    for observer in OBSERVERS:
        exact = worst_pair(*paths, observer, "rdp")
        assert found["worst"][observer]["rdp"] == pytest.approx(exact)
        assert found["worst"][observer]["pld"] == pytest.approx(worst_pair(*paths, observer, "pld"))
    monkeypatch.setattr(ledger_accounts, "_MOST_COMBINED", 1)
    bounds = SeveralRuns(paths).statement()["worst"]
    assert all(bounds[observer]["rdp"] >= found["worst"][observer]["rdp"] * (1 - 1e-12) for observer in OBSERVERS)
    assert all(bounds[observer]["pld"] >= found["worst"][observer]["pld"] * (1 - 1e-12) for observer in OBSERVERS)


def test_equal_noise_keys_are_told_and_leave_no_epsilon(runs, monkeypatch, capsys):
    paths = [runs["by seed"], runs["a"], runs["by seed again"]]
    together = SeveralRuns(paths)
    assert together.equal_keys == [(runs["by seed"], runs["by seed again"])]
    assert {each[name] for each in together.statement()["worst"].values() for name in ("rdp", "pld")} == {math.inf}
    monkeypatch.setattr(sys, "argv", ["h2fdp", "privacy", "account", *map(str, paths)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "have equal noise keys: the difference of what they released has no noise" in said
    assert SeveralRuns([runs["by seed"], runs["a"]]).equal_keys == []


def test_the_difference_of_two_runs_under_one_key_has_no_noise(runs):
    """Its noise is proportional to 1 / epsilon, so a weighted difference has but a thousandth of the norm left."""
    import torch

    from h2fdp import Run

    names = [(runs["a"].parent / f"one key {epsilon}", epsilon) for epsilon in (0.004, 0.003)]
    models = []
    for path, epsilon in names:
        made = small(noise_key="seed", intervals=1, aggregate_every=4, epsilon=epsilon)
        state = made.run(path).model.state_dict()
        moved = torch.cat([value.flatten() for value in state.values()]).double() - made.prepare().initial.double()
        models.append(epsilon * moved)
    one, other = models
    assert (one - other).norm() < 1e-3 * one.norm()
    assert SeveralRuns([path for path, _ in names]).equal_keys
    assert Run(names[0][0]).summary["noise_key"] == "seed"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("a", "a"), r"a: the run is given twice"),
        (("a", "no noise"), r"no noise: this run adds no noise, so no epsilon covers it together with any other"),
    ],
)
def test_what_cannot_be_accounted_for_together_is_refused(runs, names, words):
    with pytest.raises(UserError, match=words):
        SeveralRuns([runs[name] for name in names])
