"""An audit of whole runs: it bites where noise is missing, finds much where much leaks, and accuses nobody wrongly."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from h2fdp import Experiment, Topology, UserError
from h2fdp.audit.canaries import CanaryDesign
from h2fdp.audit.instrumented_run import InstrumentedRun
from h2fdp.audit.run_audit import as_dict, audit, audits
from h2fdp.cli.main import app
from h2fdp.privacy import OBSERVERS
from h2fdp.protocol import InProcessNodes

IMAGES, LABELS = load_digits(return_X_y=True)
INPUTS = (IMAGES / 16).astype(np.float32)
OFF = 1e-6
BY_RECORD = {"clip_scope": "record", "local_steps": 1, "aggregate_every": None, "aggregations_per_interval": 0}
ONE_UPLOAD = {"aggregate_every": None, "aggregations_per_interval": 0}
DEVICES = {"protects": "device", "clip_norm": 1.0, "accountant": "pld", "epsilon": 3.0, "noise_key": "seed"}
FAULTS = {"device_dropout": 0.3, "straggler": {"probability": 0.3}, "edge_outage": {"probability": 0.1}}


def prepared(observer="edge", devices=50, edges=1, trust=0.0, records=4, secure_sum=0.0, **settings):
    """Softmax regression on a few digits for each device, calibrated so that this observer's account is epsilon."""

    def data(device):
        chosen = np.random.default_rng(list(device.encode())).choice(len(INPUTS), records, replace=False)
        return INPUTS[chosen], LABELS[chosen]

    defaults = {
        "intervals": 2,
        "local_steps": 3,
        "aggregate_every": 1,
        "sampling_rate": 0.5,
        "step_decay": "none",
        "sensitivity": "tight",
        "accountant": "rdp",
        "epsilon": 1.0,
        "calibration": "accounted",
        "target_observers": [observer],
    }
    network = Topology.regular(edges=edges, devices=devices // edges, trust=trust, secure_sum=secure_sum)
    test = INPUTS[:20], LABELS[:20]
    return Experiment(network, data, test_data=test, **{**defaults, **settings}).prepare()


@pytest.mark.parametrize("scope", ["batch", "record"])
@pytest.mark.parametrize("kind", ["dirac", "dominating"])
def test_with_the_noise_off_every_kind_of_canary_refutes_the_account(scope, kind):
    found = audit(prepared(devices=100, records=1, clip_scope=scope), "edge", 100, kind, noise_scale=OFF)
    assert found.right >= found.guesses - 1
    assert found.epsilon_lower > found.accounted("rdp")


@pytest.mark.parametrize(
    "settings",
    [
        {"method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "input_bound": 8}}, "clip_norm": None},
        {"method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "noise": "steps"}}, "clip_scope": "record"},
    ],
    ids=["draws", "noise inside"],
)
def test_with_the_noise_off_accounts_by_draws_and_of_noisy_steps_are_refuted_and_else_kept(settings):
    settings |= {"local_steps": 2, "aggregate_every": 2, "accountant": "pld", "noise_key": "seed"}
    run = prepared(devices=100, records=1, **settings)
    off, right = (audit(run, "edge", 100, noise_scale=noise) for noise in (OFF, 1.0))
    assert right.epsilon_lower <= right.accounted("pld") <= 1.0 < off.epsilon_lower


@pytest.mark.parametrize(
    ("observer", "trust"), [("peer", 0.0), ("peer", 1.0), ("cloud", 0.0), ("cloud", 1.0), ("public", 0.0)]
)
def test_with_the_noise_off_every_observer_refutes_its_account(observer, trust):
    run = prepared(observer, devices=100, edges=50, trust=trust, aggregate_every=2)
    found = audit(run, observer, 100, "dominating", noise_scale=OFF)
    assert found.accounted("rdp") < 1.0
    assert found.epsilon_lower > 1.0


@pytest.mark.parametrize(("observer", "trust"), [("edge", 0.0), ("cloud", 1.0)])
def test_with_the_noise_off_observers_refute_their_accounts_where_devices_fail(observer, trust):
    run = prepared(observer, devices=150, edges=50, trust=trust, aggregate_every=2, faults=FAULTS)
    found = audit(run, observer, 150, "dominating", noise_scale=OFF)
    assert found.accounted("rdp") <= 1.0
    assert found.epsilon_lower > 1.0


@pytest.mark.parametrize(("observer", "trust"), [("edge", 0.0), ("cloud", 1.0)])
def test_with_the_noise_off_observers_refute_their_accounts_where_uploads_are_normalised(observer, trust):
    fednova = {"extends": "h2fdp", "aggregation": "fednova"}
    run = prepared(observer, devices=150, edges=50, trust=trust, aggregate_every=2, faults=FAULTS, method=fednova)
    found = audit(run, observer, 150, "dominating", noise_scale=OFF)
    assert found.accounted("rdp") <= 1.0
    assert found.epsilon_lower > 1.0


@pytest.mark.parametrize(
    ("observer", "network", "settings"),
    [
        ("edge", {"edges": 10}, {}),
        ("cloud", {"edges": 10, "trust": 1.0}, {"faults": FAULTS}),
        ("peer", {"edges": 75}, {"participation": 0.5}),
        ("cloud", {"edges": 10, "trust": 1.0}, {"participation": {"rate": 0.3, "secret": True}}),
        ("edge", {"edges": 10}, {"participation": {"rate": 0.3, "secret": True, "cover": True}}),
        ("edge", {"edges": 75, "secure_sum": 1.0}, {"sampling": "fixed", "weights": "uniform"}),
    ],
)
def test_devices_that_are_canaries_keep_the_account_and_refute_it_without_noise(observer, network, settings):
    """Also with half of the noise, where the account is what is released."""
    run = prepared(observer, devices=150, **network, **DEVICES, **settings)
    kept, off = (audit(run, observer, 150, noise_scale=noise, confidence=1 - 0.05 / 8) for noise in (1.0, OFF))
    assert (kept.kind, kept.devices, kept.clip_scope) == ("device", 150, "update")
    assert max(kept.epsilon_lower, kept.epsilon_independent) <= kept.accounted("pld") <= 3.0 < off.epsilon_independent
    if observer == "edge" and "participation" not in settings:
        assert audit(run, observer, 150, noise_scale=1 / 2).epsilon_independent > 3.0


def test_canaries_that_turn_their_devices_data_refute_what_others_do_not():
    """Upload of ten steps, in which a draw is seldom; under a quarter of the noise."""
    rare = {"sampling_rate": 0.05, "records": 60, "local_steps": 10, "aggregate_every": 10, "intervals": 3}
    run = prepared(devices=250, accountant="pld", epsilon=1.0, noise_key="seed", **rare)
    found = {kind: audit(run, "edge", 250, kind, noise_scale=0.25) for kind in ("turning", "dominating")}
    assert found["turning"].accounted("pld") < 1.0
    assert found["dominating"].epsilon_lower < 0.5 < 1.0 < found["turning"].epsilon_lower


@pytest.mark.parametrize("seed", range(8))
def test_with_the_right_noise_no_account_is_refuted(seed):
    """All observers, scopes, kinds, with and without faults, sums that are normalised: each at 1 - 0.05/8, so that
    all 8 hold with 95 %."""
    observer = OBSERVERS[seed % 4]
    scope, kind = ("batch", "record")[seed // 4 % 2], ("dominating", "dirac", "turning")[seed % 3]
    settings = {"faults": FAULTS if seed // 2 % 2 else {}, "clip_scope": "batch" if kind == "turning" else scope}
    if kind == "dominating" and seed // 4:
        settings["method"] = {"extends": "h2fdp", "aggregation": "fednova"}
    run = prepared(observer, devices=48, edges=16, seed=seed, aggregate_every=2, **settings)
    found = audit(run, observer, 48, kind, confidence=1 - 0.05 / 8)
    assert found.epsilon_lower <= found.accounted("rdp"), (observer, scope, kind)
    assert found.epsilon_independent <= found.accounted("rdp"), (observer, scope, kind)


@pytest.mark.parametrize(("scope", "faults"), [("batch", {}), ("record", {}), ("batch", FAULTS)])
def test_with_all_canaries_out_the_real_coordinates_train_as_in_a_normal_run(scope, faults):
    run = prepared(devices=6, edges=3, trust=0.4, clip_scope=scope, participation=0.5, faults=faults)
    design = CanaryDesign("dirac", np.arange(12) % 6, np.zeros(12, dtype=bool))
    instrumented = InstrumentedRun(run, design)
    subnets = enumerate(run.topology.subnets)
    normal = run.cloud(InProcessNodes({subnet.name: run.blueprint.edge_server(number) for number, subnet in subnets}))
    for interval in range(run.config.training.intervals):
        instrumented.run_interval(instrumented.cloud.plan(interval))
        normal.run_interval(normal.plan(interval))
    assert not torch.equal(normal.model, run.initial)
    torch.testing.assert_close(instrumented.cloud.model[: run.initial.numel()], normal.model, rtol=1e-5, atol=1e-6)


def test_an_audit_depends_on_nothing_but_the_seed():
    first, again = (audit(prepared(), "edge", 50) for _ in range(2))
    assert as_dict(first) == as_dict(again)


def test_only_devices_that_the_observer_may_spy_on_get_canaries():
    run = prepared(devices=6, edges=3, trust=0.5)
    untrusted = sum(subnet.size for subnet in run.topology.subnets if not subnet.trusted)
    assert 0 < untrusted < 6
    assert audit(run, "edge", 12).devices == untrusted
    assert audit(run, "cloud", 12).devices == 6
    together = {found.observer: found.devices for found in audits(run, ("edge", "cloud"), 12)}
    assert together == {"edge": untrusted, "cloud": 6}


def test_a_budget_ends_the_audited_run_as_it_would_end_any():
    run = prepared("edge", devices=6, edges=3, intervals=8, epsilon=4.0)
    limited = run.config.privacy.model_copy(update={"budget": {"edge": 3.0}})
    found = audit(replace(run, config=run.config.model_copy(update={"privacy": limited})), "edge", 6)
    assert 0 < found.intervals < 8
    assert found.accounted("rdp") <= 3.0


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        ({"method": "hfl"}, ("cloud", 10), "promises privacy"),
        ({}, ("moon", 10), "expected one of edge, peer, cloud, public"),
        ({"trust": 1.0, "observer": "cloud"}, ("edge", 10), "outside the threat model"),
        (
            ONE_UPLOAD | {"trust": 1.0, "method": {"extends": "h2fdp", "privacy": "central"}},
            ("public", 10),
            "here the cloud adds it",
        ),
        (
            DEVICES | {"calibration": "accounted", "trust": 0.5},
            ("edge", 5),
            "a canary is a whole device .*; expected at most [24], found 5",
        ),
        ({}, ("edge", 6, "device"), "expected one of dirac, dominating, turning"),
    ],
)
def test_what_cannot_be_audited_is_told(settings, arguments, words):
    with pytest.raises(UserError, match=words):
        audit(prepared(**{"devices": 6, "edges": 3, "calibration": "paper", **settings}), *arguments)


SMALL = """\
topology: {edges: [{name: a, trusted: true, devices: {count: 4}}, {name: b, trusted: false, devices: {count: 4}}]}
data: digits
model: softmax
training: {extends: paper, intervals: 3, local_steps: 4, aggregate_every: 2, batch_size: 4}
privacy: {epsilon: 4.0}
"""


def command(*arguments):
    call = CliRunner().invoke(app, ["privacy", "audit", *map(str, arguments)], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert call.exit_code == 0, call.stderr
    return call.stdout


def test_the_command_prints_a_table_and_json(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    table = command(file, "--observer", "edge", "--canaries", 16)
    assert "epsilon at least" in table
    assert "accounted" in table
    assert max(map(len, table.splitlines())) <= 80
    options = ("--set", "training.intervals=2", "--set", "seed=3", "--json")
    found = json.loads(command(file, "--observer", "cloud", "--canaries", 16, *options))
    assert (found["observer"], found["kind"], found["canaries"], found["intervals"]) == ("cloud", "dominating", 16, 2)
    assert found["epsilon_lower"] <= found["pld"] <= found["rdp"] * 1.01
