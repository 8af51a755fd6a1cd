"""A secure sum over the whole network, overheard: edge servers that relay masked vectors, a cloud that sees their sum.

What the run simulates is a star whose devices share one noise. The edge servers of the tree see masked vectors, which
are uniform (below: masks over the residues of a run), and what is public; the tests of overheard networks give the
observer `edge` even the sum, as the cloud has it. See `tests.protocol.overhearing` and `test_any_tree`.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from h2fdp import Experiment, Topology
from h2fdp.network import Aggregator
from h2fdp.protocol import DeviceGroup, InProcessNodes
from h2fdp.protocol.edge_server import _Subnet
from h2fdp.protocol.planned_releases import noise_and_gradients
from h2fdp.runtime.lockstep import lockstep_of
from tests.networks import placed
from tests.protocol.overhearing import Nothing, devices_of, overheard
from tests.protocol.test_any_tree import epsilon_of_gaussian, prepared
from tests.protocol.test_any_tree import (
    test_every_row_is_a_vector_that_left_and_nothing_left_without_a_row as rows_left,
)
from tests.protocol.test_any_tree import test_no_observer_learns_more_than_its_rows_say as learns_no_more
from tests.protocol.test_noise_boundaries import carries

NETWORKS = 30
ALONE = {"aggregate_every": None, "aggregations_per_interval": 0}  # no edge server averages between the cloud's models
FAULTS = {"straggler": {"probability": 0.2}, "edge_outage": {"probability": 0.1}}


def relays(*sizes, trust="relay", deep=False):
    """Edge servers `a`, `b`, ... of so many devices; in a deep network `a` is below a region."""
    names = "abcdefgh"[: len(sizes)]
    parents = ["r" if deep and name == "a" else None for name in names]
    subnets = (
        placed(name, trust, [9.0] * size, [9.0] * size, parent=parent)
        for name, size, parent in zip(names, sizes, parents, strict=True)
    )
    return Topology("relays", tuple(subnets), aggregators=(Aggregator("r", trust),) if deep else ())


def method(**tolerance):
    return {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": tolerance}}


def drawn(number):
    """A network, and the settings of a run in it."""
    rng = np.random.default_rng(number)
    sizes = rng.integers(1, 4, int(rng.integers(1, 4))).tolist()
    spare = sum(sizes) - 1
    colluding = int(rng.integers(min(spare, 2) + 1))
    settings = {
        "method": method(colluding=colluding, dropouts=int(rng.integers(spare - colluding + 1))),
        "weights": str(rng.choice(["uniform", "by-size"])),
        "sensitivity": str(rng.choice(["tight", "paper"])),
        "faults": {"device_dropout": float(rng.choice([0.0, 0.3])), **(FAULTS if rng.random() < 0.5 else {})},
        "seed": int(rng.integers(1000)),
    }
    return relays(*sizes, deep=bool(rng.random() < 0.3)), settings


@pytest.fixture(scope="module", params=range(NETWORKS))
def run(request):
    """A prepared run, and all that passed in its two intervals."""
    network, settings = drawn(request.param)
    setup = prepared(network, **ALONE, **settings)
    with pytest.MonkeyPatch.context() as patch:
        return setup, overheard(setup, patch, intervals=2)


def test_no_observer_with_its_colluders_learns_more_than_its_rows_say(run):
    learns_no_more(run)


def test_every_row_is_the_one_sum_less_what_colluders_know(run):
    rows_left(run)


def test_edge_servers_learn_what_the_public_does_and_the_cloud_nothing_before(run):
    """Rows are about sums of whole intervals, at the slot of the global model, the same for all but peers."""
    setup, heard = run
    seen = {observer: [] for observer in ("edge", "cloud", "public", "peer")}
    for row in heard.rows:
        assert (row.edge, row.kind) == ("cloud", "global")
        assert row.slot % setup.local_steps == 0
        seen[row.observer].append((row.slot, row.devices, row.sensitivity, row.noise_std))
    assert seen["edge"] == seen["cloud"] == seen["public"]
    assert setup.observers == ("edge", "peer", "cloud", "public")
    assert not heard.rows or setup.drawn.devices == 1 or seen["peer"]


def test_a_sum_of_too_few_is_never_opened(run):
    setup, heard = run
    tolerance = setup.placement.place(("relay",), 1).tolerance
    cloud, slots = setup.cloud(InProcessNodes({})), {row.slot for row in heard.rows}
    for interval in range(2):
        plan = cloud.plan(interval)
        cloud.skip(plan)
        part = plan.subnets.get("cloud") or plan.lost.get("cloud")
        if part is None:  # no edge server is online
            continue
        arrived, begun = len(part.aggregation(-1).rows), len(part.rows)
        assert (part.last_slot in slots) == (arrived > 0)
        assert arrived == 0 or arrived >= begun - tolerance.lost(begun)
        # One divisor for all: by what arrived a secure sum can be divided, and by nothing else.
        shares = part.shares[np.isin(part.rows, part.aggregation(-1).rows)]
        assert part.aggregation(-1).weights == pytest.approx(shares / shares.sum() if arrived else [])


def test_some_of_these_runs_lose_sums_and_some_have_colluders_and_deep_trees():
    """So that the tests above mean something."""
    lost = colluding = deep = 0
    for number in range(NETWORKS):
        network, settings = drawn(number)
        setup = prepared(network, **ALONE, **settings)
        cloud = setup.cloud(InProcessNodes({}))
        plans = [cloud.plan(interval) for interval in range(2)]
        lost += any(not plan.subnets for plan in plans)
        colluding += settings["method"]["privacy"]["secure_sum"]["colluding"] > 0
        deep += network.depth > 1
    assert min(lost, colluding, deep) > 3


def multipliers(setup):
    """Observer -> the noise over the sensitivity of each device's first release."""
    plan = setup.cloud(InProcessNodes({})).plan(0)
    found = {}
    for row in setup.cloud(InProcessNodes({})).releases(plan):
        of_observer = found.setdefault(row.observer, {})
        of_observer |= {device: row.noise_std / row.sensitivity for _, device in devices_of(row)}
    return found


@pytest.mark.parametrize(("colluding", "dropouts"), [(0, 0), (1, 0), (0, 3), (2, 2)])
def test_the_account_is_that_of_one_gaussian_by_hand(colluding, dropouts):
    """Ten devices, one full batch an interval, K intervals: mu = sqrt(K) / z of the worst observer meets epsilon. All
    have N - c shares of sigma^2 / (N - c - d), where all arrive, a peer N - 1 - c."""
    intervals, tolerance = 7, method(colluding=colluding, dropouts=dropouts)
    target = {"calibration": "accounted", "accountant": "pld", "epsilon": 0.7, "clip_scope": "record"}
    setup = prepared(relays(4, 3, 3), method=tolerance, intervals=intervals, local_steps=1, **ALONE, **target)
    z = {observer: min(of.values()) for observer, of in multipliers(setup).items()}  # of a device with one record
    assert epsilon_of_gaussian(math.sqrt(intervals) / z["peer"]) == pytest.approx(0.7, rel=2e-3)
    assert z["cloud"] == pytest.approx(z["peer"] * math.sqrt((10 - colluding) / (9 - colluding)))
    assert z["edge"] == z["public"] == z["cloud"]


def test_the_noise_of_a_whole_network_against_trusted_edge_servers_and_none():
    """The variance of the noise on the mean of 40 equal devices, in units of one holder's: 40 without trust, 8 with
    eight trusted edge servers, 40/39 in one sum, from which a peer subtracts its own share."""
    variances = {}
    for trust in ("relay", "trusted", "untrusted"):
        settings = {"calibration": "accounted", "epsilon": 0.7, "clip_scope": "record", "clip_norm": 1.0}
        rounds = {"intervals": 2, "local_steps": 1, "batch_size": None, "sampling_rate": 1.0}
        x, y = np.zeros((200, 2), np.float32), np.arange(200) % 2
        equal = {"data": (x, y), "test_data": (x[:5], y[:5]), "partition": "iid"}
        setup = Experiment(relays(*[5] * 8, trust=trust), **equal, **settings, **rounds, **ALONE).prepare()
        facts = {each.name: each for each in setup.blueprint.facts}
        variances[trust], _ = noise_and_gradients(setup.first_plan, facts, setup.noise)
    assert variances["untrusted"] / variances["trusted"] == pytest.approx(5, rel=1e-3)
    assert variances["trusted"] / variances["relay"] == pytest.approx(8 * 39 / 40, rel=1e-3)


@pytest.mark.parametrize("tolerance", [{}, {"colluding": 1, "dropouts": 2}, {"dropouts": 0.5}])
def test_what_the_cloud_receives_has_the_noise_of_the_formula(monkeypatch, tolerance):
    """Devices that do not move, so that the sum is noise: chi-square at an error rate of 1e-6, for the noise and for
    two thirds and one and a half of it. Ten devices begin, whose N - c - d shares make one trusted noise on their mean,
    sigma = q Delta c2 sqrt(K log(1 / delta)) / epsilon / 10 (Prop. 3.1), of K = 1 release."""
    setup = prepared(relays(4, 3, 3), method=method(**tolerance), intervals=1, **ALONE)
    heard = overheard(setup, monkeypatch, silent=20_000)
    honest = {(): 10, ("colluding", "dropouts"): 7, ("dropouts",): 5}[tuple(tolerance)]
    privacy, training = setup.config.privacy, setup.config.training
    formula = privacy.c2 * math.sqrt(math.log(1 / privacy.delta)) / privacy.epsilon
    sigma = formula * 2 * training.step_size * training.local_steps / 10
    assert carries(torch.from_numpy(heard.received["cloud"][0]), sigma * math.sqrt(10 / honest))
    assert carries(torch.from_numpy(heard.models[0]), sigma * math.sqrt(10 / honest))


def test_what_an_edge_server_adds_up_is_uniform_until_the_cloud_has_all(monkeypatch):
    """The residues that devices of a run send, under masks of each pair that cancel over the whole network (Bonawitz et
    al. 2017): partial sums of one edge server, or of all but one, pass a chi-square test for uniform bits at an error
    rate of 1e-6, and those without masks do not; the sum of all edge servers' partial sums is that of the run."""
    bits, residues, arrived = 12, [], _Subnet.arrived

    def watched(subnet, phase, model, uploads):
        residues.extend(each.updates.numpy() for group in uploads for each in group.values())
        return arrived(subnet, phase, model, uploads)

    monkeypatch.setattr(_Subnet, "arrived", watched)
    setup = prepared(relays(3, 2, 3), method=method(rounding=bits), intervals=1, clip_scope="record", **ALONE)
    setup = replace(setup, initial=torch.zeros(4000))
    silent = DeviceGroup(**vars(setup.blueprint.device_group(0)) | {"engine": Nothing()})
    cloud = setup.cloud(InProcessNodes({"cloud": setup.blueprint.edge_server(0, silent)}))
    cloud.run_interval(cloud.plan(0))
    (sent,) = residues
    rng, homes = np.random.default_rng(1), np.repeat([0, 1, 2], [3, 2, 3])
    masked = sent.copy()
    for one in range(8):
        for other in range(one):
            mask = rng.integers(0, 2**bits, sent.shape[1])
            masked[one] += mask
            masked[other] -= mask
    partial = np.stack([masked[homes == edge].sum(axis=0) for edge in range(3)]) % 2**bits
    assert np.array_equal(partial.sum(axis=0) % 2**bits, sent.sum(axis=0) % 2**bits)

    def uniform(values):
        counts = np.bincount(values % 2**bits >> bits - 4, minlength=16)
        return stats.chisquare(counts).pvalue > 1e-6

    assert all(map(uniform, (*partial, *(partial.sum(axis=0) - partial))))
    assert not any(map(uniform, (sent[homes == edge].sum(axis=0) for edge in range(3))))


def test_bits_do_not_depend_on_where_devices_are():
    setup = prepared(relays(3, 2, 3), method=method(colluding=1, dropouts=2), **ALONE)
    alone = {"cloud": setup.blueprint.edge_server(0, setup.blueprint.device_group(0))}
    together = lockstep_of(setup.blueprint, range(1), setup.blueprint.local_engine())
    ends = []
    for edges in (InProcessNodes(alone), together):
        cloud = setup.cloud(edges)
        for interval in range(2):
            cloud.run_interval(cloud.plan(interval))
        ends.append(cloud.model)
    assert torch.equal(*ends)
