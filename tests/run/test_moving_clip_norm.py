"""Clip norms that follow a quantile in whole runs: what the cloud learns, noises, rows, resuming, refusals."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import grad, vmap

import h2fdp
from h2fdp import Experiment, Topology, UserError
from h2fdp.models.construct import ParameterLayout
from h2fdp.privacy import AdaptiveClipping
from h2fdp.protocol import Cloud
from h2fdp.runtime import lockstep, start_hosts
from tests.run.test_deep_runs import TREE
from tests.run.test_noise_as_wired import NETWORK, numbers
from tests.run.test_resume import assert_same, crashing_at

ERROR = 1e-6  # of a test that is passed by chance, or failed
DATA = {"name": "synthetic", "alpha": 1.0, "beta": 1.0, "features": 4, "classes": 3}
FAULTS = {"device_dropout": 0.4, "straggler": {"probability": 0.5, "fraction": [0.1, 0.9]}}
BY_RECORD, INSIDE = {"clip_scope": "record"}, {"privacy": {"name": "hierarchical", "noise": "steps"}}
NORM = 2.0
QUANTILE = {"quantile": 0.5, "initial": NORM}
PLACES = {
    "devices, uploads": {"method": "hfl-dp", **BY_RECORD, "local_steps": 1},
    "edge servers and devices": {"method": "h2fdp", **BY_RECORD, "local_steps": 3, "aggregate_every": 1},
    "with faults, by size": {
        "method": "h2fdp", **BY_RECORD, "local_steps": 3, "aggregate_every": 1, "weights": "by-size", "faults": FAULTS,
    },
    "secure sums": {
        "method": "h2fdp", **BY_RECORD, "local_steps": 2, "aggregate_every": 1,
        "topology": Topology.regular(edges=2, devices=3, trust=0.0, secure_sum=1.0, seed=1),
    },
    "depth": {"method": "h2fdp", **BY_RECORD, "local_steps": 4, "aggregate_every": [1, 2, 4], "topology": TREE},
    "steps of devices": {"method": INSIDE, "local_steps": 4, "aggregate_every": {"trusted": 1, "untrusted": 4}},
    "steps, momentum and faults": {
        "method": {"privacy": "dp-sgd"}, "local_steps": 4, "momentum": 0.5, "faults": FAULTS,
    },
    "the cloud": {"method": {"privacy": "central"}, "local_steps": 2, "aggregations_per_interval": 0},
    "the cloud, with faults": {
        "method": {"privacy": "central"}, "local_steps": 2, "aggregations_per_interval": 0, "faults": FAULTS,
        "weights": "by-size",
    },
}  # fmt: skip


def experiment(place="devices, uploads", **settings):
    defaults = {"topology": NETWORK, "data": DATA, "sampling_rate": 1.0, "intervals": 4, "epsilon": 2.0, "seed": 3}
    defaults |= {
        "step_decay": "none",
        "backend": "inline",
        "clip_norm": QUANTILE,
        "accountant": "rdp",
        "calibration": "accounted",
    }
    return Experiment(**{**defaults, **PLACES[place], **settings})


def after_one_interval(setup):
    """The first plan, and the cloud after it."""
    with start_hosts(setup.blueprint, setup.config.runtime) as edges:
        cloud = setup.cloud(edges)
        plan = cloud.plan(0)
        list(cloud.releases(plan))
        cloud.run_interval(plan)
    return plan, cloud


def norm_of(plan):
    """C of the interval, which is that of all parts of the plan."""
    (norm,) = {facts.clip_norm for part in plan.subnets.values() for facts in part.stage_facts}
    return norm


def shares_within(setup, norm):
    """For each device the share of its records whose gradient at w(0) is at most `norm` long."""
    module, layout = setup.blueprint.module(), ParameterLayout(setup.blueprint.module())

    def loss(vector, x, y):
        scores = torch.func.functional_call(module, layout.views(vector), (x[None],))
        return torch.nn.functional.cross_entropy(scores, y[None])

    found = []
    for device in range(setup.topology.devices):
        records = setup.data.device(device)
        x, y = torch.from_numpy(np.asarray(records.x)).float(), torch.from_numpy(records.y)
        lengths = vmap(grad(loss), in_dims=(None, 0, 0))(setup.initial, x, y).norm(dim=1)
        found.append(float((lengths <= norm).double().mean()))
    return np.array(found)


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("place", [each for each in PLACES if "cloud" not in each])
def test_the_cloud_learns_which_share_of_gradients_was_within_the_norm(place, engine):
    """Next to no noise, steps that lead nowhere: weighted as updates are, over all steps that arrive."""
    setup = experiment(place, epsilon=1e7, step_size=1e-5, engine=engine).prepare()
    plan, cloud = after_one_interval(setup)
    names, shares = {subnet.name: number for number, subnet in enumerate(setup.topology.subnets)}, 0.0
    within, total = shares_within(setup, NORM), 0.0
    assert 0.02 < within.mean() < 0.98
    for (name, subnet), weight in zip(plan.subnets.items(), plan.weights.tolist(), strict=True):
        first = setup.blueprint.first_devices[names[name]]
        for weights, steps in zip(subnet.all_weights, subnet.steps, strict=True):
            total += weight * float(weights @ steps)
            shares += weight * float(weights @ (steps * within[first + subnet.rows]))
    expected = NORM * math.exp(-0.2 * (shares / total - 0.5))
    assert norm_of(cloud.plan(1)) == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("place", ["the cloud", "the cloud, with faults"])
def test_the_cloud_learns_which_share_of_devices_sent_updates_within_the_norm(place, monkeypatch):
    sent = {}
    monkeypatch.setattr(
        "h2fdp.protocol.edge_server._Subnet.arrived", _keeping(sent, h2fdp.protocol.edge_server._Subnet.arrived)
    )
    uncut = {**QUANTILE, "initial": 1e3}
    after_one_interval(experiment(place, epsilon=1e6, clip_norm=uncut).prepare())
    lengths = torch.cat([updates[:, :-1].norm(dim=1) for updates, _ in in_order(sent)]).numpy()
    norm = float(np.median(lengths)) * 1.01
    sent.clear()
    plan, cloud = after_one_interval(experiment(place, epsilon=1e6, clip_norm={**QUANTILE, "initial": norm}).prepare())
    updates = torch.cat([each for each, _ in in_order(sent)])
    within = lengths <= norm
    assert 0 < within.sum() < len(within)
    np.testing.assert_allclose(updates[:, -1], np.where(within, 1, -1) * norm * math.sqrt(1 / 99), rtol=1e-5)
    np.testing.assert_allclose(updates[:, :-1].norm(dim=1), np.minimum(lengths, norm), rtol=1e-5)
    parts = zip(in_order(sent), plan.weights.tolist(), strict=True)
    weights = np.concatenate([share * own for (_, own), share in parts])
    expected = norm * math.exp(-0.2 * (weights[within].sum() / weights.sum() - 0.5))
    assert norm_of(cloud.plan(1)) == pytest.approx(expected, rel=1e-3)


def in_order(sent):
    return [sent[name] for name in sorted(sent)]


def _keeping(sent, arrived):
    def kept(subnet, stage, model, uploads):
        updates, weights = arrived(subnet, stage, model, uploads)
        sent[subnet._server.name] = updates.clone(), weights  # subnets may be computed side by side
        return updates, weights

    return kept


def deviation_by_hand(setup, plan, releases):
    """Of the noise on the votes in the global average, from the ledger's rows: those of the public are of averages."""
    rows = {(row.edge, row.slot): row for row in releases if row.observer == "public"}
    kind = {row.kind for row in rows.values()}
    if kind == {"central"}:
        return next(iter(rows.values())).noise_std
    names, variance = [subnet.name for subnet in setup.topology.subnets], 0.0
    for (edge, _), row in rows.items():
        subnet, weight = plan.subnets[edge], plan.weights[list(plan.subnets).index(edge)]
        if row.kind == "step":  # on the sum of a device's batch
            batches = setup.data.sizes[setup.blueprint.first_devices[names.index(edge)] + subnet.rows]
            variance += float(((weight * subnet.shares * plan.decision.step_size * row.noise_std / batches) ** 2).sum())
        else:
            variance += (weight * row.noise_std) ** 2
    return math.sqrt(variance)


@pytest.mark.parametrize("place", ["edge servers and devices", "secure sums", "steps of devices", "the cloud"])
def test_votes_have_the_noise_that_the_ledger_states(place, monkeypatch):
    """Chi-square of 180 intervals, all votes alike: accepted at the deviation, rejected at 2/3 and 3/2 of it."""
    votes = []
    moved = Cloud._moved
    monkeypatch.setattr(Cloud, "_moved", lambda *given: votes.append(given[-1]) or moved(*given))
    monkeypatch.setattr(AdaptiveClipping, "after", lambda _, norm, fraction: norm)
    stays = {**QUANTILE, "initial": 1e4}
    settings = {"local_steps": 1} if "clip_scope" in PLACES[place] else {"local_steps": 2}
    setup = experiment(place, clip_norm=stays, intervals=180, hosts=1, **settings).prepare()
    with start_hosts(setup.blueprint, setup.config.runtime) as edges:
        cloud = setup.cloud(edges)
        first = cloud.plan(0)
        releases = list(cloud.releases(first))
        for interval in range(180):
            cloud.run_interval(cloud.plan(interval))
    spread = float(((np.array(votes) - np.mean(votes)) ** 2).sum())
    lowest, highest = stats.chi2.ppf([ERROR / 2, 1 - ERROR / 2], len(votes) - 1)
    deviation = deviation_by_hand(setup, first, releases)
    for factor in (2 / 3, 1.0, 3 / 2):
        assert (lowest <= spread / (factor * deviation) ** 2 <= highest) == (factor == 1.0), factor


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """For three placements a whole run, and one that failed in its fourth interval, two after a checkpoint."""
    folder, places = (
        tmp_path_factory.mktemp("moving"),
        ("with faults, by size", "steps, momentum and faults", "the cloud"),
    )

    def made(place):
        return experiment(place, intervals=5, checkpoint_every=2, sampling_rate=0.5)

    for place in places:
        made(place).run(folder / place / "whole")
        with pytest.MonkeyPatch.context() as patch:
            crashing_at(patch, 3)
            with pytest.raises(RuntimeError):
                made(place).run(folder / place / "crashed")
    return {place: folder / place for place in places}


def test_a_crashed_run_goes_on_with_the_norm_that_it_had(crashed):
    for place, folder in crashed.items():
        assert_same(h2fdp.Run(folder / "whole"), h2fdp.resume(folder / "crashed"))
        assert h2fdp.Run(folder / "whole").metrics["clip_norm"].diff().iloc[1:].ne(0).all(), place


def test_every_row_of_every_observer_has_the_norm_of_its_interval_and_one_multiplier(crashed):
    for place, folder in crashed.items():
        rows = [json.loads(line) for line in (folder / "whole" / "privacy.jsonl").read_text().splitlines()]
        norms = h2fdp.Run(folder / "whole").metrics["clip_norm"].tolist()
        assert {row["observer"] for row in rows} >= {"peer", "public"}
        assert {row["vote_share"] for row in rows} == {0.01}
        for row in rows:
            norm = norms[row["interval"] - 1]
            assert row["clip_norm"] == norm
            if row["kind"] == "step":
                assert row["sensitivity"] == pytest.approx(norm / math.sqrt(0.99))
        if place != "with faults, by size":  # there noise covers the largest of several sensitivities
            largest = {}
            for row in rows:
                key = row["interval"], row["slot"], row["observer"]
                largest[key] = max(largest.get(key, 0.0), row["sensitivity"] / row["noise_std"])
            assert max(largest.values()) == pytest.approx(min(largest.values()))
        held = [len(each.composition) for each in h2fdp.Run(folder / "whole").privacy.accounts.classes("public")]
        assert max(held) == 1 or place == "with faults, by size", "rounding makes no types of its own"
        epsilons = [h2fdp.Run(folder / "whole").privacy.epsilon(observer=each) for each in ("peer", "public")]
        assert max(epsilons) <= 2.0
        assert max(epsilons) > 1.9 or place == "with faults, by size"


def test_sensitivities_of_uploads_are_those_of_gradient_and_vote_together():
    setup = experiment(sampling_rate=0.5, step_size=0.2).prepare()
    with start_hosts(setup.blueprint, setup.config.runtime) as edges:
        cloud = setup.cloud(edges)
        cloud.load(cloud.state() | {"clip_norm": 0.21})
        releases = [row for row in cloud.releases(cloud.plan(2)) if row.observer == "edge"]
    batches = 0.5 * setup.data.sizes
    for row in releases:
        for device in numbers(row.devices):
            batch = batches[setup.blueprint.first_devices["AB".index(row.edge)] + device - 1]
            assert row.sensitivity == pytest.approx(0.2 * 0.21 / math.sqrt(0.99) / batch)
    given = experiment(sampling_rate=0.5, step_size=0.2, clip_norm=0.21).prepare()
    fixed = next(row for row in given.cloud({}).releases(given.cloud({}).plan(2)) if row.observer == "edge")
    ratio = releases[0].noise_std / releases[0].sensitivity / (fixed.noise_std / fixed.sensitivity)
    assert ratio == pytest.approx(1, rel=1e-4), "calibration does not depend on the norm"


@pytest.mark.parametrize("place", ["devices, uploads", "edge servers and devices", "secure sums"])
def test_a_record_that_becomes_null_moves_what_the_public_sees_as_far_as_the_ledger_says(place, monkeypatch):
    """Under equal noise, for a record of every device: model and votes together, where all gradients are longer."""
    votes, moved, drawn = [], Cloud._moved, lockstep._batches
    monkeypatch.setattr(Cloud, "_moved", lambda *given: votes.append(given[-1]) or moved(*given))
    settings = {"local_steps": 1, "hosts": 1, "epsilon": 1e4, "noise_key": "seed"}
    setup = experiment(place, clip_norm={**QUANTILE, "initial": 0.05}, **settings).prepare()

    def seen():
        plan, cloud = after_one_interval(setup)
        return plan, cloud, torch.cat([setup.initial - cloud.model, torch.tensor(votes[-1:])]).double()

    plan, cloud, everybody = seen()
    rows = [row for row in cloud.releases(plan) if row.observer == "public"]
    names, shares = (
        [subnet.name for subnet in setup.topology.subnets],
        dict(zip(plan.subnets, plan.weights, strict=True)),
    )
    for row in rows:
        for number in numbers(row.devices):
            device = int(setup.blueprint.first_devices[names.index(row.edge)]) + number - 1
            monkeypatch.setattr(lockstep, "_batches", lambda jobs, device=device: without_first(drawn(jobs), device))
            distance = float(torch.linalg.vector_norm(seen()[2] - everybody))
            assert distance == pytest.approx(shares[row.edge] * row.sensitivity, rel=0.02)


def without_first(batches, device):
    """The same draws, but for the first record of a device: it has become a null record."""
    indices, counts = batches.indices.copy(), batches.counts.copy()
    assert counts[0, device] > 0
    indices[0, device] = np.roll(indices[0, device], -1)
    counts[0, device] -= 1
    return replace(batches, indices=indices, counts=counts)


@pytest.mark.parametrize(
    ("place", "settings", "key", "words"),
    [
("edge servers and devices", {"aggregate_every": 3}, "aggregate_every", "is on 3 steps together"),
("devices, uploads", {"local_steps": 2, "aggregate_every": 5}, "aggregate_every", "is on 2 steps together"),
("devices, uploads", {"clip_scope": "batch"}, "clip_scope", "expected record"),
],
)  # fmt: skip
def test_what_votes_do_not_cover_is_refused_by_its_key(place, settings, key, words):
    with pytest.raises(UserError, match=f"{key}.*{words}"):
        experiment(place, **settings).prepare()
