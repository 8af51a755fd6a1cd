"""Tiers of one speed, whose last models the cloud weighs by their counts in reverse: models by hand, and the ledger."""

import numpy as np
import pytest

from h2fdp import Topology, UserError
from h2fdp.network import Radio
from tests.networks import placed
from tests.protocol.test_any_tree import prepared, test_no_observer_learns_more_than_its_rows_say
from tests.protocol.test_buffered_rounds import LOCAL_STEPS, STEP, models_of, overheard_run, random_network

__all__ = ["test_no_observer_learns_more_than_its_rows_say"]  # here where the cloud uses uploads again and again


@pytest.fixture(scope="module", params=range(0, 25, 3))
def run(request):
    return overheard_run(request.param, "reverse-counts")


TIERS = [[[1.0], [5.0]], [[-3.0], [8.0], [2.0]], [[20.0]]]
METRES = [[10.0, 40.0], [100.0, 120.0, 130.0], [300.0]]


def fedat_by_hand(costs, rounds):
    """Tiers that each take as long as their slowest device; the cloud weighs their last models by counts in reverse."""
    sizes = [len(each) for each in TIERS]
    sharing = np.repeat(sizes, sizes)
    sends = costs.seconds * sharing * np.log1p(costs.snr) / np.log1p(sharing * costs.snr)
    takes = costs.down_seconds + LOCAL_STEPS * costs.step.seconds + sends
    busy = [each.max() for each in np.split(takes, np.cumsum(sizes)[:-1])]
    links, kept = costs.link_seconds, (1 - STEP) ** LOCAL_STEPS
    models, counts, reached, found = [0.0] * 3, [0] * 3, [0] * 3, []
    waiting = [(busy[tier] + links[tier], tier, 0.0) for tier in range(3)]  # when, who, from which model
    while len(found) < rounds:
        at, tier, start = min(waiting)
        waiting.remove((at, tier, start))
        models[tier] = np.mean([target + (start - target) * kept for (target,) in TIERS[tier]])
        counts[tier], reached[tier] = counts[tier] + 1, len(found)
        fastest_first = sorted(range(3), key=lambda each: (-counts[each], reached[each]))
        slowest_first = fastest_first[::-1]
        weights = {each: counts[slowest_first[place]] / sum(counts) for place, each in enumerate(fastest_first)}
        found.append(sum(weights[each] * models[each] for each in range(3)))
        waiting.append((at + 2 * links[tier] + busy[tier], tier, found[-1]))
    return found, counts


def test_fedat_is_that_of_its_paper():
    """By a loop without an event queue, over rounds in which the nearest tier is several times as fast as the last."""
    tree = Topology(
        "tiers",
        tuple(placed(f"t{at}", False, far, [9.0] * len(far)) for at, far in enumerate(METRES)),
        Radio(access="ofdma", fading="none"),
    )
    setup = prepared(tree, method="fedat", intervals=30, local_steps=LOCAL_STEPS, step_size=STEP, step_decay="none")
    expected, counts = fedat_by_hand(setup.costs.drawn(0), 30)
    assert counts[0] > 2 * counts[2] > 0, "tiers of unequal speeds"
    np.testing.assert_allclose(models_of(setup, TIERS), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"extends": "fedat", "schedule": "fixed"}, "expected schedule buffered and a tree, found fixed"),
        ({"extends": "fedat", "topology": "star"}, "expected schedule buffered and a tree, found a star"),
        ({"extends": "fedat", "objective": "plain", "privacy": "central"}, "central releases one average"),
    ],
)
def test_what_has_no_tiers_is_refused(method, words):
    with pytest.raises(UserError, match=words):
        prepared(random_network(np.random.default_rng(1)), method=method)
