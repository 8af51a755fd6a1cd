"""Devices that ask for an epsilon of their own: what observers of random trees overhear, against each target.

Trees have mixed trust and one to four tiers, under records and devices as units; see `tests.protocol.test_any_tree`.
"""

import numpy as np
import pytest

from h2fdp.privacy.own_targets import Targets
from tests.protocol.overhearing import devices_of, overheard, squared_distance
from tests.protocol.test_any_tree import Views, epsilon_of_gaussian, prepared, random_chain, random_tree

TREES, CHAINS = 40, 10
METHODS = ["h2fdp", "h2fdp", "hfl-dp", {"extends": "h2fdp", "privacy": "devices"}]


@pytest.fixture(scope="module", params=range(TREES + CHAINS))
def run(request):
    """A prepared run, and all that passed in its two intervals."""
    rng = np.random.default_rng(1000 + request.param)
    tree = random_tree(rng) if request.param < TREES else random_chain(rng)
    own = rng.choice([0.2, 0.5, 1.0, 2.0, 5.0], tree.devices)
    method = METHODS[int(rng.integers(len(METHODS)))]
    weights = "uniform" if isinstance(method, dict) else str(rng.choice(["uniform", "by-size"]))
    settings = {"weights": weights, "seed": int(rng.integers(1000)), "participation": float(rng.choice([1.0, 0.6]))}
    settings |= {"calibration": "accounted", "epsilon": 2.0, "method": method}
    setup = prepared(tree.with_devices(epsilon=own), None, **settings)
    with pytest.MonkeyPatch.context() as patch:
        return setup, overheard(setup, patch, intervals=2)


def learned_of(heard, views, device):
    """Observer -> squared mu of all that it has about a device."""
    has = {observer: [(heard.had_by(node), set())] for observer, node in views.outside_chain(device).items()}
    has["cloud"] = [([*heard.received.get("cloud", ()), *heard.models], set())]
    has["public"] = [(heard.models, set())]
    has["peer"] = []
    for node, known in views.peers(device):
        listens = [*heard.broadcasts.get(node, ()), *heard.models]
        has["peer"].append((heard.had_by(node) if node in known else listens, known))
    return {
        observer: max((squared_distance(heard, vectors, device, known) for vectors, known in sides), default=0.0)
        for observer, sides in has.items()
    }


def test_no_observer_learns_more_of_a_device_than_it_asked_for(run):
    setup, heard = run
    views, allowed = Views(setup), {}
    for row in heard.rows:
        for device in devices_of(row):
            key = device, row.observer
            allowed[key] = allowed.get(key, 0.0) + (row.sensitivity / row.noise_std) ** 2
    names = setup.drawn.device_names()
    for device in {whose for whose, _ in heard.signals.values()}:
        own = setup.targets.of(np.array([names.index(views.name(device))]))
        for observer, learned in learned_of(heard, views, device).items():
            account = allowed.get((device, observer), 0.0)
            assert learned <= account * (1 + 1e-5) + 1e-12, (device, observer)
            assert epsilon_of_gaussian(account**0.5) <= own * (1 + 1e-4), (device, observer)


def test_someone_is_near_to_its_target(run):
    """No noise is added in vain: of the devices with the largest target, or of others, some account is within 2 %."""
    setup, heard = run
    accounts = setup.empty_accounts()
    accounts.add(heard.rows)
    shares = [
        epsilon_of_gaussian(sum(n / kind.noise_multiplier**2 for kind, n in each.composition.items()) ** 0.5)
        / setup.targets.of(each.devices)
        for observer in setup.observers
        for each in accounts.classes(observer)
    ]
    assert max(shares) > 0.98


def test_targets_are_the_smaller_of_both():
    tree = random_tree(np.random.default_rng(1))
    assert Targets.in_network(2.0, tree.with_devices(epsilon=5.0)).own is None
    assert Targets.in_network(2.0, tree.with_devices(epsilon=2.0)).own is None
    assert Targets.in_network(2.0, tree.with_devices(epsilon=0.5)).distinct.tolist() == [0.5]
