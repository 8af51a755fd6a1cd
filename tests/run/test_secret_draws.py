"""Devices that draw in secret whether they take part: the account, the draws, what they leave in what passes, costs.

The oracles are integrals of the densities that an observer compares; those of other libraries are in
`tests/privacy/test_library_epsilons.py`.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from h2fdp import Topology, UserError
from h2fdp.costs.traffic import Tasks
from h2fdp.network import Subnet
from h2fdp.network.adversaries import Adversaries, SignFlip
from h2fdp.network.mobility import Mobility
from h2fdp.privacy import Release
from h2fdp.privacy.accounting import ACCOUNTANTS, ReleaseType
from h2fdp.privacy.accounting.accountants import gaussian_epsilon
from h2fdp.privacy.accounts import release_type
from h2fdp.privacy.calibration import smallest_factor
from h2fdp.privacy.mechanisms.secret_draws import SecretDraw, as_one, draw_of
from h2fdp.protocol import InProcessNodes
from h2fdp.run.live_accounts import notes
from h2fdp.streams import Streams
from h2fdp.training.stacked import StackedEngine
from tests.networks import placed
from tests.noise_keys import keys_are
from tests.protocol.overhearing import devices_of, overheard, squared_distance
from tests.protocol.test_any_tree import Views, epsilon_of_gaussian, prepared, random_tree
from tests.run.test_device_unit import ALONE, DEEP, FLAT, experiment

PLD = ACCOUNTANTS["pld"]
NEAR = [9.0] * 6
TRUSTED = Topology("trusted", tuple(placed(name, True, NEAR, NEAR) for name in "ab"))
RELAYS = Topology("relays", tuple(placed(name, "relay", NEAR, NEAR) for name in "ab"))
SECRET, COVERED = {"rate": 0.4, "secret": True}, {"rate": 0.4, "secret": True, "cover": True}
STATED = {"calibration": "paper", "method": {"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": 2}}}


@pytest.mark.parametrize(
    ("devices", "drawn", "intervals", "epsilon", "delta", "gain"),
    [(1e6, 1000, 1500, 2, 1e-6, 5.1), (1000, 50, 1500, 2, 1e-5, 4.4)],
)
def test_noise_falls_by_as_much_as_is_published(devices, drawn, intervals, epsilon, delta, gain):
    """Against devices that take part as often, while all know when."""

    def noise(composition):
        return smallest_factor([composition], epsilon, lambda each: PLD.epsilon(each, delta))

    rate = drawn / devices
    secret = noise({ReleaseType(1.0, 1, rate, "poisson", "update"): intervals})
    public = noise({ReleaseType(1.0, 1, 1.0, "fixed", "update"): round(rate * intervals)})
    assert public / secret == pytest.approx(gain, abs=0.05)


def row(slot, sensitivity, noise_std, devices="1-2"):
    known = {"interval": 1, "kind": "local", "edge": "a", "observer": "cloud", "steps": 1, "bound": "update"}
    known |= {"sampling_rate": 0.3, "sampling": "poisson"}
    return Release(slot=slot, devices=devices, sensitivity=sensitivity, noise_std=noise_std, **known)


@pytest.mark.parametrize("shifts", [(1.0, 0.5), (0.3, 2.0)])
def test_releases_of_an_interval_are_one_mixture_by_brute_force(shifts):
    """Two releases of unequal noise, integrated in the plane, both directions."""
    (one,) = as_one([row(5, 1.0, 1 / shifts[0]), row(10, 2.0, 2 / shifts[1])])
    assert (one.slot, one.devices) == (10, "1-2")
    grid = np.arange(-9, 9 + max(shifts), 0.02)
    first, second = np.meshgrid(grid, grid)
    absent = stats.norm.pdf(first) * stats.norm.pdf(second)
    present = 0.7 * absent + 0.3 * stats.norm.pdf(first - shifts[0]) * stats.norm.pdf(second - shifts[1])
    for delta in (1e-2, 1e-4, 1e-6):

        def excess(epsilon, delta=delta):
            grown = math.exp(epsilon)
            both = (present - grown * absent, absent - grown * present)
            return max(np.maximum(each, 0).sum() for each in both) * 0.02**2 - delta

        exact = optimize.brentq(excess, 0, 20)
        assert PLD.epsilon({release_type(one): 1}, delta) == pytest.approx(exact, rel=2e-3)


def test_devices_that_drop_out_have_the_releases_that_they_were_in():
    first, second = as_one([row(5, 3.0, 1.0, "1-3"), row(10, 4.0, 1.0, "1,3")])
    assert {(each.slot, each.devices, each.sensitivity) for each in (first, second)} == {
        (5, "2", 3.0),
        (10, "1,3", 5.0),
    }


def test_a_record_gets_no_credit_for_the_draw_of_its_device():
    """One record moves an upload by 1, the others of its device by 20, under noise of 1: they show who takes part. At a
    rate of 0.1 a subsampled Gaussian of this rate would have less than half of the true epsilon."""
    points = np.arange(-12, 34, 1e-3)
    absent, there, moved = (stats.norm.pdf(points - centre) for centre in (0, 20, 21))
    one, other = 0.9 * absent + 0.1 * there, 0.9 * absent + 0.1 * moved

    def excess(epsilon):
        return np.maximum(one - math.exp(epsilon) * other, 0).sum() * 1e-3 - 1e-5

    true = optimize.brentq(excess, 0, 20)
    assert PLD.epsilon({ReleaseType(1.0, 1, 0.1): 1}, 1e-5) < true / 2 < true < gaussian_epsilon(1.0, 1e-5)


KEY = Streams(1, secret=b"a key")


def drawn(streams, intervals=400, devices=50, rate=0.3):
    rows = np.arange(devices)
    return np.array([SecretDraw(rate).came(streams, "a", each, rows) for each in range(intervals)])


def test_draws_are_independent_and_of_the_rate():
    """Numbers of 20,000 draws, of each device, each interval, and pairs, are binomial at an error rate of 1e-9 each."""
    came = drawn(KEY)

    def fits(count, of, rate):
        law = stats.binom(of, rate)
        return bool(((law.ppf(1e-9) <= count) & (count <= law.isf(1e-9))).all())

    assert [fits(came.sum(), came.size, rate) for rate in (0.3, 0.32)] == [True, False]
    assert all(fits(came.sum(axis=axis), came.shape[axis], 0.3) for axis in (0, 1))
    assert len(set(came.sum(axis=1).tolist())) > 5  # no fixed count
    for other in (np.roll(came, 1, axis=0), np.roll(came, 1, axis=1)):  # the interval before, the neighbour
        assert fits((came & other).sum(), came.size, 0.09)


def test_draws_are_no_function_of_the_seed():
    """Under another key they agree as often as independent draws do; a host that holds some devices draws the same."""
    came, other = drawn(KEY), drawn(replace(KEY, secret=b"another"))
    for guess in (other, drawn(KEY.public), drawn(replace(KEY, attempt="afresh"))):
        assert 0.55 < (came == guess).mean() < 0.61  # 0.3^2 + 0.7^2
    parts = [SecretDraw(0.3).came(KEY, "a", 7, rows) for rows in np.split(np.arange(50), (7, 8))]
    assert (np.concatenate(parts) == came[7]).all()


def test_two_runs_of_one_seed_have_other_devices_and_one_ledger(tmp_path):
    runs = []
    for key in (b"a" * 16, b"b" * 16):
        with keys_are(lambda key=key: key):
            runs.append(experiment(TRUSTED, participation=SECRET, intervals=6).run(tmp_path / key.decode()))
    one, other = (each.metrics.participants.tolist() for each in runs)
    assert one != other
    one, other = ((each.directory / "privacy.jsonl").read_text() for each in runs)
    assert one == other


def test_a_rate_of_1_has_the_bits_of_all_devices():
    whole, drawn = (experiment(TRUSTED, participation=each) for each in (1.0, {"rate": 1.0, "secret": True}))
    assert whole.config == drawn.config
    assert experiment(TRUSTED, participation={"rate": 0.5}).config == experiment(TRUSTED, participation=0.5).config


TREES = 30


@pytest.mark.slow
@pytest.mark.parametrize("number", range(TREES))
def test_no_observer_learns_more_than_the_account_says(number, monkeypatch):
    """Random trees, overheard: where a device comes, what an observer has is a Gaussian of some mu; where it does not,
    nothing of it is there, and the noise is the same. So epsilon is that of (1-q) N(0, 1) + q N(mu, 1)."""
    rng = np.random.default_rng(500 + number)
    tree = replace(random_tree(rng), cloud_trust=str(rng.choice(["secure-sum", "untrusted"])))
    draw = {"rate": float(rng.choice([0.3, 0.7])), "secret": True, "cover": not all(e.trusted for e in tree.subnets)}
    method = {"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": 1.0}}
    setup = prepared(tree, rng, method=method, weights="uniform", participation=draw, intervals=1).keyed()
    heard, views = overheard(setup, monkeypatch), Views(setup)
    streams, allowed = setup.blueprint.streams, {}
    for each in heard.rows:
        for device in devices_of(each):
            assert (device, each.observer) not in allowed  # one row for an interval
            assert (each.sampling, each.sampling_rate, each.bound) == ("poisson", draw["rate"], "update")
            allowed[device, each.observer] = each
    for device in {whose for whose, _ in heard.signals.values()}:
        size = tree.subnets[tree.below(device[0])[0]].size
        came = SecretDraw(draw["rate"]).came(streams, device[0], 0, np.arange(size))[device[1]]
        has = {observer: [(heard.had_by(node), set())] for observer, node in views.outside_chain(device).items()}
        has |= {
            "cloud": [([*heard.received.get("cloud", ()), *heard.models], set())],
            "public": [(heard.models, set())],
        }
        has["peer"] = []
        for node, known in views.peers(device):
            listens = [*heard.broadcasts.get(node, ()), *heard.models]
            has["peer"].append((heard.had_by(node) if node in known else listens, known))
        for observer, sides in has.items():
            for vectors, known in sides:
                learned = squared_distance(heard, vectors, device, known | views.colluders(device))
                if not came:
                    assert learned == 0
                    continue
                stated = allowed[device, observer]
                whole = stated.sensitivity / stated.noise_std
                assert learned <= whole**2 * (1 + 1e-5)
                exact = subsampled_epsilon(draw["rate"], math.sqrt(learned))
                epsilon = PLD.epsilon({release_type(stated): 1}, 1e-5)
                assert exact <= epsilon * (1 + 1e-5) <= epsilon_of_gaussian(whole) * 1.001


def subsampled_epsilon(rate, mu, delta=1e-5):
    """Both directions, by the closed form of their hockey-stick divergence."""
    if mu == 0:
        return 0.0

    def excess(epsilon):
        def beyond(ratio):  # P and N(0, 1) above the point where the ratio of densities is this
            if ratio <= 1 - rate:
                return None
            at = (math.log((ratio - 1 + rate) / rate) + mu**2 / 2) / mu
            return (1 - rate) * stats.norm.sf(at) + rate * stats.norm.sf(at - mu), stats.norm.sf(at)

        p, q = beyond(math.exp(epsilon))
        removed, below = p - math.exp(epsilon) * q, beyond(math.exp(-epsilon))
        added = 0.0 if below is None else (1 - below[1]) - math.exp(epsilon) * (1 - below[0])
        return max(removed, added) - delta

    return 0.0 if excess(0.0) <= 0 else optimize.brentq(excess, 0, mu**2 / 2 + 10 * mu)


@pytest.mark.parametrize("topology", [TRUSTED, FLAT, ALONE], ids=["trusted", "mixed", "none trusted"])
def test_an_absent_device_leaves_the_noise_of_the_plan_and_nothing_else(topology):
    """At a rate of 1e-9 none comes. What the cloud makes of it has the noise of the plan, by the chi-square law at an
    error rate of 1e-6; two thirds and one and a half of it are rejected."""
    part = {"rate": 1e-9, "secret": True, "cover": topology is not TRUSTED}
    stated = STATED | {"method": {"extends": "h2fdp", "privacy": {"name": "devices", "noise_multiplier": 1e-6}}}
    run = experiment(topology, **stated, model={"name": "mlp", "hidden": 100}, aggregate_every=4, participation=part)
    setup = run.prepare().keyed()
    edges = {each.name: setup.blueprint.edge_server(at) for at, each in enumerate(setup.topology.subnets)}
    cloud = setup.cloud(InProcessNodes(edges))
    plan = cloud.plan(0)
    variance = sum(
        weight**2 * float(cloud._planner.noises.variances(plan, name).sum())
        for name, weight in zip(plan.subnets, plan.weights.tolist(), strict=True)
    )
    cloud.run_interval(plan)
    moved = (setup.initial - cloud.model).double()
    law, squared = stats.chi2(moved.numel()), float((moved**2).sum()) / variance
    fits = [law.ppf(5e-7) < squared / factor**2 < law.isf(5e-7) for factor in (1, 2 / 3, 3 / 2)]
    assert fits == [True, False, False]
    assert setup.bill.participants(plan) == 0


def test_sums_are_divided_by_the_number_that_is_expected():
    """For all draws: each upload is C w / q long in the average."""
    setup = experiment(TRUSTED, participation=SECRET, step_size=1e3, aggregate_every=4).prepare().keyed()
    edge = setup.blueprint.edge_server(0)
    plan = setup.cloud(InProcessNodes({})).plan(0).subnets["a"]
    group = edge.groups.node("devices")
    (order,) = edge.begin(setup.initial, plan).work(plan.aggregation(0), setup.initial)[0].parts.values()
    uploads = group.train(setup.initial, order).updates
    came = draw_of(setup.blueprint.facts[0].pipeline).came(setup.blueprint.streams, "a", 0, plan.rows)
    lengths = torch.linalg.vector_norm(uploads, dim=1).numpy()
    assert 0 < came.sum() < 6
    np.testing.assert_allclose(lengths, came * 0.5 / 0.4, rtol=1e-5)
    assert plan.aggregation(0).weights.tolist() == [1 / 6] * 6


COSTLY = Topology(
    "costly steps",
    tuple(
        Subnet(name, "trusted", {"distance_m": NEAR, "power_dbm": NEAR, "joules_per_step": [1e-3] * 6}) for name in "ab"
    ),
)


def test_absent_devices_cost_nothing_or_the_messages_of_their_cover():
    def bill(draw):
        setup = experiment(COSTLY, participation=draw).prepare()
        return setup.bill, setup.first_plan

    (whole, plan), (drawn, _), (covered, _) = map(bill, (1.0, SECRET, COVERED))
    rows, streams = np.arange(6), drawn.streams
    came = {name: SecretDraw(0.4).came(streams, name, 0, rows) for name in plan.subnets}
    assert all(0 < each.sum() < 6 for each in came.values())
    alone = {
        name: replace(each, tasks=Tasks.planned(rows[came[name]], each.tasks.segments))
        for name, each in plan.subnets.items()
    }
    assert drawn.columns(plan) == pytest.approx(whole.columns(replace(plan, subnets=alone)))
    assert drawn.participants(plan) == sum(int(each.sum()) for each in came.values())
    steps = 1e-3 * plan.decision.local_steps * (12 - drawn.participants(plan))
    less, all_ = covered.columns(plan), whole.columns(plan)
    assert less == pytest.approx({**all_, "energy_j": all_["energy_j"] - steps})
    assert covered.participants(plan) == drawn.participants(plan)


@pytest.mark.parametrize(("topology", "draw"), [(COSTLY, SECRET), (COSTLY, COVERED), (TRUSTED, SECRET)])
def test_what_is_said_with_epsilon_does_not_depend_on_who_comes(topology, draw):
    """The price of cover is that of the messages of all devices, times the chance to be absent."""
    said, came = set(), set()
    for key in (b"a" * 16, b"b" * 16, b"c" * 16):
        with keys_are(lambda key=key: key):
            setup = experiment(topology, participation=draw).prepare()
        said.add(notes(setup))
        came.add(setup.bill.participants(setup.first_plan))
        none = [replace(setup.blueprint.draw, rate=0.0, cover=cover) for cover in (False, True)]
        less, more = (replace(setup.bill, draw=each).columns(setup.first_plan)["energy_j"] for each in none)
        assert any(f"for about {0.6 * (more - less):.3g} J" in each for each in notes(setup))
    assert len(said) == 1
    assert len(came) > 1


@pytest.mark.parametrize(("shape", "draw"), [("star", SECRET), ("star", COVERED), ("tree", SECRET)])
def test_epsilon_of_a_star_says_that_edge_servers_must_not_see_who_sends(shape, draw):
    method = {"extends": "h2fdp", "topology": shape, "privacy": "central"}
    setup = experiment(TRUSTED, method=method, aggregate_every=4, participation=draw).prepare()
    assert any("edge servers, which pass messages on" in each for each in notes(setup)) is (
        (shape, draw) == ("star", SECRET)
    )


def test_an_edge_server_of_which_no_device_comes_sends_up_what_it_always_sends():
    setup = experiment(TRUSTED, participation={"rate": 1e-9, "secret": True}).prepare()
    cost, whole = (each.bill.of(setup.first_plan) for each in (setup, experiment(TRUSTED).prepare()))
    assert cost.wired_energy_j.tolist() == whole.wired_energy_j.tolist()
    assert cost.device_energy_j.sum() == 0 < cost.wired_energy_j.min()


RIGHT = {
    "all edge servers trusted": {"topology": TRUSTED, "participation": SECRET},
    "secure sums and untrusted edge servers": {},
    "two tiers": {"topology": DEEP},
    "relays": {"topology": RELAYS, "aggregate_every": 4},
    "a trusted cloud": {
        "topology": TRUSTED,
        "method": {"extends": "h2fdp", "privacy": "central"},
        "aggregate_every": 4,
        "participation": SECRET,
    },
    "a star": {"method": {"extends": "h2fdp", "topology": "star"}, "aggregate_every": 4},
    "integers": {
        "method": {"extends": "h2fdp", "privacy": {"name": "hierarchical", "secure_sum": {"rounding": 24}}},
    },
    "memory on devices": {"method": {"extends": "h2fdp", "objective": "pfedme"}},
    "momentum of the server": {"method": {"extends": "h2fdp", "server": "momentum"}},
    "epochs": {"local_epochs": 1, "local_steps": None, "aggregate_every": None, "aggregations_per_interval": 0},
    "falling shares": {"step_decay": "linear", "budget_decay": "linear"},
    "faults": {"faults": {"device_dropout": 0.2, "straggler": {"probability": 0.3}}},
    "smaller messages": {"topology": ALONE, "compression": {"device": {"top_k": 0.5, "error_feedback": True}}},
    "devices that lie": {"topology": replace(ALONE, adversaries=Adversaries(SignFlip(), devices=("a/1",)))},
    "a budget": {"budget": {"cloud": 6.0}},
}
REFUSED = [
    ("training.participation.cover", {"participation": SECRET}),
    ("training.participation", {"protects": "record"}),
    ("training.participation", {"method": "hfl", "calibration": None, "protects": None}),
    ("training.participation", {"participation": {"rate": 0.1, "cover": True}}),
    ("training.participation", {"device_turns": 2}),
    ("privacy.adjacency", {"adjacency": "replace"}),
    ("training.until", {"until": {"joules": 5.0}}),
    ("privacy.correlated", {"correlated": {"kind": "banded", "bands": 2}}),
    ("method.aggregation", {"topology": ALONE, "method": {"extends": "h2fdp", "aggregation": "median"}}),
    ("training.participation", {"protects": None, "method": {"extends": "hfl-async", "privacy": "devices"}}),
    ("training.participation", {"topology": replace(ALONE, mobility=Mobility())}),
    ("method.objective", {"method": {"extends": "h2fdp", "objective": "scaffold", "server": "scaffold"}}),
    ("method.objective", {"method": {"extends": "h2fdp", "objective": "feddyn", "server": "feddyn"}}),
    ("method.objective", {"method": {"extends": "h2fdp", "objective": "moon"}}),
]


@pytest.mark.parametrize("feature", RIGHT)
def test_a_run_with_this_feature_ends_within_its_target(feature, tmp_path):
    settings = {"participation": COVERED, **RIGHT[feature]}
    run = experiment(settings.pop("topology", FLAT), **settings).run(tmp_path / "run")
    for observer in ("edge", "peer", "cloud", "public"):
        epsilon = run.privacy.epsilon(observer)
        assert epsilon is None or 0 < epsilon <= settings.get("budget", {}).get(observer, 8.0), observer
    assert run.privacy.epsilon("public") > 0
    assert any("takes part" in note or "take part" in note for note in run.summary["privacy"]["notes"])


@pytest.mark.parametrize(("key", "settings"), REFUSED)
def test_what_would_give_the_draw_away_is_refused_at_its_key(key, settings):
    settings = {"participation": COVERED, **settings}
    with pytest.raises(UserError) as caught:
        experiment(settings.pop("topology", FLAT), **settings).prepare()
    assert key in {each.key for each in caught.value.problems}


@pytest.mark.parametrize(("topology", "part"), [(TRUSTED, SECRET), (TRUSTED, COVERED), (FLAT, COVERED)])
def test_devices_that_send_nothing_are_not_trained_and_change_no_bit(topology, part, monkeypatch):
    """A zero in a sum does nothing: with it, as where children lie (here liars who say the truth), models are equal."""
    setup = experiment(topology, participation=part, intervals=1).prepare().keyed()
    trained, models = [], []
    train = StackedEngine.train

    def counted(self, starts, records, rows, *others):
        trained.append(len(rows))
        return train(self, starts, records, rows, *others)

    monkeypatch.setattr(StackedEngine, "train", counted)
    for truthful in (None, lambda updates, children: updates):
        edges = {each.name: setup.blueprint.edge_server(at) for at, each in enumerate(setup.topology.subnets)}
        cloud = setup.cloud(InProcessNodes({name: replace(each, replacement=truthful) for name, each in edges.items()}))
        plan = cloud.plan(0)
        cloud.run_interval(plan)
        models.append(cloud.model)
    assert (models[0] == models[1]).all()
    everyone = [len(part.rows) for part in plan.subnets.values() for _ in part.segments]
    assert trained[len(everyone) :] == everyone
    if topology is TRUSTED:
        came = {name: SecretDraw(0.4).came(setup.blueprint.streams, name, 0, np.arange(6)) for name in plan.subnets}
        there = [int(came[name].sum()) for name, part in plan.subnets.items() for _ in part.segments]
        assert trained[: len(everyone)] == there
