"""Central noise, DP-SGD, output and objective perturbation in whole runs.

Every noise and every row of the ledger against formulas written out here, with devices that fail; R_c; that what is
promised is kept, and what is not is refused.
"""

import itertools
import json
import math

import numpy as np
import pytest

import h2fdp.protocol.aggregator
import h2fdp.protocol.cloud
from h2fdp import Experiment, Topology, UserError
from h2fdp.cli.runs import runs_command
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.run.live_accounts import FILTERED
from tests.networks import placed
from tests.run.test_noise_as_wired import (
    CLIP,
    FAULTS,
    FAULTY_INTERVALS,
    SIZES,
    STREAMS,
    experiment,
    listen_below_the_cloud,
    numbers,
    with_faults,
)

OBSERVERS = ("edge", "peer", "cloud", "public")
SEGMENTS = ((3, 3), (3, 6), (1, 7))  # steps, end of 7 local steps, every 3
ONE_UPLOAD = {"aggregate_every": None, "aggregations_per_interval": 0}
PROXIMAL = {"name": "proximal", "mu": 2.0}


TRUSTED = Topology("t", tuple(placed(n, True, np.full(s, 10.0), np.full(s, 24.0)) for n, s in SIZES.items()))


def tree(privacy, objective="plain"):
    return {"extends": "h2fdp", "privacy": privacy, "objective": objective}


def listened(monkeypatch):
    """The standard deviations of all Gaussian vectors added; those of the cloud are of streams of their own."""
    added, streams = [], set()
    original = h2fdp.protocol.cloud.add_gaussian_noise

    def listening(vector, noise_std, generator, out=None):
        added.append(noise_std)
        streams.add(tuple(generator.bit_generator.state["state"]["key"].tolist()))
        assert len(streams) == len(added), "two releases have one noise"
        return original(vector, noise_std, generator, out)

    listen_below_the_cloud(monkeypatch, added)
    monkeypatch.setattr(h2fdp.protocol.cloud, "add_gaussian_noise", listening)
    return added


def ledger_of(run):
    """(interval, slot, edge, device, observer) -> what the row says of it."""
    found = {}
    for row in map(json.loads, (run.directory / "privacy.jsonl").read_text().splitlines()):
        for device in numbers(row["devices"]):
            key = (row["interval"], row["slot"], row["edge"], device, row["observer"])
            assert key not in found
            values = row["sensitivity"], row["noise_std"], row["steps"], row["sampling_rate"]
            found[key] = (row["kind"], row["sampling"], *values)
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, (kind, sampling, *values) in expected.items():
        assert found[key][:2] == (kind, sampling), key
        np.testing.assert_allclose(found[key][2:], values, rtol=1e-9, err_msg=str(key))


def parts_of():
    """Interval, edge, first slot and end of each segment, and the steps of the devices whose uploads arrive."""
    for interval, edge in itertools.product(range(1, FAULTY_INTERVALS + 1), SIZES):
        start = 7 * (interval - 1)
        for (planned, end), attending in zip(SEGMENTS, with_faults(interval, edge, FAULTS), strict=True):
            if attending:
                yield interval, edge, start + end - planned, start + end, attending


def sizes_of(made):
    sizes = made.prepare().data.sizes
    return {"A": sizes[:4], "B": sizes[4:]}


FAULTY = {"faults": FAULTS, "intervals": FAULTY_INTERVALS, "batch_size": 6, "weights": "by-size"}


@pytest.mark.parametrize("normalize", ["expected", "drawn", 64])
def test_every_step_of_a_dp_sgd_run_is_noisy_and_in_the_ledger(tmp_path, monkeypatch, normalize):
    added = listened(monkeypatch)
    privacy = {"name": "dp-sgd", "noise_multiplier": 0.9, "normalize": normalize}
    made = experiment(method=tree(privacy), engine="loop", **FAULTY | {"epsilon": 1e6})
    records = sizes_of(made)
    expected, noises = {}, []
    for interval, edge, start, _, attending in parts_of():
        for device, steps in attending.items():
            rate = min(1.0, 6 / records[edge][device])
            for step in range(1, steps + 1):
                noises.append(0.9 * CLIP / (64 if normalize == 64 else rate * records[edge][device]))
                for observer in OBSERVERS:
                    key = (interval, start + step, edge, device + 1, observer)
                    hidden = ("fixed", 1.0) if normalize == "drawn" else ("poisson", rate)
                    expected[key] = ("step", hidden[0], CLIP, 0.9 * CLIP, 1, hidden[1])
    run = made.run(tmp_path / "run")
    assert_same(ledger_of(run), expected)
    assert len(added) == len(noises)
    if normalize != "drawn":
        np.testing.assert_allclose(sorted(added), sorted(noises), rtol=1e-9)
    else:  # divided by whole numbers of records
        drawn = 0.9 * CLIP / np.array(added)
        np.testing.assert_allclose(drawn, np.rint(drawn), rtol=1e-9)
        assert drawn.min() >= 1
    said = " ".join(run.summary["privacy"]["notes"])
    assert ("is still counted" in said) is (normalize == "drawn")


def test_central_noise_of_a_run_is_sized_for_those_really_averaged(tmp_path, monkeypatch):
    added = listened(monkeypatch)
    made = experiment(
        topology=TRUSTED,
        method=tree({"name": "central", "noise_multiplier": 2.0}),
        **FAULTY | ONE_UPLOAD | {"weights": "uniform"},
    )
    expected, noises = {}, []
    for interval in range(1, FAULTY_INTERVALS + 1):
        there = {edge: devices for edge in SIZES if (devices := staying(interval, edge))}
        if not there:
            continue
        weights = {(edge, each): 1 / len(there) / len(devices) for edge, devices in there.items() for each in devices}
        clip = CLIP / math.sqrt(interval)  # as the step size
        noise = 2.0 * clip * max(weights.values())
        noises.append(noise)
        for (edge, device), weight in weights.items():
            for observer in ("peer", "public"):
                key = (interval, 7 * interval, edge, device + 1, observer)
                expected[key] = ("central", "fixed", clip * weight, noise, 1, 1.0)
    run = made.run(tmp_path / "run")
    assert_same(ledger_of(run), expected)
    np.testing.assert_allclose(added, noises, rtol=1e-9)
    assert "whole device" in run.summary["privacy"]["notes"][0]
    assert {each["kind"]: each["added_by"] for each in run.summary["noise_std"]} == {"central": "cloud"}


def staying(interval, edge):
    """The devices that finish an interval in one piece: online, and not dropping out before its end."""
    if not any(with_faults(interval, edge, FAULTS)):
        return []  # an outage, or nobody there
    drops = STREAMS.open(edge, "faults", interval - 1).random((SIZES[edge], 4))[:, :2]
    lasting = np.where(drops[:, 0] < FAULTS["device_dropout"], (drops[:, 1] * 7).astype(int), 7)
    return np.flatnonzero(lasting >= 7).tolist()


@pytest.mark.parametrize("multiplier", [None, 0.25])
def test_every_model_of_an_output_run_is_noisy_and_in_the_ledger(tmp_path, monkeypatch, multiplier):
    added = listened(monkeypatch)
    privacy = {"name": "output", "noise_multiplier": multiplier}
    made = experiment(method=tree(privacy), **FAULTY | {"clip_norm": 0.8})
    records = sizes_of(made)
    # Theorem 6.2 read backwards for K_g intervals with two local aggregations each; epsilon 3, delta 1e-4.
    log = math.log(1e4)
    spent = (math.sqrt(log + 3.0) - math.sqrt(log)) ** 2
    exposure = 0.8 * math.sqrt(3 * FAULTY_INTERVALS / (2 * spent)) * (1 + 2e-5)
    expected, noises = {}, []
    for interval, edge, _, end, attending in parts_of():
        active = np.array(list(attending))
        share = records[edge][active] / records[edge][active].sum()
        levels = exposure / records[edge][active] if multiplier is None else np.full(len(active), 0.25 * 1.6)
        noises += levels.tolist()
        parts = (share * levels) ** 2
        for at, device in enumerate(active.tolist()):
            others = [part for j, part in enumerate(parts) if j != at]
            known = math.sqrt(max(parts.sum() - max(others, default=0.0), 0.0))
            row = {
                "edge": (1.6, levels[at]),
                "peer": (1.6 * share[at], known),
                "cloud": (1.6 * share[at], math.sqrt(parts.sum())),
                "public": (1.6 * share[at], math.sqrt(parts.sum())),
            }
            for observer, (moved, noise) in row.items():
                expected[(interval, end, edge, device + 1, observer)] = ("output", "fixed", moved, noise, 1, 1.0)
    run = made.run(tmp_path / "run")
    assert_same(ledger_of(run), expected)
    np.testing.assert_allclose(sorted(added), sorted(noises), rtol=1e-9)


def test_an_objective_run_says_that_nothing_sound_is_known(tmp_path, monkeypatch, capsys):
    added = listened(monkeypatch)
    privacy = {"name": "objective", "noise_multiplier": 0.02, "input_bound": 60.0}
    run = experiment(method=tree(privacy, PROXIMAL), intervals=3, **ONE_UPLOAD).run(tmp_path / "run")
    assert added == []
    rows = ledger_of(run)
    assert {values[0] for values in rows.values()} == {"objective"}
    assert {values[3] for values in rows.values()} == {0.0}
    assert run.privacy.epsilon(observer="public") == math.inf
    assert run.metrics["epsilon_cloud"].tolist() == [math.inf] * 3
    assert "no sound account" in run.summary["privacy"]["notes"][0]
    assert "no sound account" in run.privacy.statement()["notes"][0]
    runs_command([tmp_path])
    assert " inf " in capsys.readouterr().out


SMALL = Topology.regular(edges=2, devices=3, trust=0.5, seed=2)


def small(privacy, **settings):
    defaults = {"intervals": 5, "local_steps": 4, "aggregate_every": 2, "batch_size": 4, "epsilon": 4.0, "seed": 2}
    schedule = {"schedule": settings.pop("schedule")} if "schedule" in settings else {}
    objective = settings.pop("objective", "plain")
    method = {"extends": "h2fdp", "privacy": privacy, "objective": objective, **schedule}
    return Experiment(topology=SMALL, data="digits", method=method, **{**defaults, **settings})


@pytest.mark.parametrize(("accountant", "epsilon"), [("rdp", 2.0), ("classic-rdp", 2.5)])
def test_a_given_noise_ends_the_run_at_the_last_step_that_meets_the_target(tmp_path, accountant, epsilon):
    made = small({"name": "dp-sgd", "noise_multiplier": 0.9}, intervals=50, epsilon=epsilon, accountant=accountant)
    rate = float(made.prepare().blueprint.rates.max())
    count = ACCOUNTANTS[accountant]
    iterations = next(n for n in range(1, 99) if count.epsilon({ReleaseType(0.9, 1, rate): n + 1}, 1e-5) > epsilon)
    assert iterations % 4 in (1, 2, 3)  # the last interval is cut short
    assert made.prepare().iterations == iterations
    run = made.run(tmp_path / "run")
    assert run.summary["state"] == "done"
    assert run.metrics["slot"].iloc[-1] == iterations
    assert run.metrics["local_steps"].tolist() == [4] * (iterations // 4) + [iterations % 4]
    assert run.privacy.epsilon(observer="edge", accountant=accountant) == pytest.approx(
        count.epsilon({ReleaseType(0.9, 1, rate): iterations}, 1e-5), rel=1e-5
    )


@pytest.mark.parametrize("privacy", ["dp-sgd", "output", "central"])
def test_accounted_calibration_meets_the_target(tmp_path, privacy):
    settings = ONE_UPLOAD if privacy == "central" else {}
    run = small(privacy, calibration="accounted", accountant="rdp", epsilon=2.0, **settings).run(tmp_path / "run")
    reached = max(run.privacy.epsilon(observer=observer) or 0.0 for observer in OBSERVERS)
    assert 1.98 < reached <= 2.0


@pytest.mark.parametrize("objective", ["feddyn", "pfedme"])
def test_what_devices_remember_changes_nothing_that_central_noise_protects(tmp_path, monkeypatch, objective):
    # Whatever a device remembers, what it sends is clipped: same noise, same ledger, and no averaged move beyond C.
    moved = []
    applied = h2fdp.protocol.cloud.Cloud._uploaded

    def seen(self, plan, received, *states):
        moved.extend(float(part.update.norm()) for part in received.values())
        return applied(self, plan, received, *states)

    monkeypatch.setattr(h2fdp.protocol.cloud.Cloud, "_uploaded", seen)
    axes = {"extends": "h2fdp", "privacy": {"name": "central", "noise_multiplier": 2.0}}
    server = {"server": "feddyn"} if objective == "feddyn" else {}
    settings = {"topology": TRUSTED, "clip_norm": 0.01, "epsilon": 100.0, **ONE_UPLOAD}
    method = axes | {"objective": objective, **server}
    with_memory = experiment(method=method, **settings).run(tmp_path / "memory")
    assert moved
    assert max(moved) <= 0.01 * (1 + 1e-5)
    assert ledger_of(with_memory) == ledger_of(experiment(method=axes, **settings).run(tmp_path / "plain"))


@pytest.mark.parametrize("calibration", ["paper", "accounted"])
def test_noise_that_falls_with_the_loss_ends_the_run_before_the_target_is_exceeded(tmp_path, calibration):
    schedule = {"name": "experiments.noise_decay:NoiseDecay", "factor": 0.9, "patience": 1, "least": 0.05}
    run = small("dp-sgd", schedule=schedule, intervals=20, step_size=0.5, calibration=calibration).run(tmp_path / "run")
    levels = {values[3] for values in ledger_of(run).values()}
    assert len(levels) >= 2
    falls = np.log(np.array(sorted(levels)) / max(levels)) / math.log(0.9)
    np.testing.assert_allclose(falls, np.rint(falls), atol=1e-9)
    assert run.summary["state"] == "budget spent"
    assert max(run.privacy.epsilon(observer=observer, accountant="rdp") for observer in OBSERVERS) <= 4.0
    # A filter by rdp holds what depends on what was released, whatever the accountant of other targets is.
    assert run.privacy.accountant == "rdp"
    assert FILTERED in run.privacy.notes
    assert FILTERED in run.summary["privacy"]["notes"]


@pytest.mark.parametrize("momentum", [0.5, 0.9])
def test_momentum_makes_an_upload_worth_more_gradients(tmp_path, momentum):
    """A gradient at step j counts 1 + b + ... + b^(m-j) times: summed up by hand."""
    made = small("hierarchical", momentum=momentum, clip_norm=0.5, step_size=0.2, step_decay="none")
    worth = sum(momentum**k for j in range(2) for k in range(2 - j))
    run = made.run(tmp_path / "run")
    untrusted = {values[2] for key, values in ledger_of(run).items() if key[-1] == "edge"}
    np.testing.assert_allclose(list(untrusted), 2 * 0.2 * 0.5 * worth)
    plain = small("hierarchical", clip_norm=0.5, step_size=0.2, step_decay="none").prepare().cloud(None).plan(0)
    moved = made.prepare().cloud(None).plan(0)
    whole = sum(momentum**k for j in range(4) for k in range(4 - j))  # `sensitivity: paper`: tau steps
    for name, part in plain.subnets.items():
        np.testing.assert_allclose(moved.subnets[name].noise_std, part.noise_std * whole / 4)


OBJECTIVE = {"name": "objective", "input_bound": 60.0}
REFUSED = [
    ("central", {}, r"training\.aggregations_per_interval: local aggregations are broadcast to peers without noise"),
    ("central", {"clip_norm": None, **ONE_UPLOAD}, r"training\.clip_norm: a guarantee needs clipped updates"),
    ("central", {"budget": {"cloud": 1.0}, **ONE_UPLOAD}, r"privacy\.budget\.cloud: the observer cloud is trusted"),
    (
        "dp-sgd",
        {"clip_scope": "batch"},
        r"training\.clip_scope: dp-sgd clips each record's gradient, .*; expected record",
    ),
    ("dp-sgd", {"clip_norm": None}, r"training\.clip_norm: a guarantee needs clipped gradients"),
    ("dp-sgd", {"objective": "pfedme"}, r"method\.objective: a device keeps its personal models"),
    (
        {"name": "dp-sgd", "noise_multiplier": 1.0},
        {"calibration": "accounted"},
        r"privacy\.calibration: the noise is stated \(noise_multiplier is 1",
    ),
    (
        OBJECTIVE,
        ONE_UPLOAD,
        r"method\.objective: Theorem 6\.3 is about .*; expected proximal with mu above 0, found plain",
    ),
    (
        OBJECTIVE,
        {"objective": PROXIMAL, "model": "mlp", **ONE_UPLOAD},
        r"model: Theorem 6\.3 is about .*; expected softmax or logistic, found mlp",
    ),
    (
        OBJECTIVE,
        {"objective": PROXIMAL, "calibration": "accounted", **ONE_UPLOAD},
        r"privacy\.calibration: there is no sound account",
    ),
]


@pytest.mark.parametrize(("privacy", "settings", "words"), REFUSED)
def test_what_no_guarantee_covers_is_refused_with_key_and_reason(privacy, settings, words):
    with pytest.raises(UserError, match=words):
        small(privacy, **settings).prepare()
